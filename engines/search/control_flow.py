"""If, Loop and Scan that an engine refuses, worked around: a model in which they are fixed to how
they ran, written, built, held to the reference, and tried on other samples that run in the same
way.

Let the search into the bodies of If, Loop and Scan: the working model becomes one with plain
nodes in their place.

Only where the engine shows the same failure then, by about as much: without a loop around them an
engine joins and rounds other operators, and a fault of the loop's own may leave a small error behind
that fails too. Where it does not, the fault rests on the control
flow itself, or on what the engine makes of it, and the node stays whole.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.engine_forms import ALIKE
from narrowdown.engines.asking.failure import keep_rate, lock_failure, say_other
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import Signature, by_sample, judge_whole, margin, restrict
from narrowdown.engines.compare.say import wrong_by
from narrowdown.engines.findings import Findings, Unseen, Workaround
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Measure, Measurement, Unroll, is_given
from narrowdown.engines.search.unseen import (
    Determined,
    add_made,
    count_wanted,
    find_worst,
    list_failing,
    say_tried,
    try_made,
)
from narrowdown.engines.search.workaround_facts import Cure

UNSEEN = " It builds, and the reference is right with it; whether this engine then is cannot be seen on this machine."
ALWAYS = "nothing of it changes"  # what rests on constants alone


class Opened(msgspec.Struct, frozen=True, rename={"rests": "while"}):
    """A node whose body stands in its place. ``how``: it ran; ``by``: what decides that; ``rests``:
    phrases of what must be so for it to run so again."""

    node: str
    op: str
    how: str
    by: tuple[str, ...] = ()
    rests: tuple[str, ...] = ()

    def told(self) -> str:
        """``If 'choice' takes its then_branch``"""
        return f"{self.op} '{self.node}' {'takes its' if self.op == 'If' else 'runs'} {self.how}"


def list_opened(made: Measurement) -> tuple[Opened, ...]:
    """What an ``Unroll`` opened, in the order of the graph."""
    return msgspec.convert(made.facts["opened"], tuple[Opened, ...])


def say_while(made: Measurement) -> str:
    """What must be so for all that was opened to run as it did, as a phrase that follows "while";
    "" where it is always so."""
    said = list(dict.fromkeys(phrase for one in list_opened(made) for phrase in one.rests))
    return join_some(said, " and ")


def fix_control_flow(ask: Inquiry) -> Sub[Cure]:
    """Write the user's own model with plain nodes in the place of what was refused, and try the
    file."""
    findings, rule, oracle = ask.findings, ask.criterion, make_oracle(ask)
    model = findings.original or findings.model
    feeds = tuple(dict.fromkeys((findings.sample, *oracle.feeds)))
    yield Note("your model with If, Loop and Scan fixed to how they run")
    made = yield from asked(_unroll(ask, model, findings.inputs, feeds))
    if made.status != "ok" or not made.facts["opened"]:
        why = made.message if made.status != "ok" else "; ".join(made.facts["kept"])
        return Cure(f"If, Loop and Scan of your model could not be fixed: {why.rstrip('.')}.")
    alike = tuple(made.facts["samples"])
    # The file in place of the user's model, held against what that gives.
    put = partial(ask.whole, model=model, written=str(made.facts["model"]))
    yield Note("does the file compute what your model computes?")
    same = yield from asked(put(alike, engine=ask.ctx.reference))
    if not judge_whole(same, rule).passed:
        return Cure(
            "With them fixed the reference gives another answer: the model is not the same."
        )
    yield Note("the file on the engine")
    here = oracle.computes
    probe = put(alike, runs=int(here), save="written")
    m = yield from asked(probe)
    if m.status != "ok":
        return Cure(f"With If, Loop and Scan fixed it is refused, too: {m.message}")
    tried = m if here else same
    first = {
        s for s in by_sample(tried) if s.partition("/")[0] == findings.sample.partition("/")[0]
    }
    if first.intersection(list_failing(tried, rule)):
        off = wrong_by(find_worst(restrict(tried, first), rule), rule.metric)
        return Cure(f"With If, Loop and Scan fixed it builds, and is {off}.")
    run = put if here else partial(put, engine=ask.ctx.reference)
    others = restrict(tried, set(by_sample(tried)) - first)
    unseen: Unseen = yield from _try_others(ask, model, run, others, len(tried.results))
    error = max(find_worst(tried, rule), unseen.error)
    written = (
        f"worked-around.onnx is your model with plain nodes in their place: {_say_opened(made)}"
    )
    cure = Workaround(
        kind="control-flow",
        engine=ask.ctx.engine,
        switched_off=tuple(one.node for one in list_opened(made)),
        samples_ok=len(first),
        samples_n=len(first),
        error=error,
        margin=margin(rule, error),
        unseen=unseen,
        condition=say_while(made),
        elsewhere=len(set(oracle.feeds) - set(alike)),
        written=f"{written}; the reference gives the same with it.{'' if here else UNSEEN}",
    )
    left = (
        " Run again on the other samples alone for a model of their own." if cure.elsewhere else ""
    )
    condition = f" It is right only while {cure.condition}." if cure.condition else ""
    message = (
        f"With {join_some(cure.switched_off)} fixed the engine takes the model: {say_tried(cure)}."
    )
    return Cure(
        f"{message}{condition}{left}{'' if here else UNSEEN}", cure, dict(m.artifacts), probe
    )


def _try_others(
    ask: Inquiry, model: str, run: Callable[..., Measure], others: Measurement, rows: int
) -> Sub[Unseen]:
    """How the file does on the other given samples, and on made ones that run in the same way."""
    wrong = tuple(list_failing(others, ask.criterion))
    n = len(by_sample(others))
    unseen = add_made(Unseen(), Determined(others, wrong), ask.criterion, plain=n)
    unseen = msgspec.structs.replace(unseen, given=sum(map(is_given, by_sample(others))))

    def run_alike(inputs: str, feeds: tuple[str, ...]) -> Sub[Measurement]:
        watched = yield from asked(_unroll(ask, model, inputs, feeds, base=ask.findings.inputs))
        alike = tuple(watched.facts.get("samples", ()))
        if watched.status != "ok" or not alike:
            return Measurement(status="unsupported")
        return (yield from asked(run(alike, inputs=inputs)))

    _, made = yield from try_made(make_oracle(ask), run_alike, count_wanted(others, n), rows)
    return add_made(unseen, made, ask.criterion, plain=len(by_sample(made.counted)))


def _unroll(
    ask: Inquiry, model: str, inputs: str, samples: tuple[str, ...], base: str = ""
) -> Unroll:
    return Unroll(
        model=model,
        inputs=inputs,
        samples=samples,
        sample=ask.findings.sample or samples[0],
        reference=ask.ctx.reference,
        base=base,
    )


def open_bodies(model: WholeModel) -> Sub[Findings]:
    """Findings with the working model opened, once a session; with a note that says what was
    opened, or why not. The failure must be locked."""
    findings, signature = model.findings, model.findings.signature
    if not findings.bodies or findings.opened or signature is None or not findings.inputs:
        return findings
    findings = msgspec.structs.replace(findings, opened=True)
    feeds = tuple(s.id for s in findings.samples)
    yield Note("opening If, Loop and Scan")
    made = yield from asked(
        Unroll(
            model=findings.model,
            inputs=findings.inputs,
            samples=feeds,
            sample=findings.sample or feeds[0],
            reference=model.reference,
        )
    )
    if made.status != "ok":
        return _noted(findings, f"The search does not enter If, Loop and Scan here: {made.message}")
    kept = tuple(made.facts["kept"])
    if not made.facts["opened"]:
        return _noted(findings, *kept)
    agreed = tuple(s for s in findings.samples if s.id in made.facts["samples"])
    clean = msgspec.structs.replace(
        findings, model=str(made.facts["model"]), samples=agreed, signature=None
    )
    opened = yield from model.of(clean).run_as_needed(
        note="does it fail with their nodes in the open?"
    )
    m = opened.measurement
    locked: Findings = yield from lock_failure(model.ctx, clean, m)
    said = f"{_say_opened(made)}: these nodes stand in their place."
    # Right, too, is what was built where this machine cannot run it.
    right = m.status == "ok" and (not m.results or judge_whole(m, clean.rule).passed)
    if model.refused and right:
        fixable = msgspec.structs.replace(findings, fixable=say_while(made) or ALWAYS)
        return _noted(fixable, said, _say_way_around(model, made, len(agreed), opened.told), *kept)
    if why := _other(signature, locked.signature, m):
        return _noted(
            findings,
            f"{said} Then it {why}, so that the fault may rest on the control flow itself: they stay whole.",
            *kept,
        )
    left = len(findings.samples) - len(agreed)
    some = f" {left} of {len(findings.samples)} samples run in another way and are left out of the search."
    inside = msgspec.structs.replace(keep_rate(locked, signature), rests=say_while(made) or ALWAYS)
    return _noted(
        inside,
        f"{said} It fails so too, and the search goes on inside.{some if left else ''}",
        *kept,
    )


def _say_way_around(model: WholeModel, made: Measurement, agreed: int, ran: bool) -> str:
    """What to do where an engine takes the model once its control flow is fixed: the file is
    written, and was tried on the samples that ``agreed``: it ``ran`` there, or was built."""
    samples = len(model.findings.samples)
    by = [
        f"'{o.node}' ({o.op}) is decided by {' and '.join(o.by)}" for o in list_opened(made) if o.by
    ]
    right = "builds and is right" if ran else "builds, and the reference gives the same,"
    return (
        f"A way around: with that fixed the engine takes the model. It {right} on {agreed} of {samples} samples. "
        f"{join_some(by, '; ')}{'. ' if by else ''}The step 'workaround' writes it as a model, says while what it holds, and "
        "tries it on further samples."
    )


def _noted(findings: Findings, *said: str) -> Findings:
    return msgspec.structs.replace(findings, notes=(*findings.notes, *said))


def _other(before: Signature, after: Signature | None, m: Measurement) -> str:
    """What is different about the failure, in words that follow "then it"; "" where it is the same
    one."""
    other = say_other(before, after, m)
    if other or after is None:
        return other or "passes"
    if before.outputs and not set(before.outputs) & set(after.outputs):
        return "is wrong at other outputs"
    if after.error * ALIKE < before.error:
        return f"is {wrong_by(after.error, after.metric)} where it was {wrong_by(before.error, before.metric)}"
    return ""


def _say_opened(made: Measurement) -> str:
    """What was opened: ``If 'choice' takes its then_branch, Loop 'steps' runs 8 iterations``"""
    return join_some([one.told() for one in list_opened(made)])
