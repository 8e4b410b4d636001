"""Every call of trtexec that is shown to a user, against the options that trtexec of that version
takes."""

import functools
from pathlib import Path

import pytest

from narrowdown.engines import outside
from narrowdown.engines.declaration import Cure
from narrowdown.engines.spec import parse
from narrowdown.wizard.flow.commands import by_hand, values
from narrowdown.wizard.flow.load import load, shipped
from narrowdown.wizard.problem import Problem
from tests.wizard import trtexec
from tests.wizard.flow.test_commands import FINDINGS
from tests.wizard.test_manual_commands import SPECS, lines

OLD, NEW = ("v9.3.0", "v10.0.1", "v10.6.0", "v10.15"), ("v11.0", "v11.1")
BEHIND = ("", ",typing=strong", ",optimization_level=2,workspace=64", ",tf32=off")
ASKED = [
    f"tensorrt:precision={p}{more}"
    for p in ("fp16", "bf16", "fp32", "model")
    for more in BEHIND
    if p != "model" or not more
]
KEPT = Cure(keep=("/a/Pow", "/b"), file="worked-around.onnx")


loaded = functools.cache(load)  # of a flow's name: read once for ninety tests


def takes(version: str, spec: str) -> bool:
    """Whether it is a build that the version has."""
    return version in OLD or "int8" not in spec


@pytest.mark.parametrize("version", [*OLD, *NEW])
def test_those_of_a_case(version: str) -> None:
    seen = 0
    for spec in {*SPECS, *ASKED}:
        if takes(version, spec) and (spec.startswith("tensorrt") or version in OLD):
            said = "\n".join(
                lines(spec, version=version[1:] if spec.startswith("tensorrt") else "")
            )
            assert trtexec.unknown(said, version) == set(), spec
            seen += len(trtexec.words(said))
    assert seen > 12


@pytest.mark.parametrize("version", [*OLD, *NEW])
@pytest.mark.parametrize("spec", [*ASKED, "emulate:precision=bf16", "onnxruntime"])
def test_those_of_the_flows(spec: str, version: str) -> None:
    have = {"tensorrt": version[1:]}
    problem = Problem(model="/m/model.onnx", engine=spec, inputs=("/m/in.json",))
    seen = 0
    for flow in shipped():
        for node in loaded(flow).flow.nodes.values():
            for command in by_hand(node, values(problem, FINDINGS, have), have, spec):
                seen += len(trtexec.words(command.text))
                if version in NEW and command.text.startswith("# TensorRT up to 10;"):
                    continue
                assert trtexec.unknown(command.text, version) == set(), (flow, command)
    assert seen >= 3


@pytest.mark.parametrize("version", [*OLD, *NEW])
def test_those_of_a_workaround(version: str) -> None:
    for spec in (*ASKED, "emulate:precision=fp16"):
        for recipe in outside.apply(
            outside.found(parse(spec), version[1:] if spec.startswith("tensorrt") else ""), KEPT
        ):
            if version in OLD or "up to 10" not in recipe.tool:
                assert trtexec.unknown(recipe.text, version) == set(), (spec, recipe)


def test_those_of_the_pages() -> None:
    for page in (Path(__file__).parents[2] / "docs").glob("*.md"):
        said = "\n".join(
            line for line in page.read_text().splitlines() if line.startswith("trtexec")
        )
        assert trtexec.unknown(said, "v10.15") == set(), page.name


def test_an_option_that_went_is_known_to_be_gone() -> None:
    assert trtexec.unknown("trtexec --onnx=m.onnx --fp16", "v11.1") == {"--fp16"}
    assert trtexec.unknown("trtexec --onnx=m.onnx --fp16", "v10.15") == set()
