"""A recorded session looked at again: over its journal alone, with today's engine, or by searching
anew. Nothing is written into it."""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from narrowdown.engines import options
from narrowdown.engines.asking import StepContext, StepRefused
from narrowdown.engines.faults import name_path
from narrowdown.engines.probe import AnyProbe, Measure
from narrowdown.engines.spec import EngineSpec, parse
from narrowdown.engines.steps.base import StepSpec
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import Damaged, Store, copying, digest_file, sound
from narrowdown.engines.store.scratch import scratch
from narrowdown.engines.workers.executor import Executor, ExecutorLost
from narrowdown.wizard.flow.load import load as load_flow
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner import requests
from narrowdown.wizard.runner.again import Again
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.runner.context import step_context
from narrowdown.wizard.runner.decisive import Decisive, decisive
from narrowdown.wizard.runner.drive import Asking, Guarded, replayed
from narrowdown.wizard.runner.ledger import Ledger
from narrowdown.wizard.runner.limits import probe_limit
from narrowdown.wizard.runner.rates import MOST_LOOKS
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.restore import make_again_for
from narrowdown.wizard.runner.table import (
    FINE,
    Compared,
    Expect,
    Outcome,
    Replay,
    Row,
    Stand,
    sum_up,
)
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import MENDING, SessionProblem, folder as folders
from narrowdown.wizard.session.decide import RunStep, decide
from narrowdown.wizard.session.events import (
    Offered,
    QuestionAsked,
    StepFinished,
    StepStarted,
)
from narrowdown.wizard.session.journal import NAME, Journal, events
from narrowdown.wizard.session.state import State, Visit, walk

SCRATCH = "narrowdown-replay-"  # a session's model is copied there


class Teller:
    """Who is told of a replay as it goes; nobody, unless a method is overridden."""

    def engines(self, compared: tuple[Compared, ...]) -> None:
        """What recorded, and what measures."""

    def note(self, said: str) -> None:
        """A sentence."""

    def row(self, row: Row) -> None:
        """One line of the table."""


SILENT = Teller()


class Wanted(msgspec.Struct, frozen=True):
    """What is asked of a replay. ``engine``: in place of the one under test; ``expect``: what is
    right now; ``keep_going``: past the first difference."""

    engine: str = ""
    expect: Expect = "same"
    keep_going: bool = False


class Recording(msgspec.Struct, frozen=True):
    """A session as it was recorded. ``before``: the state at the start of each step run on the
    final route; ``after``: what was known when it finished; ``questions``: the state when each
    question was about to be asked, by the question's event."""

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
    path = folder / NAME
    before: dict[int, State] = {}
    after: dict[int, State] = {}
    questions: dict[int, State] = {}
    state = State()
    try:
        for earlier, event, state in walk(events(path)) if path.exists() else ():
            if isinstance(event, QuestionAsked):
                questions[event.seq] = earlier
            if isinstance(event, StepFinished):
                after[event.run] = earlier
            if isinstance(event, StepStarted):
                before[event.run] = state
    except ValueError as error:
        raise SessionProblem(f"The session in {folder} cannot be replayed: {error}") from None
    flow = load_flow(folder / folders.FLOW).flow
    return Recording(folder, flow, about.problem, state, before, after, questions)


# -- dry: the journal alone -------------------------------------------------------------------------------------------


def dry(
    folder: Path, *, keep_going: bool = False, steps: Mapping[str, StepSpec[Any]] = STEPS
) -> Replay:
    """Run every decision and every step again over the journal, engines forbidden: any probe that
    is not in it is a difference."""
    rec = recording(folder)
    rows: list[Row] = []
    for row in _dry_rows(rec, steps):
        rows.append(row)
        if row.outcome != "same" and not keep_going:
            break
    outcomes = {row.outcome for row in rows}
    verdict: Outcome = (
        "differs" if "differs" in outcomes else "same" if outcomes == {"same"} else "cannot tell"
    )
    return Replay(tuple(rows), verdict, _engines(rec, {}, parse(rec.problem.engine)))


# What is said of an outcome decides nothing: a later version may say it in better words.
_SAID = "message"


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
    after = rec.after[visit.run]
    ctx = step_context(
        rec.problem,
        rec.flow,
        spec,
        rec.before[visit.run],
        RunStep(visit.node, visit.visit, visit.step, dict(visit.params)),
    )
    if lacking := _find_lacking(ctx):
        return _cannot_tell(row, "its engine is not known here", lacking)
    try:
        finish, unknown = replayed(spec, ctx, after, after.fingerprints, Store(rec.folder))
    except StepRefused as refusal:
        return _differs(row, f"refused: {refusal}")
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        return _cannot_tell(
            row, f"a file is {'gone' if gone else 'damaged'}", _say_lost(error, rec.folder)
        )
    except Exception as error:  # whatever the step does now, it did not do then
        return _differs(row, f"the step fails: {type(error).__name__}")
    if finish is None:
        return _differs(row, f"asks what the journal does not hold: {_described(unknown)}")
    now = _plain(finish.outcome)
    recorded = visit.outcome or {}
    # Of what one of two versions does not say nothing can be said: outcomes grow and shrink.
    names = {**recorded, **now}.keys()
    if spec.version != visit.step_version:
        names = recorded.keys() & now.keys()
    different = [name for name in names if name != _SAID and recorded.get(name) != now.get(name)]
    if different:
        name = sorted(different)[0]
        return _differs(row, f"{name}: {recorded.get(name)!r} recorded, {now.get(name)!r} now")
    if _decided(_plain(finish.findings)) != _decided(_plain(visit.findings)):
        return _differs(row, "the findings differ")
    return row


def _find_lacking(ctx: StepContext) -> str:
    """Why an engine that the step was asked with is none here, a sentence; "" where both are
    known."""
    for spec in (ctx.engine, ctx.reference):
        try:
            options.declared_as(parse(spec).name)
        except ValueError as fault:
            return str(fault)
    return ""


def _say_lost(error: OSError, folder: Path) -> str:
    """Which file of the session cannot be read, and what does without it."""
    name = name_path(error, folder)
    place = Path(name).relative_to(folder) if Path(name).is_relative_to(folder) else name
    return f"It cannot be told without {place}. Copy the session anew from where it was whole, or replay it without --dry."


def _dry_question(rec: Recording, visit: Visit) -> Row:
    assert visit.question is not None
    q = visit.question
    row = Row(visit.node, visit.visit, "question", q.recommended, q.recommended, "same")
    decision = decide(rec.flow, rec.questions[q.seq])
    if not isinstance(decision, QuestionAsked) or (decision.node, decision.visit) != (
        visit.node,
        visit.visit,
    ):
        return _differs(row, "another question comes here")
    if decision.recommended != q.recommended:
        return _differs(row, decision.recommended)
    same = _unexplained(decision.answers) == _unexplained(q.answers)
    return row if same else _differs(row, "the offered answers differ")


def _unexplained(answers: tuple[Offered, ...]) -> list[Offered]:
    """Answers without why they are out, which journals of earlier versions do not have."""
    return [msgspec.structs.replace(offer, out="") for offer in answers]


# Of findings what only words are made of, and which a journal of an earlier version has not.
_TOLD = frozenset({"notes", "places", "own_places", "effect_places"})


def _decided(value: Any) -> Any:
    """Findings, or a part of them, without what the report says of them."""
    if isinstance(value, dict):
        return {name: _decided(inner) for name, inner in value.items() if name not in _TOLD}
    return [_decided(inner) for inner in value] if isinstance(value, list) else value


def _differs(row: Row, now: str) -> Row:
    return msgspec.structs.replace(row, now=now, outcome="differs")


def _cannot_tell(row: Row, now: str, detail: str) -> Row:
    return msgspec.structs.replace(row, now=now, outcome="cannot tell", detail=detail)


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _described(probe: AnyProbe | None) -> str:
    if isinstance(probe, Measure):
        return f"nodes {probe.candidate.nodes[:60]} on {probe.engine}"
    return str(probe.__struct_config__.tag) if probe is not None else "nothing"


# -- real: the decisive probes, measured again --------------------------------------------------------------------------


def real(
    folder: Path,
    wanted: Wanted = Wanted(),  # noqa: B008 (frozen)
    *,
    options: Options = Options(),  # noqa: B008 (frozen)
    teller: Teller = SILENT,
    make_pool: Callable[[Path], Executor] | None = None,
) -> Replay:
    """Measure the decisive probes again, with today's engine or another in its place. ``options``:
    where, and what may be run or loaded for that; ``make_pool`` is to hold to the same. Raises
    SessionProblem, ``ImportError`` without what a cluster needs."""
    rec = recording(folder)
    chosen = decisive(rec.state, Store(folder))
    if not chosen:
        raise SessionProblem(
            f"The session {folders.describe(folder).id} has no finished measurement to replay yet."
        )
    bad = [
        name for name in sound.faults(Store(folder)).kept if name.startswith(("models/", "inputs/"))
    ]
    if bad:
        raise SessionProblem(
            f"{Damaged(bad[0], 'is damaged: its bytes are not those that were written')} {MENDING}"
        )
    with scratch(SCRATCH) as place:
        for part in ("models", "inputs"):  # copied: engines refuse linked weights
            if (folder / part).is_dir():
                copying.tree(folder / part, place / part)
        (place / "logs").mkdir()
        made = make_pool(place) if make_pool else _executor(rec, place, options, teller)
        with contextlib.closing(Journal(place / NAME)) as journal:
            asking = Asking(
                Ledger(journal, Store(place)),
                Guarded(made, options.consent),
                lambda probe: probe_limit(probe, rec.problem.timeout, rec.state),
            )
            return asyncio.run(_real(rec, chosen, made, asking, wanted, teller))


def _executor(rec: Recording, place: Path, options: Options, teller: Teller) -> Executor:
    """Who measures a session's probes again in the folder ``place``: this machine, or a cluster,
    where the hosts go first that have the recorded engine. Not started."""
    from narrowdown.engines.workers.pool import Pool, Telling, Terms

    if options.executor == LOCAL:
        return Pool(place, 1, Terms(consent=options.consent.handing(options.handed)))
    from narrowdown.engines.cluster.executor import Cluster

    made = Cluster(
        options.executor,
        place,
        session=f"replay-{secrets.token_hex(8)}",
        prefer=lambda spec: rec.state.fingerprints.get(spec, ""),
        terms=Terms(consent=options.consent),
        telling=Telling(tell=teller.note),
    )
    teller.note(f"Waiting for {made.waited_for()}.")
    return made


async def _real(
    rec: Recording,
    chosen: list[Decisive],
    made: Executor,
    asking: Asking,
    wanted: Wanted,
    teller: Teller,
) -> Replay:
    base = parse(rec.problem.engine)
    other = parse(wanted.engine) if wanted.engine else base
    reference = parse(rec.problem.reference)
    rows: list[Row] = []
    compared: tuple[Compared, ...] = ()
    try:
        await made.start()
        if not rec.problem.check:
            for spec in {str(other), str(reference)}:
                inspected = await asking.inspect(spec)
                if inspected.status != "ok":
                    why = inspected.message or f"The engine '{spec}' cannot be used here."
                    # The one under test may be another one.
                    another = (
                        "use one that is here (--engine NAME; 'narrowdown engines' lists them), or "
                        if spec == str(other)
                        else ""
                    )
                    raise SessionProblem(
                        f"{why.rstrip('.')}. Or {another}read the journal again without any engine (--dry)."
                    )
            now = {spec: m.facts for spec, m in asking.inspected.items()}
            compared = _engines(rec, now, other)
            teller.engines(compared)
        gone = await make_again_for(
            (item.probe for item in chosen),
            rec.state,
            Store(rec.folder),
            asking.ledger.store,
            asking.pool,
        )
        for said in gone:
            teller.note(said)
        again = Again(base, other, rec.state.engines, asking)
        rules = await again.rules(chosen)
        if any(rules):
            teller.note(
                f"The fault comes and goes: each question is tried {MOST_LOOKS} times at most."
            )
        for item, how in zip(chosen, rules, strict=True):
            row = await again.row(item, how)
            rows.append(row)
            teller.row(row)
            if row.outcome not in (*FINE[wanted.expect], "cannot tell") and not wanted.keep_going:
                break
    except ExecutorLost as lost:
        raise SessionProblem(str(lost)) from None
    finally:
        await asking.pool.stop(hard=True)
    return Replay(tuple(rows), sum_up(rows), compared)


def _engines(
    rec: Recording, now: Mapping[str, Mapping[str, Any]], other: EngineSpec
) -> tuple[Compared, ...]:
    """Both engines of the session, as they recorded and as they are ``now`` (facts by spec)."""
    if rec.problem.check:
        return ()
    base, reference = str(parse(rec.problem.engine)), str(parse(rec.problem.reference))

    def compared(role: Literal["engine", "reference"], then: str, here: str) -> Compared:
        after = Stand.of(here, now[here]) if here in now else Stand()
        return Compared(role, Stand.of(then, rec.state.engines.get(then, {})), after)

    return compared("engine", base, str(other)), compared("reference", reference, reference)


# -- search: the whole flow again ---------------------------------------------------------------------------------------


def search(
    folder: Path,
    wanted: Wanted = Wanted(),  # noqa: B008 (frozen)
    *,
    options: Options = Options(),  # noqa: B008 (frozen)
    teller: Teller = SILENT,
) -> Replay:
    """Walk the whole flow again, by the recorded answers, in a session of its own, whose runner has
    these ``options``. Raises SessionProblem."""
    rec = recording(folder)
    if rec.state.taken is not None:
        raise SessionProblem(
            f"This session goes on from {rec.state.taken_from}, which has searched: replay that one with --search, or this one "
            "without."
        )
    model = Path(rec.problem.model)
    if not model.is_file():
        raise SessionProblem(
            f"The model '{model}' is not here any more; replay without --search needs only the session."
        )
    recorded = rec.problem.digests.get(str(model), "")
    if recorded and digest_file(model) != recorded:
        raise SessionProblem(
            f"The model '{model}' has changed since; replay without --search uses the recorded one."
        )
    problem = msgspec.structs.replace(
        rec.problem, engine=str(parse(wanted.engine or rec.problem.engine))
    )
    answers: dict[str, list[str]] = {}
    settings: dict[str, list[dict[str, Any]]] = {}
    for visit in rec.state.route:
        if visit.answer:
            answers.setdefault(visit.node, []).append(visit.answer)
            settings.setdefault(visit.node, []).append(visit.settings)
    text = (folder / folders.FLOW).read_text(encoding="utf-8")
    with scratch(SCRATCH) as made:
        place = folders.create(problem, text, folder=made / "session")
        scripted = msgspec.structs.replace(
            options, policy="script", answers=answers, settings=settings
        )
        client = Client.start(place, scripted, name="narrowdown replay --search")
        try:
            code = client.wait()
            why = str((client.progress() or {}).get("text", "")) or f"it ended with {code}"
        finally:
            client.send(requests.encode(requests.Stop(hard=True)))
            client.wait(10.0)
            client.close()
        walked = folders.load(place)
    rows: list[Row] = []
    for row in (*_questions(rec.state, walked, why), *_cases(rec.state, walked)):
        rows.append(row)
        teller.row(row)
        if row.outcome != "same" and not wanted.keep_going:
            break
    compared = _engines(rec, walked.engines, parse(wanted.engine or rec.problem.engine))
    teller.engines(compared)
    return Replay(tuple(rows), sum_up(rows), compared)


def _questions(recorded: State, now: State, why: str) -> Iterator[Row]:
    """What was recommended at each question. ``why``: what is to be said where it came to no
    end."""
    before = {(v.node, v.visit): v.question for v in recorded.route}
    for visit in now.route:
        if visit.question is not None and visit.answer:
            old, new = before.get((visit.node, visit.visit)), visit.question.recommended
            then = old.recommended if old else "not reached"
            outcome: Outcome = "same" if then == new else "differs"
            yield Row(visit.node, visit.visit, "question", then, new, outcome)
    if not now.end:
        yield Row("", 0, "end", recorded.end, "stopped", "cannot tell", why)


def _cases(recorded: State, now: State) -> Iterator[Row]:
    """The minimal cases, by name."""
    old, new = (
        [", ".join(culprit.case.nodes) for culprit in state.findings.culprits]
        for state in (recorded, now)
    )
    for number, (then, here) in enumerate(itertools.zip_longest(old, new, fillvalue="none"), 1):
        outcome: Outcome = "same" if then == here else "differs"
        yield Row("minimal-case", number, "case", then, here, outcome)
