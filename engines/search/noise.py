"""How well are the outputs determined at all? The reference's own inputs, and then its weights, are
moved by one unit in the last place: no engine that computes in this precision can be asked to be
nearer to another than that moves the outputs.
"""

from collections.abc import Collection

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import OF_CODES, Criterion
from narrowdown.engines.compare.judge import badness, limit
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.whole import is_exact_unoptimized, probe_whole
from narrowdown.engines.spec import unquantized

# Draws of the last places: how far a single one moves an output varies by a factor of two or so.
DRAWS = 3
# Draws where outputs stand in steps, as most draws stay on one. ONNX Runtime's Sigmoid gives scores
# of 5e-6 in steps of 3e-8 (hey_jarvis), which 17 of 100 draws move by as much as its optimizers do.
# Where values are rounded to codes, the same codes give the same outputs: of a quantized ViT no
# draw of the inputs moves any of six pictures, and 6 to 25 of 32 draws of the weights move five of
# them by 1.4 to 4.3 %. Chosen: one draw in ten is then missed in 3 % of the cases.
STEPPED = 32
AFFORDED = 10.0  # seconds that those may take; chosen: a third of what looking again takes where nothing fails
# A failure up to this many times what one last place moves is not told apart from rounding: an
# engine rounds at each node, not at the inputs alone, and two engines differ by the rounding of
# both. Chosen: PaddleOCR's blank picture, where nobody is wrong, is off by as much as the last
# place moves it (0.0672 and 0.0655). Not where the engine gives exactly the reference's outputs
# with its optimizers off: it rounds as that does then, and a last place that moves a code moves a
# whole step.
WITHIN = 3.0


class Moved(msgspec.Struct, frozen=True):
    """``outputs``: how far each moved, by the session's metric; ``what`` moved them: ``inputs`` or
    ``weights``. ``explains``: whether that is as much as the failure and as the tolerance, on every
    output that fails."""

    outputs: dict[str, float] = {}
    what: str = ""
    explains: bool = False


def move_last_place(
    ctx: StepContext, findings: Findings, seconds: float, failing: Collection[str] = ()
) -> Sub[Moved]:
    """``Moved``: how far rounding alone moves the outputs that fail. Asks nothing where that cannot
    be what fails: no outputs, or values that are not finite.

    On the sample of the failure. Where the reference rounds to codes, on all samples that are
    ``failing``: one draw moves a code of one sample and none of another, and an engine rounds at
    each node of each.
    """
    signature = findings.signature
    if (
        signature is None
        or signature.kind != "accuracy"
        or signature.nonfinite
        or signature.error >= HUGE
    ):
        return Moved()
    rule = findings.criterion or Criterion()
    feed = (findings.sample or signature.sample,)
    draws = [Nudge(feed, "inputs", DRAWS), Nudge(feed, "weights")]
    coded = rule.precision in OF_CODES and not unquantized(ctx.reference)
    if coded:
        every = tuple(dict.fromkeys(s.partition("/")[0] for s in failing)) or feed
        draws += [Nudge(every, "weights", attempt=draw) for draw in range(1, STEPPED)]
    else:
        draws.append(Nudge(feed, "inputs", STEPPED))
    moved: dict[str, float] = {}
    what, took, spent, within = "", 0.0, 0.0, 0.0
    for draw in draws:
        if draw.attempt and spent > AFFORDED:
            break
        if draw.runs == STEPPED and (moved or took * STEPPED > AFFORDED):
            break
        m, reached = yield from _nudge(ctx, findings, draw, seconds, failing)
        if m.status != "ok":
            continue
        took = max(took, m.run_seconds / draw.runs)
        spent += m.build_seconds + m.run_seconds
        for name, bad in reached.items():
            if name in signature.errors and bad > moved.get(name, 0.0):
                moved[name], what = bad, draw.part
        if any(not moved.get(o) or moved[o] < limit(rule, o) for o in signature.errors):
            continue
        times = max(
            (error / moved[output] for output, error in signature.errors.items()), default=0.0
        )
        if not within and 1.0 < times <= WITHIN:
            within = 1.0 if (yield from is_exact_unoptimized(ctx, findings, feed)) else WITHIN
        if times <= (within or 1.0):
            return Moved(moved, what, explains=True)
    return Moved(moved, what)


def measure_moves(
    ctx: StepContext, findings: Findings, feed: tuple[str, ...], output: str, seconds: float
) -> Sub[float]:
    """How far one unit in the last place moves an output of the reference itself, by the session's
    metric, whatever fails: of its inputs in ``DRAWS`` draws, and of its weights. 0 where it does
    not answer."""
    most = 0.0
    for part, draws in (("inputs", DRAWS), ("weights", 1)):
        _, reached = yield from _nudge(ctx, findings, Nudge(feed, part, draws), seconds)
        most = max(most, reached.get(output, 0.0))
    return most


class Nudge(msgspec.Struct, frozen=True):
    """Draws of the last places of ``part`` (``inputs``, ``weights``) on these feeds. ``attempt``:
    which draw of the weights."""

    feeds: tuple[str, ...]
    part: str
    runs: int = 1
    attempt: int = 0


def _nudge(
    ctx: StepContext, findings: Findings, draw: Nudge, seconds: float, counted: Collection[str] = ()
) -> Sub[tuple[Measurement, dict[str, float]]]:
    """The reference with the last place of a part moved, and how far each output is at most from
    what it is without, on the samples that are ``counted`` (all that are fed where none of these
    is)."""
    yield Note(f"how far does the last place of the {draw.part} move the outputs?")
    m = yield from asked(
        probe_whole(
            ctx, findings, samples=draw.feeds, engine=ctx.reference, nudge=draw.part, runs=draw.runs,
            attempt=draw.attempt, timeout=seconds,
        )
    )  # fmt: skip
    rule, reached = findings.criterion or Criterion(), dict[str, float]()
    results = [r for run in m.each_run for r in run if m.status == "ok"]
    for score in (
        s for r in [r for r in results if r.sample in counted] or results for s in r.outputs
    ):
        reached[score.name] = max(reached.get(score.name, 0.0), badness(score, rule))
    return m, reached
