"""How well are the outputs determined at all? The reference's own inputs, and then its weights, are
moved by one unit in the last place: no engine that computes in this precision can be asked to be
nearer to another than that moves the outputs.

A model that draws random numbers gives other outputs from run to run, on whatever engine: that
is no engine's fault.

Is dimension 0 a batch? Only where rows are seen to be independent: a declared size in front says
nothing.

A vector ``y[64] = Wx + b`` has 64 first elements and no rows; taken for a batch, each of its
elements would be judged by itself, and one that happens to be small would fail for the rounding of
its neighbours.
"""

import math
from collections.abc import Collection, Mapping

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.failure_rate import Runs
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import Criterion, Signature, badness, exceed, limit, worst
from narrowdown.engines.compare.say import say_error
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Measurement

# Draws of the last places: how far a single one moves an output varies by a factor of two or so.
DRAWS = 3
# Draws where outputs stand in steps, as most draws stay on one. ONNX Runtime's Sigmoid gives scores
# of 5e-6 in steps of 3e-8 (hey_jarvis), which 17 of 100 draws move by as much as its optimizers do.
# Where values are rounded to codes, the same codes give the same outputs: of a quantized ViT no
# draw of the inputs moves any of six pictures, and 6 to 25 of 32 draws of the weights move five of
# them by 1.4 to 4.3 %. Chosen: one draw in ten is then missed in 3 % of the cases.
STEPPED = 32
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


def move_last_place(model: WholeModel, failing: Collection[str] = ()) -> Sub[Moved]:
    """``Moved``: how far rounding alone moves the outputs that fail. Asks nothing where that cannot
    be what fails: no outputs, or values that are not finite.

    On the sample of the failure. Where the reference rounds to codes, on all samples that are
    ``failing``: one draw moves a code of one sample and none of another, and an engine rounds at
    each node of each.
    """
    failure = model.failure
    if failure is None:
        return Moved()
    feed = (model.findings.sample or failure.sample,)
    moved: dict[str, float] = {}
    what, took, spent = "", 0.0, 0.0
    draws = _list_first(feed)
    for draw in (*draws, *_list_further(model, feed, failing)):
        # A third of what looking again takes where nothing fails.
        long = spent + took * draw.runs > Runs().seconds / 3
        if draw not in draws and (long or (moved and not model.coded)):
            break
        m, reached = yield from _nudge(model, draw, failing)
        if m.status != "ok":
            continue
        took = max(took, m.run_seconds / draw.runs)
        spent += m.build_seconds + m.run_seconds
        for name in failure.errors:
            if reached.get(name, 0.0) > moved.get(name, 0.0):
                moved[name], what = reached[name], draw.part
        times = _count_times(failure, moved, model.rule)
        # Of a failure that is a little larger the engine may round otherwise, unless it is seen not to.
        if times <= 1.0 or (times <= WITHIN and not (yield from model.is_exact_unoptimized(feed))):
            return Moved(moved, what, explains=True)
    return Moved(moved, what)


def _list_first(feed: tuple[str, ...]) -> tuple["Nudge", ...]:
    return Nudge(feed, "inputs", DRAWS), Nudge(feed, "weights")


def _list_further(
    model: WholeModel, feed: tuple[str, ...], failing: Collection[str]
) -> tuple["Nudge", ...]:
    """Draws for outputs that stand in steps."""
    if not model.coded:
        return (Nudge(feed, "inputs", STEPPED),)
    every = tuple(dict.fromkeys(s.partition("/")[0] for s in failing)) or feed
    return tuple(Nudge(every, "weights", attempt=draw) for draw in range(1, STEPPED))


def _count_times(failure: Signature, moved: Mapping[str, float], rule: Criterion) -> float:
    """How many times larger the failure is than what moved its outputs; without bound where one of
    them was moved by less than is allowed."""
    if any(not moved.get(o) or moved[o] < limit(rule, o) for o in failure.errors):
        return math.inf
    return max((error / moved[o] for o, error in failure.errors.items()), default=0.0)


def measure_moves(model: WholeModel, feed: tuple[str, ...], output: str) -> Sub[float]:
    """How far one unit in the last place moves an output of the reference itself, by the session's
    metric, whatever fails. 0 where it does not answer."""
    most = 0.0
    for draw in _list_first(feed):
        _, reached = yield from _nudge(model, draw)
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
    model: WholeModel, draw: Nudge, counted: Collection[str] = ()
) -> Sub[tuple[Measurement, dict[str, float]]]:
    """The reference with the last place of a part moved, and how far each output is at most from
    what it is without, on the samples that are ``counted`` (all that are fed where none of these
    is)."""
    off = yield from model.compare(
        model.reference,
        samples=draw.feeds,
        nudge=draw.part,
        runs=draw.runs,
        attempt=draw.attempt,
        note=f"how much do the outputs change when the {draw.part} change by one rounding step?",
    )
    m, reached = off.measurement, dict[str, float]()
    results = [r for run in m.each_run for r in run if m.status == "ok"]
    for score in (
        s for r in [r for r in results if r.sample in counted] or results for s in r.outputs
    ):
        reached[score.name] = max(reached.get(score.name, 0.0), badness(score, model.rule))
    return m, reached


def find_random(model: WholeModel) -> Sub[str]:
    """Why nothing can be judged, and what to do, of a model that draws random numbers: runs of one
    build of the reference differ from what was captured of it; "" where it draws nothing, or gives
    the same all the same."""
    findings = model.findings
    if not findings.random:
        return ""
    # What draws anew in each run differs in the second already; others are for draws that happen to
    # be equal.
    feed = (findings.sample or findings.samples[0].id,)
    note = "the model draws random numbers: does the reference repeat itself?"
    again = yield from model.compare(model.reference, samples=feed, runs=DRAWS, note=note)
    error = max((worst(run, model.rule)[2] for run in again.measurement.each_run), default=0.0)
    if not again.told or not error:
        return ""
    return (
        f"The model draws random numbers: {join_some(findings.random)}. Runs of the reference itself are "
        f"{say_error(error, model.rule)} against one another, so an engine that differs is not wrong, and no node is at fault. "
        "Make what is drawn an input of the model, feed it, and compare again."
    )


# Relative L2 by which a row may move when others change: the order of a sum may follow its place in
# the batch, which rounds in the last digits, of a model in halves as well. What depends on other
# rows moves by far more.
ROWS_APART = Criterion(metric="rel_l2", tolerance=1e-3)
NO_BATCH = "Dimension 0 is no batch: what is in one row changes others. Outputs are judged whole."


def see_rows(model: WholeModel, batched: tuple[str, ...]) -> Sub[str]:
    """Why dimension 0 is no batch, as a sentence; "" where rows are independent, as the reference
    computes them. ``batched``: the feeds that have rows by what the model declares."""
    if not batched:
        return ""
    moved = yield from model.compare(
        model.reference,
        samples=batched[:1],
        vary="repeated",
        runs=1,
        note="are the rows of a batch independent?",
    )
    if moved.told:
        return NO_BATCH if exceed(moved.measurement.results, ROWS_APART) else ""
    # A reference that does not run, or rows that are all alike: an open dimension is the batch by
    # its exporter's own word, a number is not.
    if any(s.rows for s in model.findings.samples if s.id in batched):
        return ""
    return "Whether rows are independent could not be seen: outputs are judged whole."
