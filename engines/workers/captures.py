"""Reference values of inner tensors, captured once from the whole model and kept on disk within a
budget.

``captures/<reference, model, inputs>/<sample>/<tensor id>.npy``.
A capture is a convenience: it may be evicted at any time and is made again when it is needed.
Reference values are never made from a cut: that would judge a part by itself.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from onnx import ModelProto, TensorProto

from narrowdown.engines import backends, spec
from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import BuildRequest, Built, Engine, EngineFault, EngineMissing
from narrowdown.engines.backends.builds import Kept, build, close_built, weigh_built
from narrowdown.engines.data import originals, samples
from narrowdown.engines.graph import GraphIndex, ModelProblem, Tensor, dimensions, load
from narrowdown.engines.graph.cut import Cut, cut
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.graph.ranges import encode
from narrowdown.engines.probe import Candidate
from narrowdown.engines.store import Store, atomic, boot, regular
from narrowdown.engines.store.memory import HELD, SMALL
from narrowdown.engines.store.sound import Sealed

DEFAULT_BUDGET = 4 << 30  # bytes on disk, all captures of a session
# Each session builds the whole model, so that few of them are wanted. ONNX Runtime (1.22 to 1.32)
# takes 1.3 s for 50,000 nodes, 4.6 with all of them marked: the square of the marks counts.
_MOST_MARKS = 10_000
_PLAIN = "onnxruntime"  # node by node, with no optimizer


class ReferenceFailed(Exception):
    """The reference cannot run this model or cannot make this tensor readable. The message is a
    sentence."""


def budget_bytes() -> int:
    """Bytes that captures may hold on disk: ``NARROWDOWN_CAPTURE_BYTES``, else 4 GiB."""
    with contextlib.suppress(ValueError):
        return int(os.environ.get("NARROWDOWN_CAPTURE_BYTES", ""))
    return DEFAULT_BUDGET


class Run(NamedTuple):
    """A run of the reference: whose spec, on which inputs, of which sample."""

    reference: str
    inputs: str
    sample: str


def capture_values(
    store: Store,
    model: StoredModel,
    tensors: Sequence[int],
    run: Run,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[int, Array]:
    """Reference values by tensor id, read-only, memory-mapped where large. Weights and the model's
    inputs are given as they are.

    What is missing is captured: one reference run of the whole model for the model's outputs,
    further ones with inner tensors marked, in batches by bytes. Raises ``ReferenceFailed``; what
    ``engines.data.samples.load_feed`` raises.
    """
    captures = _Captures(store, model, run, progress)
    wanted = dict.fromkeys(tensors)
    found = {t: value for t in wanted if (value := captures.find_known(t)) is not None}
    if missing := [t for t in wanted if t not in found]:
        for t, value in captures.capture(
            [*missing, *captures.find_cheap(missing)], keep=wanted.__contains__
        ):
            found[t] = captures.map_large(t, value)
        captures.evict()
    if lacking := [model.index.tensors[t].name for t in tensors if t not in found]:
        why = captures.why or f"The reference {run.reference} could not give it."
        raise ReferenceFailed(f"The reference has no value for the tensor '{lacking[0]}'. {why}")
    return found


def capture_index(
    store: Store, model: StoredModel, run: Run, progress: Callable[[str], None] = lambda _: None
) -> GraphIndex:
    """The model's index with the dtypes and shapes of a reference run; its values are captured on
    the way, within the budget. Tensors that the reference cannot make readable keep what was
    declared. Raises ``ReferenceFailed``."""
    captures = _Captures(store, model, run, progress)
    looked = [t for t in model.index.tensors if t.kind != "weight" and t.name]
    facts = {
        t.id: _describe_array(value, t.dtype)
        for t in looked
        if (value := captures.find_known(t.id)) is not None
    }
    missing = [t.id for t in looked if t.id not in facts]
    for t, value in captures.capture(missing, keep=lambda _: True):
        facts[t] = _describe_array(value, model.index.tensors[t].dtype)
    captures.evict()
    return load.with_seen(model.index, facts)


@functools.lru_cache(maxsize=8)
def make_engine(text: str) -> Engine:
    """The engine of a spec, made once a process. Raises ``EngineMissing``; ``EngineFault``
    (refused) for a wrong spec."""
    try:
        return backends.make(text)
    except ValueError as error:
        raise EngineFault("refused", str(error)) from error


class _Fed:
    """What was built of a float original or twin, fed with halves where it takes FP32."""

    def __init__(self, built: Built, part: Cut) -> None:
        self.model, self.facts, self._built = built.model, built.facts, built
        kinds = {i.name: i.type.tensor_type.elem_type for i in part.model.graph.input}
        self._wide = {name for name, kind in kinds.items() if kind == TensorProto.FLOAT}

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        wide = {
            n: a.astype(np.float32) if n in self._wide and a.dtype.itemsize == 2 else a
            for n, a in feeds.items()
        }
        return self._built.run(wide, outputs)

    def close(self) -> None:
        self._built.close()


def take_halves(built: Built, part: Cut, engine: str) -> Built:
    """What was built of a floated cut, so that it takes what the model itself takes: a reference
    that is the model as it was before it was converted takes FP32 where the model holds halves."""
    return _Fed(built, part) if spec.parse(engine).get("model") else built


# With the bytes that it gave out in a run, which an engine may go on holding.
_builds: Kept[tuple[Cut, Built, int]] = Kept(
    lambda kept: close_built(kept[1]), lambda kept: weigh_built(kept[0].model) + kept[2]
)


def is_heavy(model: ModelProto) -> bool:
    """Whether two builds of the model shall not be held at once."""
    return weigh_built(model) > HELD


def make_room(model: ModelProto) -> None:
    """Let go of the reference's builds where the engine's build of this model takes much: what they
    gave lies on the disk."""
    if is_heavy(model):
        _builds.clear()


class _Captures:
    """The captures of one model, one sample, one reference."""

    def __init__(
        self, store: Store, model: StoredModel, run: Run, progress: Callable[[str], None]
    ) -> None:
        self._store, self._model, self._progress = store, model, progress
        self._reference, self._inputs, self._sample = run
        self.why = ""  # of the first tensor that could not be made readable
        self._index = model.index
        try:
            self._engine = make_engine(self._reference)
        except (EngineMissing, EngineFault) as error:
            raise ReferenceFailed(
                f"The reference {self._reference} is not available: {error}"
            ) from error
        plain = str(spec.parse(self._reference))
        self._plain = plain == _PLAIN
        question = (self._engine.info.fingerprint, plain, model.digest, self._inputs, boot())
        name = hashlib.sha256("\0".join(question).encode()).hexdigest()[:32]
        self._folder = store.captures / name / _file_name(self._sample)

    @functools.cached_property
    def _feed(self) -> Mapping[str, Array]:
        return samples.load_feed(self._store, self._inputs, self._sample)

    def _file(self, tensor: int) -> Path:
        return self._folder / f"{tensor}.npy"

    def find_known(self, tensor: int) -> Array | None:
        """The value of a weight, an input or a tensor captured earlier."""
        info = self._index.tensors[tensor]
        if info.kind == "weight":
            return load.read_weight(self._model, tensor)
        if info.kind == "input":
            return self._feed.get(info.name)
        return read_array(self._file(tensor))

    def find_cheap(self, beside: Iterable[int]) -> list[int]:
        """All other inner tensors, where the model is small and one of them is wanted: they will be
        asked for next. Of a sample that only a verdict is wanted of, the model's own outputs are
        enough."""
        others = set(beside)
        if others <= set(self._index.outputs):
            return []
        rest = [
            t
            for t in self._index.tensors
            if t.kind == "node" and t.id not in others and _is_markable(t.dtype, t.name)
        ]
        sizes = [self._estimate_size(t) for t in rest]
        largest = max(sizes, default=-1)
        told = sum(size if size >= 0 else largest for size in sizes)
        if largest < 0 or told > budget_bytes() // 100:  # a hundred samples have room
            return []
        return [t.id for t in rest if not self._file(t.id).exists()]

    @functools.cached_property
    def _inferred_sizes(self) -> Mapping[str, int]:
        """Bytes of tensors by name, as inference tells them from the shapes of this sample's
        inputs. It takes a tenth of a run; in its absence each tensor of open dimensions would need
        a run of its own."""
        fed = {
            name: v.shape
            for t in self._index.inputs
            if (v := self._feed.get(name := self._index.tensors[t].name)) is not None
        }
        return load.sizes_for(self._model, fed)

    def _estimate_size(self, tensor: Tensor) -> int:
        """Bytes as far as they can be told before the run; -1 where nothing is known."""
        return tensor.bytes if tensor.bytes >= 0 else self._inferred_sizes.get(tensor.name, -1)

    def _take_batch(self, tensors: Sequence[int], guess: int) -> list[int]:
        """The first tensors that fit into one run together; ``guess`` bytes stand for an unknown
        size. At least one."""
        batch: list[int] = []
        room = HELD
        for t in tensors[:_MOST_MARKS]:
            size = self._estimate_size(self._index.tensors[t])
            room -= size if size >= 0 else guess
            if batch and room < 0:
                break
            batch.append(t)
        return batch

    def capture(
        self, tensors: Iterable[int], keep: Callable[[int], bool]
    ) -> Iterator[tuple[int, Array]]:
        """Capture the tensors; give those that ``keep`` wants. What cannot be made readable is left
        out."""
        index = self._index
        todo = [t for t in dict.fromkeys(tensors) if index.tensors[t].kind == "node"]
        wanted, outputs = set(todo), set(index.outputs)
        if outputs & wanted:
            # The model's own outputs come from a run in which nothing is marked, whatever the
            # reference does with marks.
            self._progress("reference run")
            found = self._run_model(())
            yield from self._write_captures({t: found[t] for t in found if t in wanted}, keep)
        rest = (t for t in todo if t not in outputs)
        inner = [t for t in rest if _is_markable(index.tensors[t].dtype, index.tensors[t].name)]
        # While no size is known a run has few tensors: what they take is the next guess.
        largest = max((self._estimate_size(index.tensors[t]) for t in inner), default=0)
        guess, done = largest if largest > 0 else HELD // 8, 0
        while done < len(inner):
            batch = self._take_batch(inner[done:], guess)
            self._progress(f"reference run, {done} of {len(inner)} tensors captured")
            arrays = self._run_marked(batch)
            largest = max((a.nbytes for a in arrays.values()), default=0)
            guess = max(guess // 2, min(largest, HELD), 1)
            yield from self._write_captures(arrays, keep)
            done += len(batch)

    def map_large(self, tensor: int, value: Array) -> Array:
        """The value of an inner tensor that was captured just now, as its file has it where it is
        large."""
        if value.nbytes < SMALL or tensor in self._index.outputs:
            return value
        stored = read_array(self._file(tensor))
        return value if stored is None else stored

    def _run_marked(self, batch: Sequence[int]) -> dict[int, Array]:
        """A run with these tensors marked; a batch that cannot run is halved until what cannot be
        marked is alone."""
        try:
            found = self._run_model(batch)
        except ReferenceFailed as error:
            self._run_model(())  # raises where the model itself does not run
            if len(batch) == 1:
                self.why = self.why or str(error)
                return {}
            middle = len(batch) // 2
            return self._run_marked(batch[:middle]) | self._run_marked(batch[middle:])
        return {t: found[t] for t in batch if t in found}

    def _run_model(self, marks: Sequence[int]) -> dict[int, Array]:
        """One run of the whole model, with these tensors made readable; of the plain reference no
        more than leads to them."""
        model, index = self._model, self._index
        types = {
            t: (v.dtype, v.shape)
            for t in index.inputs
            if (v := self._feed.get(index.tensors[t].name)) is not None
        }
        shapes = tuple((t, str(dtype), shape) for t, (dtype, shape) in types.items())
        sample = self._sample if self._engine.info.recorded else ""
        key = repr((self._engine.info.spec, model.digest, tuple(marks), shapes, sample)).encode()

        def make() -> tuple[Cut, Built, int]:
            nodes = index.ancestors(marks) if marks and self._plain else ()
            if nodes and len(nodes) < len(index.nodes):
                part = cut(
                    model, Candidate(nodes=encode(nodes), outputs=encode(marks)), {}, types, marks
                )
            else:
                part = cut(model, Candidate(), {}, types, index.outputs, marks)
            part = originals.restore_floats(self._store, model, part, self._reference)
            by_name = {name: types[t][1] for name, t in part.feeds.items()}
            request = BuildRequest(
                part.model,
                model.weights_dir,
                marks=tuple(part.marks),
                feed_shapes=by_name,
                sample=sample,
            )
            built = take_halves(build(self._engine, request), part, self._reference)
            return part, built, sum(max(0, self._estimate_size(index.tensors[t])) for t in marks)

        try:
            part, built, _ = _builds.get(key, make)
            got = built.run(
                {name: self._feed[index.tensors[t].name] for name, t in part.feeds.items()}
            )
        except (EngineFault, ModelProblem) as error:
            unequal = dimensions.say_unequal(
                model.proto, {name: value.shape for name, value in self._feed.items()}
            )
            said = f"The reference {self._reference} could not run the model: {error}"
            raise ReferenceFailed(f"{unequal} {said}".lstrip()) from error
        except KeyError as error:
            raise ReferenceFailed(f"The sample {self._sample} holds no input {error}.") from error
        names = {**part.outputs, **part.marks}
        return {
            t: np.asarray(got[n])
            for n, t in names.items()
            if n in got and not isinstance(got[n], list | dict)
        }

    def _write_captures(
        self, arrays: Mapping[int, Array], keep: Callable[[int], bool]
    ) -> Iterator[tuple[int, Array]]:
        """Write them; give those that ``keep`` wants."""
        root = str(self._store.captures)
        for tensor, value in arrays.items():
            target = self._file(tensor)
            with contextlib.suppress(OSError):  # no room: it is made again when it is needed
                if not target.exists() and _has_room(self._store.root, value.nbytes):
                    write_array(target, value)
                    _spent[root] = _spent.get(root, budget_bytes()) + value.nbytes
            if keep(tensor):
                yield tensor, value

    def evict(self) -> None:
        """Bring the captures back into the budget, the least recently used first."""
        root = str(self._store.captures)
        if _spent.get(root, 0) < budget_bytes():
            return
        files = []
        for path in self._store.captures.glob("*/*/*.npy"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= budget_bytes():
                break
            with contextlib.suppress(OSError):
                path.unlink()  # arrays that are mapped stay whole
                total -= size
        # What other workers write meanwhile is not known here: count again after an eighth of the
        # budget at the latest.
        _spent[root] = max(total, budget_bytes() - max(budget_bytes() // 8, 1))


def _has_room(folder: Path, bytes_: int) -> bool:
    """Whether the disk has room for so much more, and some left. Raises ``OSError`` where there is
    no such folder."""
    disk = shutil.disk_usage(folder)
    return disk.free - bytes_ >= min(HELD, disk.total // 20)


_spent: dict[str, int] = {}  # bytes of captures below a folder, as far as this process knows


def write_array(target: Path, value: Array) -> None:
    """Write one array where no reader sees half of it. Types that numpy lacks (bfloat16, ...) lie
    in a record of that name."""
    value = np.ascontiguousarray(value) if value.ndim else value
    if value.dtype.kind in "OSUT":
        value = value.astype(np.str_)
    elif value.dtype.isbuiltin == 2:
        raw = value.view(np.dtype(f"u{value.dtype.itemsize}"))
        value = raw.view(np.dtype([(value.dtype.name, raw.dtype)])).reshape(raw.shape)
    # Not synced: the folder's name holds the boot id, so that nothing written before a crash of the
    # machine is ever read.
    with atomic(target, synced=False) as temporary, temporary.open("wb") as file:
        sealed = Sealed(file)
        header = np.lib.format.header_data_from_array_1_0(value)
        np.lib.format.write_array_header_1_0(cast(BinaryIO, sealed), header)
        if value.size:
            sealed.write(value.reshape(-1).view(np.uint8).data)
        sealed.seal()


def read_array(path: Path) -> Array | None:
    """The array, read-only and memory-mapped where large; None where it is not there."""
    try:
        large = regular.size(path) >= SMALL
        os.utime(path)
        value: Array = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if value.dtype.names:
        name = value.dtype.names[0]
        value = value[name].view(load.np_dtype(name))
    if not isinstance(value, np.memmap):
        value.flags.writeable = False
    return value


def _describe_array(value: Array, declared: str) -> tuple[str, tuple[int, ...]]:
    """(dtype, shape); a half stays one where the reference is the model before it was converted."""
    if declared in ("float16", "bfloat16"):
        return declared, tuple(value.shape)
    return ("string" if value.dtype.kind in "OSUT" else value.dtype.name), tuple(value.shape)


def _is_markable(dtype: str, name: str) -> bool:
    return bool(name) and dtype not in ("sequence", "optional")


def _file_name(sample: str) -> str:
    """A sample id as a folder's name: readable, and distinct where the readable part is not."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", sample)[:64]
    return f"{plain}-{hashlib.sha256(sample.encode()).hexdigest()[:8]}"
