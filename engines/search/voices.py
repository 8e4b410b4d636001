"""Is the reference right? Other engines are asked, and only those who share no code with the engine
under test or the reference: two builds of one library repeat each other's mistakes, and whoever is
accused has no vote.

Where the reference differs from one of them, either may be wrong, and float64 and OpenVINO both are
on common models. So a third computation settles it, in pairs: the two that agree *clearly* are
right and the one that is left is wrong, reference or judge. Where no two agree clearly nothing is
known but how far the outputs are determined at all.

Float64 is ONNX's evaluator with operators of ours. Where it differs from the reference, ONNX's own
operators are asked beside it: one voice more against it, and none for it, as most of the two is the
same code.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import limit, worst
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.options import families
from narrowdown.engines.search.whole import probe_whole
from narrowdown.engines.spec import of_the_same, parse

FLOAT64 = "reference:precision=fp64"
# In the order in which they are asked: float64 has no rounding of its own to speak of; ONNX Runtime
# is the last, as it is nearly always the reference itself.
VOICES = (FLOAT64, "openvino:precision=f32", "onnxruntime")
# A reference within this part of the tolerance of a voice is confirmed: what it is off moves no
# verdict.
CONFIRMED = 0.1
# Two computations agree clearly where this many times less lies between them than between either
# and the third. Healthy FP32 engines differ from float64 each by its own rounding, and those
# distances are within a factor of three of one another on every real model tried (basic-pitch:
# 1.5e-4 on both sides); a wrong operator stands apart by hundreds.
CLEARLY = 10.0

# Characters of an engine's own words on why it does not run a model: enough for what it says first
# and the operator that it names last.
TOLD = 120

Standing = Literal["right", "wrong", "alone", "open", "unheard"]


class Bounds(msgspec.Struct, frozen=True):
    """``nodes``: float64 takes its time for each, so larger models are not given to it.
    ``seconds``: that a voice may take."""

    nodes: int
    seconds: float


class Heard(msgspec.Struct, frozen=True):
    """What the voices say of the reference, measured on one feed.

    ``right``: one of them confirms it. ``wrong``: two of them agree against it. ``alone``: the one
    voice there is differs from it. ``open``: two differ from it and from each other. ``unheard``:
    nobody independent runs the model.

    ``judge`` is the voice that counts: who confirms it, the first of the two against it, or the one
    that differs; ``error`` how far the reference is from that one. ``other``: the second of the
    two, ``apart`` what lies between them. ``spread``, of three: the most that lies between any two
    of them. ``lonely``: voices that turned out to be the wrong ones themselves. ``beside``: whether
    ONNX's own operators give what ours give; None where that was not asked, or they do not run the
    model. ``moves``: two agree against it, and rounding moves it this far, which is as much: so
    ``open``; 0 where that was not so. ``output``: where the reference is furthest from the first of
    the two.
    """

    standing: Standing = "unheard"
    judge: str = ""
    error: float | None = None
    other: str = ""
    apart: float | None = None
    spread: float = 0.0
    lonely: tuple[tuple[str, float], ...] = ()
    why: str = ""  # unheard: what kept each of them
    seconds: float = 0.0  # that the judge takes for this feed
    moves: float = 0.0
    output: str = ""
    beside: bool | None = None


class _Voice(msgspec.Struct, frozen=True):
    spec: str
    output: str  # where that is the most
    error: float  # of the reference, against this voice
    over: float  # the same in units of what is allowed
    seconds: float


def list_independent(ctx: StepContext) -> tuple[str, ...]:
    """The voices that share no code with the engine under test or with the reference; nor do they
    with one another."""
    if is_ir(ctx.problem.model):
        return ()
    taken = families(ctx.engine) | families(ctx.reference)
    return tuple(
        of_the_same(voice, ctx.reference) for voice in VOICES if not families(voice) & taken
    )


def hear_voices(
    ctx: StepContext, findings: Findings, feed: tuple[str, ...], nodes: int, bounds: Bounds
) -> Sub[Heard]:
    """What independent engines say of the reference, as ``Heard``: one is asked where it confirms,
    two where it does not."""
    heard: list[_Voice] = []
    why: list[str] = []
    beside: bool | None = None
    for spec in list_independent(ctx):
        if spec.startswith("reference") and nodes > bounds.nodes:
            why.append(f"in float64 {nodes:,} nodes take too long.")
            continue
        voice = yield from _hear(ctx, findings, feed, ctx.reference, spec, bounds)
        if isinstance(voice, str):
            why.append(_say_unable(spec, voice))
            continue
        lonely = tuple((v.spec, v.error) for v in heard)
        if voice.over <= CONFIRMED:
            return Heard("right", spec, voice.error, seconds=voice.seconds, lonely=lonely)
        heard.append(voice)
        if spec.startswith("reference"):
            own = str(parse(spec).with_option("operators", "onnx"))
            yield Note("do ONNX's own operators give the same?")
            apart = yield from _hear(ctx, findings, feed, spec, own, bounds)
            if isinstance(apart, str):
                continue
            beside = apart.over <= CONFIRMED
            theirs = (
                voice
                if beside
                else (yield from _hear(ctx, findings, feed, ctx.reference, own, bounds))
            )
            if not isinstance(theirs, str) and theirs.over <= CONFIRMED:
                lonely = (*lonely, (spec, voice.error))
                return Heard("right", own, theirs.error, seconds=theirs.seconds, lonely=lonely)
        if len(heard) == 2:
            break
    why_not = " ".join(dict.fromkeys(filter(None, why)))
    if not heard:
        said = (
            why_not
            or (is_ir(ctx.problem.model) and "nobody else runs OpenVINO IR.")
            or "every other engine here shares code with it or with the engine under test."
        )
        return Heard(why=said)
    if len(heard) == 1:
        (only,) = heard
        return Heard(
            "alone",
            only.spec,
            only.error,
            seconds=only.seconds,
            why=why_not,
            output=only.output,
            beside=beside,
        )
    yield Note("two others differ from the reference: do they agree with each other?")
    between = yield from _hear(ctx, findings, feed, heard[1].spec, heard[0].spec, bounds)
    found = find_odd_one(heard[0], heard[1], None if isinstance(between, str) else between.error)
    return msgspec.structs.replace(found, beside=beside)


def _hear(
    ctx: StepContext,
    findings: Findings,
    feed: tuple[str, ...],
    engine: str,
    voice: str,
    bounds: Bounds,
) -> Sub[_Voice | str]:
    """How far ``engine`` is from the voice; why that one does not run the model, where it does
    not."""
    rule = findings.criterion or Criterion()
    off = yield from asked(
        probe_whole(
            ctx, findings, samples=feed, engine=engine, reference=voice, timeout=bounds.seconds
        )
    )
    if off.status != "ok" or not off.results:
        return off.message
    _, output, error = worst(off.results, rule)
    return _Voice(
        voice,
        output,
        error,
        error / max(limit(rule, output), 1e-300),
        off.build_seconds + off.run_seconds,
    )


def _say_unable(spec: str, message: str) -> str:
    """That a voice does not run the model, and how its own words on that begin and end."""
    _, told, reason = message.partition("could not run the model: ")
    if not told:
        return message
    reason = reason.rstrip(".")
    short = (
        reason
        if len(reason) <= TOLD
        else f"{reason[: TOLD // 2].rstrip()}…{reason[-(TOLD // 2) :].lstrip()}"
    )
    return f"{name_voice(spec)} does not run the model ({short})."


def find_odd_one(first: _Voice, second: _Voice, apart: float | None) -> Heard:
    """Who of the three is the odd one out: the reference, one of two voices, or nobody knows."""
    distances = [first.error, second.error, *([] if apart is None else [apart])]
    told = Heard(
        "open",
        first.spec,
        first.error,
        other=second.spec,
        apart=apart,
        spread=max(distances),
        seconds=first.seconds,
        output=first.output,
    )
    if apart is None:
        return told
    if _agree_clearly(apart, (first.error, second.error)):
        return msgspec.structs.replace(told, standing="wrong")
    for voice, odd in ((first, second), (second, first)):
        if _agree_clearly(voice.error, (odd.error, apart)):
            return msgspec.structs.replace(
                told, standing="right", judge=voice.spec, error=voice.error, seconds=voice.seconds,
                lonely=((odd.spec, odd.error),),
            )  # fmt: skip
    return told


def _agree_clearly(near: float, far: Iterable[float]) -> bool:
    return all(near * CLEARLY <= distance for distance in far)


def name_voice(spec: str) -> str:
    """A voice in words."""
    parsed = parse(spec)
    whose = "ONNX's" if parsed.get("operators") == "onnx" else "Narrowdown's"
    return {
        "reference": f"{whose} evaluator{' in float64' if parsed.get('precision') == 'fp64' else ''}",
        "openvino": "OpenVINO",
        "onnxruntime": "ONNX Runtime",
    }.get(parsed.name, spec)
