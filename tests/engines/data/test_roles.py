"""What an input is taken for, and what it then gets."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from narrowdown.engines.data import roles

FLOAT, INT64, INT32, BOOL = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.BOOL,
)
TABLE = np.zeros((50, 4), np.float32)


def role_of(model: Any, name: str) -> roles.Role:
    return roles.guess_role(model.index, model.index.by_name[name])


def test_ids_stay_below_their_table_also_through_other_nodes(make: Any) -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=INT64),
        helper.make_node("Unsqueeze", ["wide", "axes"], ["more"]),
        helper.make_node("Gather", ["table", "more"], ["y"]),
    ]
    model = make(
        {"ids": (INT32, ["n", "t"])},
        nodes,
        {"table": TABLE, "axes": np.array([0])},
        {"y": (FLOAT, [1, "n", "t", 4])},
    )
    role = role_of(model, "ids")
    assert (role.kind, role.low, role.high) == ("ids", 0, 49)
    assert "50" in role.because
    made = roles.draw_values(role, "ids", np.dtype(np.int32), (200,), 1)
    assert made.dtype == np.int32
    assert (made.min(), made.max()) == (0, 49)


def test_the_smallest_of_several_tables_counts(make: Any) -> None:
    nodes = [
        helper.make_node("Gather", [t, "ids"], [o]) for t, o in (("table", "a"), ("small", "b"))
    ]
    nodes.append(helper.make_node("Add", ["a", "b"], ["y"]))
    model = make(
        {"ids": (INT64, ["n"])},
        nodes,
        {"table": TABLE, "small": TABLE[:9]},
        {"y": (FLOAT, ["n", 4])},
    )
    assert role_of(model, "ids").high == 8


def test_a_shape_that_is_picked_apart_is_no_vocabulary(make: Any) -> None:
    nodes = [helper.make_node("Gather", ["sizes", "i"], ["y"])]
    model = make(
        {"i": (INT64, ["n"])}, nodes, {"sizes": np.array([4, 5, 6])}, {"y": (INT64, ["n"])}
    )
    assert role_of(model, "i").high == 25


def test_what_is_read_second_by_other_nodes_is_no_index(make: Any) -> None:
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["table", "f"], ["y"]),
    ]
    model = make({"i": (INT64, [4])}, nodes, {"table": TABLE}, {"y": (FLOAT, [50, 4])})
    assert roles.rows_named(model.index, model.index.by_name["i"]) is None


def test_what_is_computed_with_before_a_table_is_read_is_no_index_itself(make: Any) -> None:
    nodes = [
        helper.make_node("Div", ["i", "ten"], ["j"]),
        helper.make_node("Gather", ["table", "j"], ["y"]),
    ]
    constants = {"table": TABLE, "ten": np.int64(10)}
    model = make({"i": (INT64, [4])}, nodes, constants, {"y": (FLOAT, [4, 4])})
    assert roles.rows_named(model.index, model.index.by_name["i"]) is None


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "kind"),
    [
        ("attention_mask", INT64, ["n", "t"], "mask"),
        ("attention_mask", FLOAT, ["n", "t"], "mask"),
        ("mask", BOOL, ["n", "t"], "mask"),
        ("flag", BOOL, ["n"], "choice"),
        ("position_ids", INT64, ["n", "t"], "positions"),
        ("audio_length", INT64, ["n"], "lengths"),
        ("image", FLOAT, ["n", 3, 32, 32], "image"),
        ("image", FLOAT, ["n", 32, 32, 1], "image"),
        ("image", TensorProto.UINT8, ["n", 3, 32, 32], "ids"),
        ("features", FLOAT, ["n", 10], "normal"),
        ("count", INT64, ["n"], "ids"),
        ("name", TensorProto.STRING, ["n"], "text"),
    ],
)
def test_roles_by_type_name_and_shape(
    make: Any, name: str, dtype: int, shape: list[Any], kind: str
) -> None:
    assert role_of(make({name: (dtype, shape)}), name).kind == kind


def test_logarithms_get_positive_values(make: Any) -> None:
    model = make(
        {"x": (FLOAT, [100])}, [helper.make_node("Log", ["x"], ["y"])], None, {"y": (FLOAT, [100])}
    )
    role = role_of(model, "x")
    assert role.kind == "unit"
    assert roles.draw_values(role, "x", np.dtype(np.float32), (100,), 1).min() >= 0


@given(st.integers(0, 50), st.integers(1, 40))
def test_masks_keep_something_in_every_row(seed: int, width: int) -> None:
    mask = roles.draw_values(roles.Role("mask"), "m", np.dtype(np.int64), (5, width), seed)
    assert set(np.unique(mask)) <= {0, 1}
    assert (mask[:, 0] == 1).all()
    assert (np.diff(mask, axis=1) <= 0).all()


def test_positions_and_lengths() -> None:
    positions = roles.draw_values(roles.Role("positions", 0, 2), "p", np.dtype(np.int64), (2, 5), 1)
    assert positions.tolist() == [[0, 1, 2, 2, 2]] * 2
    assert roles.draw_values(
        roles.Role("lengths"), "l", np.dtype(np.int32), (2,), 1, longest=7
    ).tolist() == [7, 7]


@given(st.integers(0, 100))
def test_the_same_seed_gives_the_same_values(seed: int) -> None:
    role = roles.Role("normal")
    first, second = (
        roles.draw_values(role, "x", np.dtype(np.float32), (4,), seed) for _ in range(2)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(
        first, roles.draw_values(role, "other", np.dtype(np.float32), (4,), seed)
    )


def test_shapes_of_symbolic_dimensions() -> None:
    assert roles.guess_shape(("batch", 4, "seq_len"), False, {})[:2] == (
        (1, 4, 16),
        {"batch": 1, "seq_len": 16},
    )
    assert roles.guess_shape(("n", "past + t"), False, {"past": 3, "t": 5}) == (
        (1, 8),
        {"n": 1},
        ("n 1",),
    )
    assert roles.guess_shape((1, 3, "", ""), True, {})[0] == (1, 3, 224, 224)
    assert roles.guess_shape(("", "k"), False, {"k": 2})[0] == (1, 2)


def test_what_many_inputs_were_taken_for_is_said_once() -> None:
    caches = [
        f"'past.{n}.{kind}': normally distributed values." for n in range(20) for kind in "kv"
    ]
    told = roles.join_guesses(
        [
            "'ids': 17 as in all that you gave.",
            *caches,
            "'x' was given the shape [1]: batch 1.",
            "Other.",
        ]
    )
    assert told == [
        "'ids': 17 as in all that you gave.",
        "'past.0.k', 'past.0.v', 'past.1.k', 'past.1.v', 'past.2.k', 'past.2.v' and 34 more: "
        "normally distributed values.",
        "'x' was given the shape [1]: batch 1.",
        "Other.",
    ]
    assert roles.join_guesses(["'a': m.", "'b': m."]) == ["'a', 'b': m."]
