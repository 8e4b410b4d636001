"""trigger: when does the case fire? All of it that can be changed is changed, with the reference computed anew each time, and
what parts the cases that fire from those that do not is said in one line."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from engines.asking import Count, Note, StepContext, Sub, asked
from engines.compare.criterion import Criterion, for_parts
from engines.compare.judge import REFUSALS, exceed, worst
from engines.compare.say import wrong_by
from engines.findings import Findings
from engines.known.entry import Construction, MadeTensor
from engines.known.generator import NAME as GENERATOR
from engines.known.generator import SHOWN, write_generator
from engines.known.varied import DRAWN, Factor, Level, Place, is_list, options_of, vary
from engines.probe import HUGE, Candidate, Construct, Measure, Measurement, State
from engines.search import works
from engines.search.condition import (
    DECIDED,
    Condition,
    Fit,
    Outcome,
    Row,
    holds,
    say_condition,
)
from engines.search.cost import Plan, Size, Work
from engines.search.factors import list_factors
from engines.search.trigger import Found, Setting, find_trigger
from engines.spec import parse
from engines.steps.base import BUILDS_MODELS, PASSES, Finish, Steps, StepSpec, comparison, unresolved
from engines.steps.prepare import prepare_findings

# Cases that are built: some eight sizes, ten attributes and eight others with three levels each, then what parts rivals.
BUDGET = 150
# Who says whether the reference of a varied case is right: ONNX's own evaluator, which shares no code with any engine. The
# reference computes the case with each float of what is fed moved by one unit in the last place, so one answer tells both.
JUDGE = "reference"
# An error within the tolerance that is so many times what rounding makes is the fault, too, and only small: such a case is
# neither right nor wrong. 64 sums of one rounding each are no more than 64; and the engine's own noise on the case thrice.
FAINT = 64
_NOISE = 3.0
# Beside a build that is refused: a model that breaks off when it is run, where the reference runs it.
_REFUSED = ("refused", "error", "crash")
# Of so many random settings one may speak against what was claimed until then; more, and the next will, too.
_UNSTABLE = 4
AGAIN = 4  # settings that the condition hangs on and that are built once more at the end


class TriggerOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # found: a condition parts all that was tried; always: it fires in all; partly: some are left over; unsteady: the same case
    # fires and passes; gone: the case as it can be stated does not fire
    verdict: Literal["found", "always", "partly", "unsteady", "gone", "passes", "unresolved"] = "unresolved"
    condition: str = ""  # "head dim >= 9 and heads >= 2"
    tried: int = 0  # cases that were built and gave an answer: fires, passes or refused
    fires: int = 0  # of these
    passes: int = 0  # of these
    refused: int = 0  # of these: the engine does not build or run them, and the reference does
    cannot_tell: int = 0  # their reference is not determined, or the fault would not show
    fits: int = 0  # of those tried, as the condition says
    checked: int = 0  # of those tried, at random, against what was claimed until then
    surprises: int = 0  # of these those that spoke against it
    spent: bool = False  # the budget ended it
    message: str = ""


class TriggerParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = BUDGET  # cases that are built at most


class TriggerRow(msgspec.Struct, frozen=True):
    """A row of the table ``cases``: what was changed (nothing in the first), what came of it, whether the condition says so."""

    changed: str
    outcome: Outcome
    error: float | None = None
    fits: bool | None = None  # None: it is no answer
    why: str = ""


class FactorRow(msgspec.Struct, frozen=True):
    """A row of the table ``factors``: the levels of one factor, all others as in the case."""

    factor: str
    base: str
    fires: str = ""
    passes: str = ""
    refused: str = ""
    no_answer: str = ""
    matters: bool = False


class Script(msgspec.Struct, frozen=True):
    """A row of the table ``generator``: a program, by the name that its file has in a bundle."""

    name: str
    text: str


class _Tried(msgspec.Struct, frozen=True):
    outcome: Outcome
    error: float | None = None
    why: str = ""
    first: bool = True  # whether the first of its feeds says so alone: the program makes that one


def trigger(ctx: StepContext) -> Steps[TriggerOutcome]:
    params = msgspec.convert(dict(ctx.params), TriggerParams, strict=False)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        said = "The model passes here, so there is no failure whose condition could be looked for."
        return Finish(TriggerOutcome(verdict="passes", message=said), findings)
    case = findings.culprits[0].case if findings.culprits else findings.case
    if case is not None and case.engine:
        ctx = msgspec.structs.replace(ctx, engine=case.engine)  # alone it fails there
    yield Note("stating the case in a few lines")
    stated = yield from asked(_state(ctx, findings))
    if stated.status != "ok":
        return Finish(TriggerOutcome(message=f"The case cannot be varied: {stated.message}"), findings)
    made = read_declared(stated)
    sizes = msgspec.convert(stated.facts["sizes"], list[tuple[Place, ...]])
    trial = _Trial(ctx, findings, made)
    if (yield from trial.prefer_drawn()) != "fires":
        said = "The case as it can be stated, from its values alone, does not fire, so nothing can be varied."
        return Finish(TriggerOutcome(verdict="gone", message=said), findings)
    factors = list_factors(trial.made, sizes, ctx.engine, ctx.engine_info)
    trial.tried.clear()
    found: Found = yield from find_trigger(factors, trial.ask, max(1, params.budget))
    differs = yield from _ask_again(trial, factors, found)
    outcome = tell(factors, found, differs, stated.facts.get("names", {}))
    return Finish(
        outcome,
        findings,
        tables={
            "cases": list_rows(factors, found, trial.tried),
            "factors": list_factor_rows(factors, found),
            "generator": [Script(GENERATOR, _generate(trial, factors, found, outcome))],
        },
    )


def _state(ctx: StepContext, findings: Findings) -> State:
    """The first culprit's case, else the case at hand, else the whole model."""
    case = findings.culprits[0].case if findings.culprits else findings.case
    return State(
        model=findings.model,
        inputs=findings.inputs,
        sample=case.sample if case else findings.sample,
        reference=ctx.reference,
        candidate=case.candidate if case else Candidate(),
    )


def read_declared(stated: Measurement) -> Construction:
    """The case as it was stated, names in their order in the alphabet: a journal keeps them so, and in another order the search
    would ask other questions when it is replayed or goes on after a kill."""
    text = msgspec.json.encode(stated.facts["declared"], order="sorted")
    return msgspec.json.decode(text, type=Construction)


class _Trial:
    """Asks about one setting after the other."""

    def __init__(self, ctx: StepContext, findings: Findings, made: Construction) -> None:
        self.ctx, self.made = ctx, made
        self.refusing = findings.signature is not None and findings.signature.kind in ("build", "crash")
        rule = findings.criterion or Criterion()
        case = bool(findings.culprits or findings.case)
        self.rule = for_parts(rule) if case else rule
        self.looks = max(1, findings.looks)
        self.tried: dict[str, _Tried] = {}

    def prefer_drawn(self) -> Sub[Outcome]:
        """What the case does; with values that are drawn in place of its own, wherever it fires with those, too."""
        plain = self.made
        self.made = msgspec.structs.replace(
            plain,
            inputs={n: draw(t) for n, t in plain.inputs.items()},
            weights={n: draw(t) for n, t in plain.weights.items()},
        )
        outcome = yield from self.ask({})
        if outcome != "fires" and self.made != plain:
            self.made = plain
            outcome = yield from self.ask({})
        return outcome

    def ask(self, setting: Setting, attempt: int = 0) -> Sub[Outcome]:
        declared = vary(self.made, setting)
        tried = yield from self._look(declared, setting, attempt)
        if not attempt:
            self.tried[say_setting(setting)] = tried
        return tried.outcome

    def _look(self, declared: Construction, setting: Setting, attempt: int) -> Sub[_Tried]:
        ctx = self.ctx
        text = msgspec.json.encode(declared).decode()
        made = yield from asked(Construct(declared=text, feed=True, seed=ctx.seed))
        if made.status != "ok":
            return _Tried("invalid", why=made.message)
        engine = parse(ctx.engine)
        for key, value in options_of(setting).items():
            engine = engine.with_option(key, value)
        model, inputs = str(made.facts.get("model", "")), str(made.facts.get("inputs", ""))
        samples = tuple(map(str, made.facts.get("samples", ())))
        probe = Measure(
            model=model, inputs=inputs, samples=samples, engine=str(engine), reference=ctx.reference, runs=self.looks,
            attempt=attempt,
        )  # fmt: skip
        m = yield from asked(probe)
        if m.status == "reference-failed" or m.assumed:
            return _Tried("cannot tell", why=m.message or "nothing was measured")
        judged = yield from asked(
            Measure(model=model, inputs=inputs, samples=samples, engine=ctx.reference, reference=JUDGE, nudge="inputs")
        )
        if judged.status != "ok" or not any(r.outputs for r in judged.results):
            return _Tried("cannot tell", why=judged.message or "nobody else can compute the reference")
        noise = worst(judged.results, self.rule)[2]
        if exceed(judged.results, self.rule):
            return _Tried(
                "cannot tell",
                why=f"the reference is not determined: {wrong_by(noise, self.rule.metric)} from rounding, or "
                "beside a more exact computation",
            )
        return self._judge(m, noise, setting)

    def _judge(self, m: Measurement, noise: float, setting: Setting) -> _Tried:
        if m.status in (*REFUSALS, *_REFUSED):
            return _Tried("fires" if self.refusing else "refused", why=m.message)
        if m.status != "ok":
            return _Tried("cannot tell", why=m.message)
        results = [r for run in m.each_run for r in run]
        if not any(r.outputs for r in results):
            return _Tried("cannot tell", why="nothing was compared")
        error = worst(results, self.rule)[2]
        told = error if error < HUGE else None
        if exceed(results, self.rule):
            first = exceed([r for r in results if r.sample == results[0].sample], self.rule)
            # What has no number is said: an empty cell tells nothing of a case that fires.
            why = wrong_by(error, self.rule.metric) if told is None else ""
            return _Tried("cannot tell" if self.refusing else "fires", told, why, first=first)
        if self.refusing:
            return _Tried("passes", told)
        if all(s.absmax == 0.0 for r in results for s in r.outputs):
            return _Tried("hidden", told, "the right answer is zero everywhere, or no number, in which no fault shows")
        if any(f.kind == "values" and level == "zeros" for f, level in setting.items()):
            return _Tried("hidden", told, "zeros would hide it")
        floor = FAINT * works.ROUNDING.get(self.rule.precision, 0.0)
        if error > max(floor, _NOISE * noise):
            return _Tried("hidden", told, "it is wrong by more than rounding makes, and within the tolerance")
        return _Tried("passes", told)


def draw(tensor: MadeTensor) -> MadeTensor:
    """The tensor with values drawn from the range of its own, rounded to two digits where they are not whole; what holds one
    value or a few integers stays."""
    values = tensor.values
    if values is None or len(values) < 2 or is_list(tensor):
        return tensor
    low, high = float(min(values)), float(max(values))
    if not tensor.dtype.startswith(("int", "uint", "bool")) and low != high:
        low, high = float(f"{low:.2g}"), float(f"{high:.2g}")
    return msgspec.structs.replace(tensor, values=None, range=(low, high))


def _ask_again(trial: _Trial, factors: Sequence[Factor], found: Found) -> Sub[int]:
    """How many of the settings that the condition hangs on come out otherwise in another build: the case, and those that it shuts
    out and that change least."""
    base = tuple(f.base for f in factors)
    near = [r for r in found.rows if r.outcome in ("passes", "refused")]
    near.sort(key=lambda r: sum(a != b for a, b in zip(r.levels, base, strict=True)))
    by_clause: list[Row] = []
    for clause in found.fit.condition:
        by_clause += [r for r in near if not holds((clause,), r.levels) and r not in by_clause][:1]
    differs = 0
    for row in [*(r for r in found.rows[:1] if r.outcome == "fires"), *by_clause[: AGAIN - 1]]:
        yield Note(f"once more: {say_setting(setting_of(factors, row)) or 'the case as it is'}")
        outcome = yield from trial.ask(setting_of(factors, row), attempt=1)
        differs += outcome != row.outcome
    return differs


def setting_of(factors: Sequence[Factor], row: Row) -> dict[Factor, Level]:
    return {f: level for f, level in zip(factors, row.levels, strict=True) if level != f.base}


def say_setting(setting: Setting) -> str:
    """What was changed, in words; "" for nothing."""
    return ", ".join(say_level(f, level) for f, level in setting.items())


def say_level(factor: Factor, level: Level) -> str:
    if factor.kind == "scale":
        return f"{factor.name} = {factor.unit * 2.0 ** (int(level) - int(factor.base)):.3g}"
    return f"{factor.name} {level}" if factor.kind in ("values", "special", "role") else f"{factor.name} = {level}"


def tell(
    factors: Sequence[Factor], found: Found, differs: int = 0, names: Mapping[str, str] | None = None
) -> TriggerOutcome:
    """The outcome, never more certain than what was tried. ``names``: what short names stand for."""
    count: Counter[str] = Counter(r.outcome for r in found.rows)
    decided = [r for r in found.rows if r.outcome in DECIDED]
    fits = sum((r.outcome == "fires") == holds(found.fit.condition, r.levels) for r in decided)
    condition = say_condition(factors, found.fit.condition)
    base = TriggerOutcome(
        condition=condition,
        tried=len(decided),
        fires=count["fires"],
        passes=count["passes"],
        refused=count["refused"],
        cannot_tell=count["hidden"] + count["cannot tell"],
        fits=fits,
        checked=found.checked,
        surprises=found.surprises,
        spent=found.spent,
    )
    replace = msgspec.structs.replace
    if not decided or decided[0].outcome != "fires":
        return replace(
            base, message="The case did not fire when it was made anew, so nothing can be said of when it does."
        )
    how = ", ".join(
        f"{count[o]} {said}" for o, said in (("fires", "fire"), ("passes", "pass"), ("refused", "refused")) if count[o]
    )
    after = " The budget ended it there." if found.spent else ""
    after += _say_names(condition, names or {})
    if differs:
        said = f"Of the settings that it hangs on {differs} came out otherwise when built once more, so no condition is claimed."
        return replace(base, verdict="unsteady", message=said + after)
    if len(decided) == base.fires:
        said = f"It fires in all {len(decided)} builds that were tried, whatever was changed."
        return replace(base, verdict="always", message=said + after)
    if not found.fit.condition or found.fit.left or found.surprises > found.checked // _UNSTABLE:
        most = f" The nearest is: {condition}." if condition else ""
        said = (
            "No condition that could be stated parts what fires from what does not: "
            f"{fits} of {len(decided)} builds fit ({how}).{most}"
        )
        return replace(base, verdict="partly", message=said + after)
    said = f"It fires iff {condition}: so in {fits} of {len(decided)} builds ({how}).{_say_refused(factors, found.fit, decided)}"
    if found.surprises:
        said += f" {found.surprises} of {found.checked} settings at random spoke against what was thought before them."
    return replace(base, verdict="found", message=said + after)


def _say_names(condition: str, names: Mapping[str, str]) -> str:
    """What the short names that are said stand for."""
    words = set(re.findall(r"\w+", condition))
    said = [f"{now} is '{was}'" for now, was in names.items() if now in words]
    return f" Here {', '.join(said)}." if said else ""


def _say_refused(factors: Sequence[Factor], fit: Fit, decided: Sequence[Row]) -> str:
    """Which clauses part the case from what is refused alone: there nobody saw right numbers."""
    said = []
    for clause in fit.condition:
        others: Condition = tuple(c for c in fit.condition if c != clause)
        out = [r for r in decided if holds(others, r.levels) and not holds((clause,), r.levels)]
        if out and all(r.outcome == "refused" for r in out):
            said.append(say_condition(factors, (clause,)))
    return f" Where it is not so that {' or '.join(said)}, the engine refuses the model." if said else ""


def list_rows(factors: Sequence[Factor], found: Found, tried: dict[str, _Tried]) -> list[TriggerRow]:
    """The decision table: after the case those that speak against the condition, then the rest as they were asked."""
    rows = []
    for row in found.rows:
        changed = say_setting(setting_of(factors, row))
        known = tried.get(changed, _Tried(row.outcome))
        fits = None
        if row.outcome in DECIDED:
            fits = (row.outcome == "fires") == holds(found.fit.condition, row.levels)
        rows.append(TriggerRow(changed, row.outcome, known.error, fits, known.why))
    return [*rows[:1], *sorted(rows[1:], key=lambda r: r.fits is not False)]


def list_factor_rows(factors: Sequence[Factor], found: Found) -> list[FactorRow]:
    """What each factor did alone, those that matter first."""
    base = tuple(f.base for f in factors)
    named = {p.factor for c in found.fit.condition for p in c} | {p.other for c in found.fit.condition for p in c}
    rows = []
    for i, factor in enumerate(factors):
        said: dict[str, list[str]] = {}
        for row in found.rows:
            if row.levels[i] != base[i] and (*base[:i], row.levels[i], *base[i + 1 :]) == row.levels:
                kind = row.outcome if row.outcome in DECIDED else "none"
                said.setdefault(kind, []).append(_say_bare(factor, row.levels[i]))
        texts = {kind: ", ".join(levels) for kind, levels in said.items()}
        rows.append(
            FactorRow(
                factor.name,
                _say_bare(factor, factor.base),
                texts.get("fires", ""),
                texts.get("passes", ""),
                texts.get("refused", ""),
                texts.get("none", ""),
                i in named,
            )
        )
    return sorted(rows, key=lambda r: not r.matters)


def _say_bare(factor: Factor, level: Level) -> str:
    return say_level(factor, level).removeprefix(f"{factor.name} ").removeprefix("= ")


def _generate(trial: _Trial, factors: Sequence[Factor], found: Found, outcome: TriggerOutcome) -> str:
    """The program, with a parameter for each size and for what the condition names."""
    named: set[int] = {i for c in found.fit.condition for p in c for i in (p.factor, p.other)}
    shown = [
        f
        for i, f in enumerate(factors)
        if f.kind in SHOWN and (f.kind == "size" or i in named) and (f.kind != "values" or f.base == DRAWN)
    ]
    settings: dict[str, list[Setting]] = {"fires": [], "passes": [], "refused": []}
    for row in found.rows:
        setting = setting_of(factors, row)
        told = trial.tried.get(say_setting(setting))
        if row.outcome in settings and set(setting) <= set(shown) and (told is None or told.first):
            settings[row.outcome].append(setting)
    view = trial.ctx.engine_info
    return write_generator(
        trial.made,
        shown,
        settings["fires"][:12],
        settings["passes"][:12],
        settings["refused"][:4],
        title=f"The case on {trial.ctx.engine} {view.version}".rstrip() + ".",
        line=outcome.message,
    )


def _plan(ctx: StepContext, size: Size) -> Plan:
    """The case stated, and for each setting the model made, a run beside the reference, and one of the reference by its judge."""
    budget = msgspec.convert(dict(ctx.params), TriggerParams, strict=False).budget
    parts = msgspec.structs.replace(works.part(ctx, budget), ahead=False)
    return Plan((*works.before(ctx, size), Work("read", budget + 1), parts, Work("control", budget)))


SPEC = StepSpec(
    name="trigger",
    version=2,
    summary="Change everything of the case that can be changed, and say in one line when it fires.",
    run=trigger,
    outcome=TriggerOutcome,
    params=TriggerParams,
    plan=_plan,
    needs=(
        BUILDS_MODELS,
        comparison(
            "An external check shows no values, so of a varied case it cannot be told whether its reference is right."
        ),
    ),
    ends=(PASSES, *unresolved("partly", "unsteady", "gone")),
    labels={
        "condition": "it fires iff",
        "tried": "builds that answered",
        "fits": "of these as it says",
        "checked": "tried at random",
        "surprises": "of these against it",
        "spent": "ended by the budget",
        "cannot_tell": "that could not be told",
    },
)
