"""nondeterminism: same engine, same input: which tensors differ between runs?"""

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.compare.judge import badness, count_failed_runs
from narrowdown.engines.compare.statistics import say_ruled_out
from narrowdown.engines.findings import Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.watched import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.steps.base import BUILDS_MODELS, Finish, Outcome, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_failure


class NondeterminismOutcome(Outcome, frozen=True, kw_only=True):
    nondeterministic: bool = False  # runs of one build differ
    first_tensor: str = ""  # that differs, in the order of the model
    first_node: str = ""  # that makes it
    first_op: str = ""  # its operator
    runs: int = 0
    failures: int = 0
    missed: str = ""  # what so many runs without a failure leave possible


# A hundred runs show a tensor that differs in 3 % of them with 95 %; 300 as in ``Runs``.
class NondeterminismParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: Count = 100  # of the one build
    most_runs: Count = 300  # where the failure is rare


def nondeterminism(ctx: StepContext) -> Steps[NondeterminismOutcome]:
    params = msgspec.convert(dict(ctx.params), NondeterminismParams)
    findings, _ = yield from prepare_failure(ctx, params.most_runs)
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    index, runs = ask.index, min(params.most_runs, max(params.runs, findings.looks))
    errors, asked_for, failures = yield from _watch_runs(ask, runs)
    # A tensor that differs although nothing that its node reads does: there the engine's own order
    # of work shows.
    sources = sorted(index.first_of(errors), key=lambda t: (-errors[t], t))
    suspects = tuple(_accuse(ask, t, errors[t]) for t in sources)
    failed = failures > 0 or (findings.signature is not None and findings.signature.looks > 1)
    found = bool(suspects) and failed
    outcome = NondeterminismOutcome(
        nondeterministic=found,
        runs=asked_for,
        failures=failures,
        missed="" if found else say_ruled_out(asked_for),
        message=f"No tensor differs between {asked_for} runs.",
    )
    if suspects:
        first = suspects[0]
        outcome = msgspec.structs.replace(
            outcome,
            first_tensor=index.tensors[first.tensor].name,
            first_node=first.name,
            first_op=index.nodes[first.node].op,
            message=f"{first.name} gives other values for the same inputs: {failures} of {asked_for} runs fail.",
        )
    known = msgspec.structs.replace(findings, suspects=suspects) if found else findings
    return Finish(outcome, known)


def _watch_runs(ask: Inquiry, runs: int) -> Sub[tuple[dict[int, float], int, int]]:
    """(how far each tensor that differs is off at most, by its id; runs; failures) in so many runs
    of one build for each batch of tensors that fits into it."""
    index, errors, done, failures = ask.index, dict[int, float](), 0, 0
    can, _ = split_markable(index)
    watched = {*can, *(t for t in index.outputs if index.tensors[t].producer >= 0)}
    for batch in pack_batches(index, can, BATCH_BYTES) or [()]:
        yield Note(f"{runs} runs of one build with {len(batch)} tensors watched")
        m = yield from asked(
            ask.whole((ask.findings.sample,), marks=ranges.encode(batch), runs=runs, exclusive=True)
        )
        if m.status != "ok":
            continue
        done, failures = done + runs, failures + count_failed_runs(m, ask.criterion)
        first = {s.name: s for s in (*m.results[0].marks, *m.results[0].outputs)}
        for s in (s for run in m.runs for s in (*run[0].marks, *run[0].outputs)):
            t = index.by_name.get(s.name, -1)
            if t in watched and s != first[s.name]:
                errors[t] = max(errors.get(t, 0.0), badness(s, ask.criterion))
    return errors, done, failures


def _accuse(ask: Inquiry, tensor: int, error: float) -> Suspect:
    node = ask.index.tensors[tensor].producer
    return Suspect(
        node=node,
        tensor=tensor,
        nodes=ranges.encode([node]),
        own=error,
        name=ask.index.shown_names[node],
        effect=0.0,  # not measured: a run that differs now and then cannot be transplanted
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
    },
)
