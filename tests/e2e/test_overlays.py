"""Numbers on a graph, read by those that they are for: Model Explorer's own node data and ONNX
adapter."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest

from tests.docs.shown import of

from ..patience import allow
from . import tiny
from .conftest import Narrowdown

# Reads the node data into Model Explorer's own classes, and the model with its ONNX adapter: node
# ids, to stdout.
READER = """
import json, sys
from model_explorer import node_data_builder as made
from model_explorer_onnx.main import ONNXAdapter
told = json.load(open(sys.argv[1]))
told["results"] = {key: made.NodeDataResult(**one) for key, one in told["results"].items()}
told["thresholds"] = [made.ThresholdItem(**one) for one in told["thresholds"]]
again = json.loads(made.ModelNodeData(graphsData={"g": made.GraphNodeData(**told)}).to_json_string())
graph = ONNXAdapter().convert(sys.argv[2], {})["graphs"][0]
print(json.dumps({"ids": [node.id for node in graph.nodes], "values": {k: v["value"] for k, v in again["g"]["results"].items()}}))
"""


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A python with Model Explorer; skipped where the package index does not give it."""
    place = tmp_path_factory.mktemp("explorer")
    subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True)
    python = str(place / "bin" / "python")
    words = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "ai-edge-model-explorer",
        "ai-edge-model-explorer-adapter",
        "model-explorer-onnx",
    ]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=allow(500))
    if done.returncode:
        pytest.skip(f"Model Explorer cannot be installed here: {done.stderr[-200:]}")
    return python


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_does_what_it_says(narrowdown: Narrowdown, tmp_path: Path, explorer: str) -> None:
    model = tiny.two_norms(tmp_path)
    words = (
        "run",
        model,
        "--inputs",
        tiny.rows(tmp_path),
        "--engine",
        "emulate:precision=fp16",
        "--session",
        "bug",
    )
    assert narrowdown(*words).code == 0
    for command in of("overlays"):
        ran = narrowdown(*("bug" if word == "SESSION" else word for word in command.words[1:]))
        assert ran.code == 0, ran.out + ran.err
    names = {node.name for node in onnx.load(model).graph.node}
    assert ElementTree.parse(tmp_path / "case" / "around.svg").getroot().tag.endswith("svg")
    read = subprocess.run(
        [explorer, "-c", READER, tmp_path / "case" / "nodes.json", model],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    told = json.loads(read.stdout.splitlines()[-1])
    assert set(told["values"]) == names <= set(told["ids"]), "each number finds its node"
    assert told["values"]["/sum"] == 1e300
    for name in ("nodes.json", "around.svg"):
        assert (tmp_path / "bug" / "case" / name).is_file()
    assert narrowdown("export", "bug").code == 2
