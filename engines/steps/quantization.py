"""quantization: which layers of a Q/DQ model lose the most, and the fewest to leave in float so
that every sample passes.

A layer is what a quantizer can leave out (``engines.graph.quantized``). *Effect*: what arrives at
the model's outputs when nothing but this layer is quantized; it is the order that is shown, and the
one that the search for the set takes. *Alone*: its pairs and itself, fed the float model's values.
*Cumulative*: its output in the quantized model as it is.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Described, Note, StepContext, StepRefused, Sub, asked
from narrowdown.engines.asking.failure import choose_feed, list_feeds
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.compare.judge import Signature, by_sample, judge_whole
from narrowdown.engines.compare.say import say_amount, say_first, say_most
from narrowdown.engines.compare.statistics import say_most_wrong
from narrowdown.engines.compare.tolerance import criterion
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.quantized import (
    TRIALS,
    can_stay_float,
    count_operators,
    find_layers,
    find_leavable_layers,
    is_stored_weight,
    nodes_on_codes,
    say_settings,
)
from narrowdown.engines.probe import Describe, Measurement, Requantize, is_given
from narrowdown.engines.search.keeping import Keeping, Kept, PrecisionParams
from narrowdown.engines.search.ranking import MOST_EFFECTS, LayerRow, rank_layers
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.unseen import GIVEN, find_worst, list_failing, say_tried
from narrowdown.engines.search.workaround_facts import UNCALIBRATED
from narrowdown.engines.spec import parse, unquantized
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    End,
    Finish,
    Steps,
    StepSpec,
    Told,
    comparison,
)
from narrowdown.engines.steps.compare import LITERAL
from narrowdown.engines.steps.precision import PrecisionOutcome
from narrowdown.engines.steps.prepare import load_findings, prepare_findings


class QuantizationOutcome(PrecisionOutcome, frozen=True, kw_only=True):
    """quantization: the layers of a Q/DQ model against the float one. SQNR in dB, 999 where nothing
    is lost. Kept are layers in float; the error is without any where none is needed."""

    layers: int = 0  # quantized by pairs
    whole: int = 0  # nodes that cannot be left in float
    worst: str = ""  # the layer that costs the outputs the most
    worst_effect: float | None = None  # error on the outputs with no other layer quantized
    worst_db: float | None = None  # SQNR of its own output
    weights: Literal["original", "dequantized"] = "dequantized"  # of the reference
    reference: str = ""  # the engine spec of the float model


_LITERALLY = "computed literally"


class CandidateRow(msgspec.Struct, frozen=True):
    """A row of the table ``candidates``: what may help, in the order in which it is tried."""

    what: str
    error: float | None = None  # of the worst sample
    literal: float | None = None  # the same codes computed literally
    passes: bool = False
    arguments: str = ""  # of `quantize_static`
    why: str = ""  # it could not be measured


class QuantizationParams(PrecisionParams, frozen=True):
    budget: Count = 1000  # builds: seven rounds of a hundred layers, each tried alone
    trials: Count = len(TRIALS)  # settings that the float model is quantized anew with
    most_effects: Count = MOST_EFFECTS  # layers whose effect on the outputs is measured


def quantization(ctx: StepContext) -> Steps[QuantizationOutcome]:
    params = msgspec.convert(dict(ctx.params), QuantizationParams)
    ctx = on_float(ctx)
    findings: Findings = yield from load_findings(ctx)
    plain = yield from asked(Describe(model=findings.model))
    if isinstance(plain, Described) and not find_leavable_layers(plain.index):
        raise StepRefused(_say_none(plain.index, nodes_on_codes(plain.index)), 2)
    findings = yield from prepare_findings(msgspec.structs.replace(ctx, findings=findings))
    if findings.signature is not None and findings.signature.kind == "build":
        built = yield from asked(probe_whole(ctx, findings))
        raise StepRefused(f"{built.message} Layers that are not built lose nothing.", 6)
    sample = choose_feed(
        findings, findings.signature.sample if findings.signature else list_feeds(findings)[0]
    )
    passing = Signature(kind="accuracy", sample=sample)
    # All of the model is asked about, whatever case was found and cured before.
    whole = msgspec.structs.replace(
        findings, sample=sample, culprits=(), round_signature=None, patches="", righted="", keep=""
    )
    ask: Inquiry = yield from open_inquiry(ctx, whole, passing)
    index = ask.index
    layers = find_layers(index)
    opaque = nodes_on_codes(index)
    # What the float model, where it is there, can be quantized anew on.
    given = [s for s in findings.samples if is_given(s.id) and parse(ctx.reference).get("model")]
    feeds = tuple(s.id for s in given)
    trials = params.trials if feeds else 0
    tried = (yield from _try_candidates(ask, feeds, trials)) if findings.signature else []
    rows: tuple[LayerRow, ...] = yield from rank_layers(
        make_oracle(ask), layers, params.most_effects
    )
    # Where nothing fails this costs nothing more: the whole model was measured already.
    order = tuple(row.node for row in rows if row.movable)
    kept: Kept = yield from Keeping(ask, params, order).run()
    # Rows of one feed may go alike, so they are told apart where there is no other.
    parts = tuple(f"{s.id}/{k}" for s in given for k in range(s.rows)) if len(feeds) == 1 else feeds
    if kept.found and sum(max(1, s.rows) for s in given) >= GIVEN:
        kept = yield from _cross(ask, parts, kept)
    found, first = kept.found, rows[0]
    outcome = QuantizationOutcome(
        outcome=kept.outcome,  # type: ignore[arg-type]
        layers=len(layers),
        whole=len(opaque) + sum(not can_stay_float(index, layer) for layer in layers),
        worst=first.layer,
        worst_effect=first.effect,
        worst_db=first.sqnr_db,
        tolerance=ask.criterion.tolerance,
        builds=kept.builds,
        weights="original" if parse(ctx.reference).get("model") else "dequantized",
        reference=ctx.reference,
        message=f"{_say_candidates(ask, tried)}{_say_cut_off(rows)}"
        f"{_message(ask, kept, first, opaque, len(layers))}",
    ).filled(kept.tried)
    keep = ranges.decode(kept.tried.keep)
    notes = dict.fromkeys((*findings.notes, *_make_notes(ctx, index, opaque)))
    return Finish(
        msgspec.structs.replace(outcome, holds=found is not None and found.holds),
        msgspec.structs.replace(
            findings,
            workaround=found or findings.workaround,
            notes=tuple(notes),
        ),
        tables={
            "layers": [msgspec.structs.replace(r, left_in_float=r.node in keep) for r in rows],
            "candidates": tried,
            "keep": [{"node": n} for n in ask.index.names(keep)],
            "bundle": [Saved("workaround", kept.files)] if kept.files else [],
        },
        decisive={"workaround": (ask.whole(list_feeds(findings), keep),)} if found else {},
    )


def on_float(ctx: StepContext) -> StepContext:
    """The context with the float model as its reference: the user's own choice, else the pairs
    bypassed. A failure that was locked against another reference is measured anew."""
    if unquantized(ctx.reference):
        return ctx
    reference = str(parse(ctx.reference).with_option("quantization", "bypass"))
    # What quantization may cost is another question than what an engine may make of the same codes.
    rule = (
        criterion(ctx.problem, ctx.findings.codes)
        if ctx.findings.criterion and ctx.findings.codes
        else None
    )
    findings = msgspec.structs.replace(
        ctx.findings,
        criterion=rule,
        signature=None,
        round_signature=None,
        sample="",
        patches="",
        keep="",
    )
    return msgspec.structs.replace(ctx, reference=reference, findings=findings)


def _try_candidates(
    ask: Inquiry, calibrating: tuple[str, ...], trials: int
) -> Sub[list[CandidateRow]]:
    """What may help beside leaving layers out: the engine's own part first, then other settings of
    the quantizer."""
    feeds = list_feeds(ask.findings)
    literal = yield from asked(ask.whole(feeds, engine=LITERAL))
    rows = [_weigh(_LITERALLY, literal, ask)]
    for trial in tuple(TRIALS)[:trials]:
        m = off = yield from _quantize_anew(ask, trial, calibrating)
        if made := m.facts.get("model", ""):
            m = yield from asked(ask.whole(feeds, model=made))
            off = yield from asked(ask.whole(feeds, model=made, engine=LITERAL))
        rows.append(
            msgspec.structs.replace(_weigh(trial, m, ask), literal=_weigh(trial, off, ask).error)
        )
    return rows


def _quantize_anew(
    ask: Inquiry, trial: str, samples: tuple[str, ...], left_out: tuple[str, ...] = ()
) -> Sub[Measurement]:
    yield Note(f"quantized anew: {trial}")
    probe = Requantize(
        model=ask.findings.model, inputs=ask.findings.inputs, samples=samples,
        reference=ask.ctx.reference, trial=trial, left_out=left_out,
    )  # fmt: skip
    return (yield from asked(probe))


def _cross(ask: Inquiry, given: tuple[str, ...], kept: Kept) -> Sub[Kept]:
    """The set with how many of these samples pass, of how many, where it is left out of a model that
    was calibrated on the other half of them. What calibrates a model says nothing of others: of five
    models up to 9 % of others were told to fail, and 15, 13, 0, 2 and 5 of 100 did; crossed it is
    2, 3, 0, 2 and 2 of 16."""
    ok = n = 0
    for half in (0, 1):
        made = yield from _quantize_anew(ask, "as it is", given[half::2], kept.tried.keep_names)
        if model := made.facts.get("model", ""):
            m = yield from asked(ask.whole(given[1 - half :: 2], model=model))
            n += len(by_sample(m))
            ok += len(by_sample(m)) - len(list_failing(m, ask.criterion))
    return msgspec.structs.replace(kept, tried=msgspec.structs.replace(kept.tried, crossed=(ok, n)))


def _weigh(what: str, m: Measurement, ask: Inquiry) -> CandidateRow:
    ran = m.status == "ok"
    return CandidateRow(
        what,
        find_worst(m, ask.criterion) if ran else None,
        passes=ran and judge_whole(m, ask.criterion).passed,
        arguments=say_settings(TRIALS.get(what, {})),
        why="" if ran else m.message,
    )


def _say_candidates(ask: Inquiry, rows: Sequence[CandidateRow]) -> str:
    """The first that helps, in a sentence with a space behind."""
    passing = next((row for row in rows if row.passes), None)
    if passing is None:
        return ""
    error = say_amount(passing.error or 0.0, ask.criterion.metric)
    if passing.what == _LITERALLY:
        return (
            f"Computed literally it passes ({error}): the rest is the engine's own part. Without VNNI an x86 processor "
            "saturates sums of U8S8 products; reduce_range=True is for that. "
        )
    with_ = f" with {passing.arguments}" if passing.arguments else ", calibrated on your samples,"
    return f"Quantized anew{with_} it passes ({error}). "


def _say_cut_off(rows: Sequence[LayerRow]) -> str:
    """The pair that cuts off what the worst layer of such is fed, in a sentence with a space
    behind."""
    row = next((row for row in rows if row.cut_off and row.effect), None)
    if row is None:
        return ""
    return f"The scale of {row.cut_off} cuts off: its values reach {row.largest:.3g}, its codes end at {row.codes_end:.3g}. "


def _say_none(index: GraphIndex, opaque: Sequence[int]) -> str:
    return say_first(
        (
            opaque,
            f"This model is quantized in operators ({count_operators(index.nodes, opaque)}), not in Q/DQ pairs: each computes on "
            "codes by itself, and none can be left in float. Export it in Q/DQ form (quant_format=QuantFormat.QDQ) to rank its "
            "layers.",
        ),
        (
            True,
            "This model has no QuantizeLinear/DequantizeLinear pairs, so there is nothing to rank; give the quantized model, "
            "and the float one as --reference onnxruntime:model=FLOAT.onnx.",
        ),
    )


def _make_notes(ctx: StepContext, index: GraphIndex, opaque: Sequence[int]) -> tuple[str, ...]:
    stored = any(is_stored_weight(index, d) for x in find_layers(index) for d in x.dequantizers)
    told = (
        (
            opaque,
            f"Quantized in themselves and left whole: {count_operators(index.nodes, opaque)}.",
        ),
        (
            stored and not parse(ctx.reference).get("model"),
            "The weights are stored as codes, so what their rounding cost cannot be seen: the reference uses them as they are "
            "worth. Give the float model as --reference onnxruntime:model=FLOAT.onnx to see it.",
        ),
    )
    return tuple(text for holds, text in told if holds)


def _message(ask: Inquiry, kept: Kept, first: LayerRow, opaque: Sequence[int], total: int) -> str:
    cure, metric = kept.tried, ask.criterion.metric
    error = say_amount(cure.error, metric)
    said = (
        f"{first.layer} costs the most: {say_amount(first.effect, metric)} with no other layer quantized."
        if first.effect
        else ""
    )
    rest = say_first(
        (
            opaque,
            f"{count_operators(ask.index.nodes, opaque)} compute on codes in themselves and stay quantized.",
        ),
        (
            parse(ask.ctx.reference).get("model"),
            "the pairs are not the cause, or the model was not quantized from this float original.",
        ),
        (True, "the pairs are not the cause."),
    )
    names = ", ".join(cure.keep_names)
    tried = f"{say_tried(cure)} ({say_most(cure.error, ask.criterion)})"
    return {
        "none-needed": f"Quantization costs less than is allowed: no layer needs to stay in float. {said}{_say_others(ask)}",
        "not-enough": f"Even with all {total} layers in float the error is {error}: {rest} {said}",
        "whole": f"It passes with all {total} layers in float, and with no smaller set that was tried. {said}",
        "found": f"{len(cure.keep_names)} of {total} quantized layers left in float: {tried}: {names}. {said}",
    }[kept.outcome].strip()


def _say_others(ask: Inquiry) -> str:
    """Where all that was given passes: the bound for others, with a space in front."""
    given = sum(max(1, s.rows) for s in ask.findings.samples if is_given(s.id))
    return f" {say_most_wrong(given, given).capitalize()}{UNCALIBRATED}" if given else ""


def _json(told: Told) -> dict[str, object]:
    rest = {
        key: value
        for key, value in told.outcome.items()
        if key not in ("layers", "keep", "names", "samples")
    }
    return {
        **rest,
        "layers_n": told.outcome.get("layers", 0),
        "samples_n": told.outcome.get("samples", 0),
        "leave_in_float": [row["node"] for row in told.tables.get("keep", [])],
        "candidates": told.tables.get("candidates", []),
        "layers": told.tables.get("layers", []),
    }


SPEC = StepSpec(
    name="quantization",
    version=14,
    summary="Rank the layers of a Q/DQ model by their effect, and find the fewest to leave in float so that every sample passes.",
    run=quantization,
    outcome=QuantizationOutcome,
    params=QuantizationParams,
    needs=(
        BUILDS_MODELS,
        comparison(
            "An external check judges whole models and cannot measure single layers; leave --check out.",
            code=2,
        ),
    ),
    sets=("workaround",),
    makes=("workaround",),
    ends=(
        End("outcome", "none-needed", "not-reproduced"),
        End("outcome", "not-enough", "unresolved"),
        End("outcome", "whole", "unresolved"),
    ),
    labels={
        "layers": "quantized layers",
        "whole": "cannot be left in float",
        "worst": "costs the most",
        "worst_effect": "error by it alone",
        "worst_db": "its SQNR in dB",
        "keep": "layers to leave in float",
        "names": "which",
        "error": "error with them in float",
        "weights": "weights of the reference",
    },
    json=_json,
)
