"""The models of the chain: the nodes around a bug do nothing, and the page has a section for
each."""

from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from campaigns.field.chain import BUGS, Asked, embed
from narrowdown.engines.known.construct import construct, draw_feed
from narrowdown.engines.known.table import read_table

PAGE = Path(__file__).parents[2] / "campaigns" / "chain.md"
MADE = {bug.id: bug for bug in read_table()}


@pytest.mark.parametrize("asked", BUGS, ids=lambda asked: asked.bug)
def test_the_nodes_around_a_bug_change_nothing(asked: Asked) -> None:
    made = MADE[asked.bug].make
    assert made is not None
    feed, plain, model = draw_feed(made, 1), construct(made), embed(made)
    assert len(model.graph.node) == len(plain.graph.node) + 2 * len(made.inputs) + 2 * len(
        made.outputs
    )
    expected, given = (ReferenceEvaluator(one).run(None, feed) for one in (plain, model))
    assert all(np.array_equal(a, b) for a, b in zip(expected, given, strict=True))


def test_the_page_has_a_section_for_each_and_names_releases_that_were_seen_to_fail() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sections = [line for line in page.splitlines() if line.startswith("## ")]
    assert sections == [f"## {MADE[a.bug].name}, {MADE[a.bug].engine} {a.version}" for a in BUGS]
    assert all(MADE[a.bug].ran[a.version] in ("wrong", "refused") for a in BUGS)
