"""trigger: what keeps the case's failure, and what takes it away? Each thing of it that can be
changed is changed alone, with the reference computed anew each time; a line a factor says what was
tried on both sides."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.compare.judge import exceed, for_parts, worst
from narrowdown.engines.compare.say import wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.known.entry import Construction, MadeTensor
from narrowdown.engines.known.factors import (
    DRAWN,
    ZEROS,
    Factor,
    Level,
    hold,
    list_factors,
    say_level,
)
from narrowdown.engines.known.generator import NAME as GENERATOR, Program, write_generator
from narrowdown.engines.known.varied import Place, is_list
from narrowdown.engines.probe import (
    HUGE,
    Candidate,
    Construct,
    Measure,
    Measurement,
    State,
)
from narrowdown.engines.search.trigger import DECIDED, Found, Row, find_trigger
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    PASSES,
    Finish,
    Outcome,
    Steps,
    StepSpec,
    comparison,
    unresolved,
)
from narrowdown.engines.steps.known import JUDGE, NOT_RUN
from narrowdown.engines.steps.prepare import prepare_findings

# Cases that are built: some eight sizes, ten attributes and eight others with four levels each, and
# a bound of some.
BUDGET = 150


class TriggerOutcome(Outcome, frozen=True, kw_only=True):
    # found: some changes take the failure away; always: none does; unsteady: the same case
    # fails and passes; gone: the stated case does not fail
    verdict: Literal["found", "always", "unsteady", "gone", "passes", "unresolved"] = "unresolved"
    condition: str = ""  # a sentence for each factor that matters
    tried: int = 0  # cases that gave an answer
    fires: int = 0  # of these
    passes: int = 0  # of these
    refused: int = 0  # of these: refused by the engine, not by the reference
    cannot_tell: int = 0  # the reference is not determined, or the fault would not show
    spent: bool = False  # the budget ended it


class TriggerParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = BUDGET  # cases that are built at most


class FactorRow(msgspec.Struct, frozen=True):
    """A row of the table ``factors``: one property of the case, changed alone."""

    factor: str  # the property, in words
    base: str  # as it is in the case
    fires: str = ""  # the values at which it fails
    passes: str = ""  # the values at which it passes
    refused: str = ""  # the values at which the engine does not build or run it
    no_answer: str = ""  # the values at which the right answer is not known
    matters: bool = False  # some of its values take the failure away

    def __str__(self) -> str:
        """``k: fails with 12, 13, 20, 36; passes with 8, 11.``"""
        sides = (
            ("fails with", self.fires),
            ("passes with", self.passes),
            ("is refused with", self.refused),
        )
        return f"{self.factor}: {'; '.join(f'{said} {some}' for said, some in sides if some)}."


class Script(msgspec.Struct, frozen=True):
    """A row of the table ``generator``: a program, by the name that its file has in a bundle, and
    what it was written from, as the text of a session may be a stranger's."""

    name: str
    text: str
    program: Program


def trigger(ctx: StepContext) -> Steps[TriggerOutcome]:
    params = msgspec.convert(dict(ctx.params), TriggerParams, strict=False)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        said = "The model passes here, so there is no failure whose trigger could be looked for."
        return Finish(TriggerOutcome(verdict="passes", message=said), findings)
    case = findings.culprits[0].case if findings.culprits else findings.case
    if case is not None and case.engine:
        ctx = msgspec.structs.replace(ctx, engine=case.engine)  # alone it fails there
    yield Note("stating the case in a few lines")
    stated = yield from asked(
        State(
            model=findings.model,
            inputs=findings.inputs,
            sample=case.sample if case else findings.sample,
            reference=ctx.reference,
            candidate=case.candidate if case else Candidate(),
        )
    )
    if stated.status != "ok":
        return Finish(
            TriggerOutcome(message=f"The case cannot be varied: {stated.message}"), findings
        )
    sizes = msgspec.convert(stated.facts["sizes"], list[tuple[Place, ...]])
    trial = _Trial(ctx, findings, read_declared(stated))
    if not (yield from trial.prefer_drawn()):
        said = "The case as it can be stated, from its values alone, does not fail, so nothing can be varied."
        return Finish(TriggerOutcome(verdict="gone", message=said), findings)
    factors = list_factors(trial.made, sizes)
    found: Found = yield from find_trigger(factors, trial.ask, max(1, params.budget))
    differs = yield from _ask_again(trial, factors, found)
    rows = sorted((make_factor_row(f, found) for f in factors), key=lambda row: not row.matters)
    outcome = tell(rows, found, differs, stated.facts.get("names", {}))
    title = f"The case on {ctx.engine} {ctx.engine_info.version}".rstrip()
    program = Program(trial.made, f"{title}.", outcome.message)
    return Finish(
        outcome,
        findings,
        tables={
            "cases": [
                {"changed": r.changed, "outcome": r.outcome, "error": r.error, "why": r.why}
                for r in found.rows
            ],
            "factors": rows,
            "generator": [Script(GENERATOR, write_generator(program), program)],
        },
    )


def read_declared(stated: Measurement) -> Construction:
    """The case as it was stated, names in their order in the alphabet: a journal keeps them so, and
    in another order the search would ask other questions when it is replayed or goes on after a
    kill."""
    text = msgspec.json.encode(stated.facts["declared"], order="sorted")
    return msgspec.json.decode(text, type=Construction)


class _Trial:
    """Asks about one changed case after the other."""

    def __init__(self, ctx: StepContext, findings: Findings, made: Construction) -> None:
        self.ctx, self.made = ctx, made
        signature, rule = findings.signature, findings.rule
        self.refusing = signature is not None and signature.kind in ("build", "crash")
        self.rule = for_parts(rule) if findings.culprits or findings.case else rule
        self.runs = max(1, findings.looks)

    def prefer_drawn(self) -> Sub[bool]:
        """Whether the case fires; with values that are drawn in place of its own, wherever it fires
        with those, too."""
        plain = self.made
        self.made = msgspec.structs.replace(
            plain,
            inputs={n: draw(t) for n, t in plain.inputs.items()},
            weights={n: draw(t) for n, t in plain.weights.items()},
        )
        row = yield from self.ask(None, "")
        if row.outcome != "fires" and self.made != plain:
            self.made = plain
            row = yield from self.ask(None, "")
        return row.outcome == "fires"

    def ask(self, factor: Factor | None, level: Level, attempt: int = 0) -> Sub[Row]:
        declared = factor.at(level) if factor else self.made
        row = yield from self._build(declared, attempt)
        if level == ZEROS and row.outcome == "passes" and not self.refusing:
            row = msgspec.structs.replace(row, outcome="hidden", why="zeros would hide it")
        return msgspec.structs.replace(row, factor=factor, level=level)

    def _build(self, declared: Construction, attempt: int) -> Sub[Row]:
        ctx, text = self.ctx, msgspec.json.encode(declared).decode()
        made = yield from asked(Construct(declared=text, feed=True, seed=ctx.seed))
        if made.status != "ok":
            return Row("invalid", why=made.message)
        probe = Measure(
            model=str(made.facts.get("model", "")),
            inputs=str(made.facts.get("inputs", "")),
            samples=tuple(map(str, made.facts.get("samples", ()))),
            engine=ctx.engine,
            reference=ctx.reference,
            runs=self.runs,
            attempt=attempt,
        )
        m = yield from asked(probe)
        if m.status == "reference-failed" or m.assumed:
            return Row("cannot tell", why=m.message or "nothing was measured")
        # JUDGE computes the case with each float of what is fed moved by one unit in the last place, so
        # one answer tells whether the reference is right, and whether it is determined.
        judged = yield from asked(
            msgspec.structs.replace(
                probe, engine=ctx.reference, reference=JUDGE, runs=1, attempt=0, nudge="inputs"
            )
        )
        if judged.status != "ok" or not any(r.outputs for r in judged.results):
            why = judged.message or "nobody else can compute the reference"
            return Row("cannot tell", why=why)
        if exceed(judged.results, self.rule):
            by = wrong_by(worst(judged.results, self.rule)[2], self.rule.metric)
            why = f"the reference is not determined: {by} from rounding, or beside a more exact computation"
            return Row("cannot tell", why=why)
        # Refused, or broken off when it is run: the reference runs it.
        if m.status in NOT_RUN:
            return Row("fires" if self.refusing else "refused", why=m.message)
        results = [r for run in m.each_run for r in run] if m.status == "ok" else []
        if not any(r.outputs for r in results):
            return Row("cannot tell", why=m.message or "nothing was compared")
        error = worst(results, self.rule)[2]
        told = error if error < HUGE else None
        if exceed(results, self.rule):
            # What has no number is said: an empty cell tells nothing of a case that fires.
            why = wrong_by(error, self.rule.metric) if told is None else ""
            return Row("cannot tell" if self.refusing else "fires", told, why)
        if not self.refusing and all(s.absmax == 0.0 for r in results for s in r.outputs):
            why = "the right answer is zero everywhere, or no number, in which no fault shows"
            return Row("hidden", told, why)
        return Row("passes", told)


def draw(tensor: MadeTensor) -> MadeTensor:
    """The tensor with values drawn from the range of its own; what holds one value or a few
    integers stays."""
    if tensor.values is None or len(tensor.values) < 2 or is_list(tensor):
        return tensor
    return hold(tensor, DRAWN)


def _ask_again(trial: _Trial, factors: Sequence[Factor], found: Found) -> Sub[int]:
    """How many come out otherwise in another build: of the case, and of one that does not fail for
    each factor that matters."""
    near = [
        r
        for f in factors
        for r in [r for r in found.of(f) if r.outcome in ("passes", "refused")][:1]
    ]
    differs = 0
    for row in (found.rows[0], *near):
        yield Note(f"once more: {row.changed or 'the case as it is'}")
        again = yield from trial.ask(row.factor, row.level, attempt=1)
        differs += again.outcome != row.outcome
    return differs


def make_factor_row(factor: Factor, found: Found) -> FactorRow:
    """What was tried of a factor, numbers by size behind what is none, and what it is in the
    case."""
    levels: dict[str, list[Level]] = {"fires": [factor.base]}
    for row in found.of(factor):
        came_of_it = row.outcome if row.outcome in DECIDED else "no_answer"
        levels.setdefault(came_of_it, []).append(row.level)

    def by_size(level: Level) -> tuple[bool, float]:
        return (False, 0.0) if isinstance(level, str) else (True, level)

    texts = {
        outcome: ", ".join(say_level(n) for n in sorted(some, key=by_size))
        for outcome, some in levels.items()
    }
    return FactorRow(factor.name, say_level(factor.base), matters=found.matters(factor), **texts)


def tell(
    rows: Sequence[FactorRow], found: Found, differs: int, names: Mapping[str, str]
) -> TriggerOutcome:
    """The outcome: what was tried, and nothing of what was not. ``names``: what short names stand
    for."""
    count: Counter[str] = Counter(r.outcome for r in found.rows)
    tried = sum(count[o] for o in DECIDED)
    condition = " ".join(str(row) for row in rows if row.matters)
    after = " The budget ended it there." if found.spent else ""
    how = ", ".join(
        f"{count[o]} {o.replace('fires', 'fail').replace('passes', 'pass')}"
        for o in DECIDED
        if count[o]
    )
    verdict: Literal["found", "always", "unsteady"] = "found"
    said = f"Each thing was changed alone, in {tried} builds: {how}. {condition}{_say_names(condition, names)}"
    if differs:
        verdict, condition = "unsteady", ""
        said = f"Of the builds that were made once more {differs} came out otherwise, so nothing is said of what triggers it."
    elif tried == count["fires"]:
        verdict = "always"
        said = f"It fails in all {tried} builds that were tried, whatever was changed."
    return TriggerOutcome(
        verdict=verdict,
        condition=condition,
        tried=tried,
        fires=count["fires"],
        passes=count["passes"],
        refused=count["refused"],
        cannot_tell=count["hidden"] + count["cannot tell"],
        spent=found.spent,
        message=said + after,
    )


def _say_names(condition: str, names: Mapping[str, str]) -> str:
    """What the short names that are said stand for."""
    words = set(re.findall(r"\w+", condition))
    said = [f"{now} is '{was}'" for now, was in names.items() if now in words]
    return f" Here {', '.join(said)}." if said else ""


SPEC = StepSpec(
    name="trigger",
    version=5,
    summary="Change all that can be changed of the case, one thing at a time, and say what triggers the failure.",
    run=trigger,
    outcome=TriggerOutcome,
    params=TriggerParams,
    needs=(
        BUILDS_MODELS,
        comparison(
            "An external check shows no values, so of a varied case it cannot be told whether its reference is right."
        ),
    ),
    ends=(PASSES, *unresolved("unsteady", "gone")),
    labels={
        "condition": "what triggers it",
        "tried": "builds that answered",
        "spent": "ended by the budget",
        "cannot_tell": "that could not be told",
    },
    plan=2 * BUDGET,  # a case takes three, and few need half of the budget
)
