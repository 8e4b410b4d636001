"""An engine that was built elsewhere and came as a file: read, told by its own inspector, run as it
is. Nothing is built.

What is in such a file is native code: it is opened through ``held`` alone, so not before somebody
agreed to it.
"""

from typing import Any

import msgspec
import onnx

from narrowdown.engines.backends.base import (
    BuildRequest,
    Built,
    Capability,
    EngineFault,
    EngineInfo,
    EngineMissing,
)
from narrowdown.engines.backends.tensorrt import layers
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.settings import Shapes
from narrowdown.engines.data import held
from narrowdown.engines.spec import EngineSpec, parse

# The first bytes of what each library writes: TensorRT's (plain, and for later versions),
# TensorRT-RTX's (seen with 1.7).
MAGIC = {"tensorrt": (b"ptrt", b"ftrt"), "tensorrt_rtx": (b"vtrt",)}
# Types by what the inspector calls them, the shortest first: the shortest that any layer gives is
# what the engine computes in.
_TOLD = (
    ("fp8", ("FP8",)),
    ("int8", ("INT8",)),
    ("bf16", ("BF16", "BFLOAT16")),
    ("fp16", ("FP16", "HALF")),
)


class BuiltFile(msgspec.Struct, frozen=True):
    """A file that was read. ``runtime``, which must outlive it, and ``engine``: the library's own.
    ``precision``: what its layers give, "" where it does not tell. ``smallest``, ``usual``,
    ``largest``: the first profile's shapes of the inputs that have open dimensions."""

    path: str
    runtime: Any
    engine: Any
    layers: tuple[layers.Layer, ...]
    precision: str
    smallest: Shapes = {}
    usual: Shapes = {}
    largest: Shapes = {}


def read_file(found: Library, path: str, runs: Capability) -> BuiltFile:
    """Read an engine. Raises ``ValueError`` with a sentence for a file that is none or is damaged,
    ``EngineMissing`` for one of another version or GPU, or where none runs here (``runs`` says
    why), ``NotAgreed`` for one that nobody agreed to."""
    try:
        content = held.content(path)
    except OSError as error:
        raise ValueError(
            f"The engine file '{path}' cannot be read: {error.strerror or error}."
        ) from error
    # Looked at before the library sees it: what is no engine at all never reaches native code.
    if not content.startswith(MAGIC[found.name]):
        other = next((name for name, magic in MAGIC.items() if content.startswith(magic)), "")
        hint = f" It is one of {other}: --engine {other}:plan={path}." if other else ""
        raise ValueError(f"'{path}' is no engine that {found.title} has built.{hint}")
    found.log.clear()
    runtime = found.trt.Runtime(found.log.logger)
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None:
        raise refuse_file(found, path, found.log.errors(), runs)
    told = layers.read_layers(found, engine)
    shapes = read_profile(found, engine)
    return BuiltFile(path, runtime, engine, told, tell_precision(told), *shapes)


def refuse_file(
    found: Library, path: str, said: list[str], runs: Capability
) -> ValueError | EngineMissing:
    """What to say of a file that the library does not take, by what it said of it. The first error
    is the reason, later ones follow from it."""
    here = f"{found.title} {found.version}"
    text = " ".join(said).lower()
    if any(
        words in text for words in ("size == blobsize", "checksum", "truncated", "unexpected end")
    ):
        return ValueError(
            f"The engine file '{path}' is damaged or not whole: copy it again, or build it again."
        )
    if not runs.present:
        return EngineMissing(f"The engine in '{path}' cannot be read here: {runs.reason}")
    if any(
        words in text for words in ("incompatible device", "different device", "compute capability")
    ):
        return EngineMissing(
            f"The engine in '{path}' was built for another GPU than the one here: run it there, or build it again here."
        )
    # "Version tag does not match", "not compatible with this version of TensorRT, expecting library
    # version ..."
    if "version" in text:
        return EngineMissing(
            f"The engine in '{path}' was built by another version than {here}: install that version, or build it again."
        )
    why = said[0] if said else "it gave no reason"
    return EngineMissing(f"{here} does not take the engine in '{path}': {why.rstrip('.')}.")


def tell_precision(told: tuple[layers.Layer, ...]) -> str:
    """What the layers give at the lowest; ``tf32`` where all of them give FP32, "" where none says
    what it gives."""
    formats = [text.upper() for layer in told for text in layer.formats if text]
    if not formats:
        return ""
    return next(
        (name for name, words in _TOLD if any(word in text for text in formats for word in words)),
        "tf32",
    )


def read_profile(found: Library, engine: Any) -> tuple[Shapes, Shapes, Shapes]:
    """Smallest, usual and largest shapes of the first profile, for inputs that are open and no
    shape tensors themselves."""
    shapes: tuple[Shapes, Shapes, Shapes] = ({}, {}, {})
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        is_input = engine.get_tensor_mode(name) == found.trt.TensorIOMode.INPUT
        if not is_input or all(d >= 0 for d in engine.get_tensor_shape(name)):
            continue
        for kept, shape in zip(shapes, engine.get_tensor_profile_shape(name, 0), strict=True):
            kept[name] = tuple(shape)
    return shapes


def say_rebuilt(spec: EngineSpec, read: BuiltFile, *, weak: bool) -> str:
    """The spec that builds the same from the model, as far as the file tells. ``weak``: whether the
    version has precision flags; whether the file's builder was given one is not written in it, and
    the flag is what most people give."""
    words = []
    precision = read.precision or spec.get("precision")
    if precision and not (precision in ("int8", "fp8") and not weak):
        words.append(f"precision={precision}")
    elif precision:
        words.append("precision=model")
    for key, shapes in (("min", read.smallest), ("opt", read.usual), ("max", read.largest)):
        if shapes:
            each = (f"{name}:{'x'.join(str(d) for d in shape)}" for name, shape in shapes.items())
            words.append(f"{key}_shapes={'+'.join(each)}")
    if plugins := spec.get("plugins"):
        words.append(f"plugins={plugins}")
    return str(parse(f"{spec.name}:{','.join(words)}"))


class FileEngine:
    """The engine of a file. ``build`` makes it ready to run; it builds nothing."""

    def __init__(self, info: EngineInfo, found: Library, read: BuiltFile, runs: Capability) -> None:
        self.info = info
        self._found, self._read, self._runs = found, read, runs

    def build(self, request: BuildRequest) -> Built:
        """The engine as it is, for the whole model that it was built from. Raises
        ``EngineFault``."""
        from narrowdown.engines.backends.tensorrt.execution import Execution

        if request.part or request.keep or request.marks or request.force or request.forbid:
            search = f"To search in it build it from the model: --engine {self.info.rebuilt}"
            raise EngineFault(
                "unsupported", f"A built engine runs whole, and only as it is. {search}"
            )
        if not self._runs.present:
            raise EngineFault("unsupported", f"The engine was read, but {self._runs.reason}")
        outputs = self._match_model(request.model)
        facts = {"layers": layers.list_layers(self._read.layers), "unobservable": {}}
        return Execution(
            self._found, self._read.engine, request.model, {name: name for name in outputs}, facts
        )

    def _match_model(self, model: onnx.ModelProto) -> list[str]:
        """The model's outputs that the engine has. Raises ``EngineFault`` where its inputs or
        outputs are another model's."""
        engine, mode = self._read.engine, self._found.trt.TensorIOMode
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        inputs = {n for n in names if engine.get_tensor_mode(n) == mode.INPUT}
        outputs = {n for n in names if engine.get_tensor_mode(n) == mode.OUTPUT}
        stored = {i.name for i in model.graph.initializer}
        for what, theirs, ours in (
            ("input", inputs, {i.name for i in model.graph.input} - stored),
            ("output", outputs, {o.name for o in model.graph.output}),
        ):
            # An engine may have further outputs: somebody marked them. A constant input may be
            # gone; one too many cannot be fed.
            wrong = sorted(theirs - ours) if what == "input" else sorted(ours - theirs)
            if wrong:
                has = "the engine has" if what == "input" else "the model has"
                raise EngineFault(
                    "refused",
                    f"The engine in '{self._read.path}' was built from another model than this one: {has} the {what} "
                    f"'{wrong[0]}', and the {'model' if what == 'input' else 'engine'} has none of that name.",
                )
        return [o.name for o in model.graph.output]
