"""inputs (node ``real-inputs``): real data and random data side by side."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, asked
from narrowdown.engines.compare.judge import worst
from narrowdown.engines.compare.say import say_worst, wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import MADE_UP, SampleResult, is_given
from narrowdown.engines.search.whole import list_failing, probe_whole
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


def inputs(ctx: StepContext) -> Steps[InputsOutcome]:
    findings: Findings = yield from prepare_findings(ctx)
    rule = findings.rule
    if ctx.check:
        message = "An external check chooses its own inputs, so real and random ones cannot be told apart here."
        return Finish(InputsOutcome(message=message), findings)
    given = any(is_given(s.id) for s in findings.samples)
    m = yield from asked(probe_whole(ctx, findings))
    made = m
    if given:
        yield Note("the same on made-up values")
        made = yield from asked(probe_whole(ctx, findings, samples=(MADE_UP,)))

    def side(rows: Sequence[SampleResult]) -> tuple[float | None, int, int, str]:
        return (
            (worst(rows, rule)[2] if rows else None),
            len(rows),
            len(list_failing(rows, rule)),
            say_worst(rows, rule),
        )

    real_error, real, real_failing, real_off = side(m.results if given else ())
    random_error, random, random_failing, random_off = side(made.results)
    if (
        findings.looks > 1
        and findings.signature is not None
        and is_given(findings.signature.sample)
    ):
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


def _message(verdict: str, rf: int, r: int, nf: int, n: int, real_off: str, random_off: str) -> str:
    if verdict == "none-given":
        return f"No real inputs were given; {_say_side('random ones', nf, n, random_off)}."
    other = (
        f", {_say_side('random ones', nf, n, random_off)}"
        if n
        else "; the model takes no random ones"
    )
    said = f"{_say_side('real inputs', rf, r, real_off)}{other}."
    return said[0].upper() + said[1:]


def _say_side(kind: str, failing: int, n: int, off: str) -> str:
    """How the samples of one kind (``real inputs``) came out: ``3 of 4 real inputs fail (worst:
    wrong by 2 %)``."""
    if failing:
        side = f"{failing:,} of {n:,} {kind} {'fails' if failing == 1 else 'fail'}"
    else:
        side = f"the only one of the {kind} passes" if n == 1 else f"all {n:,} {kind} pass"
    return f"{side} (worst: {off})"


def _plan(_ctx: StepContext, _nodes: int) -> int:
    """All samples once, and the made-up one."""
    return 2


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
    plan=_plan,
)
