"""Given inputs of a size that the reference does not run, where it runs made-up ones: which axis
that is. Where the engine runs them neither, they do not fit the model.
"""

from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Note, Refused, StepRefused, Sub, asked
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import REFUSALS
from narrowdown.engines.probe import LoadInputs, Measurement, SampleInfo, is_given

DOES_NOT_RUN = (*REFUSALS, "error", "reference-failed")
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def refuse_wrong_sizes(model: WholeModel, m: Measurement, made_up: LoadInputs) -> Sub[None]:
    """Raise StepRefused with the axes where the sizes of a given sample are why the whole model did
    not run: exit code 2, or 4 where the engine runs it. ``m``: how it ended; ``made_up``: asks for
    the session's inputs."""
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
