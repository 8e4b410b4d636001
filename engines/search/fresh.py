"""A case in fresh builds: how often it fails, what is kept of it, and what makes it fail."""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Described, Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.compare.judge import judge_shrunk
from narrowdown.engines.findings import Case
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Check, Describe, Measure, Measurement
from narrowdown.engines.search.cause import name_cause
from narrowdown.engines.search.evidence import Cause, Evidence, Inner
from narrowdown.engines.spec import parse, unquantized

HALVES = ("float16", "bfloat16")


class Seen(msgspec.Struct, frozen=True):
    """A case in fresh builds: in how many it failed, the files of the first, and what makes it
    fail."""

    case: Case
    cause: Cause
    failures: int = 0
    saved: dict[str, str] = {}


def confirm_in_fresh_builds(ask: Inquiry, case: Case, repeats: int) -> Sub[Seen]:
    """The case in ``repeats`` fresh builds (``Seen``), and once with its inside watched."""
    seen: _Looked = yield from _build_afresh(ask, case, repeats)
    findings = ask.findings
    storage: str = yield from _find_storage(ask, case)
    suspect = next((s for s in findings.suspects if s.node in ranges.decode(case.node_ids)), None)
    in_float = unquantized(ask.ctx.reference)
    evidence = Evidence(
        findings,
        case,
        seen.inner,
        storage,
        suspect,
        watched=seen.own,
        said=seen.said,
        weights=seen.weights,
        least=seen.least,
        against_float=in_float,
        emulating=parse(ask.ctx.engine).name == "emulate",
    )
    cause = name_cause(evidence)
    return Seen(
        msgspec.structs.replace(case, verified=f"{seen.failures}/{repeats}"),
        cause,
        seen.failures,
        seen.saved,
    )


def _find_storage(ask: Inquiry, case: Case) -> Sub[str]:
    """What the values of a case are held in: a file in halves that is held against the model that
    it was made of says so itself, whatever the engine. What was seen in the reference run is the
    other model's."""
    storage = ask.ctx.storage
    if storage in HALVES or not parse(ask.ctx.reference).get("model"):
        return storage
    stated = yield from asked(Describe(model=ask.findings.model))
    if not isinstance(stated, Described):
        return storage
    index = stated.index
    made = {
        index.tensors[t].dtype
        for n in ranges.decode(case.node_ids)
        for t in index.nodes[n].outputs
        if t >= 0
    }
    halves = sorted(made & set(HALVES))
    return halves[0] if len(halves) == 1 else storage


def probe_case(
    ask: Inquiry, case: Case, attempt: int, save: str = "", marks: tuple[int, ...] = ()
) -> Measure | Check:
    """The probe that looks at a case once more."""
    feed: Literal["stored", "exact"] = "exact" if case.feed == "exact" else "stored"
    return ask.ask(case.candidate, feed=feed, attempt=attempt, save=save, marks=marks)


class _Looked(msgspec.Struct, frozen=True):
    """A case in fresh builds and with its inside watched. ``own``: its error when watched; None
    unless watching cures it, as then ``inner`` says nothing of what the engine does. ``said``: by
    the engine, where it refused. ``weights`` and ``least``: the largest magnitude of each weight,
    and the smallest that is not 0."""

    failures: int
    saved: dict[str, str]
    inner: tuple[Inner, ...] = ()
    own: float | None = None
    said: str = ""
    weights: dict[str, float] = {}
    least: dict[str, float] = {}


def _build_afresh(ask: Inquiry, case: Case, repeats: int) -> Sub[_Looked]:
    """The case in ``repeats`` fresh builds, the first kept, then once with its inside watched."""
    failures, saved, said = 0, dict[str, str](), ""
    for attempt in range(repeats):
        yield Note(f"building the case afresh, {attempt + 1} of {repeats}")
        m = yield from asked(
            probe_case(ask, case, attempt + 1, save="confirmed" if attempt == 0 else "")
        )
        failures += _case_fails(ask, case, m)
        saved = saved or dict(m.artifacts)
        said = said or (m.message if m.status != "ok" else "")
    seen = _Looked(failures, saved, said=said)
    if ask.ctx.check or ask.signature.kind == "build":
        return seen
    return (yield from _watch_inside(ask, case, seen))


def _watch_inside(ask: Inquiry, case: Case, seen: _Looked) -> Sub[_Looked]:
    index, nodes = ask.index, ranges.decode(case.node_ids)
    made = [t for n in nodes for t in index.nodes[n].outputs if t >= 0 and index.tensors[t].name]
    cut_at, _ = index.boundary(nodes)
    # The numbers that name the cause are the model's own: those of the part as it was cut, before it
    # was shrunk.
    whole = msgspec.structs.replace(case.candidate, edits=())
    cut = msgspec.structs.replace(case, candidate=whole)
    yield Note("the case once more, with its inside watched")
    watched = yield from asked(probe_case(ask, cut, 0, marks=(*made, *cut_at)))
    verdict = ask.verdict(watched)
    ran = watched.status == "ok"
    cured = ran and seen.failures > 0 and len(nodes) > 1 and ask.findings.looks == 1
    row = ask.row(watched) if ran and watched.results else None
    scores = {s.name: s for s in (*row.outputs, *row.marks)} if row else {}
    names = {t: index.tensors[t].name for t in (*cut_at, *made)}
    inner = [Inner("", "", scores[names[t]]) for t in cut_at if names[t] in scores]
    for t in made:
        node = index.made_by(t)
        if node is not None and names[t] in scores:
            reads = tuple(index.tensors[r].name for r in node.reads)
            inner.append(Inner(node.op, ask.names([node.id])[0], scores[names[t]], reads))
    return msgspec.structs.replace(
        seen,
        inner=tuple(inner),
        own=verdict.own if cured and not verdict.failed else None,
        weights=dict(watched.facts.get("weights", {})),
        least=dict(watched.facts.get("least", {})),
    )


def _case_fails(ask: Inquiry, case: Case, m: Measurement) -> bool:
    if case.candidate.edits and case.signature is not None:
        return judge_shrunk(m, ask.criterion, case.signature).failed
    return ask.verdict(m).failed
