"""The workaround written into a model of its own, by preference the user's, and that file tried as
it stands."""

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.near import Near
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample, worst
from narrowdown.engines.graph.quantized import find_leavable_layers
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.control_flow import ALWAYS
from narrowdown.engines.search.unseen import list_failing, restrict
from narrowdown.engines.search.whole import list_feeds
from narrowdown.engines.search.workaround_facts import say_nearly_all

FILE = "worked-around.onnx"
TYPED = ("fp16", "bf16")  # what casts in a file can say


class Right(msgspec.Struct, frozen=True):
    """How many samples are right: of those that the set was made on, and of others."""

    ok: int = 0
    n: int = 0
    unseen_ok: int = 0
    unseen: int = 0

    @property
    def missed(self) -> int:
        return self.n - self.ok + self.unseen - self.unseen_ok

    def say(self) -> str:
        # What the search took in later, as an earlier set was wrong there, was made near these and
        # is not run again.
        if not self.n + self.unseen:
            return "no sample tells whether it is right"
        others = f" and {self.unseen_ok} of {self.unseen} held-out samples" if self.unseen else ""
        first = f" {self.ok} of the first {self.n} tuning samples" if self.n else ""
        return f"right on{first}{others if first else others.removeprefix(' and')}"


class WrittenOut(msgspec.Struct, frozen=True):
    """``said``: one sentence on the file, or on why there is none; "" where precision is nothing
    that a file says to this engine. ``names``: what is kept, by the names of the model in the file;
    ``condition``: the file is right only while this is so."""

    files: dict[str, str] = {}
    said: str = ""
    names: tuple[str, ...] = ()
    condition: str = ""


class Sides(msgspec.Struct, frozen=True):
    """The samples that a written model is tried on: ``seen`` of the session's (none: all) are those
    that the set was made on, and those of ``near`` are not. ``loose``, which nobody can call right
    or wrong, are left out."""

    seen: frozenset[str] = frozenset()
    near: Near = Near()
    loose: frozenset[str] = frozenset()


def write_out(ask: Inquiry, keep: tuple[int, ...], sides: Sides, missed: int) -> Sub[WrittenOut]:
    """The file that is wrong on no more samples than ``missed``, as the set was: made of the user's
    model, or, where that has not got the nodes or is wrong, of the cleaned one that was
    searched."""
    info, findings = ask.ctx.engine_info, ask.findings
    rest = info.precision if info.precision in TYPED and make_oracle(ask).keeps else ""
    if not info.typed or not (rest or find_leavable_layers(ask.index)):
        return WrittenOut()
    why = ""
    for base in dict.fromkeys((findings.original or findings.model, findings.model)):
        own = base == (findings.original or findings.model)
        which = "your model" if own else "the cleaned model"
        yield Note(f"the workaround as a file, made of {which}")
        m = yield from asked(_probe(ask, keep, base, rest, list_feeds(findings), save="written"))
        if m.status != "ok":
            why = why or f"it could not be written: {m.message}"
            continue
        kept = m.facts.get("written", {})
        lost = tuple(kept.get("lost", ()))
        right: Right = yield from _try_file(ask, m, keep, base, rest, sides)
        lacks = lost and own and base != findings.model and right.missed
        if right.missed <= missed and not lacks:
            return _tell_written(m, right, findings.rests, own, why)
        why = why or f"written into your model it is {right.say()}{_list_lost(lost)}"
    return WrittenOut(said=f"There is no {FILE}: {why.rstrip('.')}.")


def _tell_written(m: Measurement, right: Right, rests: str, own: bool, why: str) -> WrittenOut:
    """``own``: it was made of the user's model, and else not of that, for the reason ``why``.
    ``rests``: what plain nodes in the place of If, Loop and Scan rest on in the cleaned one."""
    kept = m.facts.get("written", {})
    names, lost = tuple(kept.get("names", ())), tuple(kept.get("lost", ()))
    fixed = "" if own else rests
    what = "your model" if own else "the cleaned model that was searched"
    if fixed:
        what = f"{what}, its If, Loop and Scan fixed to how they ran,"
    many = f"{len(names)} {'node' if len(names) == 1 else 'nodes'}"
    said = f"{FILE} ({what} with {many} in FP32), loaded and run: {right.say()}."
    rather = f" Not of your own model: {why.rstrip('.')}." if why else ""
    bodies = _say_bodies(len(names), kept.get("inside", 0), kept.get("of", 0))
    return WrittenOut(
        dict(m.artifacts),
        f"{said}{bodies}{_say_lost(lost, own)}{rather}",
        names,
        "" if fixed == ALWAYS else fixed,
    )


def _try_file(
    ask: Inquiry, m: Measurement, keep: tuple[int, ...], base: str, rest: str, sides: Sides
) -> Sub[Right]:
    """The file on what the set was made on, and on what it was not."""
    every = set(by_sample(m)) - _list_finite(ask, m, sides.loose)
    seen = every & sides.seen if sides.seen else every
    made, held = restrict(m, seen), restrict(m, every - seen)
    ok, held_ok = (len(by_sample(x)) - len(list_failing(x, ask.criterion)) for x in (made, held))
    right = Right(ok, len(seen), held_ok, len(every - seen))
    if not sides.near.feeds:
        return right
    near = yield from asked(
        _probe(ask, keep, base, rest, sides.near.feeds, inputs=sides.near.inputs)
    )
    if near.status != "ok":
        return msgspec.structs.replace(right, unseen=right.unseen + len(sides.near.feeds))
    counted = restrict(near, set(by_sample(near)) - _list_finite(ask, near, sides.loose))
    n = len(by_sample(counted))
    good = n - len(list_failing(counted, ask.criterion))
    return msgspec.structs.replace(right, unseen_ok=right.unseen_ok + good, unseen=right.unseen + n)


def _list_finite(ask: Inquiry, m: Measurement, samples: frozenset[str]) -> frozenset[str]:
    """Of these samples, which nobody can call right or wrong, those that this answer gives no
    infinite error on."""
    return frozenset(
        s
        for s, rows in by_sample(m).items()
        if s in samples and worst(rows, ask.criterion)[2] < HUGE
    )


def _probe(  # type: ignore[no-untyped-def]
    ask: Inquiry,
    keep: tuple[int, ...],
    base: str,
    rest: str,
    samples: tuple[str, ...],
    **more: object,
):
    return ask.kept(
        samples, keep, engine=ask.ctx.engine_info.typed, written=base, rest=rest, **more
    )


def _say_bodies(nodes: int, inside: int, of: int) -> str:
    """What stays beside the nodes that are counted, in sentences with a space in front: all that a
    kept If, Loop or Scan holds (of a Loop that is all of the model "1 node in FP32" promises what
    it does not keep); "" where that is nothing."""
    if not inside:
        return ""
    many = nodes + inside
    whole = say_nearly_all(many, of)
    said = f" An If, Loop or Scan stays there with all that is inside of it, {many} of {of} nodes."
    return f"{said} {whole}" if whole else said


def _list_lost(lost: tuple[str, ...]) -> str:
    return f", which has no {join_some(lost)}" if lost else ""


def _say_lost(lost: tuple[str, ...], own: bool) -> str:
    """A sentence with a space in front on nodes that were kept in the search and are none of this
    model."""
    return f" Your model has no {join_some(lost)}; it is right without." if lost and own else ""
