"""inputs (node ``real-inputs``): real data and random data side by side."""

from typing import Literal

from narrowdown.engines.asking import StepContext
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import list_failing, worst
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import MADE_UP, is_given
from narrowdown.engines.steps.base import Finish, NoParams, Outcome, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_findings


class InputsOutcome(Outcome, frozen=True, kw_only=True):
    # helps: real inputs pass; no: they fail too; only-real: they alone fail
    verdict: Literal["helps", "no", "only-real", "none-given"] = "none-given"
    real_error: float | None = None  # the worst on real inputs
    random_error: float | None = None  # the worst on random ones
    real_samples: int = 0
    real_failing: int = 0  # of them
    random_samples: int = 0
    random_failing: int = 0  # of them
    guesses: str = ""  # what each input was taken to be for


def inputs(ctx: StepContext) -> Steps[InputsOutcome]:
    findings: Findings = yield from prepare_findings(ctx)
    if ctx.check:
        message = "An external check chooses its own inputs, so real and random ones cannot be told apart here."
        return Finish(InputsOutcome(message=message), findings)
    model = WholeModel(ctx, findings)
    given = any(is_given(s.id) for s in findings.samples)
    made = whole = yield from model.compare()
    if given:
        made = yield from model.compare(samples=(MADE_UP,), note="the same on made-up values")
    real, random = (whole.measurement.results if given else ()), made.measurement.results
    real_failing, real_error = len(list_failing(real, model.rule)), worst(real, model.rule)[2]
    random_failing = len(list_failing(random, model.rule))
    signature = findings.signature
    if findings.looks > 1 and signature is not None and is_given(signature.sample):
        # An intermittent failure was seen on real inputs; this one run need not show it.
        real_failing, real_error = max(1, real_failing), signature.error
    verdict: Literal["helps", "no", "only-real", "none-given"] = "none-given"
    if real:
        verdict = "helps" if random_failing and not real_failing else "no"
    if random and real_failing and not random_failing:
        verdict = "only-real"
    outcome = InputsOutcome(
        verdict=verdict,
        real_error=real_error if real else None,
        random_error=made.error if random else None,
        real_samples=len(real),
        real_failing=real_failing,
        random_samples=len(random),
        random_failing=random_failing,
        guesses=" ".join(findings.notes),
        message=f"{_say('Real inputs', len(real), real_failing)} {_say('Random inputs', len(random), random_failing)}",
    )
    return Finish(outcome, findings)


def _say(kind: str, n: int, failing: int) -> str:
    return f"{kind}: {failing:,} of {n:,} fail." if n else f"{kind}: none."


SPEC = StepSpec(
    name="inputs",
    version=5,
    summary="Compare on real and on random inputs, side by side.",
    run=inputs,
    outcome=InputsOutcome,
    params=NoParams,
    labels={
        "real_error": "error on your inputs",
        "random_error": "error on random inputs",
        "real_samples": "your samples",
        "real_failing": "your samples that fail",
        "random_samples": "random samples",
        "random_failing": "random samples that fail",
        "guesses": "guessed about the inputs",
    },
    plan=2,  # all samples once, and the made-up one
)
