"""inputs (node ``real-inputs``): real data and random data side by side."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from engines.asking import Note, StepContext, Sub, asked
from engines.compare.criterion import Criterion
from engines.compare.judge import judge_whole, worst
from engines.compare.say import say_worst, wrong_by
from engines.findings import Findings
from engines.probe import SampleResult
from engines.search import works
from engines.search.cost import Plan, Size
from engines.search.looks import Looks, count_failed_runs, count_runs, raise_looks
from engines.search.whole import probe_whole
from engines.steps.base import Finish, NoParams, Steps, StepSpec
from engines.steps.prepare import prepare_findings

# Further runs of the build before random inputs are blamed. A race that shows at one rate on either kind is taken for the inputs
# where it shows in each of these runs and on real inputs in none: p^5 (1 - p)^6, 0.05 % at the worst rate.
SURE = 5


class InputsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # helps: real inputs pass; no: they fail too; only-real: they alone fail; varies: it comes and goes, so the inputs do not say
    verdict: Literal["helps", "no", "only-real", "varies", "none-given"] = "none-given"
    real_error: float | None = None  # the worst on real inputs
    random_error: float | None = None  # the worst on random ones
    real_samples: int = 0
    real_failing: int = 0  # of them
    random_samples: int = 0
    random_failing: int = 0  # of them
    guesses: str = ""  # what each input was taken to be for
    message: str = ""


def inputs(ctx: StepContext) -> Steps[InputsOutcome]:
    findings: Findings = yield from prepare_findings(ctx)
    rule = findings.criterion or Criterion()
    if ctx.check:
        message = "An external check chooses its own inputs, so real and random ones cannot be told apart here."
        return Finish(InputsOutcome(message=message), findings)
    m = yield from asked(probe_whole(ctx, findings))

    def side(kind: str) -> tuple[float | None, int, int, str]:
        rows: list[SampleResult] = [r for r in m.results if r.sample.startswith(kind)]
        failing = sum(judge_whole(msgspec.structs.replace(m, results=(r,), runs=()), rule).failed for r in rows)
        return (worst(rows, rule)[2] if rows else None), len(rows), failing, say_worst(rows, rule)

    real_error, real, real_failing, real_off = side("real:")
    random_error, random, random_failing, random_off = side("random:")
    if findings.looks > 1 and findings.signature is not None and findings.signature.sample.startswith("real:"):
        # An intermittent failure was seen on real inputs; this one look need not show it.
        real_error, real_failing = findings.signature.error, max(1, real_failing)
        real_off = wrong_by(real_error, rule.metric)
    verdict = "none-given"
    if real:
        verdict = (
            "no"
            if real_failing and (random_failing or not random)
            else "only-real"
            if real_failing
            else "helps"
            if random_failing
            else "no"
        )
    message = _message(verdict, real_failing, real, random_failing, random, real_off, random_off)
    if verdict == "helps":
        findings, failures, looks = yield from _look_at_both(ctx, findings, rule)
        if failures < looks:
            verdict = "varies"
            message += (
                f" But it comes and goes: {failures} of {looks} runs of one build fail, so the inputs need not be why."
            )
    outcome = InputsOutcome(
        verdict=verdict,  # type: ignore[arg-type]
        real_error=real_error,
        random_error=random_error,
        real_samples=real,
        real_failing=real_failing,
        random_samples=random,
        random_failing=random_failing,
        guesses=" ".join(findings.notes),
        message=message,
    )
    return Finish(outcome, findings)


def _look_at_both(ctx: StepContext, findings: Findings, rule: Criterion) -> Sub[tuple[Findings, int, int]]:
    """(findings, failures, looks) of more runs of the build that failed on random inputs alone: failing runs of all, or those in
    which real inputs fail, where they do in any. As many failures as looks: it is the inputs. Else findings hold how many runs a
    verdict needs."""
    yield Note(f"is it right on real inputs in {SURE} more runs, and wrong on random ones?")
    m = yield from asked(probe_whole(ctx, findings, runs=SURE, exclusive=True))
    if m.status != "ok" or m.assumed:
        return findings, 1, 1
    real = msgspec.structs.replace(m, results=_pick_real(m.results), runs=tuple(map(_pick_real, m.runs)))
    looks = count_runs(m) + 1
    failures = count_failed_runs(real, rule) or count_failed_runs(m, rule) + 1
    if failures < looks:
        findings = raise_looks(findings, failures, looks, Looks().most)
    return findings, failures, looks


def _pick_real(results: Sequence[SampleResult]) -> tuple[SampleResult, ...]:
    return tuple(r for r in results if r.sample.startswith("real:"))


def _message(verdict: str, rf: int, r: int, nf: int, n: int, real_off: str, random_off: str) -> str:
    if verdict == "none-given":
        return f"No real inputs were given; {_say_side('random ones', nf, n, random_off)}."
    other = f", {_say_side('random ones', nf, n, random_off)}" if n else "; the model takes no random ones"
    said = f"{_say_side('real inputs', rf, r, real_off)}{other}."
    return said[0].upper() + said[1:]


def _say_side(kind: str, failing: int, n: int, off: str) -> str:
    """How the samples of one kind (``real inputs``) came out: ``3 of 4 real inputs fail (worst: wrong by 2 %)``."""
    if failing:
        side = f"{failing:,} of {n:,} {kind} {'fails' if failing == 1 else 'fail'}"
    else:
        side = f"the only one of the {kind} passes" if n == 1 else f"all {n:,} {kind} pass"
    return f"{side} (worst: {off})"


def _plan(ctx: StepContext, _size: Size) -> Plan:
    """All samples once."""
    return Plan(() if ctx.check else (*works.opening(ctx), works.on_all(ctx)))


SPEC = StepSpec(
    name="inputs",
    version=4,
    summary="Compare on real and on random inputs, side by side.",
    run=inputs,
    outcome=InputsOutcome,
    params=NoParams,
    plan=_plan,
    sets=("looks",),
    labels={
        "real_error": "error on your inputs",
        "random_error": "error on random inputs",
        "real_samples": "your samples",
        "real_failing": "your samples that fail",
        "random_samples": "random samples",
        "random_failing": "random samples that fail",
        "guesses": "guessed about the inputs",
    },
)
