"""More samples, made near those of the session."""

import math

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import LoadInputs, SampleInfo
from narrowdown.engines.sources import scripts


class Near(msgspec.Struct, frozen=True):
    """Feeds that were made near the session's. ``inputs``: their digest."""

    inputs: str = ""
    feeds: tuple[str, ...] = ()


def make_near(ask: Inquiry, samples: int, batch: int, each: int) -> Sub[Near]:
    """Feeds near the session's, others in each ``batch``: at least so many samples, of which a feed
    holds ``each``. A data loader is asked for more first. None where they cannot be made: a model
    of sequences, say."""
    feeds = math.ceil(samples / max(1, each))
    if not feeds or recorded(ask.ctx.reference):  # nothing was recorded of made-up inputs
        return Near()
    problem = ask.ctx.problem
    loaders = tuple(s for s in problem.inputs if scripts(s)) if batch == 0 else ()
    yield Note(f"making {samples} samples near the given ones")
    made = yield from asked(
        problem.tell_loop(
            LoadInputs(
                model=ask.findings.model,
                sources=loaders,
                source_digests=tuple(
                    next((problem.digests[p] for p in scripts(s) if p in problem.digests), "")
                    for s in loaders
                ),
                seed=problem.seed,
                shapes=problem.input_shapes,
                ranges=problem.val_range,
                base=ask.findings.inputs,
                near=feeds,
                start=batch * feeds,
                suggested=ask.findings.suggested,
                cache=ask.findings.cache,
            ),
            ask.ctx.reference,
        )
    )
    if made.status != "ok":
        return Near()
    infos = (msgspec.convert(s, SampleInfo) for s in made.facts["samples"])
    return Near(made.facts["inputs"], tuple(s.id for s in infos))


def make_none(_samples: int, _batch: int, _each: int) -> Sub[Near]:
    """Where there is nothing to make them of."""
    return Near()
    yield
