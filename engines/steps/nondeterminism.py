"""nondeterminism: same engine, same input: which tensors differ between runs, and does one thread
cure it?"""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import badness
from narrowdown.engines.findings import Findings, Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.looks import Looks, count_failed_runs, look_again
from narrowdown.engines.search.statistics import say_ruled_out
from narrowdown.engines.search.watchable import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.search.whole import probe_whole
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


# A hundred runs show a tensor that differs in 3 % of them with 95 %; 300 as in ``Looks``.
class NondeterminismParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: Count = 100  # of the one build
    most_runs: Count = 300  # where the failure is rare
    batch_bytes: Count = BATCH_BYTES  # of marked tensors in one build


def nondeterminism(ctx: StepContext) -> Steps[NondeterminismOutcome]:
    params = msgspec.convert(dict(ctx.params), NondeterminismParams)
    findings: Findings = yield from prepare_findings(ctx)
    if findings.signature is None and not ctx.check:
        findings, _, _ = yield from look_again(ctx, findings, Looks(most=params.most_runs))
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    rule = findings.criterion or Criterion()
    index = ask.index
    runs = min(params.most_runs, max(params.runs, findings.looks))
    can, _ = split_markable(index)
    watched = (*can, *(t for t in index.outputs if index.tensors[t].producer >= 0))
    differs: dict[int, float] = {}
    failures = 0
    looked = 0
    for batch in pack_batches(index, can, params.batch_bytes) or [()]:
        yield Note(f"{runs} runs of one build with {len(batch)} tensors watched")
        m = yield from asked(
            ask.whole((findings.sample,), marks=ranges.encode(batch), runs=runs, exclusive=True)
        )
        if m.status != "ok":
            continue
        looked += runs
        failures += count_failed_runs(m, rule)
        first = {s.name: s for s in (*m.results[0].marks, *m.results[0].outputs)}
        for run in m.runs:
            for s in (*run[0].marks, *run[0].outputs):
                t = index.by_name.get(s.name, -1)
                if t in watched and msgspec.structs.replace(s, name="") != msgspec.structs.replace(
                    first[s.name], name=""
                ):
                    differs[t] = max(differs.get(t, 0.0), badness(s, rule))
    # A tensor that differs although nothing that its node reads does: there the engine's own order
    # of work shows.
    sources = index.first_of(differs)
    yield Note("the same with one thread")
    single = yield from _try_single_thread(ctx, findings, rule, runs)
    suspects = tuple(
        Suspect(
            node=index.tensors[t].producer,
            tensor=t,
            nodes=ranges.encode([index.tensors[t].producer]),
            own=differs[t],
            name=ask.names([index.tensors[t].producer])[0],
            effect=0.0,  # not measured: a run that differs now and then cannot be transplanted
        )
        for t in sorted(sources, key=lambda t: (-differs[t], t))
    )
    first_node = ask.names([suspects[0].node])[0] if suspects else ""
    found = bool(suspects) and (
        failures > 0 or (findings.signature is not None and findings.signature.looks > 1)
    )
    outcome = NondeterminismOutcome(
        nondeterministic=found,
        first_tensor=index.tensors[suspects[0].tensor].name if suspects else "",
        first_node=first_node,
        first_op=index.nodes[suspects[0].node].op if suspects else "",
        runs=looked,
        failures=failures,
        single_thread=single,
        missed="" if found else say_ruled_out(looked),
        message=_message(found, first_node, failures, looked, single),
    )
    return Finish(outcome, msgspec.structs.replace(findings, suspects=suspects if found else ()))


def _try_single_thread(
    ctx: StepContext, findings: Findings, rule: Criterion, runs: int
) -> Sub[Literal["cures", "no", "not-tried"]]:
    spec = parse(ctx.engine)
    if spec.get("threads", ctx.engine_info.usual("threads", "1")) == "1":
        return "not-tried"
    m = yield from asked(
        probe_whole(
            ctx,
            findings,
            samples=(findings.sample,),
            engine=str(spec.with_option("threads", "1")),
            runs=runs,
            exclusive=True,
        )
    )
    if m.status != "ok":
        return "not-tried"
    return "no" if count_failed_runs(m, rule) else "cures"


def _message(found: bool, node: str, failures: int, runs: int, single: str) -> str:
    threads = {
        "cures": " One thread cures it.",
        "no": " One thread does not cure it.",
        "not-tried": "",
    }[single]
    if not found:
        return f"No tensor differs between {runs} runs.{threads}"
    return (
        f"{node} gives other values for the same inputs: {failures} of {runs} runs fail.{threads}"
    )


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
