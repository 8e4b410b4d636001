"""Ranged random inputs: bit for bit what Polygraphy's own data loader roles."""

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hn
from onnx import TensorProto

from narrowdown.engines.data import InputProblem, polygraphy, roles, samples
from narrowdown.engines.probe import LoadInputs
from narrowdown.engines.store import Store
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.problem_options import problem_from

comparator = pytest.importorskip("polygraphy.comparator")
common = pytest.importorskip("polygraphy.common")
tools = pytest.importorskip("polygraphy.tools")
pytestmark = pytest.mark.filterwarnings(
    "ignore:SelectableGroups:DeprecationWarning"
)  # its own affair

TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
NUMBER = st.one_of(st.integers(-100, 100), st.floats(-1e4, 1e4))


def theirs(wanted: list[roles.Wanted], seed: int) -> dict[str, Any]:
    ranges: Any = {w.name: w.bounds for w in wanted if w.bounds is not None}
    loader = comparator.DataLoader(seed=seed, val_range=ranges)
    loader.input_metadata = common.TensorMetadata()
    for w in wanted:
        loader.input_metadata.add(w.name, w.dtype, w.shape)
    return dict(loader[0])


@st.composite
def inputs(draw: Any) -> list[roles.Wanted]:
    made = []
    for i in range(draw(st.integers(1, 4))):
        dtype = np.dtype(draw(st.sampled_from(TYPES)))
        shape = draw(hn.array_shapes(min_dims=0, min_side=0, max_side=5))
        bounds = draw(st.none() | st.tuples(NUMBER, NUMBER).map(sorted).map(tuple))
        if bounds is not None and dtype.kind in "iu":
            info = np.iinfo(dtype)
            bounds = tuple(min(max(int(b), info.min), info.max) for b in bounds)
        if bounds is not None and dtype.kind == "b":
            bounds = tuple(map(abs, bounds))
            bounds = (min(bounds), max(bounds))
        made.append(roles.Wanted(f"x{i}", dtype, shape, bounds))
    return made


@given(inputs(), st.integers(0, 2**32 - 1))
def test_the_same_numbers(wanted: list[roles.Wanted], seed: int) -> None:
    expected = theirs(wanted, seed)
    made = dict(roles.draw_ranged(wanted, seed))
    assert set(made) == {w.name for w in wanted if w.bounds is not None}
    for name, values in made.items():
        assert (values.dtype, values.shape) == (expected[name].dtype, expected[name].shape)
        assert values.tobytes() == expected[name].tobytes()


@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [
        ("u8", (0, 2**64 - 1)),
        ("i8", (-(2**53) - 1, 2**53 + 1)),
        ("i1", (-128, 127)),
        ("i4", (0.9, 3.9)),
        ("?", (0, 0)),
        ("?", (0.0, 1.0)),
    ],
)
def test_bounds_at_their_limits(dtype: str, bounds: Any) -> None:
    wanted = [roles.Wanted("x", np.dtype(dtype), (100,), bounds)]
    made = dict(roles.draw_ranged(wanted, 7))["x"]
    assert np.array_equal(made, theirs(wanted, 7)["x"])
    assert int(bounds[0]) <= int(made.min()) <= int(made.max()) <= int(bounds[1])


@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [("u1", (0, 256)), ("i1", (-129, 0)), ("u4", (-1, 1)), ("f2", (1e5, 2e5)), ("?", (-1, 0))],
)
def test_bounds_that_the_type_cannot_hold(dtype: str, bounds: Any) -> None:
    with pytest.raises(InputProblem, match=r"The range \[.*\] for 'x' does not fit its type"):
        list(roles.draw_ranged([roles.Wanted("x", np.dtype(dtype), (9,), bounds)], 1))


def test_bfloat16_rounds_the_same_draw() -> None:
    """Polygraphy has no arrays of this type; the draw is that of every float."""
    wanted = roles.Wanted("x", np.dtype(ml_dtypes.bfloat16), (50,), (-2, 2))
    exact = theirs([wanted._replace(dtype=np.dtype(np.float64))], 3)["x"]
    assert np.array_equal(
        dict(roles.draw_ranged([wanted], 3))["x"], exact.astype(ml_dtypes.bfloat16)
    )


def test_the_same_options_give_the_same_inputs(
    make: Any,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``polygraphy run`` and ``narrowdown`` on one model, with the very same words."""
    kinds = {
        "x": TensorProto.FLOAT,
        "h": TensorProto.FLOAT16,
        "ids": TensorProto.INT64,
        "b": TensorProto.BOOL,
    }
    made = make({name: (kind, ["n", 3]) for name, kind in kinds.items()})
    path = tmp_path / "model.onnx"
    model = onnx.load(path)
    model.ir_version = 10  # what ONNX Runtime reads
    onnx.save(model, path)
    words = ["--seed", "11", "--val-range", "[-2,2]", "ids:[5,9]", "x:[0.25,1e3]"]
    words += ["--input-shapes", *(f"{name}:[4,3]" for name in kinds)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys,
        "argv",
        ["polygraphy", "run", str(path), "--onnxrt", *words, "--save-inputs", "in.json"],
    )
    assert not tools.main(), capsys.readouterr()
    problem = problem_from(parse(["run", str(path), *words]))
    probe = LoadInputs(
        model=made.digest, seed=problem.seed, shapes=problem.input_shapes, ranges=problem.val_range
    )  # fmt: skip
    facts = samples.load_inputs(
        msgspec.json.decode(msgspec.json.encode(probe), type=LoadInputs), made, store
    )
    ours = samples.load_feed(store, facts["inputs"], "random:0")
    (theirs_,) = polygraphy.read_inputs(tmp_path / "in.json")
    assert set(ours) == set(theirs_) == set(kinds)
    for name, values in theirs_.items():
        assert ours[name].dtype == values.dtype
        assert np.array_equal(ours[name], values), name


def test_an_input_that_holds_a_shape(make: Any, store: Store) -> None:
    """The shape given for it is its value, as there; where the numbers cannot mean that, they are
    its shape."""
    model = make({"size": (TensorProto.INT64, [2]), "x": (TensorProto.FLOAT, ["n", 3])})
    facts = samples.load_inputs(
        LoadInputs(model=model.digest, shapes={"size": (6, 8), "x": (5, 3)}, ranges={"": (0, 1)}),
        model,
        store,
    )
    feed = samples.load_feed(store, facts["inputs"], "random:0")
    assert feed["size"].tolist() == [6, 8]
    assert feed["x"].shape == (5, 3)
    assert any("taken for a shape" in said for said in facts["guesses"])
    facts = samples.load_inputs(LoadInputs(model=model.digest, shapes={"size": (2,)}), model, store)
    assert samples.load_feed(store, facts["inputs"], "random:0")["size"].shape == (2,)
