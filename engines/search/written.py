"""The workaround written into a model of its own, by preference the user's, and that file tried as
it stands."""

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample
from narrowdown.engines.findings import Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.quantized import find_leavable_layers
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.control_flow import ALWAYS
from narrowdown.engines.search.unseen import Basis, Tried, join_answers, restrict, tell_apart

FILE = "worked-around.onnx"
TYPED = ("fp16", "bf16")  # what casts in a file can say


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
    rest = info.precision if info.precision in TYPED and oracle.keeps else ""
    if not info.typed or not (rest or find_leavable_layers(ask.index)):
        return cure, {}
    why, given = "", findings.original or findings.model
    for base in dict.fromkeys((given, findings.model)):
        what = "your model" if base == given else "the cleaned model that was searched"
        yield Note(f"the workaround as a file, made of {what}")
        probe = ask.whole(
            oracle.feeds, keep, engine=info.typed, written=base, rest=rest, save="written"
        )
        m = yield from asked(probe)
        if m.status == "ok" and tried.counted:
            near = yield from asked(
                msgspec.structs.replace(
                    probe, samples=tried.near.feeds, inputs=tried.near.inputs, save=""
                )
            )
            m = join_answers([m, restrict(near, tried.counted)])
        if m.status != "ok":
            why = why or f"it could not be written: {m.message.rstrip('.')}"
            continue
        told = tell_apart(m, ask.criterion, basis)
        kept = m.facts.get("written", {})
        # Nodes that were kept in the search and are none of the model in the file.
        lost = f", which has no {join_some(kept['lost'])}," if kept.get("lost") else ""
        n = len(by_sample(told.counted))
        right = f"right on {n - len(told.missed)} of {n} samples"
        if len(told.missed) > missed:
            why = why or f"written into {what}{lost} it is {right}"
            continue
        rests = "" if base == given else findings.rests
        fixed = ", its If, Loop and Scan fixed to how they ran," if rests else ""
        rather = f" Not of your own model: {why}." if why else ""
        names = tuple(kept.get("names", ()))
        many = f"{len(names)} {'node' if len(names) == 1 else 'nodes'}"
        said = f"{FILE} ({what}{lost}{fixed} with {many} in FP32), loaded and run: {right}."
        cure = msgspec.structs.replace(
            cure,
            in_model=names,
            holders=tuple(kept.get("holders", ())),
            condition="" if rests == ALWAYS else rests,
            written=f"{said}{_say_inside(m)}{rather}",
        )
        return cure, dict(m.artifacts)
    return msgspec.structs.replace(cure, written=f"There is no {FILE}: {why}."), {}


def _say_inside(m: Measurement) -> str:
    """What stays in FP32 beside the nodes that are counted, in sentences with a space in front: all
    that a kept If, Loop or Scan holds (of a Loop that is all of the model "1 node in FP32" promises
    what it does not keep), and branches that did not run."""
    kept = m.facts.get("written", {})
    many = len(kept.get("names", ())) + kept.get("inside", 0)
    whole = f" An If, Loop or Scan stays there with all that is inside of it, {many} of {kept.get('of', 0)} nodes."
    idle = f" A branch that no sample takes stays as it was, too ({kept.get('idle', 0)} nodes): nothing is known of it."
    return f"{whole if kept.get('inside', 0) else ''}{idle if kept.get('idle', 0) else ''}"
