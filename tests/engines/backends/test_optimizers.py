"""The proof behind the list of optimizers, repeated on the ONNX Runtime that is installed."""

import itertools
import json
import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from narrowdown.engines import options, outside
from narrowdown.engines.backends import make
from narrowdown.engines.backends.onnxruntime import harmless, optimizers
from narrowdown.engines.declaration import Cure

# Runs at one level per line of stdin, with the names that it holds switched off; prints what ONNX
# Runtime logs about itself.
LISTENER = """
import json, os, re, sys, tempfile
import onnxruntime as ort
from onnx import TensorProto, helper
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
for line in sys.stdin:
    level, off = json.loads(line)
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 1
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=off)
        os.dup2(kept, 2)
        os.close(kept)
        log.seek(0)
        print(json.dumps(re.findall(r"GraphTransformer (\\S+) modified", log.read().decode())), flush=True)
"""
LEVELS = {
    "disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL",
}  # fmt: skip
RULES = {name for name in optimizers.KNOWN if name not in optimizers.CONTAINERS}


def listen(questions: list[tuple[str, list[str]]]) -> list[set[str]]:
    """What reports itself, for each (level, names switched off)."""
    lines = "\n".join(json.dumps([LEVELS[level], off]) for level, off in questions)
    done = subprocess.run(
        [sys.executable, "-P", "-c", LISTENER],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


pytestmark = pytest.mark.skipif(
    not version("onnxruntime").startswith(optimizers.VERIFIED + "."),
    reason=f"the list was proven on ONNX Runtime {optimizers.VERIFIED}",
)


def test_each_level_runs_exactly_the_named_optimizers() -> None:
    always, *found = listen([(level, []) for level in LEVELS])
    named = [
        set(optimizers.of_level(level)) | set(optimizers.CONTAINERS) for level in list(LEVELS)[1:]
    ]
    for seen, names in zip(found, named, strict=True):
        assert seen - always <= names
    rules = RULES - found[-1]  # rules do not report themselves: their containers do
    transformers = set(optimizers.of_level("all")) - rules
    assert transformers == found[-1] - always - set(optimizers.CONTAINERS)


def test_every_transformer_is_really_switched_off_by_its_name() -> None:
    everything = listen([("all", [])])[0]
    names = sorted(RULES & everything)
    for name, left in zip(names, listen([("all", [name]) for name in names]), strict=True):
        assert name not in left


@pytest.mark.parametrize("container", optimizers.CONTAINERS)
def test_a_container_vanishes_when_exactly_its_rules_are_named(container: str) -> None:
    everything = listen([("all", [])])[0]
    candidates = sorted(RULES - everything)
    level = optimizers.ADDED["basic" if container.startswith("Level1") else "extended"]
    own = [name for name in candidates if name in level]
    answers = listen([("all", own), *[("all", [n for n in own if n != name]) for name in own]])
    assert container not in answers[0]
    for name, left in zip(own, answers[1:], strict=True):
        assert container in left, name


def test_levels_grow() -> None:
    sets = [set(optimizers.of_level(level)) for level in optimizers.LEVELS]
    assert sets[0] == set()
    assert all(a < b for a, b in itertools.pairwise(sets))
    assert all(re.fullmatch(r"\w+", name) for name in sets[-1])


@pytest.mark.parametrize("provider", optimizers.PROVIDERS)
def test_an_option_of_a_provider_is_a_switch_where_it_is_not_at_its_plainest(provider: str) -> None:
    table = optimizers.PROVIDERS[provider]
    usual = {key for key, (value, plain) in table.items() if value != plain}
    assert set(optimizers.of_provider(provider, {})) == usual
    plainest = {key: plain for key, (_, plain) in table.items()}
    assert optimizers.of_provider(provider, plainest) == ()
    for key, plain in plainest.items():
        assert optimizers.of_provider(provider, plainest | {key: "another"}) == (key,)
        assert re.fullmatch(harmless.PROVIDER, f"{key}={plain}"), "else it would be asked about"


def test_a_switched_off_option_of_a_provider_is_told_at_its_plainest() -> None:
    """In check.py and in what is pasted; none of it is told as an optimizer."""
    given = "onnxruntime:optimization=all,provider=tensorrt,provider_options=trt_fp16_enable=1+trt_sparsity_enable=1"
    off = f"{given},disabled_optimizers=trt_sparsity_enable+trt_layer_norm_fp32_fallback+Pad_Fusion"
    found = outside.found(options.check(off), "")
    part, _ = outside.check_part(found)
    assert part is not None
    told = {"trt_fp16_enable": "1", "trt_sparsity_enable": "0", "trt_layer_norm_fp32_fallback": "1"}
    assert part.settings["provider_options"][0] == told
    assert part.settings["disabled"] == ["Pad_Fusion"]
    python = outside.apply(found, Cure(failing=outside.found(options.check(given), "")))[0]
    assert repr(told) in python.text
    assert "disable_specified_optimizers', 'Pad_Fusion'" in python.text


def test_an_option_of_another_provider_is_refused() -> None:
    with pytest.raises(ValueError, match="another provider than cpu"):
        make("onnxruntime:optimization=all,disabled_optimizers=prefer_nhwc")
