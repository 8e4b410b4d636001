"""A workaround tried. A change of the engine or of the model: in fresh builds, on every given sample,
on others, and timed. And written into a model of its own, by preference the user's: that file as it
stands."""

from collections.abc import Callable

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, time_run
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, margin, restrict
from narrowdown.engines.compare.say import say_many
from narrowdown.engines.converters import INSIDE, TYPES, module_recipes
from narrowdown.engines.declaration import Program
from narrowdown.engines.findings import Unseen, Workaround
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.quantized import find_leavable_layers
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Import, Measure, Measurement
from narrowdown.engines.problem import Exported
from narrowdown.engines.search.control_flow import ALWAYS
from narrowdown.engines.search.unseen import (
    Basis,
    Tried,
    count_plain,
    find_worst,
    join_answers,
    set_apart,
    tell_apart,
    try_unseen,
)

BUILDS = 2  # fresh ones that must pass: the second is no accident where builds choose alike


def verify(
    ask: Inquiry,
    cure: Workaround,
    changed: Callable[..., Measure],
    plain: Measurement,
    builds: int = BUILDS,
    save: str = "",
) -> Sub[tuple[Workaround | None, Measurement]]:
    """The workaround with how it does, and its first build; None where one of the builds does not
    run, or is wrong on a given sample, and that build. ``changed``: the probe of it on these
    samples; ``plain``: the model's answer without it; ``save``: keep the first build so."""
    oracle, rule = make_oracle(ask), ask.criterion
    measured: list[Measurement] = []
    for attempt in range(builds):
        kept = "" if attempt else save
        m = yield from asked(changed(oracle.feeds, attempt=attempt, save=kept))
        if not judge_whole(m, rule).passed:
            return None, m
        measured.append(m)
    first = measured[0]
    runs = plain.status == "ok"  # else it is refused, or crashes, whatever is fed
    held = set_apart(ask.findings, by_sample(first))
    tried: Tried = yield from try_unseen(
        oracle,
        lambda inputs, samples: asked(changed(samples, inputs=inputs)),
        first,
        Basis(plain if runs else first, held),
    )
    unseen: Unseen = yield from count_plain(oracle, tried, refused=not runs)
    times = yield from measure_seconds(ask, changed(oracle.feeds))
    n = len(by_sample(first)) - len(held)
    error = max(unseen.error, *(find_worst(m, rule) for m in measured))
    cure = msgspec.structs.replace(
        cure,
        samples_ok=n,
        samples_n=n,
        unseen=unseen,
        error=error,
        margin=margin(rule, error),
        cost=say_seconds(*times),
    )
    return cure, first


def measure_seconds(ask: Inquiry, changed: Measure) -> Sub[tuple[float | None, float | None]]:
    """Seconds of a run of the changed model and of the model as it is."""
    before: float | None = yield from time_run(ask, ask.whole(changed.samples))
    after: float | None = yield from time_run(ask, changed)
    return after, before


def say_seconds(after: float | None, before: float | None) -> str:
    """``a run takes about 2.1 ms, before 1.9 ms``; empty where times say nothing."""
    if after is None or before is None:
        return ""
    times = [
        # Two digits. From 0.995 s on, two digits of milliseconds would read 1e+03.
        f"{seconds:.2g} s" if seconds >= 0.995 else f"{float(f'{1000 * seconds:.2g}'):g} ms"
        for seconds in (after, before)
    ]
    return f"a run takes about {times[0]}, before {times[1]}"


FILE = "worked-around.onnx"


def write_out(
    ask: Inquiry, cure: Workaround, basis: Basis, tried: Tried, missed: int
) -> Sub[tuple[Workaround, dict[str, str]]]:
    """The workaround with what is said of its file, and the file's digest by its name; as it is,
    and none, where precision is nothing that a file says to this engine.

    The file is wrong on no more of the samples that the set was ``tried`` on than ``missed``, as the
    set was: made of the user's model, or, where that has not got the nodes or is wrong, of the
    cleaned one that was searched."""
    info, findings, keep = ask.ctx.engine_info, ask.findings, ranges.decode(cure.keep)
    oracle = make_oracle(ask)
    rest = info.precision if info.precision in TYPES and oracle.keeps else ""
    if not info.typed or not (rest or find_leavable_layers(ask.index)):
        return cure, {}
    why, given = "", findings.original or findings.model
    for base in dict.fromkeys((given, findings.model)):
        what = "your model" if base == given else "the cleaned model that was searched"
        yield Note(f"the workaround as a file, made of {what}")
        probe = ask.whole(
            oracle.feeds, keep, engine=info.typed, written=base, rest=rest, save="written"
        )
        m, wrong, right = yield from _measure_model(ask, probe, basis, tried)
        if m.status != "ok":
            why = why or f"it could not be written: {m.message.rstrip('.')}"
            continue
        kept = m.facts.get("written", {})
        # Nodes that were kept in the search and are none of the model in the file.
        lost = f", which has no {join_some(kept['lost'])}," if kept.get("lost") else ""
        if wrong > missed:
            why = why or f"written into {what}{lost} it is {right}"
            continue
        rests = "" if base == given else findings.rests
        fixed = ", its If, Loop and Scan fixed to how they ran," if rests else ""
        rather = f" Not of your own model: {why}." if why else ""
        names = tuple(kept.get("names", ()))
        thing, where = ("node", "FP32") if rest else ("layer", "float")
        many = f"{say_many(len(names), thing)} in {where}"
        said = f"{FILE} ({what}{lost}{fixed} with {many}), loaded and run: {right}."
        cure = msgspec.structs.replace(
            cure,
            in_model=names,
            holders=tuple(kept.get("holders", ())),
            condition="" if rests == ALWAYS else rests,
            written=f"{said}{_say_inside(m)}{rather}",
        )
        return cure, dict(m.artifacts)
    return msgspec.structs.replace(cure, written=f"There is no {FILE}: {why}."), {}


def _measure_model(
    ask: Inquiry, probe: Measure, basis: Basis, tried: Tried
) -> Sub[tuple[Measurement, int, str]]:
    """(the answer on what was given, and on what the set was ``tried`` on; on how many it is wrong;
    how it does, the end of a sentence)."""
    m = yield from asked(probe)
    if m.status == "ok" and tried.counted:
        near = yield from asked(
            msgspec.structs.replace(
                probe, samples=tried.near.feeds, inputs=tried.near.inputs, save=""
            )
        )
        m = join_answers([m, restrict(near, tried.counted)])
    told = tell_apart(m, ask.criterion, basis)
    n = len(by_sample(told.counted))
    right = f"right on {n - len(told.missed)} of {n} samples"
    return m, len(told.missed), right if m.status == "ok" else f"not tried: {m.message.rstrip('.')}"


def try_module(ask: Inquiry, cure: Workaround, basis: Basis, tried: Tried) -> Sub[Workaround]:
    """The workaround with how the change of the PyTorch module does that is printed for it: exported
    again, and built by the engine, on all that the set was ``tried`` on. As it is where none is."""
    info, exported = ask.ctx.engine_info, ask.ctx.problem.exported
    if exported is None or not info.typed or info.precision not in TYPES:
        return cure
    recipes = module_recipes(info.precision, find_program(ask.index, cure, exported))
    if not recipes:
        return msgspec.structs.replace(
            cure,
            written=f"{cure.written} No change of your PyTorch module is printed: for that these lines must stand in modules "
            "below the outermost one, in a file that Python can import by its name. Put them there, and run again.".lstrip(),
        )
    yield Note("your PyTorch module with that change, exported again")
    made = yield from asked(
        Import(path=INSIDE, digest="", program=exported.program, text=recipes[0].text)
    )
    said = f"not tried: {made.message.rstrip('.')}"
    if made.status == "ok":
        probe = ask.whole(make_oracle(ask).feeds, engine=info.typed, written=made.facts["model"])
        _, _, said = yield from _measure_model(ask, probe, basis, tried)
    written = f"{cure.written} Your PyTorch module with that change, exported again: {said}."
    return msgspec.structs.replace(cure, written=written.lstrip())


def find_program(index: GraphIndex, cure: Workaround, exported: Exported) -> Program | None:
    """Where the kept nodes stand in the PyTorch program; None where one stands in the outermost
    module, of which all else is a part."""
    paths = {index.nodes[n].module for n in ranges.decode(cure.keep)}
    outer = [path for path in paths if not any(path.startswith(f"{other}.") for other in paths)]
    ends = tuple(index.tensors[t].name for t in (*index.inputs, *index.outputs))
    return (
        Program(exported.source, exported.example, tuple(sorted(outer)), ends)
        if all(paths)
        else None
    )


def _say_inside(m: Measurement) -> str:
    """What stays in FP32 beside the nodes that are counted, in sentences with a space in front: all
    that a kept If, Loop or Scan holds (of a Loop that is all of the model "1 node in FP32" promises
    what it does not keep), and branches that did not run."""
    kept = m.facts.get("written", {})
    many = len(kept.get("names", ())) + kept.get("inside", 0)
    whole = f" An If, Loop or Scan stays there with all that is inside of it, {many} of {kept.get('of', 0)} nodes."
    idle = f" A branch that no sample takes stays as it was, too ({kept.get('idle', 0)} nodes): nothing is known of it."
    return f"{whole if kept.get('inside', 0) else ''}{idle if kept.get('idle', 0) else ''}"
