"""Dimensions that inputs share by name."""

import pytest
from onnx import TensorProto, helper

from narrowdown.engines.graph.dimensions import say_unequal


@pytest.mark.parametrize(
    ("names", "sizes", "said"),
    [
        (("N", "N"), (4, 2), "'N', and it is 4 in 'x' and 2 in 'y'."),
        (("N", "N"), (4, 4), ""),
        (("N", "M"), (4, 2), ""),
        ((None, None), (4, 2), ""),
    ],
)
def test_inputs_that_do_not_fit_each_other(
    names: tuple[str | None, ...], sizes: tuple[int, int], said: str
) -> None:
    inputs = [
        helper.make_tensor_value_info(k, TensorProto.FLOAT, [n, 3])
        for k, n in zip("xy", names, strict=True)
    ]
    model = helper.make_model(
        helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", inputs, [])
    )
    found = say_unequal(model, {k: (n, 3) for k, n in zip("xy", sizes, strict=True)})
    assert found.endswith(said)
    assert bool(found) == bool(said)
