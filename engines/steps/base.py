"""What a step is: a pure, deterministic generator of probes.

    def reduce(ctx: StepContext) -> Steps[ReduceOutcome]:
        measurement = yield Measure(...)         # the runner answers with a Measurement
        yield Note("trying nodes 96-143", best=96)   # progress; answered with None
        return Finish(ReduceOutcome(...), findings=..., tables=..., decisive=...)

A step sees ids, names and numbers; never a model, an array, a clock, a random source or the number of jobs. Given the same
answers it asks the same questions in the same order: resume is running it again with the answers known.

Speculation: on free slots the runner runs the generator ahead over an invented answer
(``Measurement(assumed="pass"|"fail")``), which ``judge`` turns into that verdict. A step that reads anything else from an
invented measurement simply ends the speculation.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from engines.compare.criterion import Criterion, Signature
from engines.graph.index import GraphIndex
from engines.probe import AnyProbe, Candidate, Measurement, Probe, SampleInfo
from engines.steps.cost import Plan, Size, Work

OutcomeT = TypeVar("OutcomeT", bound=msgspec.Struct)


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress for people: what is being tried, the smallest failing node count so far. ``expected``: probes still to come until
    the step ends, the one that is announced among them; -1: as planned."""

    text: str
    expected: int = -1
    best: int = -1


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failing part of the model, as the search left it."""

    candidate: Candidate
    sample: str
    nodes: tuple[str, ...] = ()  # display names, topological
    node_ids: str = ""
    ops: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    own: float = 0.0
    effect: float | None = None
    feed: str = "stored"
    needs_higher_inputs: bool = False  # passes fed exactly, fails fed as stored
    good: Candidate | None = None  # the largest passing neighbour
    verified: str = ""  # "k/n"
    signature: Signature | None = None  # the case's own
    minimal: bool = False  # 1-minimality was proven
    found_by: str = ""  # step name


class Culprit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named cause with its minimal case. ``dir`` below the session folder holds its bundle once confirmed."""

    case: Case
    # overflow | epsilon-underflow | cancellation | mask-constant | accumulation | optimizer | option | rounding |
    # index-overflow | integer-narrowing | quantization | reference | nondeterminism | fusion | kernel | build-failure | unknown
    cause: str
    evidence: str = ""  # one sentence with the numbers that show it
    patches: str = ""  # tensor ids that cut this culprit off when fed with reference values
    keep: str = ""  # node ids from the case to those patches: where a precision workaround starts
    dir: str = ""
    # Nodes whose true values are as far beyond the storage type, and which have no case of their own: ``keep`` has them too.
    also: tuple[str, ...] = ()


class Suspect(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that layerwise accuses, worst first. ``nodes`` is where the cut should start."""

    node: int
    tensor: int
    nodes: str
    own: float
    effect: float
    name: str = ""  # for people
    inherited: float = 0.0
    added: float = 0.0
    added_exact: float | None = None
    nonfinite: bool = False


class Workaround(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes the model right here. ``kind``: precision (nodes kept in FP32), optimizer, threads, option, tactic."""

    kind: str
    engine: str  # the engine spec that applies it (the same spec where only ``keep`` changes)
    keep: str = ""  # node ids
    keep_names: tuple[str, ...] = ()
    switched_off: tuple[str, ...] = ()
    samples_ok: int = 0
    samples_n: int = 0
    error: float = 0.0
    margin: float = 0.0  # tolerance / error, >= 1 when it holds
    cost: str = ""
    minimal: bool = False
    forbid: dict[str, tuple[str, ...]] = {}  # tactics that layers may not choose
    tried: str = ""  # what casts in the model do, where the engine is free to ignore them: one sentence


class Findings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the steps so far have established. A step returns the whole, changed; rewind folds back to an earlier one."""

    model: str = ""  # digest of the working model (the sanitized one once accepted)
    original: str = ""
    inputs: str = ""  # digest of the inputs
    samples: tuple[SampleInfo, ...] = ()
    criterion: Criterion | None = None
    signature: Signature | None = None
    round_signature: Signature | None = None  # with earlier culprits patched: what the next round looks for
    sample: str = ""  # the sample that the search works on
    emulated: float | None = None  # badness of a faultless engine of that precision on the same sample
    looks: int = 1  # looks per verdict where the fault is intermittent
    builds: int = 1  # fresh builds (or external checks) per verdict where these differ
    suspects: tuple[Suspect, ...] = ()
    spread: bool = False
    optimizers: tuple[str, ...] = ()  # guilty, necessary and sufficient
    options: tuple[str, ...] = ()  # guilty, as ``engines.steps.switches`` names them
    enablers: tuple[str, ...] = ()
    tactics: dict[str, str] = {}  # guilty: layer -> choice, as engines.data.tactic_replay writes it
    case: Case | None = None  # of the culprit being worked on
    culprits: tuple[Culprit, ...] = ()
    # Earlier culprits, cured for the next round: tensor ids fed with reference values, and nodes kept in FP32 where their values
    # could not be fed (an overflowing sum does not fit into a patch).
    patches: str = ""
    keep: str = ""
    workaround: Workaround | None = None
    notes: tuple[str, ...] = ()  # sentences for the report


class StepContext(msgspec.Struct, frozen=True, dict=True):
    """All that a step may know. ``params`` are the flow's ``with`` values, checked against the step's ``params`` struct.
    ``engine_info`` is the engine's ``EngineInfo`` as plain data."""

    engine: str
    reference: str
    findings: Findings
    params: Mapping[str, Any] = {}
    engine_info: Mapping[str, Any] = {}
    reference_info: Mapping[str, Any] = {}
    check: str = ""  # the external check command, "" when outputs are compared
    seed: int = 1
    visit: int = 1  # how many times this node was entered
    settings: Mapping[str, Any] = {}  # what double-check changed for the next visit
    problem: Mapping[str, Any] = {}  # the PROBLEM as plain data (inputs, seed, shapes, ranges, metric, ...)

    @property
    def storage(self) -> str:
        """What the engine holds values in between nodes, as numpy calls it."""
        return str(self.engine_info.get("storage", "float32"))

    def can(self, what: str, *, untold: bool = False) -> bool:
        """Whether the engine has a capability; ``untold``: what an engine that says nothing of it is taken for."""
        return bool(self.engine_info.get("capabilities", {}).get(what, {"present": untold})["present"])

    def reason(self, what: str) -> str:
        """Why it has not; "" where it does not say."""
        return str(self.engine_info.get("capabilities", {}).get(what, {}).get("reason", ""))


class Finish(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """The end of a step. ``tables``: rows for evidence, report and JSON (stored as artifacts). ``decisive``: the probes that a
    replay measures again, by role (``whole``, ``case``, ``good``, ``workaround``)."""

    outcome: OutcomeT
    findings: Findings
    tables: Mapping[str, list[dict[str, Any]]] = {}
    decisive: Mapping[str, tuple[Probe, ...]] = {}


Steps: TypeAlias = Generator[AnyProbe | Note, Any, Finish[OutcomeT]]
Sub: TypeAlias = Generator[AnyProbe | Note, Any, Any]  # a part of a step, used with ``yield from``


class StepRefused(Exception):
    """The step cannot run here; the message is a sentence for the user (what, why, what to do).

    ``code``: the exit code it ends with when it stops the session: 2 bad input, 4 an engine, file or checker is missing or
    cannot do this, 6 nothing can be proven.
    """

    def __init__(self, message: str, code: int = 4) -> None:
        super().__init__(message)
        self.code = code


class StepSpec(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """A step's registration. ``outcome`` is the struct whose fields the flow's ``when``, templates and ``evidence`` may name;
    ``params`` the struct of its ``with`` values. ``exclusive``: of its probes, only those run ahead that are exclusive."""

    name: str
    version: int
    summary: str
    run: Callable[[StepContext], Steps[OutcomeT]]
    outcome: type[OutcomeT]
    params: type[msgspec.Struct]
    exclusive: bool = False
    needs: tuple[str, ...] = ()  # capabilities without which the step is hidden, with the engine's reason
    # The probes to expect.
    plan: Callable[[StepContext, Size], Plan] = lambda _ctx, _size: Plan((Work("part"),))


class Described(msgspec.Struct, frozen=True):
    """The runner's answer to a Describe probe."""

    index: GraphIndex
    measurement: Measurement
