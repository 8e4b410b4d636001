"""docs/flows.md tells the truth: its flow is a flow, and every field, filter, step and verdict is
in it."""

import re
from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard import BY_VERDICT
from narrowdown.wizard.flow.check import SETTINGS, check
from narrowdown.wizard.flow.commands import FIELDS
from narrowdown.wizard.flow.expressions import FILTERS
from narrowdown.wizard.flow.load import parse
from narrowdown.wizard.flow.model import Answer, End, Flow, FlowNode, StepUse
from narrowdown.wizard.flow.rules import recommend

PAGE = Path(__file__).parents[3] / "docs" / "flows.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_flow_on_the_page_has_no_problems(page: str) -> None:
    text = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert text is not None
    loaded = parse(text[1], "docs/flows.md")
    assert check(loaded) == []
    node = loaded.flow.nodes["reduce"]
    assert (
        recommend(node, {"verdict": "reduced", "nodes_after": 3, "nodes_before": 9}).because
        == "3 of 9 nodes are left."
    )
    assert recommend(node, {"verdict": "unresolved"}).answer == "again"
    assert recommend(node, {"verdict": "reduced", "nodes_after": 60}).answer == "no"


def test_every_word_of_the_format_is_explained(page: str) -> None:
    written = set(re.findall(r"`([a-z0-9_-]+)`", page))
    for struct in (Flow, FlowNode, Answer, End, StepUse):
        assert {f.encode_name for f in msgspec.structs.fields(struct)} <= written
    assert {*FILTERS, *FIELDS, *STEPS, *BY_VERDICT, *SETTINGS, "ge", "gt", "le", "lt"} <= written
