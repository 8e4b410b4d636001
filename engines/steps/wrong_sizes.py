"""Given inputs of a size that the reference does not run, where it runs made-up ones: which axis
that is. Where the engine runs them neither, they do not fit the model."""

from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Note, Refused, StepRefused, Sub, asked
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import REFUSALS
from narrowdown.engines.probe import LoadInputs, Measurement, SampleInfo, is_given

_DOES_NOT_RUN = (*REFUSALS, "error", "reference-failed")

_Sizes: TypeAlias = tuple[int, int]  # of an axis: as it was given, and as it is made up
_Places: TypeAlias = list[tuple[str, int]]  # inputs, and an axis of each


def refuse_wrong_sizes(model: WholeModel, m: Measurement, made_up: LoadInputs) -> Sub[None]:
    """Raise StepRefused with the axes where the sizes of a given sample are why the whole model did
    not run: exit code 2, or 4 where the engine runs it. ``m``: how it ended; ``made_up``: asks for
    the session's inputs."""
    if m.status not in _DOES_NOT_RUN:
        return
    alone = msgspec.structs.replace(made_up, sources=(), source_digests=(), shapes={}, random=True)
    given = [s for s in model.findings.samples if is_given(s.id)]
    one_a_size = {tuple(sorted(s.shapes.items())): s for s in reversed(given)}
    for sample in reversed(one_a_size.values()):
        yield Note("does the reference run it?")
        feed, ours = (sample.id,), m
        theirs = yield from model.compare(model.reference, model.reference, feed)
        if theirs.measurement.status not in _DOES_NOT_RUN:
            continue
        if m.status == "reference-failed":  # the engine was not asked
            ours = (yield from model.compare(reference=model.engine, samples=feed)).measurement
        sizes = yield from _run_made_up(model, alone)
        found = (yield from _find_axes(model, alone, sample, sizes)) if sizes else ""
        if not found:
            return
        unfit = ours.status in _DOES_NOT_RUN
        first = (
            "The inputs do not fit the model: neither engine nor reference runs"
            if unfit
            else "The reference does not run"
        )
        raise StepRefused(
            f"{first} '{sample.source}', and made-up ones run. {found} {theirs.why}",
            code=Refused.BAD_INPUT if unfit else Refused.MISSING,
        )


def _run_made_up(model: WholeModel, load: LoadInputs) -> Sub[dict[str, tuple[int, ...]]]:
    """The shapes of made-up inputs that the reference runs; none where it does not."""
    made = yield from asked(load)
    if made.status != "ok":
        return {}
    sample = msgspec.convert(made.facts["samples"][0], SampleInfo)
    fed = msgspec.structs.replace(model.findings, inputs=made.facts["inputs"], samples=(sample,))
    ran = yield from model.of(fed).compare(model.reference, model.reference)
    return sample.shapes if ran.measurement.status == "ok" else {}


def _find_axes(
    model: WholeModel, load: LoadInputs, sample: SampleInfo, sizes: dict[str, tuple[int, ...]]
) -> Sub[str]:
    """Which axes make it run when they alone have the made-up size, as sentences; all that differ
    where none does alone, "" where none differs. Axes of the same two sizes are changed together,
    as inputs share them."""
    differ: dict[_Sizes, _Places] = {}
    for name, shape in sample.shapes.items():
        for axis, pair in enumerate(zip(shape, sizes.get(name, shape), strict=False)):
            if pair[0] != pair[1]:
                differ.setdefault(pair, []).append((name, axis))
    runs: dict[_Sizes, _Places] = {}
    for pair, places in differ.items() if len(differ) > 1 else ():
        yield Note("and with one size as it is made up?")
        shapes = {
            name: tuple(
                pair[1] if (name, axis) in places else size for axis, size in enumerate(shape)
            )
            for name, shape in sample.shapes.items()
        }
        if (yield from _run_made_up(model, msgspec.structs.replace(load, shapes=shapes))):
            runs[pair] = places
    said = [
        f"{' and '.join(map(_say_place, places))} is {given} and runs with {made}"
        for (given, made), places in (runs or differ).items()
    ]
    joined = (", or " if runs else ", and ").join(said)
    return f"{joined[0].upper()}{joined[1:]}." if joined else ""


def _say_place(place: tuple[str, int]) -> str:
    return f"axis {place[1]} of '{place[0]}'"
