"""What the probes of a session took, by their kind."""

from collections.abc import Iterable, Sequence

import msgspec

from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import (
    AnyProbe,
    Check,
    Import,
    Measure,
    Measurement,
    SampleInfo,
    Sanitize,
    Unroll,
)
from narrowdown.engines.search.cost import Kind
from narrowdown.engines.spec import parse

# Times its build and its runs that a probe takes, with scores and messages: 1.28 at 30 ms a build
# (campaigns/benchmarks/test_warm_probe.py).
SCORED = 1.25
# And from which it is taken to have paid for later ones, so that it prices none of them: of 12 and
# 15 s on TensorRT later ones took 2 to 6, of 84 s 8. What a CPU engine builds for so long it mostly
# reads from the disk, once too.
COLD = 8.0
# A run with fewer marks than this part of the nodes takes what one without any does.
MANY = 20
# How a probe ends where the engine refuses what it is given, or dies of it.
BROKEN = ("build-failed", "unsupported", "invalid-model", "crash")
EMULATION = "emulate"  # the engine that computes a precision on the CPU, as a spec names it
# A part with more tensors cut inside than this is no case of a few nodes.
CUTS = 3


class Seen(msgspec.Struct, frozen=True):
    """A probe that was measured: what it took, and for what. ``cold``: the reference was run for it
    too, for the first time; ``build_seconds`` and, of one run, ``run_seconds`` are the engine's
    own; several runs are scored in that, too. ``first``: the engine's first build of its kind, and
    a dear one: it paid for what later ones find done. ``reused``: a build that stood answered it,
    so it tells nothing of what one takes. ``afresh``: built with nothing of earlier builds.
    ``broke``: the engine refused the build, or died: what such a probe takes, where none of its
    kind works."""

    kind: Kind
    rows: int
    runs: int
    seconds: float
    run_seconds: float = 0.0
    build_seconds: float = 0.0
    cold: bool = False
    first: bool = False
    reused: bool = False
    afresh: bool = False
    broke: bool = False

    @property
    def again(self) -> float:
        """Seconds of the same probe with the reference's values there."""
        engine = SCORED * (self.build_seconds + self.run_seconds)
        return min(self.seconds, engine) if self.cold and engine else self.seconds


def classify_probe(probe: AnyProbe, engine: str, reference: str, nodes: int) -> Kind | None:
    """What a probe of a session counts as; None for a look at an engine, and for what is done once.
    ``nodes``: of the model."""
    match probe:
        case Check():
            return "read" if probe.control else "check"
        case Measure():
            if probe.engine == probe.reference == reference != engine:
                return "control"
            if parse(probe.engine).name != parse(engine).name or probe.reference != reference:
                return (
                    "emulated"
                    if parse(probe.engine).name == EMULATION != parse(engine).name
                    else "other"
                )
            if probe.candidate.nodes == ranges.ALL and not _severs_most(probe, nodes):
                return (
                    "watched"
                    if MANY * len(ranges.decode(probe.marks)) >= nodes and probe.marks
                    else "whole"
                )
            return "alone" if _severs_most(probe, nodes) else "effect" if probe.effect else "part"
        case Import():
            return "import"
        case Sanitize() | Unroll():
            # A model made of another took 51 s, and describing it less than one (a text model of 4
            # LSTMs): it prices nothing.
            return None
    return None if type(probe).__name__ == "Inspect" else "read"


def _severs_most(probe: Measure, nodes: int) -> bool:
    """Whether nearly every node of the candidate is fed by itself; of a large model that is done in
    several batches."""
    if probe.effect or not probe.candidate.severed:
        return False
    taken = (
        nodes if probe.candidate.nodes == ranges.ALL else len(ranges.decode(probe.candidate.nodes))
    )
    cuts = len(ranges.decode(probe.candidate.severed))
    return 2 * cuts > taken and cuts > CUTS


def count_rows(samples: Iterable[str], infos: Iterable[SampleInfo]) -> int:
    """How many rows these samples feed; a feed whose rows cannot be told apart counts as one."""
    held = {info.id: max(1, info.rows) for info in infos}
    return sum(1 if "/" in s else held.get(s, 1) for s in samples)


def collect_seen(
    measured: Iterable[tuple[AnyProbe, Measurement, float]],
    engine: str,
    reference: str,
    infos: Sequence[SampleInfo],
    nodes: int,
    met: set[tuple[str, str, str]] | None = None,
) -> tuple[Seen, ...]:
    """What the probes of a session took, those that worked, and those that broke the engine.
    ``measured``: probe, answer, seconds on the wall. ``met``: model, sample and reference of those
    before, and the engines that have built; more are added."""
    met = set() if met is None else met
    found = []
    for probe, m, seconds in measured:
        what = classify_probe(probe, engine, reference, nodes)
        broke = m.status in BROKEN
        if what is None or not (m.status == "ok" or broke) or seconds <= 0:
            continue
        fed = probe.samples if isinstance(probe, Measure) else ()
        asked = (
            {(probe.model, sample, probe.reference) for sample in fed}
            if isinstance(probe, Measure)
            else set()
        )
        cold = what == "whole" and not asked <= met
        met |= asked
        # A build that stood answers with the seconds that it once took.
        reused, afresh = m.build_seconds > seconds, bool(getattr(probe, "attempt", 0))
        # Repeated builds share nothing with others, so the first of them pays anew.
        built = ("built", getattr(probe, "engine", ""), "afresh" if afresh else "")
        build_seconds = 0.0 if reused else m.build_seconds
        first = built not in met and build_seconds >= COLD
        if build_seconds > 0:
            met.add(built)
        fed_rows, runs = count_rows(fed, infos) if fed else 1, max(1, getattr(probe, "runs", 1))
        # Of runs that differ each is scored, which takes longer than the engine did; and where they
        # differ a lot, the answer lies in a file, and nothing of it is at hand here.
        ran = m.run_seconds if runs == 1 else max(m.run_seconds, seconds - SCORED * build_seconds)
        found.append(
            Seen(
                what,
                fed_rows,
                runs,
                seconds,
                ran,
                build_seconds,
                cold,
                first,
                reused,
                afresh,
                broke,
            )
        )
    return tuple(found)
