"""Which levels of a case are tried, and in which order."""

from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor
from narrowdown.engines.known.factors import list_factors


def test_the_sign_of_a_number_is_tried_before_other_values() -> None:
    made = Construction(
        opset=17,
        inputs={"x": MadeTensor("float32", (1, 4))},
        nodes=(MadeNode("Selu", ("x",), ("y",), {"gamma": -0.03, "alpha": 2.0}),),
        outputs={"y": "float32"},
    )
    levels = {f.name: f.levels for f in list_factors(made, ())}
    assert levels["Selu gamma"][0] == 0.03
    assert levels["Selu alpha"][0] == -2.0
