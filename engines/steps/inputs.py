"""inputs (node ``real-inputs``): real data and random data side by side."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import worst
from narrowdown.engines.compare.say import say_worst, wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import MADE_UP, SampleResult, is_given
from narrowdown.engines.search.whole import list_failing, look_at_whole
from narrowdown.engines.steps.base import Finish, NoParams, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_findings


class InputsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # helps: real inputs pass; no: they fail too; only-real: they alone fail
    verdict: Literal["helps", "no", "only-real", "none-given"] = "none-given"
    real_error: float | None = None  # the worst on real inputs
    random_error: float | None = None  # the worst on random ones
    real_samples: int = 0
    real_failing: int = 0  # of them
    random_samples: int = 0
    random_failing: int = 0  # of them
    guesses: str = ""  # what each input was taken to be for
    message: str = ""


class _Side(NamedTuple):
    """How the samples of one kind came out; ``off``: the worst, in words."""

    error: float | None
    n: int
    failing: int
    off: str

    def say(self, kind: str) -> str:
        """``3 of 4 real inputs fail (worst: wrong by 2 %)``"""
        side = f"all {self.n:,} {kind} pass" if self.n > 1 else f"the only one of the {kind} passes"
        if self.failing:
            side = (
                f"{self.failing:,} of {self.n:,} {kind} {'fails' if self.failing == 1 else 'fail'}"
            )
        return f"{side} (worst: {self.off})"


def inputs(ctx: StepContext) -> Steps[InputsOutcome]:
    findings: Findings = yield from prepare_findings(ctx)
    if ctx.check:
        message = "An external check chooses its own inputs, so real and random ones cannot be told apart here."
        return Finish(InputsOutcome(message=message), findings)
    model = look_at_whole(ctx, findings)
    given = any(is_given(s.id) for s in findings.samples)
    made = whole = yield from model.compare()
    if given:
        made = yield from model.compare(samples=(MADE_UP,), note="the same on made-up values")
    real = _sum_up(whole.measurement.results if given else (), model.rule)
    random = _sum_up(made.measurement.results, model.rule)
    signature = findings.signature
    if findings.looks > 1 and signature is not None and is_given(signature.sample):
        # An intermittent failure was seen on real inputs; this one run need not show it.
        off = wrong_by(signature.error, model.rule.metric)
        real = real._replace(error=signature.error, failing=max(1, real.failing), off=off)
    outcome = InputsOutcome(
        verdict=_decide(real, random),
        real_error=real.error,
        random_error=random.error,
        real_samples=real.n,
        real_failing=real.failing,
        random_samples=random.n,
        random_failing=random.failing,
        guesses=" ".join(findings.notes),
        message=_say(real, random),
    )
    return Finish(outcome, findings)


def _sum_up(rows: Sequence[SampleResult], rule: Criterion) -> _Side:
    error = worst(rows, rule)[2] if rows else None
    return _Side(error, len(rows), len(list_failing(rows, rule)), say_worst(rows, rule))


def _decide(real: _Side, random: _Side) -> Literal["helps", "no", "only-real", "none-given"]:
    if not real.n:
        return "none-given"
    if real.failing:
        return "no" if random.failing or not random.n else "only-real"
    return "helps" if random.failing else "no"


def _say(real: _Side, random: _Side) -> str:
    if not real.n:
        return f"No real inputs were given; {random.say('random ones')}."
    other = f", {random.say('random ones')}" if random.n else "; the model takes no random ones"
    said = f"{real.say('real inputs')}{other}."
    return said[0].upper() + said[1:]


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
