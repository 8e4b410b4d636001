"""An OpenVINO IR as the model under test: docs/engines.md."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from narrowdown.engines.backends.base import BuildRequest
from narrowdown.wizard.demo import MODELS

from ..docs.shown import of
from .conftest import Narrowdown, read

ov = pytest.importorskip("openvino")


@pytest.mark.slow
def test_the_page_does_what_it_says(narrowdown: Narrowdown, tmp_path: Path) -> None:
    """A trained network, converted by OpenVINO itself: in BF16 its rounding is more than is allowed
    here."""
    from narrowdown.engines.backends import make

    if make("openvino:precision=bf16").info.precision != "bf16":
        pytest.skip("no BF16 here, emulated or not")
    ov.save_model(
        ov.convert_model(MODELS / "shapes_cnn.onnx"), tmp_path / "net.xml", compress_to_fp16=False
    )
    shutil.copy(MODELS / "shapes_cnn_in.npz", tmp_path / "in.npz")
    with np.load(tmp_path / "in.npz") as fed:
        import onnx

        built = make("onnxruntime").build(BuildRequest(onnx.load(MODELS / "shapes_cnn.onnx"), ""))
        np.savez(tmp_path / "out.npz", **built.run(dict(fed)))
    step, run = of("an IR")
    told = narrowdown(*step.words[1:], "--tolerance", "0.001", "--json")
    found = json.loads(told.out)
    assert (told.code, found["verdict"]) == (0, "fails"), told.out + told.err
    assert 0.001 < found["error"] < 0.05
    assert "nobody else runs OpenVINO IR" in found["message"]
    session = tmp_path / "s"
    ran = narrowdown(
        *run.words[1:], "--tolerance", "0.001", "--session", session, "--display", "plain"
    )
    assert ran.code == 6, ran.out + ran.err
    assert "The model itself is right: OpenVINO in FP32" in ran.said
    state = read(session).state
    assert (state.end, [v.step for v in state.route]) == (
        "whole-only",
        ["compare", "sanitize", "inputs", "repeat"],
    )
    refused = narrowdown("step", "reduce", "net.xml", *run.words[3:])
    assert refused.code == 4
    assert "layers and parts need the ONNX model" in refused.err
