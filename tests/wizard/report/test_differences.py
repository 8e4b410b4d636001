"""What differs between two sides is told area by area, the likeliest reason first, and nothing
twice."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.differences import (
    AREAS,
    Side,
    compare_sides,
    machine_side,
    say_differences,
)

FACTS: dict[str, dict[str, str]] = {
    "model": {"with its weights": "c0", "file": "f0"},
    "engine": {"engine": "tensorrt", "precision": "fp16"},
    "inputs": {"file 1": "i0"},
    "version": {"version": "10.6"},
    "device": {"device": "H100", "precision": "fp16", "other settings": "p0"},
}


def side(**changed: dict[str, str]) -> Side:
    return Side(
        "it", "", {area: {**facts, **changed.get(area, {})} for area, facts in FACTS.items()}
    )


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"version": {"version": "10.7"}, "model": {"with its weights": "c1"}},
            ["with its weights", "version"],
        ),
        ({"model": {"file": "f1"}}, []),  # saved again: the same nodes and weights
        (
            {
                "engine": {"precision": "bf16"},
                "device": {"precision": "bf16", "other settings": "p1"},
            },
            ["precision"],
        ),
        (
            {"device": {"other settings": "p1"}},
            ["other settings"],
        ),  # nothing that has a name differs
        ({"device": {"other settings": "p1", "device": "H200"}}, ["device"]),
        ({"device": {"precision": "tf32", "other settings": "p1"}}, ["precision"]),
        ({"engine": {"sparse": "1"}}, ["sparse"]),
    ],
)
def test_each_difference_once_in_the_order_of_likelihood(
    changed: dict[str, Any], told: list[str]
) -> None:
    found = compare_sides(side(), side(**changed))
    assert [d.name for d in found.differences] == told
    assert not {d.area for d in found.differences} & set(found.same)


def test_a_fact_of_one_side_alone_is_a_difference_and_an_unknown_area_is_none() -> None:
    right = Side("it", "", {"engine": {"engine": "tensorrt"}, "machine": {"processors": "2"}})
    found = compare_sides(side(), right)
    assert [(d.name, d.left, d.right) for d in found.differences] == [("precision", "fp16", "")]
    assert found.unknown == (
        "model",
        "inputs",
        "judgement",
        "version",
        "device",
        "reference",
        "packages",
        "machine",
    )
    assert "  precision  A fp16  B none" in say_differences(found)


SIDES = st.dictionaries(
    st.sampled_from(list(AREAS)),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3),
).map(lambda facts: Side("it", "", facts))


@given(SIDES, SIDES)
def test_either_way_round_the_same_is_told(left: Side, right: Side) -> None:
    there, back = compare_sides(left, right), compare_sides(right, left)
    turned = {(d.area, d.name, d.right, d.left) for d in back.differences}
    assert {(d.area, d.name, d.left, d.right) for d in there.differences} == turned
    areas = [list(AREAS).index(d.area) for d in there.differences]
    assert areas == sorted(areas)
    assert not compare_sides(left, left).differences


def test_a_machine_without_the_engine_or_the_inputs() -> None:
    problem = Problem(
        model="/m.onnx",
        engine="tensorrt",
        inputs=("/in.npz",),
        digests={"/m.onnx": "a" * 64, "/in.npz": "b" * 64},
    )
    here = machine_side(
        "this machine", problem, {"/m.onnx": "a" * 64}, {"numpy": "2"}, {"processors": 2}, {}
    )
    assert here.facts["version"] == {"version": "not here"}
    assert "inputs" not in here.facts, "what is not there cannot differ"
    assert here.facts["model"] == {"file": "a" * 64}
