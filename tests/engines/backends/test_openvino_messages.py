"""What OpenVINO says of a model that it refuses, as a person reads it."""

from typing import Any

import msgspec
import pytest

from narrowdown.engines.spec import parse

pytest.importorskip("openvino", reason="OpenVINO is not installed")
openvino: Any = pytest.importorskip("narrowdown.engines.backends.openvino.engine")

NOTHING = "Check 'false' failed at src/x.hpp:117: No suitable implementations. This may indicate that memory"


def test_what_only_follows_from_another_node_is_left_out() -> None:
    said = openvino._clean_message(
        RuntimeError(
            "Failed operations detailed log: -- Conv-13 with a message: data tensor's rank has to be known (static) "
            "-- QuantizeLinear-13 with a message: y_zero_point must be one of the supported types -- QuantizeLinear-13 with a "
            "message: x input data type must be static."
        )
    )
    assert said == (
        "Failed operations detailed log: -- QuantizeLinear-13 with a message: y_zero_point must be one of the supported types."
    )
    assert openvino._clean_message(RuntimeError("a -- rank has to be known (static)")) == (
        "a -- rank has to be known (static)."
    )
    long = openvino._clean_message(RuntimeError("word " * 200))
    assert len(long) < 410
    assert long.endswith("word ...")


@pytest.mark.parametrize(
    ("hint", "precision", "words", "compiles", "told"),
    [
        (
            "f16",
            "fp16",
            NOTHING,
            True,
            "It computes in FP16 here; with precision=f32 it compiles this model.",
        ),
        ("f16", "fp16", NOTHING, False, ""),
        ("f16", "fp16", "another reason", True, ""),
        ("f32", "fp32", NOTHING, True, ""),
    ],
)
def test_where_a_low_precision_has_no_kernel_full_precision_is_tried(
    hint: str, precision: str, words: str, compiles: bool, told: str
) -> None:
    """A model that ``quantize_static`` makes by default is refused in BF16, in words about memory
    descriptors."""
    asked: list[Any] = []

    class Core:
        def compile_model(self, model: Any, device: str, config: dict[str, Any]) -> None:
            asked.append(config)
            if not compiles:
                raise RuntimeError("no")

    made = openvino.make(parse(f"openvino:precision={hint}"))
    info = msgspec.structs.replace(made.info, precision=precision)
    engine = openvino.Engine(info, Core(), "CPU", {"INFERENCE_NUM_THREADS": 1})
    assert engine._try_full_precision(RuntimeError(words), object()).strip() == told
    tried = precision != "fp32" and words == NOTHING
    assert asked == [{"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}] * tried
