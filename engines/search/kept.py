"""What a search for nodes to keep in higher precision found: as a workaround, and in words."""

from collections.abc import Mapping

import msgspec

from narrowdown.engines.asking import StepRefused, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.compare.say import say_amount, say_most
from narrowdown.engines.findings import Point, Unseen, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.quantized import find_leavable_layers
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search.latency import measure_latency
from narrowdown.engines.search.remedy import keep_as_workaround
from narrowdown.engines.search.unseen import say_tried
from narrowdown.engines.search.workaround_facts import say_nearly_all
from narrowdown.engines.search.written import WrittenOut

# Times smaller the error must be with every node kept for precision to be most of it. As elsewhere
# "clearly" is ten times.
MOST_OF_IT = 10


class Kept(msgspec.Struct, frozen=True):
    """``outcome`` as in PrecisionOutcome; ``keep`` node ids; ``error`` the worst badness of all
    samples, unseen ones too. ``reason``: why everything kept could not be measured."""

    outcome: str
    keep: tuple[int, ...] = ()
    error: float = HUGE
    minimal: bool = False
    builds: int = 0
    samples_ok: int = 0
    samples_n: int = 0
    files: dict[str, str] = {}
    reason: str = ""
    became: dict[str, str] = {}  # node name -> what the engine made of it, where it tells
    unseen: Unseen | None = None
    curve: tuple[Point, ...] = ()
    knee: "Knee | None" = None
    written: WrittenOut = WrittenOut()
    plain: float = 0.0  # error with nothing kept; told where everything kept is not enough
    slight: frozenset[str] = frozenset()  # samples that are not counted: off on nearly nothing only
    noisy: frozenset[str] = frozenset()  # and these: off by no more than rounding makes


class Knee(msgspec.Struct, frozen=True):
    """The set at the knee of the curve, its point there, and how many of the samples that decide
    are right with it."""

    keep: tuple[int, ...]
    point: Point
    ok: int = 0


def list_keepable(ask: Inquiry) -> tuple[int, ...]:
    """The nodes that can be kept in higher precision here. Raises StepRefused where there are
    none."""
    if ask.ctx.can("keep", untold=True):
        return tuple(range(len(ask.index.nodes)))
    found = tuple(layer.node for layer in find_leavable_layers(ask.index))
    if not found:
        raise StepRefused(
            f"{ask.ctx.engine} cannot keep single nodes in higher precision: {ask.ctx.reason('keep')}"
        )
    return found


def make_workaround(ask: Inquiry, kept: Kept) -> Sub[Workaround | None]:
    """The set as a Workaround, with what it costs; None where none was found."""
    if kept.outcome != "found":
        return None
    slower: str = yield from measure_latency(ask, keep=kept.keep)
    return msgspec.structs.replace(
        keep_as_workaround(ask, kept.keep, kept.samples_n, kept.error),
        samples_ok=kept.samples_ok,
        slight=len(kept.slight),
        undetermined=len(kept.noisy),
        of=len(list_keepable(ask)),
        cost=f"{say_counted(ask, kept)}{'; ' if slower else ''}{slower}",
        minimal=kept.minimal,
        unseen=kept.unseen,
        curve=kept.curve,
        in_model=kept.written.names,
        condition=kept.written.condition,
        written=kept.written.said,
    )


def say_counted(ask: Inquiry, kept: Kept) -> str:
    """How many of how many of what, as ``5 of 46 quantized layers in float``."""
    can = list_keepable(ask)
    if len(can) < len(ask.index.nodes):
        return f"{len(kept.keep)} of {len(can)} quantized layers in float"
    return f"{len(kept.keep)} of {len(can)} nodes in FP32"


def say_kept(ask: Inquiry, kept: Kept) -> str:
    """What the search for nodes to keep came to, in sentences."""
    if kept.outcome == "none-needed":
        return "Nothing needs higher precision: the model passes as it is."
    if kept.outcome == "not-enough" and kept.reason:
        return f"With everything in FP32 the model did not run, so precision cannot be judged: {kept.reason}"
    if kept.outcome == "not-enough" and kept.plain >= MOST_OF_IT * kept.error:
        return (
            f"With everything in FP32 the error falls from {_say(ask, kept.plain)} to {_say(ask, kept.error)}, and "
            f"{_say(ask, ask.criterion.tolerance)} is allowed: precision is most of it, and what is left is over the "
            "tolerance by itself."
        )
    if kept.outcome == "not-enough":
        return f"Even with everything in FP32 the error is {_say(ask, kept.error)}: precision is not the cause."
    if kept.outcome == "whole":
        return (
            f"It passes with all of the {len(kept.keep)} nodes in FP32, and with no smaller set that was tried: that is the "
            f"model in FP32, and no workaround.{_say_knee(ask, kept)}"
        )
    names = join_some(ask.names(kept.keep))
    tried = say_tried(
        kept.samples_ok, kept.samples_n, kept.unseen, len(kept.slight), len(kept.noisy)
    )
    return (
        f"Keeping {say_counted(ask, kept)}: {tried}. "
        f"With it {say_most(kept.error, ask.criterion)}. "
        f"Kept: {names}."
        f"{_say_nearly_all(ask, kept)}{_say_without(ask, kept)}{_say_obeyed(kept.became)}{_say_knee(ask, kept)}"
    )


def _say(ask: Inquiry, error: float) -> str:
    return say_amount(error, ask.criterion.metric)


def _say_knee(ask: Inquiry, kept: Kept) -> str:
    """Where the curve bends, unless that is the set that was chosen: a sentence with a space in
    front."""
    if kept.knee is None or kept.knee.point.chosen:
        return ""
    at, ok = kept.knee.point, kept.knee.ok
    names = join_some(ask.names(kept.knee.keep))
    took = f", {at.seconds:.3g} s to run them all" if at.seconds else ""
    nodes = "1 node" if at.nodes == 1 else f"{at.nodes} nodes"
    advice = (
        "The best trade"
        if kept.outcome == "whole"
        else "With fewer"
        if at.nodes < len(kept.keep)
        else "With more"
    )
    return (
        f" {advice}: {nodes} in FP32, where the curve of error over nodes bends; error {_say(ask, at.error)}, "
        f"allowed {_say(ask, ask.criterion.tolerance)}; right on {ok} of {kept.samples_n}{took}: {names}."
    )


def _say_nearly_all(ask: Inquiry, kept: Kept) -> str:
    """That what is kept leaves next to nothing in the lower precision: a sentence with a space in
    front."""
    said = say_nearly_all(len(kept.keep), len(list_keepable(ask)))
    return f" {said}" if said else ""


def _say_without(ask: Inquiry, kept: Kept) -> str:
    """That a culprit is cured though none of its own nodes is kept: a sentence with a space in
    front."""
    # A layer in float reads what was there before its pairs, so that these are cured with it.
    pairs = {
        n
        for layer in find_leavable_layers(ask.index)
        if layer.node in kept.keep
        for n in layer.around
    }
    cured = pairs.union(kept.keep)
    left = [
        c.case
        for c in ask.findings.culprits
        if not cured.intersection(ranges.decode(c.case.node_ids))
    ]
    if not left:
        return ""
    names = ", ".join(n for case in left for n in case.nodes[:3])
    which = f" {names} {'is' if len(left) == 1 == len(left[0].nodes) else 'are'} not among them:"
    if not ask.ctx.can("rebuild"):  # its next build joins the same nodes, or none
        return (
            f"{which} with the kept ones exact, what is lost there no longer makes the model wrong."
        )
    return (
        f"{which} what is kept is computed together with them here, so the cure rests on which nodes the engine joins and may be "
        "lost in another build of it."
    )


def _say_obeyed(became: Mapping[str, str]) -> str:
    """What the engine made of the wish, where it tells and did not simply follow, a sentence with a
    space in front."""
    by_fate = {
        fate: [n for n, how in became.items() if how == fate]
        for fate in ("ignored", "fused", "widened")
    }
    said = {
        "ignored": "a layer of their own gives less all the same",
        "fused": "they are inside of a layer of several nodes that gives less",
        "widened": "not asked for, but joined with nodes that were, so FP32 too",
    }
    parts = [f"{len(names)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}): {said[fate]}"
             for fate, names in by_fate.items() if names]  # fmt: skip
    return f" Read back from the engine: {'; '.join(parts)}." if parts else ""
