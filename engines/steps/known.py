"""known: does the failure look like a bug that is known already, and does that bug show on this
engine?

Looking alike is no proof. A bug is called known only where its own construction, a small model that
it shows in, fails here, and does so when its trigger says so and not beside it, and, where it has a
switch, switching that off cures the model."""

from typing import Literal, TypeAlias

import msgspec

from narrowdown.engines.asking import Described, Note, StepContext, Sub, asked
from narrowdown.engines.asking.whole_model import WholeModel, probe_whole
from narrowdown.engines.compare.judge import (
    REFUSALS,
    TOLERANCE_BY_PRECISION,
    Criterion,
    exceed,
    worst,
)
from narrowdown.engines.compare.say import say_first
from narrowdown.engines.findings import Findings, Lookalike
from narrowdown.engines.known.entry import Bug
from narrowdown.engines.known.lookalike import list_lookalikes, say_lookalike
from narrowdown.engines.known.variant import Variant, say_variant, vary_declared
from narrowdown.engines.probe import HUGE, Construct, Describe, Measure, Measurement, Recall
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    PASSES,
    Finish,
    NoParams,
    Outcome,
    Steps,
    StepSpec,
    comparison,
    unresolved,
)
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.switches import list_switches

# Who says what a construction, or a case that was varied, should give: ONNX's own evaluator, which
# shares no code with any engine.
JUDGE = "reference"
# Lookalikes that are asked about: each costs some ten builds of a few nodes, and one that looks
# like more looks like none.
ASKED = 3
# Statuses of a model that an engine does not run: which of them it is depends on where it notices.
NOT_RUN = (*REFUSALS, "refused", "error", "crash")


Shown: TypeAlias = Literal["fails", "passes", "not run"]


class KnownOutcome(Outcome, frozen=True, kw_only=True):
    # known: its small model fails here as its trigger says; looks-like: not shown
    verdict: Literal["known", "looks-like", "none", "passes", "unresolved"] = "unresolved"
    bug: str = ""  # the first: its id in the table
    thread: str = ""  # owner/repository#number; empty where none is known
    says: str = ""  # what goes wrong
    cure: str = ""  # what helps
    mended: str = ""  # the first release without it, where that is known
    nodes: str = ""  # of the model that look like it
    alike: int = 0  # bugs that it looks like
    confirmed: int = 0  # of these those that show here
    trigger: str = ""  # how often it failed where the table says so, and beside it


class KnownRow(Lookalike, frozen=True, omit_defaults=False):
    """A row of the table ``bugs``. ``shown``: what the bug's own construction did here; ``cured``:
    whether its switch cures the model, None where that was not asked. ``trigger``: in how many of
    its variants it fired, as the end of a sentence, "" where none was answered; ``holds``: some of
    either side were, and all as the table says; ``against``: the first that did otherwise, in
    words."""

    shown: Shown = "not run"
    error: float | None = None  # of the construction
    cured: bool | None = None
    holds: bool = False
    against: str = ""


def known(ctx: StepContext) -> Steps[KnownOutcome]:
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        return Finish(
            KnownOutcome(
                verdict="passes", message="The model passes here, so there is nothing to recognise."
            ),
            findings,
        )
    described = yield from asked(
        Describe(
            model=findings.model,
            sample=findings.sample,
            inputs=findings.inputs,
            reference=ctx.reference,
        )
    )
    if not isinstance(described, Described):
        return Finish(
            KnownOutcome(message=f"The graph could not be read: {described.message}"), findings
        )
    index = described.index
    family = parse(ctx.engine).name
    recalled = yield from asked(
        Recall(family=family, ops=tuple(sorted({n.op for n in index.nodes})))
    )
    if recalled.status != "ok":
        return Finish(KnownOutcome(message=recalled.message), findings)
    bugs = [msgspec.convert(b, Bug) for b in recalled.facts["bugs"]]
    view = ctx.engine_info
    alike = list_lookalikes(findings, index, bugs, version=view.version, precision=view.precision)
    rows: list[KnownRow] = []
    for bug, nodes in alike[:ASKED]:
        rows.append((yield from _try_bug(ctx, findings, bug, index.names(nodes))))
    rows.sort(key=lambda row: (not row.confirmed, row.shown == "passes"))
    found = tuple(msgspec.convert(row, Lookalike, from_attributes=True) for row in rows)
    return Finish(
        _tell(rows, family),
        msgspec.structs.replace(findings, lookalikes=found),
        tables={"bugs": rows},
        decisive={"whole": (probe_whole(ctx, findings, samples=(findings.sample,)),)},
    )


def _try_bug(
    ctx: StepContext, findings: Findings, bug: Bug, nodes: tuple[str, ...]
) -> Sub[KnownRow]:
    """Whether the bug shows here, as its trigger says, and whether its switch cures the model."""
    row = KnownRow(
        bug=bug.id,
        thread=bug.thread,
        nodes=nodes,
        mended=bug.mended,
        cure=bug.cure,
        says=bug.says,
    )
    shown, error = yield from show_bug(ctx, bug)
    finite = error if error is not None and error < HUGE else None
    row = msgspec.structs.replace(row, shown=shown, error=finite)
    if shown != "fails":
        return row
    row = yield from hold_trigger(ctx, bug, row)
    can = list_switches(ctx.engine, ctx.engine_info)
    off = set(bug.switch_off) & set(can.optimizers)
    if off:
        yield Note(f"does the model pass without {', '.join(sorted(off))}?")
        distance = yield from WholeModel(ctx, findings).compare(
            can.without(off), samples=(findings.sample,)
        )
        row = msgspec.structs.replace(row, cured=distance.told and not distance.exceeds)
    return msgspec.structs.replace(row, confirmed=row.holds and row.cured is not False)


def hold_trigger(ctx: StepContext, bug: Bug, row: KnownRow) -> Sub[KnownRow]:
    """The row with whether the construction fails where the bug's trigger says so, and not beside
    it. What the engine does not run is no answer: releases refuse this type or that opset for
    reasons of their own."""
    done: dict[Shown, list[bool]] = {"fails": [], "passes": []}  # as the table says
    against: list[str] = []
    variants: list[tuple[Variant, Shown]] = [
        *((v, "fails") for v in bug.fires),
        *((v, "passes") for v in bug.beside),
    ]
    for variant, wanted in variants:
        shown, _ = yield from show_bug(ctx, bug, variant)
        if shown == "not run" or bug.make is None:
            continue
        done[wanted].append(shown == wanted)
        if shown != wanted:
            does = "passes" if shown == "passes" else "fails, too"
            against.append(f"with {say_variant(bug.make, variant)} it {does}")
    fires, beside = done["fails"], done["passes"]
    counted = f"fails in {sum(fires)} of {len(fires)} variants, not in {sum(beside)} of {len(beside)} beside it"
    return msgspec.structs.replace(
        row,
        trigger=counted if fires or beside else "",
        holds=bool(fires and beside) and not against,
        against="".join(against[:1]),
    )


def show_bug(
    ctx: StepContext, bug: Bug, variant: Variant | None = None
) -> Sub[tuple[Shown, float | None]]:
    """What the bug's construction, or a variant of it, does on this engine, and its error, against
    ONNX's evaluator."""
    if bug.make is None:
        return "not run", None
    where = f"with {say_variant(bug.make, variant)}" if variant else "here"
    yield Note(f"does {bug.name} show {where}?")
    declared = msgspec.json.encode(vary_declared(bug.make, variant or {})).decode()
    made = yield from asked(Construct(declared=declared, feed=True, seed=ctx.seed))
    if made.status != "ok":
        return "not run", None
    m = yield from asked(
        Measure(
            model=made.facts["model"],
            inputs=made.facts["inputs"],
            samples=tuple(made.facts["samples"]),
            engine=str(parse(ctx.engine).with_options(bug.settings)),
            reference=JUDGE,
        )
    )
    return judge_shown(ctx, bug, m)


def judge_shown(ctx: StepContext, bug: Bug, m: Measurement) -> tuple[Shown, float | None]:
    """Whether the construction failed as the bug says."""
    if m.status != "ok":
        refused = m.status in NOT_RUN and bug.fails == "refused"
        return ("fails" if refused else "not run"), None
    rule = Criterion(
        tolerance=TOLERANCE_BY_PRECISION.get(
            ctx.engine_info.precision, TOLERANCE_BY_PRECISION["fp32"]
        )
    )
    failed = bug.fails == "wrong" and exceed(m.results, rule)
    return ("fails" if failed else "passes"), worst(m.results, rule)[2]


def _tell(rows: list[KnownRow], family: str) -> KnownOutcome:
    if not rows:
        said = f"It looks like none of the bugs of {family} in the table (narrowdown known lists them)."
        return KnownOutcome(verdict="none", message=said)
    first = rows[0]
    return KnownOutcome(
        verdict="known" if first.confirmed else "looks-like",
        bug=first.bug,
        thread=first.thread,
        says=first.says,
        cure=first.cure,
        mended=first.mended,
        nodes=", ".join(first.nodes),
        alike=len(rows),
        confirmed=sum(r.confirmed for r in rows),
        trigger=first.trigger,
        message=f"{say_lookalike(first)}{_say_doubt(first)}",
    )


def _say_doubt(row: KnownRow) -> str:
    """Why it only looks like the bug, with a space in front; "" of a known one."""
    return say_first(
        (row.confirmed, ""),
        (
            row.shown == "passes",
            " The small model that it shows in passes here, so it may be fixed, or be another one.",
        ),
        (row.shown == "not run", " Whether it shows here could not be tried."),
        (
            row.holds,
            " That bug shows here, and switching off what breaks it there does not fix this model.",
        ),
        (
            row.against,
            f" Its small model fails here, but not when the table says so: {row.against}, so it may be another one.",
        ),
        (
            True,
            " Its small model fails here; when it does and when not is not in the table, or could not be tried.",
        ),
    )


SPEC = StepSpec(
    name="known",
    version=4,
    summary="Hold the failure against a table of known bugs, and see whether the bug shows on this engine.",
    run=known,
    outcome=KnownOutcome,
    params=NoParams,
    needs=(
        BUILDS_MODELS,
        comparison(
            "An external check chooses its own engine, so whose bug it may be cannot be told."
        ),
    ),
    sets=("lookalikes",),
    ends=(PASSES, *unresolved("none")),
    labels={
        "says": "what is known of it",
        "alike": "bugs that it looks like",
        "confirmed": "of these show here",
        "trigger": "when it fails",
    },
    plan=10 * ASKED,
)
