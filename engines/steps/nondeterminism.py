"""nondeterminism: same engine, same input: which tensors differ between runs, and does one thread
cure it?"""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.compare.judge import badness
from narrowdown.engines.findings import Findings, Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.intermittent import Runs, count_failed_runs, has_threads, run_again
from narrowdown.engines.search.statistics import say_ruled_out
from narrowdown.engines.search.watchable import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.search.whole import look_at_whole
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.base import BUILDS_MODELS, Finish, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_findings


class NondeterminismOutcome(msgspec.Struct, frozen=True, kw_only=True):
    nondeterministic: bool = False  # runs of one build differ
    first_tensor: str = ""  # that differs, in the order of the model
    first_node: str = ""  # that makes it
    first_op: str = ""  # its operator
    runs: int = 0
    failures: int = 0
    single_thread: Literal["cures", "no", "not-tried"] = "not-tried"  # whether one thread cures it
    missed: str = ""  # what so many runs without a failure leave possible
    message: str = ""


# A hundred runs show a tensor that differs in 3 % of them with 95 %; 300 as in ``Runs``.
class NondeterminismParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: Count = 100  # of the one build
    most_runs: Count = 300  # where the failure is rare
    batch_bytes: Count = BATCH_BYTES  # of marked tensors in one build


class _Differing(msgspec.Struct):
    """What was seen in many runs: how far each tensor that differs is off at most, by its id."""

    errors: dict[int, float] = {}
    runs: int = 0
    failures: int = 0


def nondeterminism(ctx: StepContext) -> Steps[NondeterminismOutcome]:
    params = msgspec.convert(dict(ctx.params), NondeterminismParams)
    findings: Findings = yield from prepare_findings(ctx)
    if findings.signature is None and not ctx.check:
        findings, _, _ = yield from run_again(
            look_at_whole(ctx, findings), Runs(most=params.most_runs)
        )
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    runs = min(params.most_runs, max(params.runs, findings.looks))
    seen = yield from _watch_runs(ask, runs, params.batch_bytes)
    yield Note("the same with one thread")
    single = yield from _try_single_thread(ctx, findings, runs)
    # A tensor that differs although nothing that its node reads does: there the engine's own order
    # of work shows.
    sources = ask.index.first_of(seen.errors)
    suspects = tuple(
        _accuse(ask, t, seen.errors[t]) for t in sorted(sources, key=lambda t: (-seen.errors[t], t))
    )
    failed = seen.failures > 0 or (findings.signature is not None and findings.signature.looks > 1)
    found = bool(suspects) and failed
    threads = {"cures": " One thread cures it.", "no": " One thread does not cure it."}
    outcome = NondeterminismOutcome(
        nondeterministic=found,
        runs=seen.runs,
        failures=seen.failures,
        single_thread=single,
        missed="" if found else say_ruled_out(seen.runs),
        message=f"No tensor differs between {seen.runs} runs.{threads.get(single, '')}",
    )
    for first in suspects[:1]:
        outcome = msgspec.structs.replace(
            outcome,
            first_tensor=ask.index.tensors[first.tensor].name,
            first_node=first.name,
            first_op=ask.index.nodes[first.node].op,
        )
    if found:
        said = f"{outcome.first_node} gives other values for the same inputs: {seen.failures} of {seen.runs} runs fail."
        outcome = msgspec.structs.replace(outcome, message=f"{said}{threads.get(single, '')}")
    return Finish(outcome, msgspec.structs.replace(findings, suspects=suspects if found else ()))


def _watch_runs(ask: Inquiry, runs: int, batch_bytes: int) -> Sub[_Differing]:
    """So many runs of one build for each batch of tensors that fits into it."""
    index, seen = ask.index, _Differing({})
    can, _ = split_markable(index)
    watched = {*can, *(t for t in index.outputs if index.tensors[t].producer >= 0)}
    for batch in pack_batches(index, can, batch_bytes) or [()]:
        yield Note(f"{runs} runs of one build with {len(batch)} tensors watched")
        marks = ranges.encode(batch)
        m = yield from asked(
            ask.whole((ask.findings.sample,), marks=marks, runs=runs, exclusive=True)
        )
        if m.status != "ok":
            continue
        seen.runs += runs
        seen.failures += count_failed_runs(m, ask.criterion)
        first = {s.name: s for s in (*m.results[0].marks, *m.results[0].outputs)}
        for s in (s for run in m.runs for s in (*run[0].marks, *run[0].outputs)):
            t = index.by_name.get(s.name, -1)
            if t in watched and s != first[s.name]:
                seen.errors[t] = max(seen.errors.get(t, 0.0), badness(s, ask.criterion))
    return seen


def _accuse(ask: Inquiry, tensor: int, error: float) -> Suspect:
    node = ask.index.tensors[tensor].producer
    return Suspect(
        node=node,
        tensor=tensor,
        nodes=ranges.encode([node]),
        own=error,
        name=ask.names([node])[0],
        effect=0.0,  # not measured: a run that differs now and then cannot be transplanted
    )


def _try_single_thread(
    ctx: StepContext, findings: Findings, runs: int
) -> Sub[Literal["cures", "no", "not-tried"]]:
    if not has_threads(ctx):
        return "not-tried"
    single = str(parse(ctx.engine).with_option("threads", "1"))
    off = yield from look_at_whole(ctx, findings).compare(
        single, samples=(findings.sample,), runs=runs, exclusive=True
    )
    if off.measurement.status != "ok":
        return "not-tried"
    return "no" if count_failed_runs(off.measurement, off.rule) else "cures"


SPEC = StepSpec(
    name="nondeterminism",
    version=1,
    summary="Run the same engine on the same input many times and find the first tensor that differs.",
    run=nondeterminism,
    outcome=NondeterminismOutcome,
    params=NondeterminismParams,
    needs=(BUILDS_MODELS,),
    exclusive=True,
    sets=("suspects", "looks"),
    labels={
        "first_tensor": "first tensor that differs",
        "first_node": "made by",
        "first_op": "operator",
        "single_thread": "one thread",
    },
)
