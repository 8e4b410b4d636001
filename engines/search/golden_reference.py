"""Golden outputs as the reference: is the model itself right, and what computes in their stead from
here on?

Golden outputs say what is right on the model's outputs and compute nothing, so that no part of a
model can be held against them. Where the engine differs from them a third voice, which shares no
code with the engine, computes the model in FP32. If it agrees with the golden outputs, the model is
right and that voice is as good a reference as they are: the search goes on against it. If it does
not and the engine agrees with it, the fault was made before any engine saw the model: the export is
at fault.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from narrowdown.engines.asking import StepContext, StepRefused, Sub
from narrowdown.engines.asking.whole_model import FLOAT64, Distance, WholeModel, name_engine
from narrowdown.engines.compare.judge import SHARE, over
from narrowdown.engines.data.golden_files import name_by_place
from narrowdown.engines.findings import Findings, Replaced
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex, Tensor
from narrowdown.engines.nearest import join_some
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import Measurement, is_given
from narrowdown.engines.search.independent import Departure
from narrowdown.engines.search.whole import lock_failure
from narrowdown.engines.views import Recorded

Standing = Literal["", "right", "export", "both", "unclear", "unheard"]


class Trial(msgspec.Struct, frozen=True):
    """What golden outputs and independent voices say of the model; ``model`` and
    ``measurement`` to go on with.

    ``right``: ``voice`` computes the model in FP32 as the golden outputs say. ``export``: it does
    not, and the engine agrees with it. ``both``: neither the engine nor the voice is where the
    golden outputs are, nor do they agree. ``unclear``: voices differ among themselves, or the
    engine lies between, or how far it is from the voice was not measured (``why``). ``unheard``:
    none runs the model. "": the engine agrees with the golden outputs, and nothing was asked.
    ``off``: the voice against the golden outputs.
    """

    model: WholeModel
    measurement: Measurement
    standing: Standing = ""
    voice: str = ""
    off: float = 0.0
    engine_off: float = 0.0  # the engine against the voice
    second: str = ""  # another voice that agrees with the first
    departure: Departure = Departure()
    why: str = ""


# Who computes an IR in FP32: nobody independent, so that it agrees clears the model, and that it
# differs says nothing.
OWN_IR = "openvino:precision=f32"


def try_golden(model: WholeModel, m: Measurement, most_nodes: int) -> Sub[Trial]:
    """``Trial`` of the failure that is known: ``m`` is the engine against the golden outputs on
    every sample. ``most_nodes``: of a model that float64 is asked about."""
    trial = Trial(model, m)
    if model.findings.signature is None:
        return trial
    differing: list[tuple[str, float]] = []
    why: list[str] = []
    # The fastest first, as each runs every sample. Whoever agrees with values from outside cannot
    # be wrong in the same way by chance, so one is enough.
    for voice in model.independent[::-1] or (OWN_IR,):
        if voice == FLOAT64 and m.nodes > most_nodes:
            why.append(f"in float64 {m.nodes:,} nodes take too long.")
            continue
        off = yield from model.compare(
            voice, note=f"is the model itself right? {voice} against the golden outputs"
        )
        if not off.told:
            why.append(f"{name_engine(voice)}: {off.why}")
        elif off.error <= off.allowed:
            right = msgspec.structs.replace(trial, voice=voice, off=off.error)
            return (yield from _go_on(model, right))
        elif model.why_none:
            why.append(
                f"{model.why_none[:-1]}, and OpenVINO in FP32 differs from what was recorded, too."
            )
        else:
            differing.append((voice, off.error))
            if len(differing) == 2:
                break
    if not differing:
        return msgspec.structs.replace(trial, standing="unheard", why=" ".join(filter(None, why)))
    return (yield from _weigh_differing(model, trial, differing))


def _go_on(model: WholeModel, trial: Trial) -> Sub[Trial]:
    """The trial of a model that is right, gone on with the voice as the reference."""
    why = "golden outputs compute nothing; in FP32 it gives what they say"
    engine, told = yield from _stand_in(model, trial, why)
    if told.model.findings.signature is None:
        reason = "" if engine.measurement.status == "ok" else engine.why
        return msgspec.structs.replace(
            trial, standing="unclear", engine_off=engine.error, why=reason
        )
    return msgspec.structs.replace(told, standing="right")


def _stand_in(model: WholeModel, trial: Trial, why: str) -> Sub[tuple[Distance, Trial]]:
    """The engine against the voice, and the trial with that one as the reference."""
    fresh = msgspec.structs.replace(model.findings, signature=None, sample="")
    against = model.of(fresh, trial.voice)
    engine = yield from against.compare()
    locked = yield from lock_failure(against.ctx, fresh, engine.measurement)
    found = msgspec.structs.replace(locked, replaced=Replaced(model.reference, trial.voice, why))
    return engine, msgspec.structs.replace(
        trial,
        model=against.of(found),
        measurement=engine.measurement,
        engine_off=engine.error,
    )


def _weigh_differing(
    model: WholeModel, trial: Trial, differing: list[tuple[str, float]]
) -> Sub[Trial]:
    """The trial of a model that no voice computes as the golden outputs say."""
    first, off = differing[0]
    told = msgspec.structs.replace(trial, voice=first, off=off)
    for second, _ in differing[1:]:
        between = yield from model.compare(second, first)
        if between.told and between.error > SHARE * off:
            return msgspec.structs.replace(told, standing="unclear", second=second)
        # Else nobody knows whether they agree (float64 takes a minute of an image transformer): the
        # first is heard alone.
        told = msgspec.structs.replace(told, second=second if between.told else "")
    why = "golden outputs compute nothing; the model in FP32 differs from them too, which is the export's fault"
    engine, both = yield from _stand_in(model, told, why)
    if engine.measurement.status != "ok":
        return msgspec.structs.replace(told, standing="unclear", why=engine.why)
    departure = yield from _find_departure(model, first)
    if engine.error > engine.allowed:
        return msgspec.structs.replace(both, standing="both", departure=departure)
    _refuse_other_shapes(model.ctx, trial.measurement)
    return msgspec.structs.replace(
        told, standing="export", engine_off=engine.error, departure=departure
    )


def _refuse_other_shapes(ctx: StepContext, m: Measurement) -> None:
    """Raise StepRefused (exit code 2) where ``m``, the engine against golden outputs, holds an
    output of another shape: where another engine gives what this one gives, they were recorded of
    other inputs, or as other dimensions."""
    shaped = [score for result in m.results for score in result.outputs if score.problem == "shape"]
    if not shaped:
        return
    name = shaped[0].name
    recorded_as = _shown(_shapes(ctx).get(name) or shaped[0].shape)
    raise StepRefused(
        f"The golden outputs do not fit the inputs: '{name}' is {recorded_as} in them, and the model gives another shape of "
        "these inputs. Give both as they were recorded together, of as many samples and with all dimensions.",
        code=2,
    )


def _find_departure(model: WholeModel, voice: str) -> Sub[Departure]:
    """Where the model in FP32 departs from what was recorded, on the worst sample."""
    index: GraphIndex | None = yield from model.describe()
    inner = recorded_inside(index, _shapes(model.ctx)) if index is not None else []
    if index is None or not inner:
        return Departure()
    feed = (model.findings.sample or model.findings.samples[0].id,)
    marks = ranges.encode(t.id for t in inner)
    off = yield from model.unlimited.compare(voice, samples=feed, marks=marks)
    if not off.told:
        return Departure()
    scores = {s.name: s for result in off.measurement.results for s in result.marks}
    first = next((t for t in inner if t.name in scores and over(scores[t.name], model.rule)), None)
    if first is None:
        return Departure(looked=len(scores))
    return Departure(first.name, index.shown_names[first.producer], looked=len(scores))


def recorded_inside(index: GraphIndex, shapes: Mapping[str, tuple[int, ...]]) -> list[Tensor]:
    """The inner tensors of the model that were recorded, in topological order."""
    outputs = set(index.outputs)
    inner = [
        t for t in index.tensors if t.kind == "node" and t.id not in outputs and t.name in shapes
    ]
    return sorted(inner, key=lambda t: (t.producer, t.id))


def refuse_unfit(ctx: StepContext, findings: Findings) -> Sub[None]:
    """Raise StepRefused (exit code 2) where golden outputs are not of this model or of these
    inputs: another number of samples, or an output that is recorded under no name or another one. A
    name is never guessed."""
    if not recorded(ctx.reference):
        return
    held = ctx.reference_info.recorded or Recorded(0, {})
    real = sum(is_given(s.id) for s in findings.samples)
    if not real:
        raise StepRefused(
            "Golden outputs say nothing without the inputs that they were recorded with: give those with --inputs.",
            code=2,
        )
    if held.samples != real:
        raise StepRefused(
            f"There are golden outputs of {held.samples} samples and inputs of {real}; give as many, in the same order.",
            code=2,
        )
    index: GraphIndex | None = yield from WholeModel(ctx, findings).describe()
    if index is None:
        return
    outputs = [index.tensors[t] for t in index.outputs]
    names = [t.name for t in outputs]
    shapes = {name_by_place(name, names): shape for name, shape in _shapes(ctx).items()}
    missing = [f"'{t.name}' {_shown(t.shape)}" for t in outputs if t.name not in shapes]
    free = [
        f"'{name}' {_shown(shape)}" for name, shape in shapes.items() if name not in index.by_name
    ]
    if missing:
        raise StepRefused(
            f"The golden outputs lack the model's output {join_some(missing)}; they hold {join_some(free) or 'no other tensor'}. "
            "Name which is which: --reference golden:files=FILE,names=RECORDED=OUTPUT.",
            code=2,
        )


def _shapes(ctx: StepContext) -> Mapping[str, tuple[int, ...]]:
    return ctx.reference_info.recorded.shapes if ctx.reference_info.recorded else {}


def _shown(shape: Iterable[int] | None) -> str:
    return "" if shape is None else f"[{', '.join('?' if d < 0 else str(d) for d in shape)}]"
