"""Barriers: inner tensors that are made outputs of the model, too, or wrapped in nodes that hand
them on, so that the engine does not join layers across them. What is cured by watching is cured by
these; the fewest that do it are searched for as any workaround is."""

import msgspec

from narrowdown.engines.asking import Note, Sub, Tries
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, restrict
from narrowdown.engines.compare.say import say_many
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.watched import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.probe import BARRIER, Measurement
from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.unseen import set_apart

# Builds of the search: one guilty pair in 16,000 tensors takes two bisections of 14, and some steps
# to be sure of it. Chosen.
BUDGET = 60


class Barriers(msgspec.Struct, frozen=True):
    """``tensors``: ids of those where layers are to be kept apart; none where nothing that was
    tried cures. ``minimal``: the search was not cut short, so none of them can be left out."""

    tensors: tuple[int, ...] = ()
    minimal: bool = False


def hides_when_watched(findings: Findings) -> bool:
    """Whether what fails was seen to be right where its inner tensors are watched: the whole, or a
    part that was cut out."""
    return findings.hidden or any(c.cause == "fusion" for c in findings.culprits)


def list_rings(ask: Inquiry) -> tuple[tuple[int, ...], ...]:
    """Ids of tensors to try together, the likeliest first, none empty: those around the accused
    nodes; and, where nobody is accused or watching is known to cure, all, in batches that can be
    held at once."""
    index = ask.index
    can = frozenset(split_markable(index)[0])
    accused = {n for c in ask.findings.culprits for n in ranges.decode(c.case.node_ids)}
    around = {t for n in accused for t in (*index.nodes[n].outputs, *index.nodes[n].reads)}
    rings = [tuple(sorted(around & can))]
    if not accused or hides_when_watched(ask.findings):
        rings += pack_batches(index, sorted(can), BATCH_BYTES)
    return tuple(filter(None, rings))


def find_barriers(
    ask: Inquiry, rings: tuple[tuple[int, ...], ...], plain: Measurement, form: str = BARRIER
) -> Sub[Barriers]:
    """The fewest tensors of the first ring that cures every sample but those that are set apart.
    ``plain``: the model's answer without any, on all of them. ``form``: one of ``APART``."""
    held = set_apart(ask.findings, by_sample(plain))
    oracle, tries = make_oracle(ask), Tries(BUDGET)

    def cures(tensors: tuple[int, ...]) -> Sub[bool]:
        if tries.over:
            return False
        tries.done += 1
        done = "made outputs" if form == BARRIER else "wrapped"
        yield Note(f"{say_many(len(tensors), 'tensor')} {done}")
        for build in range(oracle.builds):
            m: Measurement = yield from oracle.feed(
                oracle.feeds, build=build, rewrite=(form, ranges.encode(tensors))
            )
            told = m.status == "ok" and not m.assumed
            deciding = restrict(m, set(by_sample(m)) - held) if told else m
            if not judge_whole(deciding, ask.criterion).passed:
                return False
        return True

    for ring in rings:
        if (yield from cures(ring)):
            fewest: tuple[int, ...] = yield from ddmin(ring, cures)
            return Barriers(fewest, not tries.over)
    return Barriers()
