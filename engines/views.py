"""An engine and the user's problem as steps see them: what is journalled of either, read into named
fields.

An engine's may have been written by an earlier version or by somebody else's package: what is
missing there has its default.
"""

from collections.abc import Mapping

import msgspec


class Capability(msgspec.Struct, frozen=True):
    """Present, or absent with a sentence that says why and what would change it."""

    present: bool
    reason: str = ""


class Recorded(msgspec.Struct, frozen=True):
    """What was recorded in place of being computed: how many samples, and the shape of each tensor
    of the first by its name."""

    samples: int
    shapes: dict[str, tuple[int, ...]]


class OptionView(msgspec.Struct, frozen=True):
    """An option of an engine (``engines.declaration.Option``): its value where none is given, the
    plainest one, the twin's, the one that makes the precision an order, the one with which FP32 is
    FP32, the values that it takes (none: free)."""

    name: str
    default: object = None
    plain: str = ""
    twin: str = ""
    ordered: str = ""
    exact: str = ""
    choices: tuple[str, ...] = ()

    @property
    def usual(self) -> str:
        """The default as a spec writes it; "" where it follows from other options."""
        return "" if self.default is None else str(self.default).lower()


class EngineView(msgspec.Struct, frozen=True):
    """An engine, here and with these options (``engines.backends.base.EngineInfo``).
    ``capabilities`` None: it tells nothing of what it can."""

    precision: str = "fp32"
    storage: str = "float32"
    capabilities: Mapping[str, Capability] | None = None
    options: tuple[OptionView, ...] = ()
    optimizers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    slots: int = 1
    gpus: int = 0
    recorded: Recorded | None = None
    version: str = ""
    typed: str = ""  # the spec that runs a file as it is typed; "": there is none
    rebuilt: str = (
        ""  # of an engine that was built elsewhere, the spec that builds the like; "": it builds
    )

    def can(self, what: str, *, untold: bool = False) -> bool:
        """Whether it has a capability; ``untold``: what an engine that says nothing of it is taken
        for."""
        return (self.capabilities or {}).get(what, Capability(untold)).present

    def reason(self, what: str) -> str:
        """Why it has not; "" where it does not say."""
        return (self.capabilities or {}).get(what, Capability(False)).reason

    def usual(self, option: str, absent: str) -> str:
        """The value of an option that is not given; ``absent`` where it has no such option."""
        return next((o.usual for o in self.options if o.name == option), absent)


class ProblemView(msgspec.Struct, frozen=True):
    """What the user asked (``wizard.problem.Problem``, the PROBLEM of the contracts), an answer's
    settings worked in. Paths are absolute; ``tolerance``, ``atol`` and ``rtol`` map output names to
    values, "" is the default for all."""

    model: str = ""
    inputs: tuple[str, ...] = ()
    seed: int = 1
    input_shapes: dict[str, tuple[int, ...]] = {}
    val_range: dict[str, tuple[int | float, int | float]] = {}
    metric: str = ""
    atol: dict[str, float] = {}
    rtol: dict[str, float] = {}
    tolerance: dict[str, float] = {}
    fail_regex: tuple[str, ...] = ()
    fail_code: tuple[int, ...] = ()
    ignore_fail_code: tuple[int, ...] = ()
    postprocess: tuple[str, ...] = ()
    score: str = ""
    folder: str = ""
    timeout: float = 0.0  # seconds for a probe; 0: not given
    artifacts: tuple[str, ...] = ()
    capture_bytes: int = -1  # -1: the usual budget
    digests: dict[str, str] = {}

    @property
    def bounds(self) -> dict[str, dict[str, float]]:
        """Option -> output -> value."""
        return {"tolerance": self.tolerance, "atol": self.atol, "rtol": self.rtol}


def view_engine(plain: Mapping[str, object]) -> EngineView:
    """An EngineInfo as plain data, read; one that cannot be read tells nothing."""
    try:
        return msgspec.convert(plain, EngineView)
    except msgspec.ValidationError:
        return EngineView()


def view_problem(plain: Mapping[str, object]) -> ProblemView:
    """A PROBLEM as plain data, read. Raises msgspec.ValidationError for what is none."""
    return msgspec.convert(plain, ProblemView)
