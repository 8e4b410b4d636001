"""A recorded session looked at again: over its journal alone, with today's engine, or by searching anew. Nothing is
written into it."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from engines.asking import StepRefused
from engines.compare.criterion import Criterion, Verdict
from engines.compare.judge import badness, judge, judge_check, judge_whole, over
from engines.data import copying, decoding, sound
from engines.data.scratch import scratch
from engines.data.store import Damaged, Store, digest_file
from engines.findings import Findings
from engines.graph import ranges
from engines.probe import HUGE, AnyProbe, Check, Measure, Measurement, key
from engines.spec import EngineSpec, parse
from engines.steps.base import StepSpec
from engines.workers.executor import LOCAL, Executor, ExecutorLost, Prober
from wizard.flow.load import load as load_flow
from wizard.flow.model import Flow
from wizard.problem import Problem
from wizard.runner.client import Client
from wizard.runner.context import step_context
from wizard.runner.drive import Fingerprints, Guarded, replayed
from wizard.runner.ledger import Ledger, asked_probe, known_measurement
from wizard.runner.options import Options
from wizard.session import folder as folders
from wizard.session.decide import Ask, decide
from wizard.session.events import QuestionAnswered, QuestionAsked, StepFinished, StepStarted
from wizard.session.journal import NAME, Journal, read
from wizard.session.problems import MENDING, SessionProblem
from wizard.session.state import State, Visit, advance, fold

Outcome: TypeAlias = Literal[
    "fixed", "still fails", "fails differently", "still passes", "fails now", "same", "differs", "cannot tell",
    "not possible",
]  # fmt: skip
Expect: TypeAlias = Literal["same", "fixed", "fails"]
AS_EXPECTED, DIFFERS, CANNOT_TELL = 0, 5, 6

_FINE: Mapping[Expect, tuple[Outcome, ...]] = {
    "same": ("same", "still fails", "still passes", "not possible"),
    "fixed": ("same", "fixed", "still passes", "not possible"),
    "fails": ("same", "still fails", "fails differently", "still passes", "not possible"),
}

SCRATCH = "narrowdown-replay-"  # a session's model is copied there


class Row(msgspec.Struct, frozen=True):
    """One line of the table. ``role``: whole, case, good, workaround, ... of a measurement; step, question of a dry
    replay."""

    node: str
    visit: int
    role: str
    recorded: str
    now: str
    outcome: Outcome
    detail: str = ""


class Replay(msgspec.Struct, frozen=True):
    """The table, and what it comes to: ``fixed``, ``still fails``, ``fails differently``, ``same``, ``differs`` or
    ``cannot tell``."""

    rows: tuple[Row, ...]
    verdict: Outcome

    def exit_code(self, expect: Expect = "same") -> int:
        """0 as expected, 5 not, 6 cannot tell."""
        outcomes = {row.outcome for row in self.rows}
        if any(o != "cannot tell" and o not in _FINE[expect] for o in outcomes):
            return DIFFERS
        if "cannot tell" in outcomes or not outcomes:
            return CANNOT_TELL
        if expect == "fixed" and "fixed" not in outcomes:
            return DIFFERS
        if (
            expect == "fails"
            and "still passes" in outcomes
            and not outcomes & {"still fails", "fails differently", "same"}
        ):
            return DIFFERS  # nothing of it fails
        return AS_EXPECTED


class Recording(msgspec.Struct, frozen=True):
    """A session as it was recorded. ``before``: the state at the start of each step run on the final route; ``after``:
    what was known when it finished; ``questions``: the state when each question was about to be asked, by the
    question's event."""

    folder: Path
    flow: Flow
    problem: Problem
    state: State
    before: dict[int, State]
    after: dict[int, State]
    questions: dict[int, State]


def recording(folder: Path) -> Recording:
    """Read a session. Raises SessionProblem, FlowProblem."""
    about = folders.describe(folder)
    events = read(folder / NAME) if (folder / NAME).exists() else ()
    try:
        final = fold(events)
    except ValueError as error:
        raise SessionProblem(f"The session in {folder} cannot be replayed: {error}") from None
    runs = {v.run for v in final.route if v.stepped}
    asked = {v.question.seq for v in final.route if v.question is not None}
    before: dict[int, State] = {}
    after: dict[int, State] = {}
    questions: dict[int, State] = {}
    state = State()
    for event in events:
        if isinstance(event, QuestionAsked) and event.seq in asked:
            questions[event.seq] = state
        if isinstance(event, StepFinished) and event.run in runs:
            after[event.run] = state
        state = advance(state, event)
        if isinstance(event, StepStarted) and event.run in runs:
            before[event.run] = state
    flow = load_flow(folder / folders.FLOW).flow
    return Recording(folder, flow, about.problem, final, before, after, questions)


# -- dry: the journal alone -------------------------------------------------------------------------------------------


def dry(folder: Path, *, keep_going: bool = False, steps: Mapping[str, StepSpec[Any]] | None = None) -> Replay:
    """Run every decision and every step again over the journal, engines forbidden: any probe that is not in it is a
    difference."""
    if steps is None:
        from engines.steps.registry import STEPS

        steps = STEPS
    rows: list[Row] = []
    for row in _dry_rows(recording(folder), steps):
        rows.append(row)
        if row.outcome != "same" and not keep_going:
            break
    verdict: Outcome = "differs" if any(r.outcome != "same" for r in rows) else "same"
    return Replay(tuple(rows), verdict if rows else "cannot tell")


def _dry_rows(rec: Recording, steps: Mapping[str, StepSpec[Any]]) -> Iterator[Row]:
    for visit in rec.state.route:
        if visit.status == "done":
            yield _dry_step(rec, visit, steps)
        if visit.question is not None:
            yield _dry_question(rec, visit)


def _dry_step(rec: Recording, visit: Visit, steps: Mapping[str, StepSpec[Any]]) -> Row:
    said = str((visit.outcome or {}).get("message", "")) or visit.status
    row = Row(visit.node, visit.visit, f"step {visit.step}", said, said, "same")
    spec = steps.get(visit.step)
    if spec is None:
        return _differs(row, "this narrowdown has no such step")
    if spec.version != visit.step_version:
        changed = f"version {visit.step_version} of the step recorded, {spec.version} now"
        row = msgspec.structs.replace(row, detail=changed)
    state = rec.before[visit.run]
    after = rec.after[visit.run]
    ctx = step_context(
        rec.problem, rec.flow, spec, state, node=visit.node, visit=visit.visit, params=dict(visit.params)
    )
    try:
        finish, unknown, _ = replayed(spec, ctx, after, after.fingerprints, Store(rec.folder))
    except StepRefused as refusal:
        return _differs(row, f"refused: {refusal}")
    except OSError as error:
        return _differs(row, f"a file of the session is missing: {error}")
    except Exception as error:  # whatever the step does now, it did not do then
        return _differs(row, f"the step fails: {type(error).__name__}")
    if finish is None:
        return _differs(row, f"asks what the journal does not hold: {_described(unknown)}")
    now = _plain(finish.outcome)
    recorded = visit.outcome or {}
    different = [name for name in {**recorded, **now} if recorded.get(name) != now.get(name)]
    if different:
        name = sorted(different)[0]
        return _differs(row, f"{name}: {recorded.get(name)!r} recorded, {now.get(name)!r} now")
    if _plain(finish.findings) != _plain(visit.findings):
        return _differs(row, "the findings differ")
    return row


def _dry_question(rec: Recording, visit: Visit) -> Row:
    assert visit.question is not None
    q = visit.question
    row = Row(visit.node, visit.visit, "question", q.recommended, q.recommended, "same")
    decision = decide(rec.flow, rec.questions[q.seq])
    if not isinstance(decision, Ask) or (decision.node, decision.visit) != (visit.node, visit.visit):
        return _differs(row, "another question comes here")
    if decision.recommended != q.recommended:
        return _differs(row, decision.recommended)
    return row if decision.answers == q.answers else _differs(row, "the offered answers differ")


def _differs(row: Row, now: str) -> Row:
    return msgspec.structs.replace(row, now=now, outcome="differs")


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _described(probe: AnyProbe | None) -> str:
    if isinstance(probe, Measure):
        return f"nodes {probe.candidate.nodes[:60]} on {probe.engine}"
    return str(probe.__struct_config__.tag) if probe is not None else "nothing"


# -- real: the decisive probes, measured again --------------------------------------------------------------------------


class Decisive(msgspec.Struct, frozen=True):
    """One probe that a replay measures again, and how to judge it. ``looks``: how many builds, where the fault comes
    and goes."""

    visit: Visit
    role: str
    probe: AnyProbe
    recorded: Measurement | None
    looks: int = 1


def decisive(rec: Recording) -> list[Decisive]:
    """The decisive probes of the recorded route, in its order."""
    store = Store(rec.folder)
    found = []
    for visit in rec.state.route:
        for row in _decisive_rows(rec, visit, store):
            measurement = known_measurement(rec.state, row["key"], store) or _alike(rec.state, row["probe"], store)
            found.append(
                Decisive(visit, row["role"], row["probe"], measurement, _looks(visit) if row["role"] == "case" else 1)
            )
    return found


def _alike(state: State, probe: AnyProbe, store: Store) -> Measurement | None:
    """What the session measured of the same question asked in another manner: with its files kept, alone on the machine, in
    several runs, or of more samples than these."""

    def plain(other: AnyProbe) -> AnyProbe:
        changes: dict[str, Any] = {
            "attempt": 0, "exclusive": False, "timeout": 0.0, "save": "", "runs": 1, "samples": (),
        }  # fmt: skip
        return msgspec.structs.replace(other, **{k: v for k, v in changes.items() if hasattr(other, k)})

    wanted = plain(probe)
    for name, asked in state.asked.items():
        other = asked.probe
        if other is None or type(other) is not type(probe) or plain(other) != wanted:
            continue
        measurement = known_measurement(state, name, store)
        if measurement is None or not isinstance(probe, Measure) or not isinstance(other, Measure):
            found = measurement
        elif set(probe.samples) <= set(other.samples):
            found = _only(measurement, probe.samples)
        else:
            continue
        if found is not None:
            return found
    return None


def _only(measurement: Measurement, samples: tuple[str, ...]) -> Measurement:
    """What it says of these samples, or of their rows."""
    kept = tuple(r for r in measurement.results if r.sample in samples or r.sample.partition("/")[0] in samples)
    return msgspec.structs.replace(measurement, results=kept)


def _decisive_rows(rec: Recording, visit: Visit, store: Store) -> Iterator[dict[str, Any]]:
    if "decisive" in visit.tables:
        with contextlib.suppress(OSError, ValueError):
            for row in decoding.decode(store.get(visit.tables["decisive"])):
                yield {**row, "probe": msgspec.convert(row["probe"], AnyProbe)}
            return
    for role, keys in visit.decisive.items():
        for name in keys:
            if (probe := asked_probe(rec.state, name, store)) is not None:
                yield {"role": role, "key": name, "probe": probe}


def _looks(visit: Visit) -> int:
    """n of a culprit's "k/n" where it failed in some builds only; one look is enough where it always fails."""
    case = visit.findings.case if visit.findings else None
    k, _, n = (case.verified if case else "").partition("/")
    return int(n) if k.isdigit() and n.isdigit() and k != n else 1


def real(
    folder: Path,
    *,
    engine: str = "",
    expect: Expect = "same",
    keep_going: bool = False,
    told: Callable[[Row], None] = lambda _: None,
    make_pool: Callable[[Path], Executor] | None = None,
) -> Replay:
    """Measure the decisive probes again, with today's engine or ``engine`` in its place. Raises SessionProblem."""
    rec = recording(folder)
    chosen = decisive(rec)
    if not chosen:
        raise SessionProblem(f"The session {rec.state.id} has no finished measurement to replay yet.")
    bad = [name for name in sound.faults(Store(folder)).kept if name.startswith(("models/", "inputs/"))]
    if bad:
        raise SessionProblem(f"{Damaged(bad[0], 'is damaged: its bytes are not those that were written')} {MENDING}")
    with scratch(SCRATCH) as place:
        for part in ("models", "inputs"):  # copied: engines refuse linked weights
            if (folder / part).is_dir():
                copying.tree(folder / part, place / part)
        (place / "logs").mkdir()
        made = make_pool(place) if make_pool else executor(place, folder)
        return asyncio.run(_real(rec, chosen, place, engine, expect, keep_going, told, made))


def executor(
    place: Path,
    session: Path,
    url: str = LOCAL,
    tell: Callable[[str], None] = lambda _: None,
    handed: tuple[str, ...] = (),
) -> Executor:
    """Who measures a session's probes again in the folder ``place``: this machine, or a cluster, where the hosts go first that
    have the recorded engine. Not started. ``tell`` takes sentences about hosts; ``handed``: variables for a checker. Raises
    ``ImportError`` without the extra."""
    if url == LOCAL:
        from engines.workers.pool import Pool

        return Pool(place, 1, handed=handed)
    from engines.cluster.executor import Cluster

    fingerprints = recording(session).state.fingerprints
    own = f"replay-{secrets.token_hex(8)}"
    return Cluster(url, place, session=own, prefer=lambda spec: fingerprints.get(spec, ""), tell=tell)


async def _real(
    rec: Recording,
    chosen: list[Decisive],
    place: Path,
    engine: str,
    expect: Expect,
    keep_going: bool,
    told: Callable[[Row], None],
    made: Executor,
) -> Replay:
    pool = Guarded(made, rec.problem, engine)
    journal = Journal(place / NAME)
    fingerprints = Fingerprints(Ledger(journal, Store(place)), pool)
    base = parse(rec.problem.engine)
    other = parse(engine) if engine else base
    rows: list[Row] = []
    known: dict[str, Measurement] = {}
    try:
        await made.start()
        if not rec.problem.check:
            for spec in {str(other), str(parse(rec.problem.reference))}:
                inspected = await fingerprints.inspect(spec)
                if inspected.status != "ok":
                    raise SessionProblem(inspected.message or f"The engine '{spec}' cannot be used here.")
        for item in chosen:
            row = await _again(item, base, other, pool, fingerprints, known)
            rows.append(row)
            told(row)
            if row.outcome not in (*_FINE[expect], "cannot tell") and not keep_going:
                break
    except ExecutorLost as lost:
        raise SessionProblem(str(lost)) from None
    finally:
        await pool.stop(hard=True)
        journal.close()
    return Replay(tuple(rows), _summed(rows))


async def _again(
    item: Decisive,
    base: EngineSpec,
    other: EngineSpec,
    pool: Prober,
    fingerprints: Fingerprints,
    known: dict[str, Measurement],
) -> Row:
    """Measure one decisive probe, in as many builds as the fault needs to show."""
    node, visit = item.visit.node, item.visit.visit
    recorded = _judged(item, item.recorded) if item.recorded else None
    row = Row(node, visit, item.role, _said(recorded), "", "cannot tell")
    probe = _with_engine(item.probe, base, other)
    if probe is None:
        why = f"{other.name} has other options than {base.name}"
        return msgspec.structs.replace(row, now="not measured", outcome="not possible", detail=why)
    verdicts: list[tuple[Verdict, Measurement]] = []
    for look in range(item.looks):
        asked = msgspec.structs.replace(probe, attempt=probe.attempt + look) if look else probe
        await fingerprints.of(asked, 0)
        name = key(asked, fingerprints.known)
        if name not in known:
            began = time.monotonic()
            runs = asked.runs if isinstance(asked, Measure) else 1
            known[name] = await pool.run(asked, getattr(asked, "timeout", 0.0) or item.visit.timeout * runs)
            if known[name].status == "cancelled":
                raise SessionProblem(f"The replay was stopped after {time.monotonic() - began:.0f} s of a probe.")
        verdicts.append((_judged(item, known[name]), known[name]))
        if verdicts[-1][0].failed:
            break  # one failure of n settles it
    verdict, measurement = verdicts[-1]
    looks = f", {len(verdicts)} builds" if len(verdicts) > 1 else ""
    outcome, detail = _compared(item, recorded, verdict, measurement)
    return msgspec.structs.replace(row, now=_said(verdict) + looks, outcome=outcome, detail=detail)


def _with_engine(probe: AnyProbe, base: EngineSpec, other: EngineSpec) -> AnyProbe | None:
    """The probe on the other engine. What a probe changed about the recorded engine (an optimizer off) is changed there
    too; None where that engine knows no such option."""
    if base == other or not isinstance(probe, Measure):
        return probe
    mine = parse(probe.engine)
    if mine == base:
        return msgspec.structs.replace(probe, engine=str(other))
    if mine.name != base.name:
        return probe  # another engine on purpose: a judge, an emulation
    if other.name != base.name:
        return None
    changed = {k: v for k, v in mine.options if base.get(k) != v}
    for name, value in changed.items():
        other = other.with_option(name, _joined(other.get(name), value))
    return msgspec.structs.replace(probe, engine=str(other))


def _joined(there: str, more: str) -> str:
    """Lists (``a+b``) are united; any other value is replaced."""
    if "+" not in there + more and not there:
        return more
    return "+".join(dict.fromkeys([*there.split("+"), *more.split("+")])) if there else more


def _judged(item: Decisive, measurement: Measurement) -> Verdict:
    """By the recorded findings: what counted as failing then counts now."""
    findings = item.visit.findings or Findings()
    criterion = findings.criterion or Criterion()
    if isinstance(item.probe, Check):
        return judge_check(measurement, criterion)
    signature = findings.round_signature or findings.signature
    whole = isinstance(item.probe, Measure) and item.probe.candidate.nodes == ranges.ALL
    case = findings.case
    if item.role == "case" and case is not None and case.candidate.edits and case.signature is not None:
        # A shrunk case has no effect on the model's outputs to be judged by: its own signature decides.
        if measurement.status != "ok":
            return judge_whole(measurement, criterion)
        names = case.signature.outputs
        scores = [s for r in measurement.results for s in r.outputs if s.name in names]
        failed = any(over(s, criterion) for s in scores)
        return Verdict("fail" if failed else "pass", own=max((badness(s, criterion) for s in scores), default=0.0))
    if signature is None or (whole and signature.kind == "accuracy"):
        return judge_whole(measurement, criterion)
    return judge(measurement, criterion, signature)


def _said(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not measured"
    own = None if verdict.kind == "unresolved" else verdict.own
    size = "" if own is None else " (not finite)" if own >= HUGE else f" ({own:.3g})"
    return {"fail": "fails", "pass": "passes", "unresolved": verdict.reason or "unresolved"}[verdict.kind] + size


def _compared(item: Decisive, recorded: Verdict | None, now: Verdict, measurement: Measurement) -> tuple[Outcome, str]:
    if now.kind == "unresolved" or recorded is None:
        same = recorded is not None and (recorded.kind, recorded.reason) == (now.kind, now.reason)
        return ("same", "") if same else ("cannot tell", now.detail or measurement.message)
    if recorded.kind == "unresolved":
        return "differs", f"{recorded.reason or 'unresolved'} before"
    if recorded.passed:
        return ("still passes", "") if now.passed else ("fails now", now.detail)
    if now.passed:
        return "fixed", ""
    before, after = _shape(item, item.recorded), _shape(item, measurement)
    if before != after:
        return "fails differently", f"{_shaped(before)} recorded, {_shaped(after)} now"
    return "still fails", ""


def _shape(item: Decisive, measurement: Measurement | None) -> tuple[tuple[str, ...], bool]:
    """What a failure looks like: the outputs over tolerance, and whether values became non-finite."""
    criterion = (item.visit.findings or Findings()).criterion or Criterion()
    scores = [s for r in (measurement.results if measurement else ()) for s in r.outputs if over(s, criterion)]
    return tuple(sorted({s.name for s in scores})), any(s.new_nonfinite for s in scores)


def _shaped(shape: tuple[tuple[str, ...], bool]) -> str:
    names, broken = shape
    return (", ".join(names[:4]) or "no output") + (" not finite" if broken else " over tolerance")


def _summed(rows: list[Row]) -> Outcome:
    """What the table comes to: a case that is gone is fixed only when nothing else fails now."""
    outcomes = {row.outcome for row in rows}
    ranked: tuple[Outcome, ...] = ("cannot tell", "fails now", "differs", "fails differently", "still fails", "fixed")
    return next((o for o in ranked if o in outcomes), "same")


# -- search: the whole flow again ---------------------------------------------------------------------------------------


def search(
    folder: Path,
    *,
    engine: str = "",
    jobs: int = 0,
    executor: str = LOCAL,
    handed: tuple[str, ...] = (),
    keep_going: bool = False,
    told: Callable[[Row], None] = lambda _: None,
) -> Replay:
    """Walk the whole flow again, by the recorded answers, in a session of its own. Raises SessionProblem."""
    rec = recording(folder)
    model = Path(rec.problem.model)
    if not model.is_file():
        raise SessionProblem(
            f"The model '{model}' is not here any more; replay without --search needs only the session."
        )
    recorded = rec.problem.digests.get(str(model), "")
    if recorded and digest_file(model) != recorded:
        raise SessionProblem(f"The model '{model}' has changed since; replay without --search uses the recorded one.")
    problem = msgspec.structs.replace(rec.problem, engine=str(parse(engine or rec.problem.engine)))
    answers: dict[str, str | list[str]] = {}
    settings: dict[str, list[dict[str, Any]]] = {}
    for visit in rec.state.route:
        if visit.answer:
            listed = answers.setdefault(visit.node, [])
            assert isinstance(listed, list)
            listed.append(visit.answer)
            settings.setdefault(visit.node, []).append(visit.settings)
    text = (folder / folders.FLOW).read_text(encoding="utf-8")
    with scratch(SCRATCH) as made:
        place = folders.create(problem, text, folder=made / "session")
        options = Options(
            policy="script", answers=answers, settings=settings, jobs=jobs, executor=executor, handed=handed
        )
        client = Client.start(place, options, name="narrowdown replay --search")
        try:
            rows = _followed(client, rec, keep_going, told)
        finally:
            client.send({"do": "stop", "hard": True})
            client.wait(10.0)
            client.close()
        rows += (
            _cases(rec.state, folders.load(place), told) if keep_going or all(r.outcome == "same" for r in rows) else []
        )
    return Replay(tuple(rows), "same" if all(r.outcome == "same" for r in rows) else _summed(rows))


def _followed(client: Client, rec: Recording, keep_going: bool, told: Callable[[Row], None]) -> list[Row]:
    rows: list[Row] = []
    before = {(v.node, v.visit): v.question for v in rec.state.route if v.question is not None}
    asked: dict[tuple[str, int], str] = {}
    while True:
        alive = client.alive()
        for event in client.poll():
            if isinstance(event, QuestionAsked):
                asked[event.node, event.visit] = event.recommended
            if not isinstance(event, QuestionAnswered):
                continue
            old = before.get((event.node, event.visit))
            now = asked.get((event.node, event.visit), "")
            recorded = old.recommended if old else "not reached"
            outcome: Outcome = "same" if recorded == now else "differs"
            row = Row(event.node, event.visit, "question", recorded, now, outcome)
            rows.append(row)
            told(row)
            if outcome != "same" and not keep_going:
                return rows
        if not alive:
            break
        time.sleep(0.1)
    code = client.exit_code()
    if code not in (0, 6, 10, 11, 12, 13):
        said = client.progress() or {}
        why = str(said.get("text", "")) or f"it ended with {code}"
        row = Row("", 0, "end", rec.state.end, "stopped", "cannot tell", why)
        rows.append(row)
        told(row)
    return rows


def _cases(recorded: State, now: State, told: Callable[[Row], None]) -> list[Row]:
    """The minimal cases, by name."""
    rows = []
    old = [c.case.nodes for c in recorded.findings.culprits]
    new = [c.case.nodes for c in now.findings.culprits]
    for number in range(max(len(old), len(new))):
        a = ", ".join(old[number]) if number < len(old) else "none"
        b = ", ".join(new[number]) if number < len(new) else "none"
        row = Row("minimal-case", number + 1, "case", a, b, "same" if a == b else "differs")
        rows.append(row)
        told(row)
    return rows
