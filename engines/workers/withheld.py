"""A case without its weights: ``python -P -m narrowdown.engines.workers.withheld CONSENT
random|none REFERENCE DIR...``. ``CONSENT``, JSON: what the reference may load.

``random``: every weight of more than a few elements is replaced by random values of the same mean,
spread and extremes, and what the reference computes from them by new expected values. ``none``:
their shapes and types stay and their values are gone, so that nobody can run the case who does not
have them.
"""

import contextlib
import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from narrowdown.engines import backends
from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import BuildRequest, EngineFault, EngineMissing
from narrowdown.engines.consent import Consent
from narrowdown.engines.data import held
from narrowdown.engines.data.arrays import widen_for_file
from narrowdown.engines.graph import external
from narrowdown.engines.store import Store
from narrowdown.engines.store.scratch import scratch
from narrowdown.engines.workers.artifact_files import put_arrays

KEPT = 16  # elements; an epsilon, an axis or a shape is no weight
MODELS = ("model.onnx", "engine.onnx", "good.onnx")  # the first one says what a weight was
GONE = "weights-left-out.bin"


def withhold_weights(folder: Path, manner: str, reference: str) -> int:
    """Change the case in ``folder``; returns how many weights its failing models held, the cut one
    and what the engine ran. What the engine gave for the true weights (``actual.npz``) is removed.
    Raises ValueError with a sentence, OSError, EngineFault, EngineMissing."""
    models = {name: onnx.load(folder / name) for name in MODELS if (folder / name).is_file()}
    true = {t.name: values for t, values in _list_weights(models["model.onnx"])}
    held = 0
    for name, model in models.items():
        for number, (tensor, values) in enumerate(list(_list_weights(model))):
            held += name != "good.onnx"
            if manner == "none":
                external.make_external(
                    tensor, GONE, 0, external.byte_size(tensor.data_type, tensor.dims)
                )
                continue
            own = true.get(tensor.name, values)
            drawn = draw_alike(
                own if own.shape == values.shape else values, tensor.name or f"{name} {number}"
            )
            tensor.CopyFrom(numpy_helper.from_array(drawn.astype(values.dtype), tensor.name))
    for beside in folder.glob(
        "*weights.bin"
    ):  # the true weights; what is saved would be appended to them
        beside.unlink()
    for name, model in models.items():
        large = model.ByteSize() > 1 << 30
        onnx.save(
            model,
            folder / name,
            save_as_external_data=large,
            location=f"{Path(name).stem}.weights.bin",
        )
    (folder / "actual.npz").unlink(missing_ok=True)
    if manner == "random" and (folder / "expected.npz").is_file():
        _expect_anew(folder, models["model.onnx"], reference)
    return held


def draw_alike(values: Array, name: str) -> Array:
    """Random values of the same mean, spread and extremes, in float64 or int64; the same for the
    same name. They tell no single value but the smallest and the largest."""
    whole = values.dtype.kind in "iu"
    plain_ = values.astype(np.int64 if whole else np.float64)
    finite = plain_[np.isfinite(plain_)]
    if not finite.size:
        return plain_
    random = np.random.default_rng(
        int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    )
    low, high = finite.min(), finite.max()
    drawn = np.clip(random.normal(finite.mean(), finite.std(), plain_.size), low, high)
    drawn[random.choice(plain_.size, 2, replace=False)] = low, high
    return (np.rint(drawn).astype(np.int64) if whole else drawn).reshape(plain_.shape)


def _list_weights(model: ModelProto) -> Iterator[tuple[TensorProto, Array]]:
    """The tensors that are weights, with their values. Raises ValueError for one that lies in a
    node."""
    for tensor in external.attribute_tensors(model):
        if int(np.prod(tensor.dims)) > KEPT and tensor.data_type != TensorProto.INT64:
            raise ValueError(
                "A node of the case holds weights itself, which cannot be taken out of it."
            )
    for tensor in external.initializers_with_bodies(model.graph):
        if tensor.data_type in (TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL):
            continue  # shapes, indices, texts, masks
        values = external.inner_values(tensor)
        if values.size > KEPT:
            yield tensor, values


def _expect_anew(folder: Path, model: ModelProto, reference: str) -> None:
    """New expected values for the new weights, of the outputs that there were."""
    with np.load(folder / "inputs.npz", allow_pickle=False) as archive:
        given = dict(archive)
    feeds = {}
    for i in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        feeds[i.name] = (
            given[i.name] if given[i.name].dtype.kind == "U" else given[i.name].astype(dtype)
        )
    with np.load(folder / "expected.npz", allow_pickle=False) as archive:
        wanted = list(archive)
    shapes = {name: value.shape for name, value in feeds.items()}
    request = BuildRequest(model, str(folder), feed_shapes=shapes)
    with contextlib.closing(backends.make(reference).build(request)) as built:
        found = built.run(feeds)
    with scratch("narrowdown-withheld-") as place:
        store = Store(place)
        digest = put_arrays(
            store, {name: widen_for_file(found[name]) for name in wanted if name in found}
        )
        shutil.copyfile(store.path(digest), folder / "expected.npz")


def main(words: list[str]) -> int:
    """Change these folders and print how many weights each one held; one sentence on stderr where
    one cannot be changed."""
    agreed = msgspec.json.decode(words[0], type=Consent)
    for word in words[3:]:
        try:
            with held.under(agreed):
                print(withhold_weights(Path(word), words[1], words[2]))
        except (OSError, ValueError, EngineFault, EngineMissing, held.NotAgreed) as problem:
            print(
                f"The weights cannot be withheld: {' '.join(str(problem).split())}", file=sys.stderr
            )
            return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
