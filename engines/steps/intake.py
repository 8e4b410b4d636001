"""Why a model or inputs cannot be taken in, as the refusal that ends the session: for the user's
files exit 2, where nothing can be proven 6, else 4.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Note, Refused, StepContext, StepRefused, Sub, asked
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import REFUSALS, Criterion, judge_check
from narrowdown.engines.compare.loops import say_carried
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.quantized import LOOK_WRONG
from narrowdown.engines.nearest import join_some, suggestion
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import LoadInputs, Measurement, SampleInfo, is_given
from narrowdown.engines.problem import Problem
from narrowdown.engines.sources import POSTPROCESSING, scripts as scripts_of
from narrowdown.engines.spec import parse, unquantized

DOES_NOT_RUN = (*REFUSALS, "error", "reference-failed")
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def make_refusal(made: Measurement, sources: Iterable[str] = ()) -> StepRefused:
    """The answer to an Import or a LoadInputs that is not ``ok``. What takes its worker down, or does
    not end, is the user's script where there is one."""
    scripts = [PurePath(found[-1]).name for found in map(scripts_of, sources) if found]
    if made.status == "refused":
        return StepRefused(made.message, code=Refused.BAD_INPUT)
    ended = {
        "timeout": ("gave no inputs in time", "Mend it, or give it longer with --timeout."),
        "crash": ("took its process down", f"Its own words are in {made.log or 'logs'}."),
        "out-of-memory": ("filled the memory", "Let it yield one feed at a time."),
    }
    if not scripts or made.status not in ended:
        return StepRefused(made.message, code=Refused.MISSING)
    what, todo = ended[made.status]
    named = " or ".join(f"'{name}'" for name in scripts)
    told = f"The data loader {named} {what}. {made.message} {todo}"
    return StepRefused(told, code=Refused.BAD_INPUT)


def refuse_unmeasured(m: Measurement, findings: Findings) -> None:
    """Raise StepRefused where the whole model could not be judged at all, by no fault of the engine
    under test: the reference does not run it, it does not fit what is installed, or the checker
    cannot be started."""
    if m.facts.get("started") is False or m.status == "refused":
        code = Refused.BAD_INPUT if m.facts.get("script") else Refused.MISSING
        raise StepRefused(m.message, code=code)
    if m.status in ("crash", "timeout", "out-of-memory") and POSTPROCESSING in m.message:
        told = f"The postprocess script did not come to an end. {m.message} Mend it."
        raise StepRefused(told, code=Refused.BAD_INPUT)
    if m.status == "reference-failed":
        hint = ""
        if "while it ran" in m.message and not any(is_given(s.id) for s in findings.samples):
            guessed = "".join(f" {note}" for note in findings.notes if "--input-shapes" in note)
            hint = (
                " The inputs were made up; if the model needs others, give them with --inputs, or sizes with "
                f"--input-shapes.{guessed} {say_carried(findings.suggested)}"
            ).rstrip()
        alone = " Whether the engine agrees with itself is seen without any: --flow consistency."
        raise StepRefused(
            f"{m.message}{hint}{say_of_pairs(findings.notes)}{alone}", code=Refused.MISSING
        )


def say_of_pairs(notes: Iterable[str]) -> str:
    """What the notes say of Q/DQ nodes that look wrong in the file itself, with a space in front;
    "" where they say nothing."""
    return "".join(f" {note}" for note in notes if note.startswith(LOOK_WRONG))


def refuse_unresolved(m: Measurement, rule: Criterion, *, check: bool) -> None:
    """Raise StepRefused where the whole model was measured, or checked, without an answer: that it
    passes was not seen."""
    verdict = judge_check(m, rule) if check else None
    if m.status != "ok" or (verdict is not None and verdict.kind == "unresolved"):
        why = m.message or (verdict.detail if verdict else "") or m.status
        raise StepRefused(
            f"Whether the model fails cannot be told: {why.rstrip('.')}.", code=Refused.UNPROVEN
        )


def refuse_unknown_outputs(problem: Problem, outputs: Iterable[str]) -> None:
    """Raise StepRefused for a bound on an output that the model does not have. ``outputs``: its
    names, none where unknown."""
    known = list(outputs)
    for option, bounds in problem.bounds.items():
        for name in bounds:
            if name and known and name not in known:
                shown = join_some([f"'{n}'" for n in known])
                raise StepRefused(
                    f"--{option}: the model has no output '{name}'.{suggestion(name, known, ' ')} It has {shown}.",
                    code=Refused.BAD_INPUT,
                )


def say_half(stated: str, reference: str) -> tuple[str, ...]:
    """What a reference of the same file does not show of a model that states a half precision;
    ``stated``: which, "" for none."""
    if not stated or unquantized(reference) or recorded(reference):
        return ()
    return (
        f"The file is in {stated.upper()} itself, and the reference computes what it states: what {stated.upper()} costs shows "
        "against its FP32 original (--reference onnxruntime:model=ORIGINAL.onnx).",
    )


def say_large(large: Mapping[str, float], ctx: StepContext) -> tuple[str, ...]:
    """What the emulation does not show of given inputs that FP16 cannot hold: it rounds results,
    and hands inputs over as they are. ``large``: the largest magnitude of each such input."""
    if parse(ctx.engine).name != "emulate" or ctx.engine_info.storage != "float16":
        return ()
    return tuple(
        f"'{name}' reaches {most:,.0f}, and FP16 ends at 65,504: an engine that reads its inputs in FP16 makes that infinite. "
        "The emulation rounds what nodes make and no inputs, so that it passes does not speak for such an engine."
        for name, most in large.items()
    )


def refuse_wrong_sizes(model: WholeModel, m: Measurement, made_up: LoadInputs) -> Sub[None]:
    """Raise StepRefused with the axes where the sizes of a given sample are why the whole model did
    not run, and made-up ones of other sizes do: exit code 2, or 4 where the engine runs it. ``m``:
    how it ended; ``made_up``: asks for the session's inputs."""
    if m.status not in DOES_NOT_RUN:
        return
    made_up = msgspec.structs.replace(
        made_up, sources=(), source_digests=(), shapes={}, random=True
    )
    given = [s for s in model.findings.samples if is_given(s.id)]
    one_a_size = {tuple(sorted(s.shapes.items())): s for s in reversed(given)}
    for sample in reversed(one_a_size.values()):
        alone = yield from model.compare(
            model.reference, samples=(sample.id,), note="does the reference run it?"
        )
        if alone.measurement.status not in DOES_NOT_RUN:
            continue
        engine = yield from model.compare(reference=model.engine, samples=(sample.id,))
        sizes: Shapes = yield from _run_made_up(model, made_up)
        found: str = (yield from _find_axes(model, made_up, sample, sizes)) if sizes else ""
        if not found:
            return
        who, code = "The reference does not run", Refused.MISSING
        if engine.measurement.status in DOES_NOT_RUN:
            who = "The inputs do not fit the model: neither engine nor reference runs"
            code = Refused.BAD_INPUT
        raise StepRefused(
            f"{who} '{sample.source}', and made-up ones run. {found} {alone.why}", code=code
        )


def _run_made_up(model: WholeModel, load: LoadInputs) -> Sub[Shapes]:
    """The shapes of made-up inputs that the reference runs; none where it does not."""
    made = yield from asked(load)
    if made.status != "ok":
        return {}
    sample = msgspec.convert(made.facts["samples"][0], SampleInfo)
    fed = msgspec.structs.replace(model.findings, inputs=made.facts["inputs"], samples=(sample,))
    ran = yield from model.of(fed).compare(model.reference)
    return sample.shapes if ran.measurement.status == "ok" else {}


def _find_axes(model: WholeModel, load: LoadInputs, sample: SampleInfo, sizes: Shapes) -> Sub[str]:
    """Which axes make it run when they alone have the made-up size, as a sentence; all that differ
    where none does alone, "" where none differs. Axes of the same two sizes are changed together,
    as inputs share them."""
    differ: dict[tuple[int, int], set[tuple[str, int]]] = {}
    for name, shape in sample.shapes.items():
        for axis, pair in enumerate(zip(shape, sizes.get(name, shape), strict=False)):
            if pair[0] != pair[1]:
                differ.setdefault(pair, set()).add((name, axis))
    runs = {}
    for pair, places in differ.items() if len(differ) > 1 else ():
        yield Note("and with one size as it is made up?")
        shapes = {
            name: tuple(pair[1] if (name, i) in places else size for i, size in enumerate(shape))
            for name, shape in sample.shapes.items()
        }
        if (yield from _run_made_up(model, msgspec.structs.replace(load, shapes=shapes))):
            runs[pair] = places
    said = (", or " if runs else ", and ").join(
        f"{' and '.join(_say_place(*place) for place in sorted(places))} is {given} and runs with {made}"
        for (given, made), places in (runs or differ).items()
    )
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _say_place(name: str, axis: int) -> str:
    return f"axis {axis} of '{name}'"
