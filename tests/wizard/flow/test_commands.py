"""Commands by hand: the keys, the values of a session, and that the tools know the options."""

import re
import shlex
from pathlib import Path

import pytest

from narrowdown.engines import outside
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Findings, Workaround
from narrowdown.engines.probe import Candidate
from narrowdown.engines.spec import parse
from narrowdown.wizard.cli.arguments import parse as parse_words
from narrowdown.wizard.flow.commands import FIELDS, Tool, by_hand, installed, options, values
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem

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
# Its own affair: what it uses of importlib.
pytestmark = pytest.mark.filterwarnings("ignore:SelectableGroups:DeprecationWarning")
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
        ("polygraphy<0.50; tensorrt<11", ["0.49"], ["0.50"]),
    ],
)
def test_keys_name_a_tool_and_its_versions(key: str, fits: list[str], not_: list[str]) -> None:
    tool = Tool.parse(key)
    assert all(tool.fits(v) for v in fits)
    assert not any(tool.fits(v) for v in not_)


@pytest.mark.parametrize(
    "key",
    ["", "Polygraphy", "polygraphy>=", "polygraphy>=x", "a>=1,", ">=1", "a b", "tool=>1", "tool;"],
)
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
        "polygraphy; tensorrt<11",
        "polygraphy; tensorrt>=11",
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
    old = next(
        shlex.split(t)
        for n, tool, t in made
        if (n, tool) == ("workaround", "polygraphy; tensorrt<11")
    )
    assert old[old.index("--layer-precisions") + 1 :][:2] == ["/ln/Pow:float32", "/ln/Sqrt:float32"]
    assert "--fp16" in old


@pytest.mark.parametrize(
    ("node", "text"), [(n, t) for n, tool, t in commands() if tool == "narrowdown"]
)
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
    post = options(Problem(model="m", postprocess=("y:top-5,axis=1", "top-1")))
    assert post[2:] == ("--postprocess", "y:top-5,axis=1", "--postprocess", "top-1")


def test_only_the_installed_version_of_a_tool_is_shown() -> None:
    nodes = load("accuracy").flow.nodes
    filled = values(PROBLEM)

    def tools(node: str, **have: str) -> list[str]:
        return [c.tool for c in by_hand(nodes[node], filled, have)]

    assert tools("layerwise") == ["narrowdown", "polygraphy>=0.53", "polygraphy<0.50"]
    assert tools("layerwise", polygraphy="0.53.6") == ["narrowdown", "polygraphy>=0.53"]
    assert tools("layerwise", polygraphy="0.49.27") == ["narrowdown", "polygraphy<0.50"]
    # What TensorRT 11 has no more: tactic replays, layer precisions.
    assert tools("workaround", tensorrt="10.6.0") == ["narrowdown", "polygraphy; tensorrt<11"]
    assert tools("workaround", tensorrt="11.2.1.2") == ["narrowdown"]
    assert tools("tactics", tensorrt="11.2.1.2") == ["narrowdown", "trtexec"]
    assert tools("tactics", tensorrt="10.15", polygraphy="0.49") == [
        "narrowdown",
        "polygraphy; tensorrt<11",
        "trtexec",
    ]
    # Every other tool that is found is really there.
    assert all(re.match(r"[0-9]+\.[0-9]+", number) for number in installed().values())


FLAGS = {  # engine, version of TensorRT -> Polygraphy's words, trtexec's
    ("tensorrt", "10.6.0"): ("--tf32", ""),
    ("tensorrt:precision=fp32", "10.6.0"): ("", "--noTF32"),
    ("tensorrt:tf32=off", "10.6.0"): ("", "--noTF32"),
    ("tensorrt:precision=fp16", "10.6.0"): ("--fp16 --tf32", "--fp16"),
    ("tensorrt:precision=fp16,tf32=off", "10.6.0"): ("--fp16", "--fp16 --noTF32"),
    ("tensorrt:precision=fp16", ""): ("--fp16 --tf32", "--fp16"),
    ("tensorrt:precision=fp16", "11.2.1.2"): ("--strongly-typed --tf32", ""),
    ("tensorrt:precision=fp16,typing=strong", "10.6.0"): ("--strongly-typed --tf32", "--stronglyTyped"),
    ("tensorrt:precision=model", "10.6.0"): ("--strongly-typed --tf32", "--stronglyTyped"),
    ("tensorrt:precision=fp8", "10.6.0"): ("--fp8 --tf32", "--fp8"),
    ("tensorrt:calibration=my cache,precision=int8", "10.6.0"): (
        "--int8 --tf32 --calibration-cache 'my cache'", "--int8 '--calib=my cache'",
    ),
    ("tensorrt_rtx:precision=fp16", "1.7"): ("", ""),
    ("emulate:precision=bf16", ""): ("--bf16", "--bf16"),
    ("onnxruntime", ""): ("", ""),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "version"), FLAGS)
def test_flags_are_those_that_this_tensorrt_takes(spec: str, version: str) -> None:
    ours, theirs = outside.flags(outside.found(parse(spec), version))
    assert (shlex.join(ours), shlex.join(theirs)) == FLAGS[spec, version]


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("tensorrt:precision=fp16", "10.6.0"),
        ("tensorrt:precision=fp16", "11.2.1.2"),
        ("tensorrt:calibration=my cache,precision=int8", "10.6.0"),
    ],
)
def test_the_real_polygraphy_takes_every_command(
    spec: str,
    version: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The real parser takes every word of every run that the flows show, and makes a program of it.
    Nothing is run."""
    polygraphy = pytest.importorskip("polygraphy.tools")
    problem = Problem(model="/m/model.onnx", engine=spec, inputs=("/m/in.json",))
    have = {**installed(), "tensorrt": version}
    seen = {
        tuple(words)
        for flow in ("accuracy", "precision", "flaky", "build-failure")
        for node in load(flow).flow.nodes.values()
        for command in by_hand(node, values(problem, FINDINGS, have), have, spec)
        for words in runs(command.text)
    }
    typed = (
        "--strongly-typed" if version.startswith("11") else "--int8" if "int8" in spec else "--fp16"
    )
    assert any(typed in words for words in seen)
    for words in seen:
        monkeypatch.setattr(
            "sys.argv", ["polygraphy", *words, "--gen-script", str(tmp_path / "made.py")]
        )
        try:
            code = polygraphy.main()
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        assert not code, f"{words}: {said.out}{said.err}"
        made = (tmp_path / "made.py").read_text()
        assert {"fp16=True" in made, "--fp16" in words} != {True, False}
        assert {"int8=True" in made, "--int8" in words} != {True, False}
        assert {"strongly_typed=True" in made, "--strongly-typed" in words} != {True, False}


def runs(text: str) -> list[list[str]]:
    """The words of every ``polygraphy run`` in a command, those behind ``--check`` too."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for i, word in enumerate(words):
            if (
                word == "polygraphy"
                and words[i + 1] == "run"
                and "polygraphy_debug.engine" not in words
            ):
                found.append(words[i + 1 :])
    return found


def test_a_strongly_typed_file_and_tensorrt_rtx_are_said_in_the_command() -> None:
    node = load("accuracy").flow.nodes["reproduce"]

    def shown(spec: str, **have: str) -> dict[str, str]:
        problem = Problem(model="/m/model.onnx", engine=spec)
        return {c.tool: c.text for c in by_hand(node, values(problem, None, have), have, spec)}

    new = shown("tensorrt:precision=fp16", tensorrt="11.2.1.2")
    for tool in ("polygraphy", "trtexec"):
        assert new[tool].startswith(
            "# TensorRT computes in the types of the file: for it convert the model to FP16 first"
        )
    assert not shown("tensorrt:precision=fp16", tensorrt="10.6")["polygraphy"].startswith("#")
    assert not shown("tensorrt:precision=model", tensorrt="10.6")["polygraphy"].startswith("#")
    rtx = shown("tensorrt_rtx", tensorrt_rtx="1.7")
    assert rtx["polygraphy"].startswith("POLYGRAPHY_USE_TENSORRT_RTX=1 polygraphy run")
    assert "trtexec" not in rtx
    flow = load("accuracy").flow
    spec = "tensorrt_rtx"
    tools = {
        c.tool
        for node in flow.nodes.values()
        for c in by_hand(
            node, values(Problem(model="/m/model.onnx", engine=spec), None, {}), {}, spec
        )
    }
    assert "polygraphy; tensorrt>=11" in tools
    assert "polygraphy; tensorrt<11" not in tools


def test_a_hostile_name_leaves_the_command_out_with_a_reason() -> None:
    node = load("accuracy").flow.nodes["reproduce"]
    bad = by_hand(node, values(Problem(model="/m/a\x1b[31m.onnx"), None))
    assert {c.text for c in bad} == {""}
    assert all("control characters" in c.problem for c in bad)
    odd = by_hand(node, values(Problem(model="/m/$(rm -rf ~)';x.onnx"), None))
    assert "/m/$(rm -rf ~)';x.onnx" in shlex.split(odd[0].text)
