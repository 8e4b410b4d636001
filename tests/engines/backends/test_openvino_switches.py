"""What of OpenVINO's CPU device can be switched off: asked of the installed version."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines import options, outside
from narrowdown.engines.array import Array
from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest
from narrowdown.engines.backends.openvino import switches
from narrowdown.engines.declaration import Cure
from narrowdown.engines.spec import parse

pytest.importorskip("openvino", reason="OpenVINO is not installed")
engine: Any = pytest.importorskip("narrowdown.engines.backends.openvino.engine")


def run(spec: str, model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    built = make(spec).build(BuildRequest(model, ""))
    try:
        return built.run(feeds)["y"]
    finally:
        built.close()


def joined_branches(kind: type, zero: int) -> onnx.ModelProto:
    """The same values twice, quantized, joined and convolved: right whatever the order of sums, as
    all of it are whole numbers below 2 ** 15."""
    nodes, held = [], []
    for branch in ("a", "b"):
        at = [f"{branch}_scale", f"{branch}_zero"]
        nodes.append(helper.make_node("QuantizeLinear", ["x", *at], [f"{branch}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{branch}_q", *at], [branch]))
        held += [
            numpy_helper.from_array(np.float32(0.02), at[0]),
            numpy_helper.from_array(np.asarray(zero, kind), at[1]),
        ]
    codes = np.random.default_rng(3).integers(-31, 32, (4, 8, 1, 1)).astype(np.int8)
    held += [
        numpy_helper.from_array(codes, "w"),
        numpy_helper.from_array(np.float32(0.01), "w_scale"),
        numpy_helper.from_array(np.int8(0), "w_zero"),
    ]
    nodes += [
        helper.make_node("Concat", ["a", "b"], ["joined"], axis=1),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"]),
        helper.make_node("Conv", ["joined", "wd"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 8, 8]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "joined", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_int8_concat_is_wrong_and_only_one_switch_cures_it() -> None:
    """2025.0, 2026.2 and 2026.4.1 are wrong by a third of the largest value; with unsigned values
    they are right."""
    feeds = {
        "x": np.random.default_rng(9).standard_normal((1, 4, 8, 8)).astype(np.float32),
    }
    model = joined_branches(np.int8, 0)
    want = run("onnxruntime", model, feeds)

    def error(off: str) -> float:
        spec = (
            f"openvino:precision=f32,disabled_optimizers={off}" if off else "openvino:precision=f32"
        )
        return float(np.abs(run(spec, model, feeds) - want).max() / np.abs(want).max())

    if error("") < 1e-3:
        pytest.skip("this OpenVINO, on this processor, joins signed branches as it should")
    assert error("LP_TRANSFORMS_MODE") < 1e-5
    assert error("SNIPPETS_MODE") > 0.05
    unsigned = joined_branches(np.uint8, 128)
    np.testing.assert_allclose(
        run("openvino:precision=f32", unsigned, feeds),
        run("onnxruntime", unsigned, feeds),
        rtol=0,
        atol=1e-3,
    )


def test_each_switch_is_taken_and_changes_what_is_said_of_the_engine() -> None:
    bare = make("openvino").info
    assert bare.can("optimizers")
    assert bare.optimizers == tuple(sorted(switches.PROPERTIES)), "a released wheel"
    assert not bare.experimental
    prints = {make(f"openvino:disabled_optimizers={n}").info.fingerprint for n in bare.optimizers}
    assert len({*prints, bare.fingerprint}) == len(bare.optimizers) + 1
    with pytest.raises(ValueError, match="Did you mean 'SNIPPETS_MODE'"):
        make("openvino:disabled_optimizers=SNIPPET_MODE")
    with pytest.raises(ValueError, match="no switch 'transformations:lpt'"):
        make("openvino:disabled_optimizers=transformations:lpt")
    elsewhere = make("openvino:device=AUTO").info
    assert (elsewhere.can("optimizers"), elsewhere.optimizers) == (False, ())


def test_a_build_with_debug_capabilities_leaves_out_stages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None is to be had: one that obeys the variable is played, and the variable is seen while the
    device is loaded."""
    seen: list[str | None] = []
    core = engine.ov.Core

    def watched() -> Any:
        seen.append(os.environ.get(switches.VARIABLE))
        return core()

    monkeypatch.setattr(engine, "_joins", lambda off: not off)
    monkeypatch.setattr(engine.ov, "Core", watched)
    engine._list_switches.cache_clear()
    monkeypatch.setenv(switches.VARIABLE, "own")
    try:
        spec = "openvino:disabled_optimizers=transformations:snippets+transformations:lpt"
        assert set(make(spec).info.optimizers) == {*switches.PROPERTIES, *switches.STAGES}
    finally:
        engine._list_switches.cache_clear()
    assert seen[-1] == "own transformations=lpt,snippets"
    assert os.environ[switches.VARIABLE] == "own"
    found = outside.found(options.check(spec), "")
    part, _ = outside.check_part(found)
    assert part is not None
    assert part.settings["disable"] == "transformations=lpt,snippets"
    failing = outside.found(parse("openvino"), "")
    python, cpp = outside.apply(found, Cure(failing=failing))
    assert python.text.splitlines()[:2] == [
        "import os",
        "os.environ['OV_CPU_DISABLE'] = 'transformations=lpt,snippets'",
    ]
    assert 'setenv("OV_CPU_DISABLE", "transformations=lpt,snippets", 1);' in cpp.text


def test_both_languages_are_told() -> None:
    spec = "openvino:disabled_optimizers=LP_TRANSFORMS_MODE+SNIPPETS_MODE"
    failing = outside.found(parse("openvino"), "")
    python, cpp = outside.apply(outside.found(options.check(spec), ""), Cure(failing=failing))
    assert "{'LP_TRANSFORMS_MODE': 'NO', 'SNIPPETS_MODE': 'DISABLE'}" in python.text
    assert '{{"LP_TRANSFORMS_MODE", "NO"}, {"SNIPPETS_MODE", "DISABLE"}}' in cpp.text
