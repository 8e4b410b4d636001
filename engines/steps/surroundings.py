"""What probes that run the user's own programs are told beside their question: the folder to run
in, the files to keep, and what is done to outputs before they are compared.

A step does not think of these: whatever it asks is completed on its way out. Where files are kept,
every distinct check is a row of the table ``iterations``, in the order asked: what it was about,
its verdict, and what it left behind.
"""

from collections.abc import Iterable

import msgspec

from narrowdown.engines.asking import Note, Reply, StepContext, StepRefused
from narrowdown.engines.compare.judge import Verdict, judge_check
from narrowdown.engines.compare.tolerance import criterion
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import AnyProbe, Check, LoadInputs, Measure, Measurement
from narrowdown.engines.sources import postprocess_script
from narrowdown.engines.steps.base import Finish, OutcomeT, Steps, StepSpec

TABLE = "iterations"
# What every step prepares where it is not there yet (``prepare``), and may find to be otherwise.
PREPARED = (
    "model", "original", "inputs", "samples", "criterion", "signature", "round_signature", "sample", "notes", "expensive",
    "cheap", "bodies", "opened", "rests", "fixable", "random", "codes", "suggested", "cache",
)  # fmt: skip


def surround_step(spec: StepSpec[OutcomeT]) -> StepSpec[OutcomeT]:
    """The same step, its probes completed from the PROBLEM (``folder``, ``artifacts``,
    ``postprocess``), and held to what it declares: it is refused where a need is not met, and may
    change no finding but those of ``sets``."""

    def completed(ctx: StepContext) -> Steps[OutcomeT]:
        if (need := spec.lacking(ctx)) is not None:
            raise StepRefused(need.why(ctx), need.code)
        wanted = ctx.problem.artifacts
        rule = criterion(ctx.problem, ctx.engine_info.precision)
        rows: dict[Check, Iteration] = {}
        steps = spec.run(ctx)
        answer: Reply = None
        try:
            while True:
                try:
                    asked = steps.send(answer)
                except StopIteration as end:
                    finish: Finish[OutcomeT] = end.value
                    break
                if isinstance(asked, Note):
                    answer = yield asked
                    continue
                asked = _complete_probe(asked, ctx)
                answer = yield asked
                if wanted and isinstance(asked, Check) and isinstance(answer, Measurement):
                    question = msgspec.structs.replace(asked, exclusive=False)
                    rows.setdefault(
                        question,
                        make_iteration(len(rows), asked, answer, judge_check(answer, rule), wanted),
                    )
        finally:
            steps.close()
        _hold_to_sets(spec, ctx.findings, finish.findings)
        decisive = {
            role: tuple(_complete_probe(p, ctx) for p in probes)  # type: ignore[arg-type]
            for role, probes in finish.decisive.items()
        }
        tables = {TABLE: list(rows.values()), **finish.tables} if rows else finish.tables
        return msgspec.structs.replace(finish, decisive=decisive, tables=tables)

    return msgspec.structs.replace(spec, run=completed)


class Iteration(msgspec.Struct, frozen=True):
    """One row of the table ``iterations``. ``artifacts``: name -> digest of what it left behind."""

    iteration: int
    attempt: int
    nodes: int
    verdict: str
    detail: str
    seconds: float
    artifacts: dict[str, str]


def make_iteration(
    iteration: int, probe: AnyProbe, m: Measurement, verdict: Verdict, artifacts: Iterable[str]
) -> Iteration:
    """One iteration as the table has it. ``artifacts``: the names that are wanted; those that were
    made are there."""
    return Iteration(
        iteration=iteration,
        attempt=probe.attempt,
        nodes=m.nodes,
        verdict=verdict.kind,
        detail=verdict.detail or m.message,
        seconds=m.build_seconds + m.run_seconds,
        artifacts={name: m.artifacts[name] for name in artifacts if name in m.artifacts},
    )


def _hold_to_sets(spec: StepSpec[msgspec.Struct], before: Findings, after: Findings) -> None:
    """Raise TypeError for a finding that a step has changed and does not declare: a later step
    would build on it unseen."""
    allowed = {*PREPARED, *spec.sets}
    strays = [
        f
        for f in Findings.__struct_fields__
        if f not in allowed and getattr(before, f) != getattr(after, f)
    ]
    if strays:
        raise TypeError(
            f"the step '{spec.name}' changed {', '.join(strays)}, which its SPEC does not list in 'sets'"
        )


def _complete_probe(probe: AnyProbe, ctx: StepContext) -> AnyProbe:
    folder = ctx.problem.folder
    match probe:
        case Check():
            kept = dict.fromkeys((*probe.artifacts, *ctx.problem.artifacts))
            return msgspec.structs.replace(probe, folder=folder, artifacts=tuple(kept))
        case LoadInputs():
            return msgspec.structs.replace(probe, folder=folder)
        case Measure() if probe.effect or probe.candidate.nodes == ranges.ALL:
            # Where the model's own outputs are compared: no cut without an effect is asked
            # otherwise than ever.
            script = postprocess_script(ctx.problem.postprocess)
            return msgspec.structs.replace(
                probe,
                postprocess=ctx.problem.postprocess,
                postprocess_digest=ctx.problem.digests.get(script, ""),
                folder=folder if script else "",
            )
    return probe
