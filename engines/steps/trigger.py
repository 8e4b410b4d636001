"""trigger: what keeps the case's failure, and what takes it away? Each thing of it that can be
changed is changed alone, with the reference computed anew each time; a line a factor says what was
tried on both sides."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import for_parts
from narrowdown.engines.compare.judge import REFUSALS, exceed, worst
from narrowdown.engines.compare.say import wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.known.entry import Construction, MadeTensor
from narrowdown.engines.known.generator import NAME as GENERATOR
from narrowdown.engines.known.generator import SHOWN, Program, write_generator
from narrowdown.engines.known.varied import GIVEN, Factor, Level, Place, is_list, vary
from narrowdown.engines.probe import (
    HUGE,
    Candidate,
    Construct,
    Measure,
    Measurement,
    SampleResult,
    State,
)
from narrowdown.engines.search.evidence import ROUNDINGS
from narrowdown.engines.search.factors import list_factors
from narrowdown.engines.search.storage import unit_roundoff
from narrowdown.engines.search.trigger import DECIDED, Found, Outcome, Row, find_trigger
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    PASSES,
    Finish,
    Steps,
    StepSpec,
    comparison,
    unresolved,
)
from narrowdown.engines.steps.prepare import prepare_findings

# Cases that are built: some eight sizes, ten attributes and eight others with four levels each, and
# a bound of some.
BUDGET = 150
# Who says whether the reference of a varied case is right: ONNX's own evaluator, which shares no
# code with any engine. The reference computes the case with each float of what is fed moved by one
# unit in the last place, so one answer tells both.
JUDGE = "reference"
# An error within the tolerance that is so many times what rounding makes is the fault, too, and
# only small: such a case is neither right nor wrong. 64 sums of one rounding each are no more than
# 64; and what the case itself makes of one rounding of its inputs counts as of any node.
FAINT = 64
_HELD = {"fp16": "float16", "bf16": "bfloat16"}  # precisions and the types of their values
# Beside a build that is refused: a model that breaks off when it is run, where the reference runs
# it.
_REFUSED = ("refused", "error", "crash")
AGAIN = 4  # cases that are built once more at the end: the case itself, and of the first factors that matter one that passes


class TriggerOutcome(msgspec.Struct, frozen=True, kw_only=True):
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
    message: str = ""


class TriggerParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = BUDGET  # cases that are built at most


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
    stated = yield from asked(_state(ctx, findings))
    if stated.status != "ok":
        return Finish(
            TriggerOutcome(message=f"The case cannot be varied: {stated.message}"), findings
        )
    made = read_declared(stated)
    sizes = msgspec.convert(stated.facts["sizes"], list[tuple[Place, ...]])
    trial = _Trial(ctx, findings, made)
    if not (yield from trial.prefer_drawn()):
        said = "The case as it can be stated, from its values alone, does not fail, so nothing can be varied."
        return Finish(TriggerOutcome(verdict="gone", message=said), findings)
    factors = list_factors(trial.made, sizes, ctx.engine, ctx.engine_info)
    found: Found = yield from find_trigger(factors, trial.ask, max(1, params.budget))
    differs = yield from _ask_again(trial, factors, found)
    outcome = tell(factors, found, differs, stated.facts.get("names", {}))
    program = _program(trial, factors, found, outcome)
    return Finish(
        outcome,
        findings,
        tables={
            "cases": list_rows(found),
            "factors": list_factor_rows(factors, found),
            "generator": [Script(GENERATOR, write_generator(program), program)],
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
    """The case as it was stated, names in their order in the alphabet: a journal keeps them so, and
    in another order the search would ask other questions when it is replayed or goes on after a
    kill."""
    text = msgspec.json.encode(stated.facts["declared"], order="sorted")
    return msgspec.json.decode(text, type=Construction)


def _made(outcome: Outcome, error: float | None = None, why: str = "", first: bool = True) -> Row:
    return Row(None, "", outcome, error, why, first)


class _Trial:
    """Asks about one changed case after the other."""

    def __init__(self, ctx: StepContext, findings: Findings, made: Construction) -> None:
        self.ctx, self.made = ctx, made
        refusals = ("build", "crash")
        self.refusing = bool(findings.signature and findings.signature.kind in refusals)
        rule = findings.rule
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
        declared = vary(self.made, factor, level) if factor else self.made
        spec = parse(self.ctx.engine)
        if factor is not None and factor.kind == "option":
            spec = spec.with_option(factor.key, str(level))
        row = yield from self._build(declared, str(spec), attempt)
        zeros = factor is not None and (factor.kind, level) == ("values", "zeros")
        if zeros and row.outcome == "passes" and not self.refusing:
            row = msgspec.structs.replace(row, outcome="hidden", why="zeros would hide it")
        return msgspec.structs.replace(row, factor=factor, level=level)

    def _build(self, declared: Construction, engine: str, attempt: int) -> Sub[Row]:
        ctx, text = self.ctx, msgspec.json.encode(declared).decode()
        made = yield from asked(Construct(declared=text, feed=True, seed=ctx.seed))
        if made.status != "ok":
            return _made("invalid", why=made.message)
        probe = Measure(
            model=str(made.facts.get("model", "")),
            inputs=str(made.facts.get("inputs", "")),
            samples=tuple(map(str, made.facts.get("samples", ()))),
            engine=engine,
            reference=ctx.reference,
            runs=self.runs,
            attempt=attempt,
        )
        m = yield from asked(probe)
        if m.status == "reference-failed" or m.assumed:
            return _made("cannot tell", why=m.message or "nothing was measured")
        judged = yield from asked(
            msgspec.structs.replace(
                probe, engine=ctx.reference, reference=JUDGE, runs=1, attempt=0, nudge="inputs"
            )
        )
        if judged.status != "ok" or not any(r.outputs for r in judged.results):
            why = judged.message or "nobody else can compute the reference"
            return _made("cannot tell", why=why)
        noise = worst(judged.results, self.rule)[2]
        if exceed(judged.results, self.rule):
            by = wrong_by(noise, self.rule.metric)
            why = f"the reference is not determined: {by} from rounding, or beside a more exact computation"
            return _made("cannot tell", why=why)
        if m.status in (*REFUSALS, *_REFUSED):
            return _made("fires" if self.refusing else "refused", why=m.message)
        results = [r for run in m.each_run for r in run] if m.status == "ok" else []
        if not any(r.outputs for r in results):
            return _made("cannot tell", why=m.message or "nothing was compared")
        return self._judge(results, noise)

    def _judge(self, results: Sequence[SampleResult], noise: float) -> Row:
        rule = self.rule
        error = worst(results, rule)[2]
        told = error if error < HUGE else None
        if exceed(results, rule):
            first = exceed([r for r in results if r.sample == results[0].sample], rule)
            # What has no number is said: an empty cell tells nothing of a case that fires.
            why = wrong_by(error, rule.metric) if told is None else ""
            return _made("cannot tell" if self.refusing else "fires", told, why, first=first)
        why, unit = "", unit_roundoff(_HELD.get(rule.precision, rule.precision))
        if all(s.absmax == 0.0 for r in results for s in r.outputs):
            why = "the right answer is zero everywhere, or no number, in which no fault shows"
        elif error > max(FAINT * unit, ROUNDINGS * noise):
            why = "it is wrong by more than rounding makes, and within the tolerance"
        return _made("hidden" if why and not self.refusing else "passes", told, why)


def draw(tensor: MadeTensor) -> MadeTensor:
    """The tensor with values drawn from the range of its own, rounded to two digits where they are
    not whole; what holds one value or a few integers stays."""
    values = tensor.values
    if values is None or len(values) < 2 or is_list(tensor):
        return tensor
    low, high = float(min(values)), float(max(values))
    if not tensor.dtype.startswith(("int", "uint", "bool")) and low != high:
        low, high = float(f"{low:.2g}"), float(f"{high:.2g}")
    return msgspec.structs.replace(tensor, values=None, range=(low, high))


def _ask_again(trial: _Trial, factors: Sequence[Factor], found: Found) -> Sub[int]:
    """How many come out otherwise in another build: of the case, and of one that passes for each of
    the first factors that matter."""
    if found.rows[0].outcome != "fires":
        return 0
    near = [
        r
        for f in factors
        for r in [r for r in found.of(f) if r.outcome in ("passes", "refused")][:1]
    ]
    differs = 0
    for row in (found.rows[0], *near[: AGAIN - 1]):
        yield Note(f"once more: {say_change(row.factor, row.level) or 'the case as it is'}")
        again = yield from trial.ask(row.factor, row.level, attempt=1)
        differs += again.outcome != row.outcome
    return differs


def say_change(factor: Factor | None, level: Level) -> str:
    """What was changed, in words; "" for nothing."""
    if factor is None:
        return ""
    join = " " if factor.kind in ("values", "special", "role") else " = "
    return f"{factor.name}{join}{say_level(factor, level)}"


def say_level(factor: Factor, level: Level) -> str:
    """A level as a person would write it."""
    if factor.kind == "scale":  # 3,650 and 2,150,000,000, no powers of ten
        return f"{float(f'{factor.unit * 2.0 ** (int(level) - int(factor.base)):.3g}'):,.12g}"
    return f"{level:.6g}" if isinstance(level, float) else str(level)


def tell(
    factors: Sequence[Factor],
    found: Found,
    differs: int = 0,
    names: Mapping[str, str] | None = None,
) -> TriggerOutcome:
    """The outcome: what was tried, and nothing of what was not. ``names``: what short names stand
    for."""
    count: Counter[str] = Counter(r.outcome for r in found.rows)
    tried = sum(count[o] for o in DECIDED)
    condition = " ".join(say_factor(f, found) for f in factors if found.matters(f))
    after = " The budget ended it there." if found.spent else ""
    how = ", ".join(
        f"{count[o]} {o.replace('fires', 'fail').replace('passes', 'pass')}"
        for o in DECIDED
        if count[o]
    )
    verdict: Literal["found", "always", "unsteady", "unresolved"] = "found"
    said = f"Each thing was changed alone, in {tried} builds: {how}. {condition}{_say_names(condition, names or {})}"
    if found.rows[0].outcome != "fires":
        verdict, after = "unresolved", ""
        said = "The case did not fail when it was made anew, so nothing can be said of its trigger."
    elif differs:
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


_SAID = {"fires": "fails with", "passes": "passes with", "refused": "is refused with"}


def say_factor(factor: Factor, found: Found) -> str:
    """What was tried of a factor, on both sides: ``k: fails with 12, 13, 20, 36; passes with 8,
    11.``"""
    texts = _texts_of(factor, found)
    return f"{factor.name}: {'; '.join(f'{said} {texts[o]}' for o, said in _SAID.items() if o in texts)}."


def _texts_of(factor: Factor, found: Found, *, base: bool = True) -> dict[str, str]:
    """The levels by what came of them (``none``: no answer), in words, numbers by size behind what
    is none; ``base``: with that of the case."""
    levels: dict[str, list[Level]] = {"fires": [factor.base]} if base else {}
    for row in found.of(factor):
        levels.setdefault(row.outcome if row.outcome in DECIDED else "none", []).append(row.level)

    def by_size(level: Level) -> tuple[bool, float]:
        return (False, 0.0) if isinstance(level, str) else (True, level)

    return {
        kind: ", ".join(say_level(factor, n) for n in sorted(some, key=by_size))
        for kind, some in levels.items()
    }


def _say_names(condition: str, names: Mapping[str, str]) -> str:
    """What the short names that are said stand for."""
    words = set(re.findall(r"\w+", condition))
    said = [f"{now} is '{was}'" for now, was in names.items() if now in words]
    return f" Here {', '.join(said)}." if said else ""


def list_rows(found: Found) -> list[dict[str, object]]:
    """The table ``cases``: all that was tried, the case first, as it was asked: what was changed,
    and what came of it."""
    return [
        {
            "changed": say_change(row.factor, row.level),
            "outcome": row.outcome,
            "error": row.error,
            "why": row.why,
        }
        for row in found.rows
    ]


def list_factor_rows(factors: Sequence[Factor], found: Found) -> list[dict[str, object]]:
    """The table ``factors``: the levels of each, all others as in the case, by what came of them;
    those that matter first."""
    none = dict.fromkeys(("fires", "passes", "refused", "none"), "")
    told = [({**none, **_texts_of(f, found, base=False)}, f) for f in factors]
    return [
        {
            "factor": f.name,
            "base": say_level(f, f.base),
            "fires": texts["fires"],
            "passes": texts["passes"],
            "refused": texts["refused"],
            "no_answer": texts["none"],
            "matters": found.matters(f),
        }
        for texts, f in sorted(told, key=lambda each: not found.matters(each[1]))
    ]


def _program(
    trial: _Trial, factors: Sequence[Factor], found: Found, outcome: TriggerOutcome
) -> Program:
    """The program, with a parameter for each size and for what matters."""
    shown = [
        f
        for f in factors
        if f.kind in SHOWN and (f.kind == "size" or found.matters(f)) and f.base != GIVEN
    ]

    def settings(outcome: Outcome) -> tuple[tuple[str, Level], ...]:
        # The program makes the first of the feeds.
        rows = (r for r in found.rows if r.outcome == outcome and r.first)
        return tuple((r.factor.name, r.level) for r in rows if r.factor and r.factor in shown)

    view = trial.ctx.engine_info
    return Program(
        trial.made,
        tuple(shown),
        settings("fires")[:12],
        settings("passes")[:12],
        settings("refused")[:4],
        title=f"The case on {trial.ctx.engine} {view.version}".rstrip() + ".",
        line=outcome.message,
    )


SPEC = StepSpec(
    name="trigger",
    version=4,
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
)
