"""A case in fresh builds: how often it fails, what is kept of it, and what makes it fail."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from narrowdown.engines.asking import Answer, Described, Note, Sub, asked
from narrowdown.engines.asking.engine_forms import find_emulation
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.layers.engine import phrase
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.graph import THROUGH, GraphIndex, ranges
from narrowdown.engines.options import original
from narrowdown.engines.probe import Describe, Score
from narrowdown.engines.problem import USUAL_ENGINE
from narrowdown.engines.search.cause import name_cause
from narrowdown.engines.search.evidence import Evidence, Inner
from narrowdown.engines.search.settle import ask_about
from narrowdown.engines.spec import parse, unquantized

HALVES = ("float16", "bfloat16")


class Seen(msgspec.Struct, frozen=True):
    """A case in fresh builds: the culprit that it shows, in how many of them it failed, and the files
    of the first."""

    culprit: Culprit
    failures: int = 0
    saved: dict[str, str] = {}


def confirm_in_fresh_builds(ask: Inquiry, case: Case, repeats: int) -> Sub[Seen]:
    """The case in ``repeats`` fresh builds (``Seen``), and once with its inside watched."""
    oracle, findings = make_oracle(ask), ask.findings
    failures, saved, said = 0, dict[str, str](), ""
    for attempt in range(repeats):
        note = Note(f"building the case afresh, {attempt + 1} of {repeats}")
        question = ask_about(
            case, build=attempt + 1, save="" if attempt else "confirmed", note=note
        )
        answer: Answer = yield from oracle.ask(question)
        failures += answer.fails
        saved = saved or dict(answer.files)
        said = said or (answer.measured.message if answer.measured.status != "ok" else "")
    if ask.signature.kind == "crash" and not saved:
        saved = yield from _keep_given(ask, case)
    watched: Answer = yield from _watch_inside(oracle, case)
    several = failures > 0 and len(case.nodes) > 1 and oracle.runs == 1
    cured = several and watched.measured.status == "ok" and not watched.fails
    facts = watched.measured.facts
    exported = False
    if original(ask.ctx.reference) and not original(ask.ctx.engine):
        literal: Answer = yield from _watch_inside(make_oracle(ask.of(USUAL_ENGINE)), case)
        exported = literal.fails
    storage: str = yield from _find_storage(ask, case)
    evidence = Evidence(
        findings,
        case,
        _list_inner(oracle, case, watched),
        storage,
        next((s for s in findings.suspects if s.node in ranges.decode(case.node_ids)), None),
        watched=watched.own if cured else None,
        said=said,
        weights=dict(facts.get("weights", {})),
        least=dict(facts.get("least", {})),
        makers=_name_makers(ask.index, ranges.decode(case.node_ids)),
        against_float=unquantized(ask.ctx.reference),
        emulating=parse(ask.ctx.engine).name == "emulate",
        runs=oracle.runs,
        exported=exported,
    )  # fmt: skip
    cause = name_cause(evidence)
    emulation = find_emulation(ask.ctx, findings)
    if cause.name == "unknown" and emulation:
        evidence = yield from _tell_rounding(make_oracle(ask.of(emulation)), evidence)
        cause = name_cause(evidence)
    case = msgspec.structs.replace(case, verified=f"{failures}/{repeats}")
    return Seen(Culprit(case, cause.name, cause.evidence, at=cause.beyond), failures, saved)


def _keep_given(ask: Inquiry, case: Case) -> Sub[dict[str, str]]:
    """The files of a case of which a crash leaves none: what the reference is given, and gives. An
    engine that computes in halves is given a model in its own types, which is not among them."""
    question = msgspec.structs.replace(ask_about(case, save="confirmed"), reference=True)
    given = yield from asked(phrase(ask, question))
    others = {"actual.npz", *(["engine.onnx"] if ask.ctx.storage in HALVES else [])}
    return {name: digest for name, digest in given.artifacts.items() if name not in others}


def _name_makers(index: GraphIndex, nodes: tuple[int, ...]) -> dict[str, str]:
    """Of each tensor that a part is fed the node that computed it, as people read it: behind nodes
    that only move values, whoever made these."""
    named = {}
    for t in index.boundary(nodes)[0]:
        maker = index.made_by(t)
        while maker is not None and maker.op in THROUGH:
            maker = index.made_by(maker.reads[0])
        if maker is not None:
            named[index.tensors[t].name] = f"{index.shown_names[maker.id]} ({maker.op})"
    return named


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


def _tell_rounding(emulation: Oracle, evidence: Evidence) -> Sub[Evidence]:
    """The evidence with what rounding the inputs of the case does, where that fails it. A strongly
    typed engine rounds whatever it is fed, so that it cannot be fed exactly; the emulation can."""
    case = msgspec.structs.replace(evidence.case, feed="exact")
    exact: Answer = yield from _watch_inside(emulation, case)
    stored: Answer = yield from _watch_inside(emulation, evidence.case)
    if not (exact.passes and stored.fails):
        return evidence
    return replace(
        evidence,
        case=msgspec.structs.replace(evidence.case, needs_higher_inputs=True),
        inner=_list_inner(emulation, case, stored),
    )


def _watch_inside(oracle: Oracle, case: Case) -> Sub[Answer]:
    """The numbers that name the cause are the model's own: those of the part as it was cut, before
    it was shrunk."""
    index, nodes = oracle.index, ranges.decode(case.node_ids)
    made = [t for n in nodes for t in index.nodes[n].outputs if t >= 0]
    fed, _ = index.boundary(nodes)
    whole = msgspec.structs.replace(case.candidate, edits=())
    cut = msgspec.structs.replace(case, candidate=whole)
    watch = tuple(t for t in (*made, *fed) if index.tensors[t].name)
    note = Note("the case once more, with its inside watched")
    return (yield from oracle.ask(ask_about(cut, watch=watch, note=note)))


def _list_inner(oracle: Oracle, case: Case, watched: Answer) -> tuple[Inner, ...]:
    """What the case is fed, then what is made inside of it."""
    index, nodes = oracle.index, ranges.decode(case.node_ids)

    def scored(tensors: Iterable[int]) -> list[Score]:
        names = (index.tensors[t].name for t in tensors if t >= 0)
        return [watched.scores[name] for name in names if name in watched.scores]

    fed, _ = index.boundary(nodes)
    inner = [Inner("", "", score) for score in scored(fed)]
    for n in nodes:
        node = index.nodes[n]
        reads = tuple(index.tensors[r].name for r in node.reads)
        name = index.shown_names[n]
        inner += [Inner(node.op, name, score, reads) for score in scored(node.outputs)]
    return tuple(inner)
