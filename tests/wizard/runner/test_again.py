"""What was asked of the recorded engine, asked of another one."""

import pytest

from narrowdown.engines.probe import Measure
from narrowdown.engines.spec import parse
from narrowdown.wizard.runner.again import with_engine


@pytest.mark.parametrize(
    ("recorded", "asked", "other", "then"),
    [
        ("onnxruntime", "onnxruntime", "tensorrt:precision=fp16", "tensorrt:precision=fp16"),
        ("onnxruntime", "emulate:precision=fp16", "openvino", "emulate:precision=fp16"),  # a judge stays what it is
        # What the probe changed of the recorded engine is changed of the other one, too.
        ("tensorrt:typing=weak", "tensorrt:typing=strong", "tensorrt:precision=fp32", "tensorrt:precision=fp32,typing=strong"),
        # An option with one value is replaced, ...
        ("tensorrt:typing=weak", "tensorrt:typing=strong", "tensorrt:tf32=off,typing=weak", "tensorrt:tf32=off,typing=strong"),
        # ... a list is joined with the other's.
        (
            "onnxruntime", "onnxruntime:disabled_optimizers=B", "onnxruntime:disabled_optimizers=A",
            "onnxruntime:disabled_optimizers=A+B",
        ),
        ("onnxruntime", "onnxruntime:disabled_optimizers=A", "openvino", None),  # it has no such option
    ],
)  # fmt: skip
def test_what_a_probe_changed_of_the_engine_is_changed_of_the_other_one(
    recorded: str, asked: str, other: str, then: str | None
) -> None:
    probe = Measure(model="0", inputs="1", samples=(), engine=asked, reference="onnxruntime")
    again = with_engine(probe, parse(recorded), parse(other))
    assert (again.engine if isinstance(again, Measure) else None) == then
