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

from narrowdown.engines.asking import Described, Note, StepContext, StepRefused, Sub, asked
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import badness, limit, worst
from narrowdown.engines.data.golden_files import name_by_place
from narrowdown.engines.findings import Findings, Replaced
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.graph.index import GraphIndex, Tensor
from narrowdown.engines.options import families, recorded
from narrowdown.engines.probe import Describe, Measurement, is_given
from narrowdown.engines.search.voices import CLEARLY, FLOAT64, Bounds, name_voice
from narrowdown.engines.search.whole import lock_failure, probe_whole
from narrowdown.engines.views import Recorded

# In the order in which they are asked whether they agree: each runs every sample, so the fastest
# first. Whoever agrees with values from outside cannot be wrong in the same way by chance, so one
# is enough.
VOICES = ("onnxruntime", "openvino:precision=f32", FLOAT64)

Standing = Literal["", "right", "export", "both", "unclear", "unheard"]


class Trial(msgspec.Struct, frozen=True):
    """What golden outputs and independent voices say of the model; ``ctx``, ``findings``,
    ``measurement`` to go on with.

    ``right``: ``voice`` computes the model in FP32 as the golden outputs say. ``export``: it does
    not, and the engine agrees with it. ``both``: neither the engine nor the voice is where the
    golden outputs are, nor do they agree. ``unclear``: voices differ among themselves, or the
    engine lies between, or how far it is from the voice was not measured (``why``). ``unheard``:
    none runs the model. "": the engine agrees with the golden outputs, and nothing was asked.
    ``off``: the voice against the golden outputs; ``departs``: the first recorded inner tensor at
    which it is off, with the node that makes it, where inner tensors were recorded (``looked``: how
    many).
    """

    ctx: StepContext
    findings: Findings
    measurement: Measurement
    standing: Standing = ""
    voice: str = ""
    off: float = 0.0
    engine_off: float = 0.0  # the engine against the voice
    second: str = ""  # another voice that agrees with the first
    departs: str = ""
    node: str = ""
    looked: int = 0
    why: str = ""


class _Heard(msgspec.Struct, frozen=True):
    voice: str
    error: float


# Who computes an IR in FP32: no independent voice, so that it agrees clears the model, and that it
# differs says nothing.
OWN_IR = "openvino:precision=f32"


def try_golden(ctx: StepContext, findings: Findings, m: Measurement, bounds: Bounds) -> Sub[Trial]:
    """``Trial`` of the failure that ``findings`` holds: ``m`` is the engine against the golden
    outputs on every sample."""
    rule = findings.criterion or Criterion()
    trial = Trial(ctx, findings, m)
    if findings.signature is None:
        return trial
    heard: list[_Heard] = []
    why: list[str] = []
    alone = is_ir(ctx.problem.model)
    for voice in (
        (OWN_IR,) if alone else (v for v in VOICES if not families(v) & families(ctx.engine))
    ):
        if voice == FLOAT64 and m.nodes > bounds.nodes:
            why.append(f"in float64 {m.nodes:,} nodes take too long.")
            continue
        yield Note(f"is the model itself right? {voice} against the golden outputs")
        off = yield from asked(probe_whole(ctx, findings, engine=voice, timeout=bounds.seconds))
        if off.status != "ok" or not off.results:
            why.append(
                f"{name_voice(voice)}: {off.message}"
            )  # what runs out of its time says so alike of each
            continue
        _, output, error = worst(off.results, rule)
        if error <= limit(rule, output):
            return (
                yield from _go_on(msgspec.structs.replace(trial, voice=voice, off=error), bounds)
            )
        if alone:
            why.append(
                "nobody else runs OpenVINO IR, and OpenVINO in FP32 differs from what was recorded, too."
            )
            continue
        heard.append(_Heard(voice, error))
        if len(heard) == 2:
            break
    if not heard:
        return msgspec.structs.replace(trial, standing="unheard", why=" ".join(filter(None, why)))
    return (yield from _off(trial, heard, bounds))


def _go_on(trial: Trial, bounds: Bounds) -> Sub[Trial]:
    """The trial of a model that is right, gone on with the voice as the reference."""
    against = msgspec.structs.replace(trial.ctx, reference=trial.voice)
    fresh = msgspec.structs.replace(trial.findings, signature=None, sample="")
    m = yield from asked(probe_whole(against, fresh, timeout=bounds.seconds))
    locked = yield from lock_failure(against, fresh, m)
    rule = fresh.criterion or Criterion()
    engine_off = worst(m.results, rule)[2] if m.status == "ok" else 0.0
    if locked.signature is None:
        why = m.message if m.status != "ok" else ""
        return msgspec.structs.replace(trial, standing="unclear", engine_off=engine_off, why=why)
    why = "golden outputs compute nothing; in FP32 it gives what they say"
    found = msgspec.structs.replace(
        locked, replaced=Replaced(trial.ctx.reference, trial.voice, why)
    )
    return msgspec.structs.replace(
        trial, ctx=against, findings=found, measurement=m, standing="right", engine_off=engine_off
    )


def _off(trial: Trial, heard: list[_Heard], bounds: Bounds) -> Sub[Trial]:
    """The trial of a model that no voice computes as the golden outputs say."""
    ctx, findings = trial.ctx, trial.findings
    rule = findings.criterion or Criterion()
    first = heard[0]
    told = msgspec.structs.replace(trial, voice=first.voice, off=first.error)
    if len(heard) == 2:
        between = yield from asked(
            probe_whole(
                ctx, findings, engine=heard[1].voice, reference=first.voice, timeout=bounds.seconds
            )
        )
        if between.status == "ok" and between.results:
            if worst(between.results, rule)[2] * CLEARLY > first.error:
                return msgspec.structs.replace(told, standing="unclear", second=heard[1].voice)
            told = msgspec.structs.replace(told, second=heard[1].voice)
        # Else nobody knows whether they agree (float64 takes a minute of an image transformer): the
        # first is heard alone.
    against = msgspec.structs.replace(ctx, reference=first.voice)
    fresh = msgspec.structs.replace(findings, signature=None, sample="")
    m = yield from asked(probe_whole(against, fresh, timeout=bounds.seconds))
    if m.status != "ok":
        return msgspec.structs.replace(told, standing="unclear", why=m.message)
    _, output, engine_off = worst(m.results, rule)
    told = msgspec.structs.replace(told, engine_off=engine_off)
    told = yield from _find_departure(told)
    if engine_off <= limit(rule, output):
        _refuse_other_shapes(ctx, trial.measurement)
        return msgspec.structs.replace(told, standing="export")
    locked = yield from lock_failure(against, fresh, m)
    why = "golden outputs compute nothing; the model in FP32 differs from them too, which is the export's fault"
    found = msgspec.structs.replace(locked, replaced=Replaced(ctx.reference, first.voice, why))
    return msgspec.structs.replace(
        told, ctx=against, findings=found, measurement=m, standing="both"
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


def _find_departure(trial: Trial) -> Sub[Trial]:
    """The first recorded inner tensor at which the model in FP32 departs from what was recorded, on
    the worst sample."""
    ctx, findings = trial.ctx, trial.findings
    rule = findings.criterion or Criterion()
    described = yield from asked(Describe(model=findings.model))
    if not isinstance(described, Described):
        return trial
    index = described.index
    inner = recorded_inside(index, _shapes(ctx))
    if not inner:
        return trial
    feed = (findings.sample or findings.samples[0].id,)
    marks = ranges.encode(t.id for t in inner)
    m = yield from asked(probe_whole(ctx, findings, samples=feed, engine=trial.voice, marks=marks))
    if m.status != "ok" or not m.results:
        return trial
    scores = {s.name: badness(s, rule) for result in m.results for s in result.marks}
    off = next((t for t in inner if scores.get(t.name, 0.0) > limit(rule, t.name)), None)
    looked = len(scores)
    if off is None:
        return msgspec.structs.replace(trial, looked=looked)
    return msgspec.structs.replace(
        trial, departs=off.name, node=index.shown_names[off.producer], looked=looked
    )


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
    name is never guessed; what may be meant is said."""
    if not recorded(ctx.reference):
        return
    held = ctx.reference_info.recorded or Recorded(0, {})
    real = [s for s in findings.samples if is_given(s.id)]
    if not real:
        raise StepRefused(
            "Golden outputs say nothing without the inputs that they were recorded with: give those with --inputs.",
            code=2,
        )
    if held.samples != len(real):
        raise StepRefused(
            f"There are golden outputs of {held.samples} samples and inputs of {len(real)}; give as many, in the same "
            "order.",
            code=2,
        )
    described = yield from asked(Describe(model=findings.model))
    if not isinstance(described, Described):
        return
    index = described.index
    outputs = [index.tensors[t] for t in index.outputs]
    shapes = {
        name_by_place(name, [t.name for t in outputs]): tuple(shape)
        for name, shape in _shapes(ctx).items()
    }
    missing = [t for t in outputs if t.name not in shapes]
    if missing:
        raise StepRefused(_unnamed(missing, index, shapes), code=2)


def _unnamed(
    missing: list[Tensor], index: GraphIndex, shapes: Mapping[str, tuple[int, ...]]
) -> str:
    free = {name: shape for name, shape in shapes.items() if name not in index.by_name}
    wants = ", ".join(f"'{t.name}' {_shown(t.shape)}" for t in missing[:4])
    has = (
        ", ".join(f"'{name}' {_shown(shape)}" for name, shape in list(free.items())[:4])
        or "no other tensor"
    )
    said = f"The golden outputs lack the model's output {wants}; they hold {has}."
    pairs: dict[str, str] = {}
    for tensor in missing:
        fitting = [
            n for n, shape in free.items() if n not in pairs.values() and _fits(tensor.shape, shape)
        ]
        if len(fitting) != 1:
            return (
                f"{said} Name which is which: --reference golden:files=FILE,names=RECORDED=OUTPUT."
            )
        pairs[tensor.name] = fitting[0]
    names = "+".join(f"{theirs}={ours}" for ours, theirs in pairs.items())
    return f"{said} By its shape it may be meant; if so, say it: --reference golden:files=FILE,names={names}."


def _shapes(ctx: StepContext) -> Mapping[str, tuple[int, ...]]:
    return ctx.reference_info.recorded.shapes if ctx.reference_info.recorded else {}


def _fits(declared: tuple[int, ...] | None, shape: Iterable[int]) -> bool:
    real = tuple(shape)
    return declared is None or (
        len(declared) == len(real)
        and all(d < 0 or d == n for d, n in zip(declared, real, strict=True))
    )


def _shown(shape: Iterable[int] | None) -> str:
    return "" if shape is None else f"[{', '.join('?' if d < 0 else str(d) for d in shape)}]"
