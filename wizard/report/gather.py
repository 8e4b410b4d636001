"""From a session's state to what its report says. Pure; tables are read through the function that
is given."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from narrowdown.engines import findings as base, outside
from narrowdown.engines.compare.judge import judge_shrunk
from narrowdown.engines.compare.loops import CurveRow
from narrowdown.engines.compare.say import say_limit, wrong_by
from narrowdown.engines.compare.statistics import least_share
from narrowdown.engines.compare.values import Values
from narrowdown.engines.declaration import Cure, Found
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.quantized import (
    find_leavable_layers,
    find_settings,
    list_left_out,
    say_settings,
)
from narrowdown.engines.known.lookalike import list_lookalikes
from narrowdown.engines.known.table import TableProblem, recall
from narrowdown.engines.probe import HUGE, Measure
from narrowdown.engines.search.verified import FILE, find_program
from narrowdown.engines.search.workaround_facts import holds_accused, list_facts
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.compare import CompareOutcome
from narrowdown.engines.steps.confirm import ConfirmOutcome
from narrowdown.engines.steps.quantization import QuantizationOutcome
from narrowdown.engines.steps.registry import STEPS, step_makes
from narrowdown.engines.steps.surroundings import TABLE as ITERATIONS
from narrowdown.engines.steps.trigger import FactorRow
from narrowdown.engines.views import view_engine
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.manual_commands import commands
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.cured import WORKED_AROUND, files_of, list_handed_over
from narrowdown.wizard.report.document import (
    Brought,
    Culprit,
    Depth,
    QuantizedLayer,
    Report,
    Rewritten,
    RuledOut,
    Stop,
    Tried,
    Trigger,
    Verdict,
    Weighed,
    Workaround,
    kind,
)
from narrowdown.wizard.report.stage import stage
from narrowdown.wizard.report.summary import name_nodes, say_cure
from narrowdown.wizard.report.vicinity import Vicinity, ids, vicinity
from narrowdown.wizard.session.following import offer
from narrowdown.wizard.session.state import State, Visit, find_index
from narrowdown.wizard.words import count, elide, number, show_error, visible

Table = list[dict[str, Any]]
RowT = TypeVar("RowT", bound=msgspec.Struct)
StructT = TypeVar("StructT", bound=msgspec.Struct)
_READ = frozenset(
    {"bundle", "decisive", ITERATIONS}
)  # tables of any step that the program itself reads

# (question, answer) of the shipped flows -> what it excludes.
_EXCLUDED = {
    ("sanitize", "yes"): "Folding constants does not fix it",
    ("real-inputs", "no"): "The kind of inputs is not the reason",
    ("intermittent", "no"): "It does not come and go",
    ("nondeterminism", "no"): "Kernels that are not deterministic are not the reason",
    ("tactics", "no"): "No single kernel or optimizer is the reason",
}


class EngineLayer(msgspec.Struct, frozen=True):
    """A row of the table ``engine_layers`` of compare: a layer of the whole model's engine."""

    layer: str
    nodes: tuple[str, ...]
    types: tuple[str, ...] = ()

    def tell(self) -> str:
        size = "alone" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes in one"
        return f"{elide(self.layer, 60)} ({', '.join((size, *self.types))})"


class Sources(msgspec.Struct, frozen=True):
    """Where the report is read from beside the session's state. ``table``: the rows of a step's
    table, ``graph``: the index of a model, each by its artifact's digest."""

    table: Callable[[str], Table] = lambda _: []
    graph: Callable[[str], GraphIndex | None] = lambda _: None
    machine: Mapping[str, Any] = {}


def copy_facts(to: type[StructT], *origins: msgspec.Struct, **derived: Any) -> StructT:
    """A struct of the report: what it calls by the same name as one of ``origins`` is taken from
    there, the first that has it. ``derived``: what it calls otherwise or says otherwise."""
    same = {
        field: getattr(origin, field)
        for origin in reversed(origins)
        for field in to.__struct_fields__
        if hasattr(origin, field)
    }
    return to(**{**same, **derived})


def gather(state: State, flow: Flow, problem: Problem, sources: Sources) -> Report:
    """The document of a session, finished or not."""
    findings, table = state.findings, sources.table
    problem = msgspec.structs.replace(problem, engine=findings.firm or problem.engine)
    index = sources.graph(find_index(state, findings.model))
    culprits = _culprits(state, flow, table, index, compared=not problem.check)
    first = culprits[0] if culprits else None
    rounds = depths(state, table, culprits)
    file = WORKED_AROUND if list_handed_over(state, table) else ""
    version = state.version(problem.engine)
    workaround = _workaround(findings, problem, index, version, file)
    found = [w for v in state.route if v.findings and (w := v.findings.workaround)]
    changes = {_change(w): w for w in found if _change(w) != _change(findings.workaround)}
    cures = [
        _workaround(msgspec.structs.replace(findings, workaround=w), problem, index, version, "")
        for w in changes.values()
    ]
    notes = (
        *findings.notes,
        *journalled(state, flow),
        *_say_lost_workers(state),
        *_postprocessed(problem),
    )
    report = Report(
        verdict=reached(state, flow),
        end=state.end,
        headline="",
        cause=first.cause if first else "accumulation" if findings.spread else "",
        nodes=first.nodes if first else (),
        nodes_before=_nodes_before(state),
        nodes_after=first.nodes_after if first else 0,
        inputs=first.inputs if first else (),
        outputs=first.outputs if first else (),
        workaround=workaround,
        culprits=culprits,
        route=tuple(stop(visit, flow) for visit in state.route if visit.answer),
        environment=environment(state, problem, sources.machine),
        session=visible(state.id),
        model=problem.model,
        engine=problem.engine,
        reference=problem.reference,
        **_judged(state, problem),
        spread=_spread(state),
        depth=rounds[-1] if rounds else (),
        rounds=rounds,
        notes=notes,
        commands=_by_hand(state, problem, first) if first else (),
        seconds=sum(visit.seconds for visit in state.route),
        probes=sum(visit.probes for visit in state.route),
        advice=flow.ends[state.end].explain.strip() if state.end in flow.ends else "",
        layers=_last_table(state, table, "layers", QuantizedLayer),
        ruled_out=ruled_out(state),
        reference_replaced=msgspec.to_builtins(findings.replaced),
        alike=findings.alike,
        lookalikes=_recognise(state, problem, index),
        rewrites=_last_table(state, table, "rewrites", Rewritten),
        scores=_last_table(state, table, "scores", Weighed),
        cures=tuple(filter(None, (workaround, *cures))),
        trigger=_trigger(state, table),
        loop=_last_table(state, table, "curve", CurveRow),
        brought=tuple(_brought(state, table)),
        goes_on_from=state.taken_from,
        next=f"narrowdown after {shlex.quote(visible(state.id))}" if offer(state, problem) else "",
    )
    return msgspec.structs.replace(report, headline=headline(state, flow, report))


def _judged(state: State, problem: Problem) -> dict[str, Any]:
    """How outputs were judged, and how wrong the model was, by the fields of a report."""
    criterion, signature = state.findings.criterion, state.findings.signature
    reproduced = _outcome(state, CompareOutcome)
    # What is refused, crashes or fails an external check is wrong by nothing that was measured.
    measured = signature is not None and signature.kind == "accuracy"
    return {
        "metric": criterion.metric if criterion else problem.metric or "rel_l2",
        "tolerance": criterion.tolerance if criterion else None,
        "allowed": say_limit(criterion, "") if criterion else "",
        "error": signature.error if signature and measured else reproduced.get("error"),
        "error_places": signature.places if signature else (0, 0),
        "failing_outputs": signature.outputs if signature else (),
        "samples": int(reproduced.get("samples") or len(state.findings.samples)),
        "samples_failing": int(reproduced.get("samples_failing") or 0),
        "explanation": str(reproduced.get("message") or ""),
        "margin": reproduced.get("margin") if signature is None else None,
        "worst_output": str(reproduced.get("worst_output") or ""),
        "worst_sample": str(reproduced.get("worst_sample") or ""),
    }


def _by_hand(state: State, problem: Problem, first: Culprit) -> tuple[str, ...]:
    """The first case through other tools, where the engine itself was compared."""
    criterion = state.findings.criterion
    if criterion is None or problem.check:
        return ()
    version = state.version(problem.engine)
    return tuple(
        commands(
            parse(first.engine or problem.engine),
            criterion,
            first.inputs,
            version,
            state.findings.looks,
            rounded=first.needs_higher_inputs,
        )
    )


def _culprits(
    state: State,
    flow: Flow,
    table: Callable[[str], Table],
    index: GraphIndex | None,
    *,
    compared: bool,
) -> tuple[Culprit, ...]:
    """The culprits, each with its surroundings and its values, as far as they were kept."""
    found = confirmed(state, flow)
    layers = _last_table(state, table, "engine_layers", EngineLayer)
    told = []
    for c, files in zip(found, case_files(state, table, found), strict=True):
        rows = table(files["values.json"]) if "values.json" in files else []
        values = sorted(
            (msgspec.convert(row, Values) for row in rows), key=lambda v: -max(map(max, v.grid))
        )
        nodes = ids(c.case.node_ids or c.case.candidate.nodes)
        place = vicinity(index, nodes) if index is not None else Vicinity()
        source, modules = _list_sources(index, nodes), _list_modules(index, nodes)
        said = culprit(c, compared=compared)
        smaller = _judge_smaller(state, c.case) if compared else None
        told.append(
            msgspec.structs.replace(
                said,
                around=place,
                values=tuple(values),
                source=source,
                modules=modules,
                ran_as=tuple(row.tell() for row in layers if set(row.nodes) & set(said.nodes)),
                made_smaller=smaller,
            )
        )
    return tuple(told)


def _judge_smaller(state: State, case: base.Case) -> float | None:
    """What a case is wrong by as it is handed on, where its shapes or values were made smaller for
    that; None where they were not, or where nobody measured it."""
    criterion = state.findings.criterion
    if not case.candidate.edits or case.signature is None or criterion is None:
        return None
    for key, asked in reversed(list(state.asked.items())):
        known = state.known.get(key)
        if known is None or known.measurement is None or not asked.asks(Measure):
            continue
        probe = asked.probe
        if isinstance(probe, Measure) and probe.candidate == case.candidate:
            verdict = judge_shrunk(known.measurement, criterion, case.signature)
            if verdict.failed and verdict.own is not None and verdict.own < HUGE:
                return verdict.own
    return None


def ruled_out(state: State) -> tuple[RuledOut, ...]:
    """What the answers on the route exclude."""
    return tuple(
        RuledOut(
            _EXCLUDED[visit.node, visit.answer], str((visit.outcome or {}).get("message") or "")
        )
        for visit in state.route
        if (visit.node, visit.answer) in _EXCLUDED
    )


def reached(state: State, flow: Flow) -> Verdict:
    """The contract's verdict of the end; a single step's end and a session under way count by what
    has been found."""
    end = flow.ends.get(state.end)
    if end is not None and end.verdict != "done":
        return end.verdict  # type: ignore[return-value]
    findings = state.findings
    if end is not None and findings.workaround is not None:
        return "worked-around"
    return "minimal-case" if end is not None and confirmed(state, flow) else "unresolved"


def confirmed(state: State, flow: Flow) -> tuple[base.Culprit, ...]:
    """The culprits; where none was confirmed, the case that a search left, its cause unknown. A
    case with which the session ended unresolved was not accepted as one."""
    findings, end = state.findings, flow.ends.get(state.end)
    rejected = end is not None and end.verdict == "unresolved"
    if findings.culprits or findings.case is None or rejected:
        return findings.culprits
    return (base.Culprit(case=findings.case, cause="unknown", dir="case"),)


def culprit(c: base.Culprit, *, compared: bool = True) -> Culprit:
    """``compared`` False: an external checker judged, which measures no error. What is a word of
    ours in every session that we wrote stays one word in one that somebody has written: no form of
    a report makes it literal."""
    case = c.case
    compared = compared and (case.signature is None or case.signature.kind == "accuracy")
    return copy_facts(
        Culprit,
        c,
        case,
        ops=tuple(map(visible, case.ops)),
        cause=visible(c.cause),
        own=case.own if compared else None,
        own_places=case.own_places if compared else (0, 0),
        nodes_after=len(case.nodes),
        dir=c.dir or "case",
        verified=visible(case.verified),
    )


def _change(w: base.Workaround | None) -> object:
    """What a workaround changes: one that was verified twice is told as it was last."""
    return w and (w.kind, w.keep, w.switched_off)


def _workaround(
    findings: base.Findings, problem: Problem, index: GraphIndex | None, version: str, file: str
) -> Workaround | None:
    w, engine = findings.workaround, problem.engine
    if w is None:
        return None
    unseen, spec = w.unseen or base.Unseen(), parse(w.engine or engine)
    failing = outside.found(parse(engine), version)
    ok, n = w.crossed if w.layers else (unseen.ok, unseen.n)
    cure = _cure(w, index, failing, file, as_given=findings.model == findings.original)
    if index and problem.exported and w.kind == "precision":
        cure = msgspec.structs.replace(cure, program=find_program(index, w, problem.exported))
    return copy_facts(
        Workaround,
        w,
        engine=w.engine or spec.name,
        apply=tuple(outside.apply(outside.found(spec, version), cure)),
        keep_higher=w.in_model or w.keep_names,
        margin=min(w.margin, HUGE),
        unseen_ok=unseen.ok,
        unseen_n=unseen.n,
        unseen_given=unseen.given,
        unseen_failing=unseen.plain,
        held_out_ok=unseen.ok,
        held_out_n=unseen.n,
        file=file,
        accused_inside=holds_accused(findings, w),
        unseen_least=least_share(ok, n) if n else None,
        source=_list_sources(index, ranges.decode(w.keep)),
        modules=_list_modules(index, ranges.decode(w.keep)),
        known=tuple(fact.text for fact in list_facts(findings, w)),
    )


def _list_sources(index: GraphIndex | None, nodes: Iterable[int]) -> tuple[str, ...]:
    """Files and lines of the exported program that these nodes come from, each once, in the order
    of the model."""
    found = (index.nodes[n].source for n in nodes) if index is not None else ()
    return tuple(dict.fromkeys(filter(None, found)))


def _list_modules(index: GraphIndex | None, nodes: Iterable[int]) -> tuple[str, ...]:
    """The PyTorch modules that these nodes lie in, likewise: ``blocks.5.n2 (LayerNorm)``."""
    found = (index.nodes[n] for n in nodes) if index is not None else ()
    named = (f"{node.module} ({node.module_class})" for node in found if node.module)
    return tuple(dict.fromkeys(name.removesuffix(" ()") for name in named))


def _cure(
    w: base.Workaround, index: GraphIndex | None, failing: Found, file: str, *, as_given: bool
) -> Cure:
    """``failing``: the engine that fails; ``file``: what is handed over, "" for nothing;
    ``as_given``: the index is that of the user's own file."""
    named = {node.name for node in index.nodes} - {""} if index else set(w.keep_names)
    nameless = sum(name not in named for name in w.keep_names)
    # Polygraphy is told of all that shall be outputs; of a cleaned model the names may be others
    # than the file's.
    final = (
        [index.tensors[t].name for t in index.outputs]
        if index and w.kind == "barrier" and as_given
        else []
    )
    outputs = (*final, *w.switched_off) if final else ()
    plain = (
        w.kind == "control-flow"
    )  # the user's own model, opened; a rewritten one is as the engine took it
    names = w.holders or w.in_model or w.keep_names
    kept = set(ranges.decode(w.keep)) if index and w.kind == "precision" else set()
    layers = {layer.node for layer in find_leavable_layers(index)} if index and kept else set()
    in_float = bool(kept) and kept <= layers
    quantized = say_settings(find_settings(index)) if index and in_float else ""
    left = list_left_out(index) if index and quantized else ()
    floats = index.tensors[index.nodes[min(kept)].outputs[0]].dtype if index and kept else ""
    # What is built with layers in float has no other setting that holds them.
    held = FILE if w.in_model or w.in_file or (in_float and file) else ""
    return Cure(names, nameless, failing, held, outputs, plain, in_float, quantized, left, floats)


def stop(visit: Visit, flow: Flow) -> Stop:
    node = flow.nodes.get(visit.node)
    question = visit.question
    offered = {offer.id: offer for offer in question.answers} if question else {}
    chosen = offered.get(visit.answer)
    outcome = visit.outcome or {}
    return copy_facts(
        Stop,
        visit,
        title=node.title if node else visit.node,
        answer=visible(visit.answer),
        text=chosen.text if chosen else visit.answer,
        by=visible(visit.by),
        recommended=visible(question.recommended) if question else "",
        because=question.because if question else "",
        message=str(outcome.get("message") or visit.error),
        state=stage(visit) if visit.step else "",
        missed=str(outcome.get("missed") or ""),
    )


def headline(state: State, flow: Flow, report: Report) -> str:
    """The result in one sentence. ``report``: without it."""
    culprits, cure = report.culprits, report.workaround
    if not state.end:
        here = state.here
        node = flow.nodes.get(here.node) if here else None
        if node is None:
            return "The session has only begun"
        return f"The session is at: {node.title} ({stage(here)})"
    if state.findings.spread and not culprits:
        return (
            f"The error {'grows from step to step' if state.findings.loop else 'is spread over many layers'}: no single part "
            f"stands for it{say_cure(cure)}"
        )
    ranked = _outcome(state, QuantizationOutcome)
    if ranked and cure is not None:
        effect = ranked.get("worst_effect")
        wrong = f" ({show_error(effect, report.metric)} by it alone)" if effect else ""
        worst = elide(str(ranked["worst"]), 60)
        return f"{worst} loses the most to quantization{wrong}{say_cure(cure)}"
    if not culprits or report.verdict == "unresolved":
        end = flow.ends.get(state.end)
        return end.title if end else "The route was too long to go on"
    worked = report.verdict == "worked-around"
    left = say_cure(cure) if worked else _say_left(state, len(culprits))
    return f"{_say_failing(culprits, report.nodes_before)}{left}"


def _say_failing(culprits: Sequence[Culprit], before: int) -> str:
    """How many nodes fail, and which."""
    first = culprits[0]
    alike = [c for c in culprits if kind(c) == kind(first)]
    failing = sum(c.nodes_after for c in alike)
    size = f"{failing} of {count(before, 'node')}" if before else count(failing, "node")
    more = f", and {len(alike) - 1} more in the same way" if len(alike) > 1 else ""
    if along := sum(len(c.also) for c in alike):
        more += f", with {along} more of its kind"
    if others := len(culprits) - len(alike):
        more += f", and {count(others, 'further culprit')}"
    return f"{size} {'fails' if failing == 1 else 'fail'}: {name_nodes(first)}{more}"


def _say_left(state: State, found: int) -> str:
    """The end of a headline where no cure is known: that the last step that confirmed a culprit saw
    the model fail without it."""
    last = next(_outcomes(reversed(state.route), ConfirmOutcome), {})
    if not last.get("patched_fails") or state.findings.criterion is None:
        return ""
    them, off = (
        "it" if found == 1 else "them",
        wrong_by(last["patched_error"], state.findings.criterion.metric),
    )
    return f"; without {them} the model is still {off}: something else is wrong, too"


def environment(state: State, problem: Problem, machine: Mapping[str, Any]) -> dict[str, Any]:
    """What the result depends on: versions, the engines as they were, the files by digest."""
    engines = {
        role: {
            key: info.get(key)
            for key in ("name", "spec", "version", "device", "precision", "storage", "fingerprint")
        }
        for role, spec in (("engine", problem.engine), ("reference", problem.reference))
        if (info := state.engines.get(spec))
    }
    return {
        "versions": dict(state.versions),
        "machine": dict(machine),
        **engines,
        "files": dict(problem.digests),
    }


def depths(
    state: State, table: Callable[[str], Table], culprits: Sequence[Culprit]
) -> tuple[tuple[Depth, ...], ...]:
    """The layerwise profile of each round on the route; those that are gone are left out."""
    holds = {name: i for i, c in reversed([*enumerate(culprits, 1)]) for name in c.nodes if name}
    criterion = state.findings.criterion
    allowed = criterion.tolerance if criterion else 0.0
    found = (
        tuple(
            Depth(
                str(row["name"]),
                str(row.get("op", "")),
                error := float(row["error"]),
                error > allowed,
                row.get("inherited"),
                row.get("added"),
                holds.get(str(row.get("node", "")), 0),
            )
            for row in table(v.tables["tensors"])
            if row.get("error") is not None
        )
        for v in state.route
        if "tensors" in v.tables
    )
    return tuple(round_ for round_ in found if round_)


def _last_table(
    state: State, table: Callable[[str], Table], name: str, kind: type[RowT]
) -> tuple[RowT, ...]:
    """The rows of the last table of this name on the route; none where none was left."""
    digest = next((v.tables[name] for v in reversed(state.route) if name in v.tables), "")
    return tuple(msgspec.convert(row, kind) for row in (table(digest) if digest else ()))


def _brought(state: State, table: Callable[[str], Table]) -> Iterator[Brought]:
    """Each table of a step that is none of ours, or that nobody here has any more, as it was left
    last."""
    left = {(v.step, name): digest for v in state.route for name, digest in v.tables.items()}
    for (step, name), digest in left.items():
        if name in _READ or (step in STEPS and not STEPS[step].package):
            continue
        rows = table(digest)
        columns = tuple(dict.fromkeys(key for row in rows for key in row))
        yield Brought(
            step,
            name,
            columns,
            tuple(tuple(_say_cell(row.get(key)) for key in columns) for row in rows),
        )


def _say_cell(value: Any) -> str:
    """What a step left in a field, as text: fractions as everywhere, what has parts as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return number(value) if isinstance(value, float) else msgspec.json.encode(value).decode()


def _trigger(state: State, table: Callable[[str], Table]) -> Trigger | None:
    """What triggers the case, as the last step that asked it found: the one that leaves these two
    tables."""
    asked = (v.outcome for v in reversed(state.route) if {"cases", "factors"} <= v.tables.keys())
    if (outcome := next(asked, None)) is None:
        return None
    verdict, condition, said = (str(outcome[n]) for n in ("verdict", "condition", "message"))
    factors = _last_table(state, table, "factors", FactorRow)
    return Trigger(verdict, condition, said, factors, _last_table(state, table, "cases", Tried))


def _recognise(
    state: State, problem: Problem, index: GraphIndex | None
) -> tuple[base.Lookalike, ...]:
    """The known bugs that the failure looks like, confirmed ones first: what the step ``known``
    found, else what the table says of the culprits; none where none was found or the graph is
    gone."""
    findings = state.findings
    if findings.lookalikes or not findings.culprits or problem.check or index is None:
        return findings.lookalikes
    view = view_engine(state.engines.get(problem.engine, {}))
    try:
        bugs = recall(parse(problem.engine).name, {n.op for n in index.nodes})
    except TableProblem:  # no report fails for it; 'narrowdown known' says it
        return ()
    found = list_lookalikes(findings, index, bugs, version=view.version, precision=view.precision)
    return tuple(
        base.Lookalike(b.id, b.thread, b.says, False, b.mended, b.cure, index.names(nodes))
        for b, nodes in found
    )


def journalled(state: State, flow: Flow) -> tuple[str, ...]:
    """The notes in the journal, a person's and the runner's, each with the question at which it was
    written."""
    titles = {name: f"{node.title}: " for name, node in flow.nodes.items()}
    titles |= {name: f"{end.title}: " for name, end in flow.ends.items()}
    return tuple(f"{titles.get(note.node, '')}{note.text}" for note in state.notes)


def _say_lost_workers(state: State) -> tuple[str, ...]:
    """Workers that died or had to be killed while they worked, one sentence each: every one cost a
    probe."""
    said = []
    for death in state.deaths:
        visit = next(
            (v for v in reversed(state.route) if v.started and v.started <= death.ts), None
        )
        if death.extra:
            said += [] if death.detail in said else [death.detail]
        elif death.key:
            said.append(
                f"One probe{f' of {visit.step}' if visit else ''} cost its worker: {death.detail}"
            )
    return tuple(said)


def _postprocessed(problem: Problem) -> tuple[str, ...]:
    """What was compared, where it is not the outputs as they are."""
    if not problem.postprocess:
        return ()
    what = ", ".join(problem.postprocess)
    return (
        f"The model's outputs were compared after --postprocess {what}. A smaller case, its check and its commands compare what "
        "they give as it is.",
    )


def _spread(state: State) -> str:
    """What the step said that found an error, or what is left of it, in no single part, where that
    is how the search ended."""
    told, before = "", state.taken is not None and state.taken.spread
    for visit in state.route:
        outcome, now = visit.outcome or {}, visit.findings.spread if visit.findings else before
        if outcome.get("spread") or now > before:
            told = str(outcome.get("message") or "")
        before = now
    return told if before else ""


def _outcome(state: State, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The first outcome of this kind on the route; empty where there is none."""
    return next(_outcomes(state.route, kind), {})


def _outcomes(route: Iterable[Visit], kind: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    """Outcomes of the steps that answer so, whatever they are called."""
    return (
        v.outcome
        for v in route
        if v.outcome and v.step in STEPS and issubclass(STEPS[v.step].outcome, kind)
    )


def _nodes_before(state: State) -> int:
    """Nodes of the model that was searched."""
    found = [
        v.outcome["nodes_before"]
        for v in state.route
        if step_makes(v.step, "case", "confirmed") and v.outcome and v.outcome.get("nodes_before")
    ]
    return int(found[0]) if found else state.nodes


def case_files(
    state: State, table: Callable[[str], Table], culprits: Sequence[base.Culprit]
) -> list[dict[str, str]]:
    """For each culprit its files in the bundle -> artifact digests; none where no step kept any.

    A confirm step's table ``bundle`` has the case as it was confirmed. The passing neighbour comes
    from the search before it, which kept one; without a confirm step the search's own case serves.
    Those of the session that this one goes on from serve until it has its own.
    """
    found = {
        nodes: dict(files) for nodes, files in state.taken_cases.items()
    }  # by the case's node ids
    good: dict[str, str] = {}
    for visit in state.route:
        case = visit.findings.case if visit.findings else None
        if case is None or "bundle" not in visit.tables:
            continue
        kept = table(visit.tables["bundle"])
        found.update(
            {str(row.get("case")): files_of(row) for row in kept if row.get("role") == "alike"}
        )
        rows = {str(row.get("role")): files_of(row) for row in kept}
        if step_makes(visit.step, "case"):
            good = {}
            found.setdefault(
                case.node_ids, _name_case_files(rows.get("case", {}), rows.get("good", {}))
            )
        good = rows.get("good") or good
        if step_makes(visit.step, "confirmed") and rows.get("case"):
            found[case.node_ids] = _name_case_files(rows["case"], good)
            good = {}
    return [found.get(culprit.case.node_ids, {}) for culprit in culprits]


def _name_case_files(case: dict[str, str], good: dict[str, str]) -> dict[str, str]:
    return {**case, **({"good.onnx": good["model.onnx"]} if "model.onnx" in good else {})}
