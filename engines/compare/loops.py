"""A loop, step by step: its curve, and what that says. Pure."""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.compare.judge import Criterion, choose_result, exceed, for_parts, worst
from narrowdown.engines.compare.say import say_error
from narrowdown.engines.probe import HUGE, Answer, Measurement, SampleInfo, SampleResult


class CurveRow(msgspec.Struct, frozen=True):
    """One step of a loop. ``output``: the worst one, and how bad it is; ``own``: what the step is off
    by fed the reference's state, None where that was not asked. ``answer``: of the scores that choose
    a token; ``tie``: another one is chosen, and what is allowed may turn that."""

    sample: str
    step: int
    output: str
    error: float
    over: bool
    own: float | None = None
    answer: Answer | None = None
    tie: bool = False


def draw_curve(
    free: Sequence[SampleResult], own: Sequence[SampleResult], info: SampleInfo, rule: Criterion
) -> list[CurveRow]:
    """The rows of one sequence, in order. ``own``: the same steps, each fed the reference's state;
    none where that was not asked."""
    rows = []
    for step, result in enumerate(free):
        _, output, error = worst((result,), rule)
        alone = worst((own[step],), rule)[2] if own else None
        scores = next((s for s in result.outputs if s.name in info.chosen), None)
        answer = scores.answer if scores else None
        # Each of the two values may be off by what is allowed.
        near = 2 * for_parts(rule).tolerance * scores.absmax if scores else 0.0
        tie = answer is not None and answer.top1 > 0 and answer.margin <= near
        rows.append(
            CurveRow(info.id, step, output, error, exceed((result,), rule), alone, answer, tie)
        )
    return rows


def read_steps(m: Measurement, sample: str) -> tuple[SampleResult, ...]:
    """The result of each step of a sequence; none where these were not kept."""
    return msgspec.convert(m.facts.get("curve", {}).get(sample, ()), tuple[SampleResult, ...])


def choose_step(m: Measurement, result: SampleResult, rule: Criterion) -> SampleResult:
    """The worst step that fails by itself, of a loop whose steps were each fed the reference's state;
    ``result``, which is that of the loop, where none does."""
    own = read_steps(m, result.sample)
    return choose_result(Measurement(results=own), rule) if exceed(own, rule) else result


def sum_up_curve(rows: Sequence[CurveRow], carrier: str) -> dict[str, object]:
    """Facts of an outcome."""
    token = find_token(rows)
    return {
        "steps": len(rows),
        "first_step": next((row.step for row in rows if row.over), None),
        "own_error": max((row.own for row in rows if row.own is not None), default=None),
        "carrier": carrier,
        "token_step": token.step if token else None,
        "near_tie": token is not None and token.tie,
    }


def find_token(rows: Sequence[CurveRow]) -> CurveRow | None:
    """The first step that chooses another token."""
    return next((row for row in rows if row.answer and row.answer.top1 > 0), None)


# -- in words


def say_carried(suggested: Sequence[tuple[str, str]]) -> str:
    """That single steps say nothing of a loop, and the options that run it; "" where none are
    suggested."""
    options = [f"--{name.replace('_', '-')} '{pattern}'" for name, pattern in suggested]
    if not options:
        return ""
    return (
        "Outputs of this model look like the state that goes back into its inputs. Single steps say nothing of the loop: "
        f"add {' '.join(options)} --steps 64. States, positions and masks that you do not give are made then."
    )


def say_curve(rows: Sequence[CurveRow], rule: Criterion, verdict: str, carrier: str) -> str:
    """The loop in sentences: from which step on it is wrong, what steps are wrong by themselves,
    which token changes first; "" of what is no loop."""
    if not rows or verdict not in ("fails", "accumulation", "passes"):
        return ""
    first, top = next((row for row in rows if row.over), None), max(rows, key=lambda r: r.error)
    worst = max(rows, key=lambda row: row.own or 0.0)
    told = f"In the loop of {len(rows)} steps no step is over what is allowed."
    if first is not None:
        peak = (
            f", and worst at step {top.step}" if first.step < top.step and top.error < HUGE else ""
        )
        told = f"In the loop {first.output} is over what is allowed from step {first.step} of {len(rows)} on{peak}."
    if verdict == "accumulation":
        through = f"'{carrier}'" if carrier else "all that is carried"
        told += (
            f" Fed the reference's state, each step is right by itself ({say_error(worst.own or 0.0, rule)} at most), so "
            f"the error grows through {through}. No node is accused."
        )
    if verdict == "fails":
        told += (
            f" Step {worst.step} fails by itself, fed the reference's state: the search continues with that step, and "
            "tries what fixes it in the whole loop."
        )
    token = find_token(rows)
    if token is None or token.answer is None:
        return f"{told} No token changes." if rows[0].answer else told
    margin = token.answer.margin
    what = "a near tie, which what is allowed may turn: harmless" if token.tie else "no near tie"
    scores = f"The reference prefers its own by {margin:.3g}; that is {what}."
    if margin >= HUGE:
        scores = "Its scores are infinite or NaN."
    return f"{told} The first token that changes is that of step {token.step}. {scores}"
