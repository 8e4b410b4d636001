"""Class scores are told from maps by what makes them."""

import onnx.parser
import pytest

from narrowdown.engines.graph.load import build_index
from narrowdown.engines.graph.places import holds_places


@pytest.mark.parametrize(
    ("nodes", "shape", "places"),
    [
        ("c = Conv (x, w) r = Relu (c) y = Squeeze (r, one)", "1,6,7", True),  # a depth map
        ("c = Conv (x, w) p = GlobalAveragePool (c) f = Flatten (p) y = Sigmoid (f)", "1,1", False),
        (
            "c = Conv (x, w) t = Transpose <perm=[0,2,3,1]> (c) y = Squeeze (t, zero)",
            "6,7,1",
            False,
        ),  # scores of each place
        (
            "c = Conv (x, many) p = AveragePool <kernel_shape=[6,7]> (c) y = Squeeze (p, last)",
            "1,9",
            False,
        ),  # a classifier without Gemm
        ("r = Relu (x) y = Squeeze (r, one)", "1,6,7", False),  # not known
    ],
)
def test_a_map_of_values_holds_no_classes(nodes: str, shape: str, places: bool) -> None:
    weights = "float[1,1,1,1] w = {1}, float[9,1,1,1] many = {1,2,3,4,5,6,7,8,9}"
    axes = "int64[1] zero = {0}, int64[1] one = {1}, int64[2] last = {2,3}"
    text = f"""<ir_version: 8, opset_import: ["": 18]>
        g (float[1,1,6,7] x) => (float[{shape}] y) <{weights}, {axes}> {{ {nodes} }}"""
    index = build_index(onnx.parser.parse_model(text), "m")
    assert holds_places(index, index.outputs[0]) is places
