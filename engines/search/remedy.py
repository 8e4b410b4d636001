"""Foretold first: before anything is cut, the whole model with those nodes in FP32 that the
reference takes beyond the storage type.

That takes one build, warm by then, where a search for culprits takes a hundred. What it cures needs
no search for its cause: without these nodes in FP32 the model was seen to fail, with them it passes
on every sample, and the reference says why. The smallest set and the smallest failing case are then
polish.
"""

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, margin, worst
from narrowdown.engines.compare.say import wrong_by
from narrowdown.engines.findings import Findings, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.foretold import Place, foretell_places
from narrowdown.engines.search.storage import largest_finite


class Remedy(msgspec.Struct, frozen=True):
    """``places``: the nodes that go beyond, by the reference; ``keep``: node ids that were kept in
    FP32 last, ``error`` what the worst sample is off by then; ``cured``: every sample passes so.
    ``files``: what was built."""

    places: tuple[Place, ...] = ()
    keep: tuple[int, ...] = ()
    error: float = HUGE
    cured: bool = False
    samples: int = 0
    files: dict[str, str] = {}


def can_remedy(ctx: StepContext, findings: Findings) -> bool:
    """Whether outputs are compared, values can go beyond what the engine stores, and single nodes
    can be kept in FP32."""
    signature = findings.signature
    stored = largest_finite(ctx.storage) < largest_finite("float32")
    steady = findings.looks == 1 and findings.builds == 1
    return (
        not ctx.check
        and stored
        and steady
        and ctx.can("keep")
        and signature is not None
        and signature.kind == "accuracy"
    )


def try_remedy(ask: Inquiry) -> Sub[Remedy]:
    """Ask the reference, then build the whole model with what goes beyond in FP32, and where that is
    not enough with what is near. An engine that fuses a layer norm may compute the square in FP32 as
    asked and store it in FP16 in its next kernel; two nodes on either side reach its mean, root and
    quotient."""
    places: tuple[Place, ...] = yield from foretell_places(make_oracle(ask))
    found, beyond = Remedy(places), {n for p in places for n in p.keep}
    near = ask.index.ring(ask.index.ring(beyond))
    for nodes in (beyond, near) if places else ():
        keep = tuple(sorted(nodes))
        if keep == found.keep or len(keep) == len(ask.index.nodes):
            break
        said = f"{len(places)} nodes go beyond {ask.ctx.storage} in the reference: with {len(keep)} in FP32"
        yield Note(said)
        tried: Remedy | None = yield from try_keeping(ask, keep)
        if tried is None:
            continue
        found = msgspec.structs.replace(tried, places=places)
        if found.cured:
            break
    return found


def try_keeping(ask: Inquiry, keep: tuple[int, ...]) -> Sub[Remedy | None]:
    """What the engine gives on every sample with these nodes in FP32; None where it does not run
    so."""
    oracle = make_oracle(ask)
    m: Measurement = yield from oracle.feed(oracle.feeds, keep=frozenset(keep), save="workaround")
    if m.status != "ok":
        return None
    error = worst(m.results, ask.criterion)[2] if m.results else HUGE
    return Remedy(
        (), keep, error, judge_whole(m, ask.criterion).passed, len(by_sample(m)), dict(m.artifacts)
    )


def keep_as_workaround(
    ask: Inquiry, keep: tuple[int, ...], samples: int, error: float
) -> Workaround:
    """Nodes whose keeping cured all these samples, as the workaround that stands until a smaller
    one is found."""
    return Workaround(
        kind="precision",
        engine=ask.ctx.engine,
        keep=ranges.encode(keep),
        keep_names=ask.names(keep),
        samples_ok=samples,
        samples_n=samples,
        error=error,
        margin=margin(ask.criterion, error),
        of=len(ask.index.nodes),
        cost=f"{len(keep)} of {len(ask.index.nodes)} nodes in FP32",
    )


def list_cured(findings: Findings) -> tuple[int, ...]:
    """The nodes that were seen to cure the whole model in FP32, while no culprit is cured
    otherwise; none where nothing did."""
    known = findings.workaround
    if known is None or findings.patches or findings.keep or findings.righted:
        return ()
    return ranges.decode(known.keep)


def say_remedy(ask: Inquiry, remedy: Remedy) -> str:
    """What was foretold and what came of it, in sentences."""
    most = max(remedy.places, key=lambda p: p.reached)
    others = f" and {len(remedy.places) - 1} more" if len(remedy.places) > 1 else ""
    kept = f"{len(remedy.keep)} of {len(ask.index.nodes)} nodes in FP32"
    wrong, n = wrong_by(remedy.error, ask.criterion.metric), remedy.samples
    came = f"With {kept} {n} of {n} samples pass ({wrong} at most)."
    if not remedy.cured:
        came = f"But with {kept} it is still {wrong}, so that is not all of it."
    return (
        f"{ask.names([most.node])[0]} ({ask.index.nodes[most.node].op}){others} reach up to {most.reached:,.0f} in the "
        f"reference; {ask.ctx.storage} ends at {largest_finite(ask.ctx.storage):,.0f}. {came}"
    )
