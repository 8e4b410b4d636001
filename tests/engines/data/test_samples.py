"""What a user may give as inputs, what is refused with which sentence, and what lands on disk."""

import hashlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.data import InputProblem, polygraphy, samples
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.probe import LoadInputs
from narrowdown.engines.store import Damaged, Store, digest_file

FLOAT, INT64, INT32, BOOL = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.BOOL,
)


def given(
    model: StoredModel, store: Store, *sources: Path | str, random: bool = False, **rest: Any
) -> dict[str, Any]:
    probe = LoadInputs(model=model.digest, sources=tuple(map(str, sources)), random=random, **rest)
    return samples.load_inputs(probe, model, store)


def npz(folder: Path, name: str = "in.npz", **arrays: np.ndarray) -> Path:
    np.savez(folder / name, **arrays)
    return folder / name


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_npz_rows_and_slices(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"x": (FLOAT, ["n", 4]), "z": (INT64, ["n"])})
    facts = given(model, store, npz(tmp_path, x=X, z=np.arange(3)))
    assert facts["samples"] == [
        {"id": "real:0", "source": "in.npz", "rows": 3, "shapes": {"x": (3, 4), "z": (3,)}}
    ]
    feed = samples.load_feed(store, facts["inputs"], "real:0")
    assert np.array_equal(feed["x"], X)
    assert feed["z"].tolist() == [0, 1, 2]
    row = samples.load_feed(store, facts["inputs"], "real:0/2")
    assert np.array_equal(row["x"], X[2:3])
    assert row["z"].shape == (1,)
    assert samples.count_score_rows(store, facts["inputs"], "real:0") == 3
    assert samples.count_score_rows(store, facts["inputs"], "real:0/2") == 0
    with pytest.raises(ValueError, match="read-only"):
        feed["x"][0, 0] = 9
    for sample, says in (
        ("real:7", "no sample 'real:7'; they hold 'real:0'"),
        ("real:0/3", "no row 3"),
    ):
        with pytest.raises(InputProblem, match=says):
            samples.load_feed(store, facts["inputs"], sample)


@pytest.mark.parametrize(
    ("shapes", "outputs", "fed", "scored"),
    [
        (["n", 4], ["n", 4], 3, 3),
        ([None, 4], [None, 4], 3, 3),
        ([3, 4], [3, 4], 0, 3),  # a fixed batch: rows are scored, none is fed alone
        (["n", 4], [4, 4], 0, 0),
        ([3, 4], [4, 3], 0, 0),
    ],
)
def test_when_rows_are_independent(
    tmp_path: Path, make: Any, store: Store, shapes: Any, outputs: Any, fed: int, scored: int
) -> None:
    model = make(
        {"x": (FLOAT, shapes)},
        [helper.make_node("Cos", ["x"], ["y"])],
        None,
        {"y": (FLOAT, outputs)},
    )
    facts = given(model, store, npz(tmp_path, x=X))
    assert facts["samples"][0].get("rows", 0) == fed
    assert samples.count_score_rows(store, facts["inputs"], "real:0") == scored


def test_a_batch_of_one_is_the_feed_itself(tmp_path: Path, make: Any, store: Store) -> None:
    facts = given(make({"x": (FLOAT, ["n", 4])}), store, npz(tmp_path, x=X[:1]))
    assert "rows" not in facts["samples"][0]


def test_equal_content_is_kept_once(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"x": (FLOAT, ["n", 4])})
    first = given(model, store, npz(tmp_path, x=X), random=True)
    assert given(model, store, npz(tmp_path, x=X), random=True) == first
    assert given(model, store, npz(tmp_path, x=X + 1), random=True)["inputs"] != first["inputs"]
    assert given(model, store, npz(tmp_path, x=X), random=True, seed=2)["inputs"] != first["inputs"]
    assert not [p for p in store.inputs.iterdir() if p.name.startswith(".")]


def test_several_files_are_several_feeds(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"x": (FLOAT, ["n", 4])})
    polygraphy.write_inputs(tmp_path / "in.json", [{"x": X}, {"x": X[:2]}])
    facts = given(model, store, npz(tmp_path, x=X), tmp_path / "in.json", random=True)
    assert [s["id"] for s in facts["samples"]] == ["real:0", "real:1", "real:2", "random:0"]
    assert [s["source"] for s in facts["samples"]] == [
        "in.npz",
        "in.json",
        "in.json",
        "random by role",
    ]
    assert samples.load_feed(store, facts["inputs"], "real:2")["x"].shape == (2, 4)
    assert samples.load_feed(store, facts["inputs"], "random:0")["x"].shape == (
        3,
        4,
    )  # as the first real feed


def test_npy_per_input(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"x": (FLOAT, ["n", 4]), "z": (INT64, ["n"])})
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "other.npy", np.arange(3))
    facts = given(model, store, tmp_path / "x.npy", f"z={tmp_path / 'other.npy'}")
    assert len(facts["samples"]) == 1
    assert samples.load_feed(store, facts["inputs"], "real:0")["z"].tolist() == [0, 1, 2]
    with pytest.raises(
        InputProblem,
        match=r"'other.npy' holds one array, and it is not clear for which of the inputs 'x', 'z'",
    ):
        given(model, store, tmp_path / "x.npy", tmp_path / "other.npy")
    with pytest.raises(InputProblem, match="lacks the input 'z'"):
        given(model, store, tmp_path / "x.npy")


def test_any_npy_fits_a_model_with_one_input(tmp_path: Path, make: Any, store: Store) -> None:
    np.save(tmp_path / "other.npy", X)
    facts = given(
        make({"x": (FLOAT, ["n", 4])}), store, tmp_path / "other.npy", tmp_path / "other.npy"
    )
    assert len(facts["samples"]) == 2


def test_one_array_serves_every_feed_and_odd_counts_are_refused(
    tmp_path: Path, make: Any, store: Store
) -> None:
    model = make({"x": (FLOAT, ["n", 4]), "z": (INT64, ["n"])})
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "z.npy", np.arange(3))
    x, z = tmp_path / "x.npy", tmp_path / "z.npy"
    assert len(given(model, store, x, x, z)["samples"]) == 2
    with pytest.raises(InputProblem, match="give as many for each"):
        given(model, store, x, x, x, z, z)


def test_missing_extra_and_misspelt_names(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"input_ids": (INT64, ["n", 4])})
    with pytest.raises(
        InputProblem,
        match=r"\(it has 'input_id'\)\. The model wants int64 \[n, 4\] there\. Did you mean 'input_id'\?",
    ):
        given(model, store, npz(tmp_path, input_id=X.astype(int)))
    facts = given(model, store, npz(tmp_path, input_ids=X.astype(int), a=X, b=X))
    assert facts["warnings"] == [
        "'in.npz' also holds 'a', 'b', which the model does not have: ignored."
    ]


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((3, 5), np.float32), r"has the shape \[3, 5\], and the model wants \[n, 4\]"),
        (np.zeros(4, np.float32), "A batch dimension in front seems to be missing"),
        (np.array([["a"] * 4]), "the model wants float32"),
        (np.zeros((3, 4), complex), "the model wants float32"),
        (np.full((1, 4), 2**24 + 1), "would|do not fit"),
        (np.full((1, 4), 1e300), "do not fit into the model's float32"),
    ],
)
def test_what_does_not_fit_is_a_sentence(
    tmp_path: Path, make: Any, store: Store, array: np.ndarray, says: str
) -> None:
    with pytest.raises(InputProblem, match=says) as caught:
        given(make({"x": (FLOAT, ["n", 4])}), store, npz(tmp_path, x=array))
    assert str(caught.value).endswith(".")
    assert not any(store.inputs.iterdir())


def test_sizes_that_share_a_name_and_differ_are_taken(
    tmp_path: Path, make: Any, store: Store
) -> None:
    """ONNX Runtime runs such a model: names of dimensions bind nothing there."""
    model = make({"x": (FLOAT, ["n", 4]), "z": (INT64, ["n"])})
    facts = given(model, store, npz(tmp_path, x=X, z=np.arange(2)))
    assert facts["samples"][0]["shapes"] == {"x": (3, 4), "z": (2,)}


@pytest.mark.parametrize("unknown", [-1, "?", "-1", "None"])
def test_sizes_that_say_nothing_are_open(
    tmp_path: Path, make: Any, store: Store, unknown: Any
) -> None:
    """Paddle2ONNX: ``dim_value: -1``, or the same name for every size that it does not know."""
    model = make({"x": (FLOAT, [unknown, 3, unknown, unknown])})
    facts = given(model, store, npz(tmp_path, x=np.zeros((2, 3, 8, 5), np.float32)))
    assert facts["warnings"] == []
    assert facts["samples"][0]["shapes"] == {"x": (2, 3, 8, 5)}
    shaped = given(model, store, shapes={"x": (1, 3, 32, 64)})
    assert shaped["samples"][0]["shapes"] == {"x": (1, 3, 32, 64)}
    made = given(model, store)
    assert made["samples"][0]["shapes"] == {"x": (1, 3, 224, 224)}


def test_conversions_that_lose_nothing(tmp_path: Path, make: Any, store: Store) -> None:
    model = make(
        {"x": (FLOAT, [4]), "z": (INT32, [2]), "b": (BOOL, [2]), "h": (TensorProto.BFLOAT16, [2])}
    )
    arrays = {
        "x": np.arange(4),
        "z": np.array([1, -2]),
        "b": np.array([0, 1]),
        "h": np.array([1.0, 2.0], np.float32),
    }
    facts = given(model, store, npz(tmp_path, **arrays))
    feed = samples.load_feed(store, facts["inputs"], "real:0")
    assert [feed[k].dtype.name for k in "xzbh"] == ["float32", "int32", "bool", "bfloat16"]
    assert feed["z"].tolist() == [1, -2]
    assert [w for w in facts["warnings"] if "'x'" in w] == [
        "The input 'x' in 'in.npz' is int64 and was converted to float32."
    ]
    for bad in ({"z": np.array([2**40, 0])}, {"z": np.array([1.5, 2.0])}, {"b": np.array([2, 0])}):
        with pytest.raises(InputProblem, match="the model's"):
            given(model, store, npz(tmp_path, **{**arrays, **bad}))


def test_unsigned_values_that_only_survive_the_way_there_and_back_are_refused(
    tmp_path: Path, make: Any, store: Store
) -> None:
    model = make({"z": (INT64, [1])})
    with pytest.raises(InputProblem, match="do not fit"):
        given(model, store, npz(tmp_path, z=np.array([2**64 - 1], np.uint64)))


def test_float64_is_rounded_with_a_warning(tmp_path: Path, make: Any, store: Store) -> None:
    facts = given(make({"x": (FLOAT, [1])}), store, npz(tmp_path, x=np.array([0.1])))
    assert facts["warnings"] == [
        "The input 'x' in 'in.npz' is float64 and was converted to float32."
    ]


def test_bfloat16_as_numpy_saves_it(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"x": (TensorProto.BFLOAT16, [2])})
    np.save(tmp_path / "x.npy", np.array([1.0, 3.0], ml_dtypes.bfloat16))
    feed = samples.load_feed(store, given(model, store, tmp_path / "x.npy")["inputs"], "real:0")
    assert feed["x"].astype(np.float32).tolist() == [1.0, 3.0]


def test_strings_and_nonfinite_values(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"s": (TensorProto.STRING, [2]), "x": (FLOAT, [2])})
    facts = given(
        model,
        store,
        npz(tmp_path, s=np.array(["a", "bcd"]), x=np.array([np.nan, 1], np.float32)),
        random=True,
    )
    assert samples.load_feed(store, facts["inputs"], "real:0")["s"].tolist() == ["a", "bcd"]
    assert samples.load_feed(store, facts["inputs"], "random:0")["s"].tolist() == ["a", "bcd"]
    assert facts["warnings"] == ["The input 'x' in 'in.npz' holds NaN or infinite values."]


def test_scalars(tmp_path: Path, make: Any, store: Store) -> None:
    facts = given(make({"x": (FLOAT, [])}), store, npz(tmp_path, x=np.float32(3)), random=True)
    assert samples.load_feed(store, facts["inputs"], "real:0")["x"].shape == ()
    assert samples.load_feed(store, facts["inputs"], "random:0")["x"].shape == ()


def test_large_arrays_are_mapped(tmp_path: Path, make: Any, store: Store) -> None:
    facts = given(
        make({"x": (FLOAT, ["n", 4])}), store, npz(tmp_path, x=np.ones((70_000, 4), np.float32))
    )
    assert isinstance(samples.load_feed(store, facts["inputs"], "real:0")["x"], np.memmap)
    assert isinstance(samples.load_feed(store, facts["inputs"], "real:0/9")["x"], np.memmap)


def test_changed_files_and_damaged_stores_are_noticed(
    tmp_path: Path, make: Any, store: Store
) -> None:
    model = make({"x": (FLOAT, ["n", 4])})
    file = npz(tmp_path, x=X)
    digest = digest_file(file)
    facts = given(model, store, file, source_digests=(digest,))
    npz(tmp_path, x=X + 1)
    with pytest.raises(InputProblem, match="has changed since this session was opened"):
        given(model, store, file, source_digests=(digest,))
    next((store.inputs / facts["inputs"]).glob("*.npy")).write_bytes(b"")
    with pytest.raises(Damaged, match=r"real-0-0.npy' is damaged"):
        samples.load_feed(store, facts["inputs"], "real:0")
    with pytest.raises(Damaged, match=r"index\.json' is gone"):
        samples.load_feed(store, "0" * 64, "real:0")


def test_inputs_that_name_a_file_elsewhere_are_not_read(
    tmp_path: Path, make: Any, store: Store
) -> None:
    facts = given(make({"x": (FLOAT, ["n", 4])}), store, npz(tmp_path, x=X))
    np.save(tmp_path / "secret.npy", X)
    text = (store.inputs / facts["inputs"] / "index.json").read_bytes()
    for place in (str(tmp_path / "secret.npy"), "../../../secret.npy"):
        forged = text.replace(b"real-0-0.npy", place.encode())
        name = hashlib.sha256(forged).hexdigest()
        (store.inputs / name).mkdir()
        (store.inputs / name / "index.json").write_bytes(forged)
        with pytest.raises(Damaged, match="names a file that lies elsewhere"):
            samples.load_feed(store, name, "real:0")


def test_random_shapes_ranges_and_wrong_names(make: Any, store: Store) -> None:
    model = make({"x": (FLOAT, ["n", 3]), "z": (INT64, ["n", "t"]), "sum": (FLOAT, ["t + 2", "n"])})
    facts = given(
        model, store, random=True, shapes={"z": (5, 7)}, ranges={"x": (2.0, 3.0), "": (-4, -2)}
    )
    feed = samples.load_feed(store, facts["inputs"], "random:0")
    assert (feed["x"].shape, feed["z"].shape, feed["sum"].shape) == ((5, 3), (5, 7), (9, 5))
    assert 2 <= feed["x"].min() <= feed["x"].max() <= 3
    assert set(np.unique(feed["z"])) == {-4, -3, -2}
    with pytest.raises(
        InputProblem, match=r"The shape \[5, 4\] given for 'x' does not fit the model's \[n, 3\]"
    ):
        given(model, store, random=True, shapes={"x": (5, 4)})
    with pytest.raises(InputProblem, match=r"no input 'qq'. It has 'x', 'z' and 'sum'."):
        given(model, store, random=True, ranges={"qq": (0, 1)})


def test_random_values_of_one_input_do_not_depend_on_the_others(make: Any, store: Store) -> None:
    one = given(make({"x": (FLOAT, [4])}), store, random=True)
    two = given(make({"a": (FLOAT, [4]), "x": (FLOAT, [4])}), store, random=True)
    first, second = (samples.load_feed(store, f["inputs"], "random:0") for f in (one, two))
    assert np.array_equal(first["x"], second["x"])
    assert not np.array_equal(second["a"], second["x"])


@pytest.mark.parametrize(
    ("holds", "rounds", "inside", "codes", "rounded"),
    [
        (np.int8, None, False, "int8", ""),
        (ml_dtypes.uint4, None, False, "int8", ""),
        (np.int8, np.int8, False, "int8", "int8"),
        (np.int8, np.uint16, False, "int8", "int16"),
        (np.int8, np.int8, True, "int8", "int8"),
        (np.int8, np.uint16, True, "int8", "int16"),
        (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn, False, "fp8", "fp8"),
    ],
)
def test_what_a_model_is_quantized_to_is_told(
    make: Any, store: Store, holds: Any, rounds: Any, inside: bool, codes: str, rounded: str
) -> None:
    """Of weights that are codes, and of values that are rounded to codes while it runs, if only in
    the body of an If."""
    nodes = [
        helper.make_node(
            "QuantizeLinear", ["f", "s", "zero"], ["w"]
        ),  # of a weight: the same in every run
        helper.make_node("DequantizeLinear", ["w", "s"], ["v"]),
        helper.make_node("Mul", ["x", "v"], ["m"]),
    ]
    pair = [
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    if rounds is None:
        pair = [helper.make_node("Identity", ["m"], ["y"])]
    if inside:
        body = helper.make_graph(pair, "body", [], [helper.make_tensor_value_info("y", FLOAT, [4])])
        nodes.append(helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body))
    else:
        nodes += pair
    weights = {
        "f": np.ones(4, np.float32),
        "zero": np.zeros((), holds),
        "z": np.zeros((), rounds or np.int8),
    }
    weights |= {"s": np.float32(0.5), "c": np.array(True)}
    model = make({"x": (FLOAT, [4])}, nodes, weights, {"y": (FLOAT, [4])})
    facts = given(model, store, random=True)
    assert (facts["codes"], facts["rounded"]) == (codes, rounded)
    facts = given(make({"x": (FLOAT, [4])}), store, random=True)
    assert (facts["codes"], facts["rounded"]) == ("", "")


def test_images(tmp_path: Path, make: Any, store: Store) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[..., 0] = 255
    image.fromarray(pixels).save(tmp_path / "red.png")
    nchw = make({"image": (FLOAT, ["n", 3, 6, 8])})
    facts = given(nchw, store, tmp_path / "red.png", tmp_path / "red.png")
    assert len(facts["samples"]) == 2
    feed = samples.load_feed(store, facts["inputs"], "real:0")["image"]
    assert feed.shape == (1, 3, 6, 8)
    assert (feed[0, 0] == 1).all()
    assert not feed[0, 1:].any()
    grey = samples.load_feed(
        store,
        given(make({"image": (FLOAT, [1, 1, 3, 4])}), store, tmp_path / "red.png")["inputs"],
        "real:0",
    )["image"]
    assert grey.shape == (1, 1, 3, 4)
    assert np.allclose(grey, 76 / 255)
    nhwc = make({"image": (TensorProto.UINT8, [1, "h", "w", 3])})
    feed = samples.load_feed(store, given(nhwc, store, tmp_path / "red.png")["inputs"], "real:0")[
        "image"
    ]
    assert np.array_equal(feed[0], pixels)
    with pytest.raises(InputProblem, match="not clear for which"):
        given(make({"x": (FLOAT, [4])}), store, tmp_path / "red.png")
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(InputProblem, match="cannot be read as an image"):
        given(nchw, store, tmp_path / "bad.png")


def test_sequences_cannot_be_fed(tmp_path: Path, store: Store) -> None:
    import onnx

    from narrowdown.engines.graph import load

    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["s"], ["y"])],
        "g",
        [helper.make_value_info("s", kind)],
        [helper.make_tensor_value_info("y", INT64, [])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "s.onnx"
    )
    model = load.load(store, load.import_model(tmp_path / "s.onnx", store).digest)
    with pytest.raises(InputProblem, match="'s' is no plain tensor"):
        given(model, store, random=True)


def test_made_up_inputs_keep_what_real_ones_agree_on(
    tmp_path: Path, make: Any, store: Store
) -> None:
    """A sampling rate chooses a branch: other values beside it are of use only with it."""
    model = make({"x": (FLOAT, [2, 4]), "sr": (INT64, []), "mode": (INT32, [2])})
    one = npz(tmp_path, "a.npz", x=X[:2], sr=np.int64(16000), mode=np.array([3, 9]))
    other = npz(tmp_path, "b.npz", x=X[1:], sr=np.int64(16000), mode=np.array([3, 9]))

    facts = given(model, store, one, other, random=True)
    made = samples.load_feed(store, facts["inputs"], "random:0")
    assert made["sr"] == 16000
    assert made["mode"].tolist() == [3, 9]
    assert not np.array_equal(made["x"], X[:2])
    assert "'sr': 16000 as in your first sample." in facts["guesses"]

    # of one sample only what is one value; of the same sample twice no more than that
    for sources in ((one,), (one, one)):
        alone = samples.load_feed(
            store, given(model, store, *sources, random=True)["inputs"], "random:0"
        )
        assert alone["sr"] == 16000
        assert alone["mode"].tolist() != [3, 9]
        assert not np.array_equal(alone["x"], X[:2])
    # and what the user says of it counts
    told = given(model, store, one, other, random=True, ranges={"sr": (7, 7)})
    assert samples.load_feed(store, told["inputs"], "random:0")["sr"] == 7
    # of one number that differs the first
    third = npz(tmp_path, "c.npz", x=X[1:], sr=np.int64(8000), mode=np.array([3, 9]))
    assert (
        samples.load_feed(
            store, given(model, store, one, third, random=True)["inputs"], "random:0"
        )["sr"]
        == 16000
    )


def test_made_up_values_have_the_ranges_and_kinds_of_the_given_ones(
    tmp_path: Path, make: Any, store: Store
) -> None:
    """N(0, 1) for a grid of which all given values are -1 to 1, every token where texts have 50, a
    mask of its own."""
    shapes = {
        "grid": (FLOAT, ["n", 40]),
        "ids": (INT64, ["n", 40]),
        "mask": (INT64, ["n", 40]),
        "loud": (FLOAT, ["n", 40]),
    }
    gather = helper.make_node("Gather", ["table", "ids"], ["y"])
    model = make(
        shapes, [gather], {"table": np.zeros((9000, 2), np.float32)}, {"y": (FLOAT, ["n", 40, 2])}
    )
    rng = np.random.default_rng(0)
    mask = np.repeat([[1] * 30 + [0] * 10], 2, 0)
    files = [
        npz(
            tmp_path,
            f"{k}.npz",
            grid=rng.uniform(-1, 1, (2, 40)),
            ids=rng.integers(k, 50, (2, 40)),
            mask=mask,
            loud=mask * k,
        )
        for k in (1, 2)
    ]
    facts = given(
        model, store, *files, random=True, ranges={"loud": (90, 99)}, shapes={"grid": (2, 40)}
    )
    made = samples.load_feed(store, facts["inputs"], "random:0")
    seen = [samples.load_feed(store, facts["inputs"], f"real:{k}") for k in range(2)]
    for name in ("grid", "ids"):
        assert np.isin(made[name], [s[name] for s in seen]).all()
        assert not any(np.array_equal(made[name], s[name]) for s in seen)
    assert np.array_equal(made["mask"], mask)
    assert made["loud"].min() >= 90, "what the user says of it counts"


def test_a_number_that_the_model_compares_with_is_taken(
    tmp_path: Path, make: Any, store: Store
) -> None:
    nodes = [
        helper.make_node("Cast", ["sr"], ["wide"], to=INT64),
        helper.make_node("Equal", ["wide", "rate"], ["is"]),
        helper.make_node("Where", ["is", "x", "zero"], ["y"]),
    ]
    weights = {"rate": np.int64(16000), "zero": np.float32(0)}
    model = make({"x": (FLOAT, [4]), "sr": (INT32, [])}, nodes, weights, {"y": (FLOAT, [4])})
    facts = given(model, store)
    assert samples.load_feed(store, facts["inputs"], "random:0")["sr"] == 16000
    assert "'sr': 16000, as the model compares it with that." in facts["guesses"]


def test_nothing_is_guessed_where_that_is_asked_for(make: Any, store: Store) -> None:
    model = make({"mask": (FLOAT, [2, 8]), "token_length": (INT64, [2]), "flag": (BOOL, [2])})
    facts = given(model, store, cautious=True)
    made = samples.load_feed(store, facts["inputs"], "random:0")
    assert set(made["token_length"].tolist()) <= {0, 1}
    assert len(set(made["mask"].reshape(-1).tolist())) > 2
    assert all("nothing was guessed" in guess for guess in facts["guesses"])


def test_given_values_beyond_half_precision_are_found_and_the_largest_finite_one_told(
    tmp_path: Path, make: Any, store: Store
) -> None:
    model = make({"x": (FLOAT, [4]), "n": (INT64, [4]), "small": (FLOAT, [4])})
    whole, small = np.int64([10**6, 0, 0, 0]), np.float32([1, np.inf, np.nan, 65504])
    rows = ([-90_000.0, np.nan, 2, 3], [70_000.0, np.inf, 2, 3], [1, 2, 3, 4])
    files = [
        npz(tmp_path, f"{i}.npz", x=np.float32(row), n=whole, small=small)
        for i, row in enumerate(rows)
    ]
    assert given(model, store, *files)["large"] == {"x": 90_000.0}


def test_rows_are_none_where_they_were_seen_to_depend(
    tmp_path: Path, make: Any, store: Store
) -> None:
    model = make({"x": (FLOAT, ["n", 4])})
    free = given(model, store, npz(tmp_path, x=X))
    assert free["batched"] == ["real:0"]
    whole = given(model, store, npz(tmp_path, x=X), batch=False)
    assert whole["batched"] == []
    assert "rows" not in whole["samples"][0]
    assert samples.count_score_rows(store, whole["inputs"], "real:0") == 0


def test_a_length_is_that_of_the_text_and_no_width_of_pixels(make: Any, store: Store) -> None:
    model = make(
        {"ids": (INT64, [1, 5]), "lengths": (INT64, [1]), "image": (FLOAT, [1, 3, 32, 32])}
    )
    feed = samples.load_feed(store, given(model, store, random=True)["inputs"], "random:0")
    assert feed["lengths"].tolist() == [5]


def test_a_folder_of_json_names_the_file_that_lacks_an_input(
    tmp_path: Path, make: Any, store: Store
) -> None:
    """It was said of the folder, in which other files have that input."""
    model = make({"x": (FLOAT, ["n", 4])})
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch" / "config.json").write_text('{"a": 1}')
    np.savez(tmp_path / "batch" / "good.npz", x=X)
    with pytest.raises(
        InputProblem,
        match=r"'config.json' lacks the input 'x' \(it has 'a'\).*Save the array under the name 'x'",
    ):
        given(model, store, tmp_path / "batch")
