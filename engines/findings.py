"""What a session establishes on its way, as plain data that is journalled: the case, its culprits,
whom layerwise accuses, and what cures it."""

import msgspec

from narrowdown.engines.compare.judge import Criterion, Off, Signature
from narrowdown.engines.probe import APART, Candidate, SampleInfo


class Case(Off, frozen=True, omit_defaults=True):
    """A failing part of the model, as the search left it."""

    candidate: Candidate
    sample: str
    nodes: tuple[str, ...] = ()  # display names, topological
    node_ids: str = ""
    ops: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    feed: str = "stored"
    needs_higher_inputs: bool = False  # passes fed exactly, fails fed as stored
    good: Candidate | None = None  # the largest passing neighbour
    verified: str = ""  # "k/n"
    signature: Signature | None = None  # the case's own
    minimal: bool = False  # 1-minimality was proven
    found_by: str = ""  # step name
    # The engine spec that it fails on, where that is not the session's: its precision is an order
    # there (``engines.switches``).
    engine: str = ""


class Culprit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named cause with its minimal case. ``dir`` below the session folder holds its bundle once
    confirmed."""

    case: Case
    cause: str  # a name of ``engines.causes``
    evidence: str = ""  # one sentence with the numbers that show it
    keep: str = ""  # node ids from the case to where right values can be fed: where a precision workaround starts
    dir: str = ""
    # Nodes of its kind that have no case of their own, as their true values are as far beyond the
    # storage type, or as they fail alone in the same way: ``keep`` has them too.
    also: tuple[str, ...] = ()
    # Of several nodes that fail together the one that the evidence is about: the others are only
    # the company that it takes.
    at: str = ""


class Suspect(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that layerwise accuses, worst first. ``nodes`` is where the cut should start;
    ``own`` the error that it adds fed as stored, ``added_exact`` fed exactly."""

    node: int
    tensor: int
    nodes: str
    own: float
    effect: float
    name: str = ""  # for people
    added_exact: float | None = None
    own_places: tuple[int, int] = (
        0,
        0,
    )  # of whole numbers, those that are wrong and all: see ``Off``
    effect_places: tuple[int, int] = (0, 0)


class Unseen(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a workaround does on samples that it was not made on: ``ok`` of ``n`` are right.
    ``given``: of these the user's own; the others were made near the user's.
    ``plain``: how many fail without it. ``undetermined``: samples that are not counted, as nobody
    can call them right or wrong. ``joined``: samples that it failed on and was then made on, too.
    ``outputs``: what is wrong on those that are not right."""

    ok: int = 0
    n: int = 0
    given: int = 0
    plain: int = 0
    undetermined: int = 0
    joined: int = 0
    outputs: tuple[str, ...] = ()
    error: float = 0.0  # the worst


class Close(msgspec.Struct, frozen=True):
    """A node that stays in a storage type and whose values reach ``reached`` on the given samples,
    near the end of that type."""

    node: str
    reached: float


class Workaround(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes the model right here. ``kind``: precision (nodes kept in FP32), optimizer,
    threads, option, tactic, rewrite, barrier (``switched_off``: tensors that are outputs of the
    model, too, so that the engine does not join layers across them), wrap-reshape and wrap-max (the
    same: tensors that nodes of that kind hand on unchanged), control-flow (the same: If, Loop and
    Scan nodes with plain ones in their place)."""

    kind: str
    engine: str  # the engine spec that applies it (the same spec where only ``keep`` changes)
    keep: str = ""  # node ids
    keep_names: tuple[str, ...] = ()
    layers: bool = False  # these are quantized layers in float, and no nodes in FP32
    switched_off: tuple[str, ...] = ()
    samples_ok: int = 0
    samples_n: int = 0
    error: float = 0.0
    margin: float = 0.0  # tolerance / error, >= 1 when it holds
    cost: str = ""
    minimal: bool = False
    forbid: dict[str, tuple[str, ...]] = {}  # tactics that layers may not choose
    unseen: Unseen | None = None  # None: not tried on others (an earlier version)
    # Given samples that pass, of so many, where the layers are left out of a model that was calibrated
    # on the other half of them.
    crossed: tuple[int, int] = (0, 0)
    undetermined: int = 0  # given samples that are not counted: nobody can call them right or wrong
    outside: tuple[str, ...] = ()  # of ``keep_names`` those that lie beyond what is accused
    accused_ok: int = (
        -1
    )  # given samples that are right with what is accused in FP32 and nothing else; -1: not asked
    accused_n: int = 0  # of so many
    in_model: tuple[
        str, ...
    ] = ()  # those nodes by the names of the model in the file, where there is one
    holders: tuple[
        str, ...
    ] = ()  # where some lie in bodies of the user's model: the nodes of its graph that are or hold them
    written: str = ""  # the file that holds it, as it was seen to do: sentences
    condition: str = ""  # it is right while this holds: "'sr' is 16000"
    elsewhere: int = 0  # given samples of which that is not so, so that it is not for them
    close: tuple[
        Close, ...
    ] = ()  # nodes that it leaves near the end of FP16, those beside what is accused first

    @property
    def in_file(self) -> bool:
        """Whether it is another model, and no setting of the engine."""
        return self.kind in ("rewrite", "control-flow", *APART)

    @property
    def holds(self) -> bool:
        """Right on all that it was made on, and on all else that it was tried on."""
        ok, n = self.crossed
        return (
            self.samples_ok == self.samples_n > 0
            and (self.unseen is None or self.unseen.ok == self.unseen.n)
            and ok == n
        )


class Replaced(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """The reference that was found wrong (``from``), the one that the session goes on with
    (``to``), and why."""

    origin: str
    to: str
    why: str = ""


class Lookalike(msgspec.Struct, frozen=True, omit_defaults=True):
    """A known bug (``engines.known``) that a culprit looks like. ``confirmed``: its own
    construction fails on this engine, where its trigger says so and not beside it."""

    bug: str  # id in the table
    thread: str  # owner/repository#number; "" where none is known
    says: str  # what goes wrong
    confirmed: bool = False  # its own small model fails on this engine
    mended: str = ""  # the first release without it
    cure: str = ""  # what helps
    nodes: tuple[str, ...] = ()  # of the model that look like it
    trigger: str = ""  # how often it failed where the table says so, and beside it


class Findings(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"expensive": "dear", "cheap": "twin"},  # as journals have them
):
    """What the steps so far have established. A step returns the whole, changed; rewind folds back
    to an earlier one."""

    model: str = ""  # digest of the working model (the sanitized one once accepted)
    original: str = ""
    inputs: str = ""  # digest of the inputs
    samples: tuple[SampleInfo, ...] = ()
    codes: str = ""  # int8 or fp8 where the model itself is quantized
    criterion: Criterion | None = None
    signature: Signature | None = None
    round_signature: Signature | None = (
        None  # with earlier culprits patched: what the next round looks for
    )
    sample: str = ""  # the sample that the search works on
    emulated: float | None = (
        None  # badness of a faultless engine of that precision on the same sample
    )
    looks: int = 1  # looks per verdict where the fault is intermittent
    builds: int = 1  # fresh builds (or external checks) per verdict where these differ
    suspects: tuple[Suspect, ...] = ()
    spread: bool = False
    hidden: bool = False  # with its inner tensors watched the model is right: what the engine joins is at fault
    optimizers: tuple[str, ...] = ()  # guilty, necessary and sufficient
    options: tuple[str, ...] = ()  # guilty, as ``engines.switches`` names them
    tactics: dict[
        str, str
    ] = {}  # guilty: layer -> choice, as narrowdown.engines.data.tactic_replay writes it
    case: Case | None = None  # of the culprit being worked on
    culprits: tuple[Culprit, ...] = ()
    # Earlier culprits, cured for the next round: tensor ids fed with reference values; nodes that
    # the reference computes from what the engine gives them; nodes kept in FP32.
    patches: str = ""
    righted: str = ""
    keep: str = ""
    workaround: Workaround | None = None
    notes: tuple[str, ...] = ()  # sentences for the report
    # (option, pattern) that a file beside the model, or names and shapes, suggest for a loop
    suggested: tuple[tuple[str, str], ...] = ()
    cache: tuple[int, ...] = ()  # heads of a decoder's cache, and their size, by that file
    replaced: Replaced | None = (
        None  # the reference, where two independent engines agree against the given one
    )
    alike: bool = False  # reference and engine under test are wrong in the same way
    random: tuple[str, ...] = ()  # nodes of the model as it was given that draw random numbers
    bodies: int = 0  # If, Loop and Scan nodes of the model as it was given
    opened: bool = False  # whether it was tried to put plain nodes in their place (``engines.search.control_flow``)
    rests: str = (
        ""  # the working model has plain nodes in their place: what that rests on, a phrase
    )
    # The working model is refused, and is right with plain nodes in the place of If, Loop and Scan:
    # what that rests on, a phrase.
    fixable: str = ""
    # Seconds of the first build of the whole model, where a cheap engine is still to be looked for.
    expensive: float = 0.0
    cheap: str = ""  # an engine spec that builds faster and fails alike: what searches ask (``engines.asking.engine_forms``)
    # The engine spec that the session goes on with, where the given one is right because it keeps
    # wider types and this one, held to its precision, is wrong.
    firm: str = ""
    lookalikes: tuple[Lookalike, ...] = ()  # known bugs, confirmed ones first

    @property
    def rule(self) -> Criterion:
        """What counts as failing; the usual tolerance where nothing was said yet."""
        return self.criterion or Criterion()

    @property
    def loop(self) -> SampleInfo | None:
        """The sequence of which all steps are searched on; None where a step, or no loop, is."""
        return next((s for s in self.samples if s.id == self.sample and s.steps), None)

    @property
    def guilty(self) -> tuple[str, ...]:
        """The engine's choices that are known to be at fault."""
        return (*self.optimizers, *self.options, *self.tactics)

    @property
    def steady(self) -> bool:
        """Whether one run of one build shows the failure."""
        return self.looks == self.builds == 1
