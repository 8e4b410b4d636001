"""The PROBLEM: everything that decides what is being asked, as the user gave it. Part of
``session.json``."""

from typing import Annotated, Final, Literal

import msgspec

from narrowdown.engines.probe import ALL_HELD, LoadInputs

# The engine that is asked where none is named: literal as the reference, optimized as the engine
# under test. ONNX Runtime, as it comes with Narrowdown, runs nearly every ONNX model on any
# machine, is right where its optimizers are off, and is what most exporters check against. The one
# place outside of the backends that names an engine.
USUAL_ENGINE: Final = "onnxruntime"


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """What eager PyTorch computes and an export of it does not, or otherwise. ``line``: of the
    user's program; ``module``: its path, where that is not told beside it."""

    said: str
    line: str = ""
    module: str = ""


class Exported(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a model came out of PyTorch (``engines.exporting``). ``source``: what the user named;
    ``example``: type and shape of each argument of the export, by its name or place; none where that
    gives them as they are;
    ``recorded``: the spec of what eager PyTorch gave, inner values of the first sample among it;
    ``program``: an engine spec that names its Python and its script, which may export it again.
    ``torch``: its version; ``module``: the class. ``training``: it came in train mode, and was put
    into eval mode; ``steady``: two runs gave the same; ``precision``: what it computes in.
    ``pairs``: inner values; ``unpaired``: why there are none. ``differences``: module path ->
    operators that differ; ``constants``: tensor -> a constant of the model that is not what PyTorch
    computes."""

    source: str
    recorded: str
    # The name of a type is printed as code.
    example: dict[str, tuple[Annotated[str, msgspec.Meta(pattern=r"^\w+\Z")], tuple[int, ...]]] = {}
    program: str = ""
    torch: str = ""
    module: str = ""
    training: bool = False
    steady: bool = True
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    pairs: int = 0
    unpaired: str = ""
    differences: dict[str, tuple[Difference, ...]] = {}
    constants: dict[str, Difference] = {}


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Paths are absolute. ``tolerance``, ``atol`` and ``rtol`` map output names to values; ``""``
    is the default for all outputs. ``folder``: where the user stood, for a check, a data loader or
    a postprocess script. ``artifacts``: files that a check, or a build, leaves behind and that are
    kept. ``capture_bytes``, ``artifact_bytes``: budgets on disk, of captured values and of
    artifacts with logs."""

    model: str = ""
    engine: str = f"{USUAL_ENGINE}:optimization=all"
    reference: str = USUAL_ENGINE
    inputs: tuple[str, ...] = ()
    seed: int = 1
    input_shapes: dict[str, tuple[int, ...]] = {}
    val_range: dict[str, tuple[int | float, int | float]] = {}
    carry: tuple[str, ...] = ()  # `OUTPUT:INPUT`, `*` for the same text in both
    carry_token: tuple[str, ...] = ()  # `OUTPUT:INPUT=argmax`
    steps: int = 0  # of a loop; 0: as many as the inputs have
    force: Literal["", "reference", "free"] = ""  # what a step of a loop is fed
    metric: str = ""
    atol: dict[str, float] = {}
    rtol: dict[str, float] = {}
    tolerance: dict[str, float] = {}
    check: str = ""
    fail_regex: tuple[str, ...] = ()
    fail_code: tuple[int, ...] = ()
    ignore_fail_code: tuple[int, ...] = ()
    postprocess: tuple[
        str, ...
    ] = ()  # `SCRIPT.py:FUNCTION`, its path absolute, or several `[OUTPUT:]top-K[,axis=A]`
    score: str = ""  # `SCRIPT.py[:FUNCTION]` or a file of labels, its path absolute
    timeout: float = 0.0
    folder: str = ""
    artifacts: tuple[str, ...] = ()
    capture_bytes: int = 4 << 30  # disk for captured values
    artifact_bytes: int = 8 << 30  # disk for artifacts and logs
    flow: str = "accuracy"  # name of a shipped flow, or an absolute path
    digests: dict[
        str, str
    ] = {}  # absolute path -> sha256 of the model, inputs and scripts as first seen

    exported: Exported | None = None  # of a model that was exported from PyTorch for this session

    @property
    def held(self) -> tuple[str, ...]:
        """The carried inputs of a loop that are fed the reference's values: none, or all."""
        return ALL_HELD if self.force == "reference" else ()

    def tell_loop(self, probe: LoadInputs, reference: str) -> LoadInputs:
        """The probe with what it is to know of outputs that go back into inputs."""
        if not self.carry and not self.carry_token:
            return probe
        return msgspec.structs.replace(
            probe,
            carry=self.carry,
            carry_token=self.carry_token,
            steps=self.steps,
            own_tokens=self.force == "free",
            reference=reference,
        )

    @property
    def bounds(self) -> dict[str, dict[str, float]]:
        """Option -> output -> value."""
        return {"tolerance": self.tolerance, "atol": self.atol, "rtol": self.rtol}
