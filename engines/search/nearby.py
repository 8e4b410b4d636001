"""A model that passes on few samples, on more that are made near them.

Of 44 models of strangers that passed on their few given samples in FP16 seven were wrong on 1 to 12
in 100 of other samples. Two of these were so on 3 to 7 of 32 made ones in each of six draws, two in
every second draw, three in one of six. Of the others a page reader and four exports of one detector
of speech were wrong on 1 to 3 made ones in most draws, and on none or one of 100 others; 32 were
right on all of both. So what made ones show is worth telling, and is no verdict: they need not be
what the user's samples are. That they show nothing says nothing.
"""

import math

import msgspec

from narrowdown.engines.asking import Described, Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import make_inquiry
from narrowdown.engines.asking.near import Near
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.compare.criterion import Signature
from narrowdown.engines.compare.judge import by_sample, worst
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import MADE_UP, Describe, Measurement, is_given
from narrowdown.engines.search.unseen import (
    GIVEN,
    WANTED,
    Determined,
    count_determined,
)
from narrowdown.engines.search.whole import list_feeds

# Seconds that these may take, building included, as far as what was measured foretells it: half of
# what the same build is run again for. Of the 44 models 33 take less than 3 s of processor, 39 less
# than 15 s.
SECONDS = 15.0


class Nearby(msgspec.Struct, frozen=True):
    """How many made samples were tried (``n``) and fail; the worst of them: its error, and what it
    was made of and how. ``drawn``: what the made-up sample is wrong by, 0 where it is right."""

    n: int = 0
    failing: int = 0
    error: float = 0.0
    source: str = ""
    drawn: float = 0.0


def try_nearby(ctx: StepContext, findings: Findings, m: Measurement) -> Sub[Nearby]:
    """``Nearby``, after all of the user's samples passed by ``m``. None are made where at least as
    many were given, where that takes long, or where the model takes none that are made."""
    rows = [s for s in by_sample(m) if is_given(s)]
    if not rows or len(rows) >= WANTED or findings.criterion is None:
        return Nearby()
    run = m.run_seconds / len(by_sample(m))
    most = int((SECONDS - m.build_seconds) / run) if run > 0 else WANTED
    if most < GIVEN:
        return Nearby()
    described = yield from asked(Describe(model=findings.model))
    if not isinstance(described, Described):
        return Nearby()
    oracle = make_oracle(
        make_inquiry(ctx, findings, described.index, Signature(kind="accuracy", sample=""))
    )
    each = math.ceil(len(rows) / len(list_feeds(findings)))
    yield Note("a made-up sample")
    drawn: Determined = yield from _try_made(oracle, Near(findings.inputs, (MADE_UP,)))
    near: Near = yield from oracle.near(min(WANTED, most), 0, each)
    if near.feeds:
        yield Note(f"{len(near.feeds) * each} samples made near yours")
    found: Determined = yield from _try_made(oracle, near)
    bad, _, error = worst(found.counted.results, findings.criterion)
    how = dict(zip(near.feeds, near.sources, strict=False)).get(bad.partition("/")[0], "")
    off = worst(drawn.counted.results, findings.criterion)[2] if drawn.missed else 0.0
    return Nearby(len(by_sample(found.counted)), len(found.missed), error, how, off)


def _try_made(oracle: Oracle, near: Near) -> Sub[Determined]:
    """What the model gives on made samples; nothing where there are none or it takes none."""
    if not near.feeds:
        return Determined(Measurement())
    made: Measurement = yield from oracle.feed(near.feeds, inputs=near.inputs)
    if made.status != "ok" or made.assumed:
        return Determined(Measurement())
    return (yield from count_determined(oracle, near, made))
