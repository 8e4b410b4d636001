"""Outputs that go back into inputs: which ones, and what is fed."""

import numpy as np
import pytest

from narrowdown.engines.data import InputProblem, sequences
from narrowdown.engines.data.sequences import Loop
from narrowdown.engines.probe import LoadInputs


def resolve(carry, tokens, inputs, outputs):
    probe = LoadInputs(model="", carry=tuple(carry), carry_token=tuple(tokens))
    return sequences.resolve(probe, inputs, outputs)


def test_a_pattern_pairs_outputs_with_inputs_by_the_same_text() -> None:
    inputs = ["ids", "past.0.key", "past.0.value", "past.1.key", "past.1.value"]
    outputs = ["logits", *(n.replace("past", "present") for n in inputs[1:])]
    found = resolve(["present.*:past.*"], ["logits:ids=argmax"], inputs, outputs)
    assert found.carry == {n: n.replace("past", "present") for n in inputs[1:]}
    assert found.tokens == {"ids": "logits"}
    # Names of TensorFlow hold colons themselves.
    assert resolve(["h:0:g:0"], [], ["g:0"], ["h:0"]).carry == {"g:0": "h:0"}


@pytest.mark.parametrize(
    ("carry", "tokens", "said"),
    [
        (["present.*:pst.*"], [], "'present.*:pst.*'"),
        (["nothing:past.0"], [], "'nothing:past.0'"),
        (["present"], [], "OUTPUT:INPUT"),
        ([], ["logits:ids"], "=argmax"),
        ([], ["logits:ids=sample"], "=argmax"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused(carry, tokens, said) -> None:
    with pytest.raises(InputProblem, match="--carry") as refused:
        resolve(carry, tokens, ["ids", "past.0"], ["logits", "present.0"])
    assert said in str(refused.value)


def declared(**names):
    return {name.replace("__", "."): ("float32", tuple(dims)) for name, dims in names.items()}


@pytest.mark.parametrize(
    ("inputs", "outputs", "patterns"),
    [
        (
            declared(x=[1, 64], state=[1, 64]),
            declared(y=[1, 16], state_out=[1, 64]),
            ["state_out:state"],
        ),
        (
            declared(x=[1, 8], h0=[2, 1, 4], c0=[2, 1, 4]),
            declared(y=[1, 8], hn=[2, 1, 4], cn=[2, 1, 4]),
            ["hn:h0", "cn:c0"],
        ),
        (
            {"ids": ("int64", (1, "s"))}
            | declared(past_key_values__0__key=[1, 2, "p", 4], past_key_values__0__value=[1, 2, "p", 4]),
            declared(logits=[1, "s", 9], present__0__key=[1, 2, "t", 4], present__0__value=[1, 2, "t", 4]),
            ["present*:past_key_values*", "logits:ids=argmax"],
        ),
        # A picture that becomes a picture is no loop, nor is a state of another size or type.
        (declared(image=[1, 3, 8, 8]), declared(image_out=[1, 3, 8, 8]), []),
        (declared(x=[1, 4], state=[1, 64]), declared(state_out=[1, 32]), []),
        (declared(x=[1, 4], y=[1, 4]), declared(logits=[1, 4]), []),
        (declared(x=[1, 4], state=[1, 64]), {"state_out": ("int64", (1, 64))}, []),
    ],
)  # fmt: skip
def test_pairs_are_suggested_by_names_and_shapes(inputs, outputs, patterns) -> None:
    assert [pattern for _, pattern in sequences.suggest(inputs, outputs)] == patterns


def test_an_input_with_an_axis_of_steps_is_another_one_each_step() -> None:
    dims = {"x": (1, 2), "scale": (1,), "open": None}
    raw = {"x": np.arange(6.0).reshape(3, 1, 2), "scale": np.ones(1), "open": np.ones((3, 1))}
    assert sequences.count_steps(raw, dims, 0) == 3
    assert sequences.count_steps(raw, dims, 2) == 2
    assert sequences.count_steps({"scale": raw["scale"]}, dims, 0) == sequences.USUAL
    step = sequences.take_step(raw, dims, 1)
    assert step["x"].tolist() == [[2.0, 3.0]]
    assert step["scale"] is raw["scale"]
    assert step["open"] is raw["open"]
    with pytest.raises(InputProblem, match="3 steps, and --steps asks for 4"):
        sequences.count_steps(raw, dims, 4)


def test_positions_and_masks_go_on_where_the_cache_grows() -> None:
    loop = Loop({"past": "present"})
    kinds = {"positions": "positions", "mask": "mask"}
    fed = {"past": np.zeros((1, 0, 4)), "positions": np.array([[0, 1, 2]]), "mask": np.ones((1, 3))}
    went = sequences.follow(loop, fed, {"past": np.zeros((1, 3, 4))}, kinds)
    assert went["positions"].tolist() == [[3]]
    assert went["mask"].shape == (1, 4)
    assert sequences.follow(loop, fed, {"past": fed["past"]}, kinds)["mask"] is fed["mask"]
