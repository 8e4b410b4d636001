"""A case in fresh builds: how often it fails, what is kept of it, and what makes it fail."""

import msgspec

from narrowdown.engines.asking import Described, Note, Sub, asked
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.findings import Case
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Describe
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
    seen: _Looked = yield from _build_afresh(make_oracle(ask), case, repeats)
    findings = ask.findings
    storage: str = yield from _find_storage(ask, case)
    evidence = Evidence(
        findings,
        case,
        seen.inner,
        storage,
        next((s for s in findings.suspects if s.node in ranges.decode(case.node_ids)), None),
        watched=seen.own,
        said=seen.said,
        weights=seen.weights,
        least=seen.least,
        against_float=unquantized(ask.ctx.reference),
        emulating=parse(ask.ctx.engine).name == "emulate",
    )
    case = msgspec.structs.replace(case, verified=f"{seen.failures}/{repeats}")
    return Seen(case, name_cause(evidence), seen.failures, seen.saved)


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


def ask_about(case: Case, **how: object) -> Question:
    """The question about a case that was found before. ``how``: fields of it."""
    question = Question(
        frozenset(),
        part=case.candidate,
        like=case.signature if case.candidate.edits else None,
        feed="exact" if case.feed == "exact" else "stored",
        build=0,
    )
    return msgspec.structs.replace(question, **how)


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


def _build_afresh(oracle: Oracle, case: Case, repeats: int) -> Sub[_Looked]:
    """The case in ``repeats`` fresh builds, the first kept, then once with its inside watched."""
    failures, saved, said = 0, dict[str, str](), ""
    for attempt in range(repeats):
        note = Note(f"building the case afresh, {attempt + 1} of {repeats}")
        save = "confirmed" if attempt == 0 else ""
        question = ask_about(case, build=attempt + 1, save=save, note=note)
        answer: Answer = yield from oracle.ask(question)
        failures += answer.fails
        saved = saved or dict(answer.files)
        said = said or (answer.measured.message if answer.measured.status != "ok" else "")
    return (yield from _watch_inside(oracle, case, _Looked(failures, saved, said=said)))


def _watch_inside(oracle: Oracle, case: Case, seen: _Looked) -> Sub[_Looked]:
    index, nodes = oracle.index, ranges.decode(case.node_ids)
    made = [t for n in nodes for t in index.nodes[n].outputs if t >= 0 and index.tensors[t].name]
    cut_at, _ = index.boundary(nodes)
    # The numbers that name the cause are the model's own: those of the part as it was cut, before it
    # was shrunk.
    whole = msgspec.structs.replace(case.candidate, edits=())
    cut = msgspec.structs.replace(case, candidate=whole)
    note = Note("the case once more, with its inside watched")
    watched: Answer = yield from oracle.ask(ask_about(cut, watch=(*made, *cut_at), note=note))
    cured = seen.failures > 0 and len(nodes) > 1 and oracle.runs == 1
    inner = []
    for t in (*cut_at, *made):
        node, score = (
            index.made_by(t) if t in made else None,
            watched.scores.get(index.tensors[t].name),
        )
        if score is None or (t in made and node is None):
            continue
        reads = tuple(index.tensors[r].name for r in node.reads) if node else ()
        name = oracle.names([node.id])[0] if node else ""
        inner.append(Inner(node.op if node else "", name, score, reads))
    facts = watched.measured.facts
    ran = watched.measured.status == "ok"
    return msgspec.structs.replace(
        seen,
        inner=tuple(inner),
        own=watched.own if ran and cured and not watched.fails else None,
        weights=dict(facts.get("weights", {})),
        least=dict(facts.get("least", {})),
    )
