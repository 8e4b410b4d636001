"""Golden outputs as the reference: is the model itself right, and what computes in their stead from
here on?

Golden outputs say what is right on the model's outputs and compute nothing, so that no part of a
model can be held against them. Where the engine differs from them a third voice, which shares no
code with the engine, computes the model in FP32. If it agrees with the golden outputs, the model is
right and that voice is as good a reference as they are: the search goes on against it. If it does
not and the engine agrees with it, the fault was made before any engine saw the model: the export is
at fault.
"""

from collections.abc import Mapping

import msgspec

from narrowdown.engines.asking import StepContext, StepRefused, Sub
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import SHARE, for_parts
from narrowdown.engines.data.golden_files import name_by_place
from narrowdown.engines.exporting.parting import Comparison, Parted, find_part
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.nearest import join_some
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import Measurement, is_given
from narrowdown.engines.search.independent import Heard, Parting, say_unable
from narrowdown.engines.search.trial import Tried, stand_in

# Who computes an IR in FP32: nobody independent, so that it agrees clears the model, and that it
# differs says nothing.
OWN_IR = "openvino:precision=f32"


def try_golden(model: WholeModel, m: Measurement) -> Sub[Tried]:
    """``Tried`` of the failure that is known: ``m`` is the engine against the golden outputs on
    every sample.

    ``model-right``: the judge computes the model in FP32 as the golden outputs say. ``export``: it
    does not, and the engine agrees with it. ``both``: neither the engine nor the judge is where the
    golden outputs are, nor do they agree. ``unclear``: the engine lies between; ``unmeasured``: how
    far it is from the judge is not known; ``contradicted``: judges differ among themselves.
    ``model-unheard``: none runs the model.
    """
    if model.findings.signature is None:
        return Tried(model, m)
    differing: list[Heard] = []
    why: list[str] = []
    # The fastest first, as each runs every sample. Whoever agrees with values from outside cannot
    # be wrong in the same way by chance, so one is enough.
    for judge in model.independent[::-1] or (OWN_IR,):
        note = f"is the model itself right? {judge} against the golden outputs"
        off = yield from model.compare(judge, note=note)
        heard = Heard(judge=judge, error=off.error)
        if not off.told:
            why.append(say_unable(judge, off))
        elif off.error <= off.allowed:
            return (yield from _hold_engine(model, m, heard, right=True))
        elif model.why_none:
            why.append(f"{model.why_none} OpenVINO in FP32 differs from what was recorded, too.")
        else:
            differing.append(heard)
            if len(differing) == 2:
                break
    if not differing:
        other = "every engine here shares its code."
        unheard = Heard("model-unheard", why=" ".join(why) or other)
        return Tried(model, m, unheard, "unresolved")
    heard = differing[0]
    for second in differing[1:]:
        between = yield from model.compare(second.judge, heard.judge)
        # Where nobody knows whether they agree (float64 takes a minute of an image transformer) the
        # first is heard alone.
        if between.told:
            heard = msgspec.structs.replace(heard, other=second.judge)
        if between.told and between.error > SHARE * (heard.error or 0.0):
            return Tried(model, m, heard.stand("contradicted"), "unresolved")
    return (yield from _hold_engine(model, m, heard, right=False))


def _hold_engine(model: WholeModel, m: Measurement, heard: Heard, *, right: bool) -> Sub[Tried]:
    """The trial of a model that the judge computes as the golden outputs say (``right``), or
    otherwise: it goes on with the judge as the reference where the engine fails against that."""
    differs = "golden outputs compute nothing; the model in FP32 differs from them too, which is the export's fault"
    agrees = "golden outputs compute nothing; in FP32 it gives what they say"
    engine, against = yield from stand_in(model, heard.judge, agrees if right else differs)
    heard = heard.stand("unclear", apart=engine.error)
    if not engine.told:
        return Tried(model, m, heard.stand("unmeasured", why=engine.why), "unresolved")
    if right:
        if not engine.exceeds:
            return Tried(model, m, heard, "unresolved")
        return Tried(against, engine.measurement, heard.stand("model-right"))
    feed = model.findings.sample or model.findings.samples[0].id
    asked = Comparison(
        model.unlimited, heard.judge, model.reference, feed, for_parts(model.rule), closer=False
    )
    parting = yield from _find_parting(asked)
    if engine.exceeds:
        return Tried(against, engine.measurement, heard.stand("both"), parting=parting)
    _refuse_other_shapes(model.ctx, m)
    return Tried(model, m, heard.stand("export"), "export", parting=parting)


def _find_parting(asked: Comparison) -> Sub[Parting]:
    """Where the model parts from the inner values that were recorded, where there are any. Raises
    StepRefused (exit code 2) where they are another export's: nothing may be accused by them."""
    found: Parted = yield from find_part(asked)
    if found.other:
        raise StepRefused(
            f"The golden values were recorded of another export: {found.other} Record them of this model, or give its outputs "
            "alone.",
            code=2,
        )
    index, part = found.index, found.part
    if part is None or not set(found.errors).difference(index.outputs):
        return Parting()
    maker = index.made_by(part.tensor)
    return Parting(index.tensors[part.tensor].name, index.shown_names[maker.id] if maker else "")


def _refuse_other_shapes(ctx: StepContext, m: Measurement) -> None:
    """Raise StepRefused (exit code 2) where ``m``, the engine against golden outputs, holds an
    output of another shape: where another engine gives what this one gives, they were recorded of
    other inputs, or as other dimensions."""
    scores = (s for result in m.results for s in result.outputs if s.problem == "shape")
    if unfit := next(scores, None):
        recorded_as = list(_shapes(ctx).get(unfit.name) or unfit.shape)
        raise StepRefused(
            f"The golden outputs do not fit the inputs: '{unfit.name}' is {recorded_as} in them, and the model gives another "
            "shape of these inputs. Give both as they were recorded together, of as many samples and with all dimensions.",
            code=2,
        )


def refuse_unfit(ctx: StepContext, findings: Findings) -> Sub[None]:
    """Raise StepRefused (exit code 2) where golden outputs are not of this model or of these
    inputs: another number of samples, or an output that is recorded under no name or another one. A
    name is never guessed."""
    if not recorded(ctx.reference):
        return
    recorded_of = ctx.reference_info.recorded.samples if ctx.reference_info.recorded else 0
    real = sum(is_given(s.id) for s in findings.samples)
    if recorded_of != real or not real:
        raise StepRefused(
            f"There are golden outputs of {recorded_of} samples and inputs of {real}; give as many inputs (--inputs), in the "
            "same order, as they were recorded with.",
            code=2,
        )
    index: GraphIndex | None = yield from WholeModel(ctx, findings).describe()
    if index is None:
        return
    names = [index.tensors[t].name for t in index.outputs]
    held = {name_by_place(name, names): shape for name, shape in _shapes(ctx).items()}
    missing = [f"'{name}'" for name in names if name not in held]
    free = [f"'{name}' {list(held[name])}" for name in held if name not in index.by_name]
    if missing:
        raise StepRefused(
            f"The golden outputs lack the model's output {join_some(missing)}; they hold {join_some(free) or 'no other tensor'}. "
            "Name which is which: --reference golden:files=FILE,names=RECORDED=OUTPUT.",
            code=2,
        )


def _shapes(ctx: StepContext) -> Mapping[str, tuple[int, ...]]:
    return ctx.reference_info.recorded.shapes if ctx.reference_info.recorded else {}
