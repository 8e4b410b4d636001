"""Commands by hand: the keys, the values of a session, and that the tools know the options."""

import re
import shlex

import pytest

from engines.compare.criterion import Criterion, Signature
from engines.probe import Candidate
from engines.steps.base import Case, Findings, Workaround
from wizard.cli.arguments import parse as parse_words
from wizard.flow.commands import FIELDS, Tool, by_hand, installed, options, values
from wizard.flow.load import load
from wizard.problem import Problem

PROBLEM = Problem(
    model="/m/my model.onnx",
    engine="tensorrt:precision=fp16",
    inputs=("/m/in.json",),
    seed=7,
    input_shapes={"x": (1, 3)},
    val_range={"x": (-1.0, 1.0)},
    metric="rel_l2",
    tolerance={"": 0.01, "y": 0.5},
    fail_regex=("a b",),
    fail_code=(3,),
)
FINDINGS = Findings(
    criterion=Criterion(tolerance=0.02),
    signature=Signature("accuracy", "real:0", outputs=("logits", "it's")),
    case=Case(Candidate(nodes="3"), "real:0", inputs=("a", "b c"), outputs=("y",)),
    workaround=Workaround("precision", "tensorrt", keep_names=("/ln/Pow", "/ln/Sqrt")),
)


@pytest.mark.parametrize(
    ("key", "fits", "not_"),
    [
        ("polygraphy>=0.53", ["0.53", "0.53.6", "1"], ["0.52.9", "0.5"]),
        ("polygraphy<0.50", ["0.49.27", "0.49"], ["0.50", "0.50.0"]),
        ("polygraphy >= 0.50, < 0.53", ["0.51"], ["0.53", "0.49.9"]),
        ("trtexec", ["10.6", "8"], []),
        ("tool==2", ["2", "2.0"], ["2.1"]),
    ],
)
def test_keys_name_a_tool_and_its_versions(key: str, fits: list[str], not_: list[str]) -> None:
    tool = Tool.parse(key)
    assert all(tool.fits(v) for v in fits)
    assert not any(tool.fits(v) for v in not_)


@pytest.mark.parametrize("key", ["", "Polygraphy", "polygraphy>=", "polygraphy>=x", "a>=1,", ">=1", "a b", "tool=>1"])
def test_keys_that_name_nothing(key: str) -> None:
    with pytest.raises(ValueError, match="does not name a tool"):
        Tool.parse(key)


def test_every_field_has_a_value_from_the_start() -> None:
    for findings in (None, Findings(), FINDINGS):
        assert set(values(PROBLEM, findings)) == set(FIELDS)


def commands() -> list[tuple[str, str, str]]:
    flow = load("accuracy").flow
    return [
        (name, command.tool, command.text)
        for name, node in flow.nodes.items()
        for command in by_hand(node, values(PROBLEM, FINDINGS))
    ]


def test_the_accuracy_flow_has_commands_that_can_be_read_back() -> None:
    made = commands()
    assert {tool for _, tool, _ in made} == {
        "narrowdown",
        "polygraphy",
        "polygraphy>=0.53",
        "polygraphy<0.50",
        "trtexec",
    }
    for _, tool, text in made:
        words = shlex.split(text)
        assert words[0] == Tool.parse(tool).name
        assert "{{" not in text
    extract = next(shlex.split(t) for n, tool, t in made if (n, tool) == ("extract", "polygraphy"))
    assert (
        extract[-6:] == ["--inputs", "a:auto:auto", "b c:auto:auto", "--outputs", "y:auto"][-6:]
        or "b c:auto:auto" in extract
    )
    old = next(shlex.split(t) for n, tool, t in made if (n, tool) == ("workaround", "polygraphy<0.50"))
    assert old[old.index("--layer-precisions") + 1 :][:2] == ["/ln/Pow:float32", "/ln/Sqrt:float32"]
    assert "--fp16" in old


@pytest.mark.parametrize(("node", "text"), [(n, t) for n, tool, t in commands() if tool == "narrowdown"])
def test_our_own_commands_are_ours(node: str, text: str) -> None:
    arguments = parse_words(shlex.split(text)[1:])
    assert arguments.model == PROBLEM.model
    assert arguments.engine == PROBLEM.engine
    assert arguments.tolerance == ["0.01", "y:0.5"]
    assert arguments.name == load("accuracy").flow.nodes[node].step.use  # type: ignore[union-attr]


def test_the_problem_as_options() -> None:
    words = options(PROBLEM)
    assert words[:4] == ("--engine", "tensorrt:precision=fp16", "--inputs", "/m/in.json")
    assert words[words.index("--input-shapes") :][:2] == ("--input-shapes", "x:[1,3]")
    assert options(Problem(model="m")) == ("--engine", "onnxruntime:optimization=all")


def test_only_the_installed_version_of_a_tool_is_shown() -> None:
    node = load("accuracy").flow.nodes["reproduce"]
    filled = values(PROBLEM)

    def tools(**have: str) -> list[str]:
        return [c.tool for c in by_hand(node, filled, have)]

    assert tools() == ["narrowdown", "polygraphy>=0.53", "polygraphy<0.50", "trtexec"]
    assert tools(polygraphy="0.53.6") == ["narrowdown", "polygraphy>=0.53", "trtexec"]
    assert tools(polygraphy="0.49.27") == ["narrowdown", "polygraphy<0.50", "trtexec"]
    # Every other tool that is found is really there.
    assert all(re.match(r"[0-9]+\.[0-9]+", number) for number in installed().values())


def test_a_hostile_name_leaves_the_command_out_with_a_reason() -> None:
    node = load("accuracy").flow.nodes["reproduce"]
    bad = by_hand(node, values(Problem(model="/m/a\x1b[31m.onnx"), None))
    assert {c.text for c in bad} == {""}
    assert all("control characters" in c.problem for c in bad)
    odd = by_hand(node, values(Problem(model="/m/$(rm -rf ~)';x.onnx"), None))
    assert "/m/$(rm -rf ~)';x.onnx" in shlex.split(odd[0].text)
