"""The codec in both directions against Polygraphy itself, and the older and newer forms that it
reads."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from narrowdown.engines.data import InputProblem, polygraphy

their_json = pytest.importorskip("polygraphy.json")
comparator = pytest.importorskip("polygraphy.comparator")

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.array(2.5, np.float64),
    "empty": np.zeros((0, 4), np.int64),
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "half": np.array([1.0, np.nan, np.inf], np.float16),
    "truth": np.array([True, False]),
    "text": np.array(["", "naïve"]),
    **{
        f"of {kind}": np.array([[0, 1, 100]], kind)
        for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">f4")
    },
}


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    def equal(a: np.ndarray, b: np.ndarray) -> bool:
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )

    return ours.keys() == theirs.keys() and all(equal(ours[k], theirs[k]) for k in ours)


def test_they_read_our_inputs(tmp_path: Path) -> None:
    polygraphy.write_inputs(tmp_path / "in.json", [ARRAYS, {"x": np.ones(1)}])
    theirs = their_json.load_json(str(tmp_path / "in.json"))
    assert len(theirs) == 2
    assert same(ARRAYS, theirs[0])


def test_we_read_their_inputs(tmp_path: Path) -> None:
    their_json.save_json([ARRAYS, ARRAYS], str(tmp_path / "in.json"))
    ours = polygraphy.read_inputs(tmp_path / "in.json")
    assert len(ours) == 2
    assert same(ours[1], ARRAYS)


def test_they_read_our_outputs(tmp_path: Path) -> None:
    polygraphy.write_outputs(tmp_path / "out.json", [ARRAYS, ARRAYS], "narrowdown")
    results = comparator.RunResults.load(str(tmp_path / "out.json"))
    assert [name for name, _ in results.items()] == ["narrowdown"]
    assert len(results["narrowdown"]) == 2
    assert same(ARRAYS, dict(results["narrowdown"][0].items()))


def test_we_read_their_outputs(tmp_path: Path) -> None:
    results = comparator.RunResults()
    for name in ("a", "b"):
        results.append((name, [comparator.IterationResult(outputs=ARRAYS, runner_name=name)]))
    results.save(str(tmp_path / "out.json"))
    ours = polygraphy.read_outputs(tmp_path / "out.json")
    assert [name for name, _ in ours] == ["a", "b"]
    assert same(ours[1][1][0], ARRAYS)
    assert same(polygraphy.read_inputs(tmp_path / "out.json")[0], ARRAYS)


def test_a_bare_feed_a_folder_and_plain_lists(tmp_path: Path) -> None:
    their_json.save_json(ARRAYS, str(tmp_path / "bare.json"))
    assert same(polygraphy.read_inputs(tmp_path / "bare.json")[0], ARRAYS)
    folder = tmp_path / "several"
    folder.mkdir()
    for i in range(3):
        their_json.save_json({"x": np.array([i])}, str(folder / f"{i:010}.json"))
    assert [int(f["x"][0]) for f in polygraphy.read_inputs(folder)] == [0, 1, 2]
    (tmp_path / "plain.json").write_text('[{"x": [[1, 2], [3, 4]]}]')
    assert polygraphy.read_inputs(tmp_path / "plain.json")[0]["x"].shape == (2, 2)


def test_a_folder_of_outputs_joins_each_runners_iterations(tmp_path: Path) -> None:
    for i in range(2):
        polygraphy.write_outputs(tmp_path / f"{i:010}.json", [{"y": np.array([i])}], "a")
    ((name, iterations),) = polygraphy.read_outputs(tmp_path)
    assert name == "a"
    assert [int(it["y"][0]) for it in iterations] == [0, 1]


def legacy(payload: str) -> str:
    return json.dumps(
        [
            {
                "x": {
                    "array": payload,
                    "__polygraphy_encoded_ndarray": "polygraphy_serialized_json_type",
                }
            }
        ]
    )


def test_legacy_markers_npz_and_latin_1_payloads(tmp_path: Path) -> None:
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, np.arange(3))
    np.savez_compressed(npz, np.arange(3))
    for payload in (
        base64.b64encode(npz.getvalue()).decode(),
        npy.getvalue().decode("latin-1"),
        npz.getvalue().decode("latin-1"),
    ):
        (tmp_path / "old.json").write_text(legacy(payload))
        assert polygraphy.read_inputs(tmp_path / "old.json")[0]["x"].tolist() == [0, 1, 2]
        assert their_json.load_json(str(tmp_path / "old.json"))[0]["x"].tolist() == [0, 1, 2]


def test_legacy_outputs(tmp_path: Path) -> None:
    """All marks of the older form in a file of two runners; and the older name of lazy arrays."""
    results = comparator.RunResults()
    for name in ("a", "b"):
        results.append((name, [comparator.IterationResult(outputs=ARRAYS, runner_name=name)]))
    results.save(str(tmp_path / "new.json"))
    text = (tmp_path / "new.json").read_text()
    mark = r'"__polygraphy_encoded_\1": "polygraphy_serialized_json_type"'
    (tmp_path / "old.json").write_text(re.sub(r'"polygraphy_class": "(\w+)"', mark, text))
    theirs = comparator.RunResults.load(str(tmp_path / "old.json"))
    ours = polygraphy.read_outputs(tmp_path / "old.json")
    assert [name for name, _ in ours] == [name for name, _ in theirs.items()] == ["a", "b"]
    assert same(ours[1][1][0], dict(theirs["b"][0].items()))
    assert same(ours[0][1][0], ARRAYS)
    (tmp_path / "lazy.json").write_text(text.replace('"LazyArray"', '"LazyNumpyArray"'))
    assert same(
        dict(comparator.RunResults.load(str(tmp_path / "lazy.json"))["a"][0].items()), ARRAYS
    )
    assert same(polygraphy.read_outputs(tmp_path / "lazy.json")[0][1][0], ARRAYS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "should hold a list of objects"),
        ('[{"x": null}]', "'x' in 'bad.json' is not an array"),
        ('[{"x": {"polygraphy_class": "Tensor", "tensor": "gA=="}}]', "torch tensor"),
        ('[{"x": {"polygraphy_class": "ndarray", "array": "AAAA"}}]', "damaged ndarray"),
        ('[{"x": {"polygraphy_class": "ndarray"}}]', "damaged ndarray"),
        ('{"polygraphy_class": "RunResults"}', "damaged RunResults"),
        ("[" * 100_000, "is not JSON that can be read"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputProblem, match=says) as caught:
        polygraphy.read_inputs(tmp_path / "bad.json")
    assert str(caught.value).endswith(".")


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "bad.json").write_text(
        json.dumps(
            [
                {
                    "x": {
                        "array": base64.b64encode(buffer.getvalue()).decode(),
                        "polygraphy_class": "ndarray",
                    }
                }
            ]
        )
    )
    with pytest.raises(InputProblem, match="damaged"):
        polygraphy.read_inputs(tmp_path / "bad.json")


def test_outputs_are_told_from_inputs(tmp_path: Path) -> None:
    polygraphy.write_inputs(tmp_path / "in.json", [ARRAYS])
    with pytest.raises(InputProblem, match="no saved outputs"):
        polygraphy.read_outputs(tmp_path / "in.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[{"x": [' + "9" * 1_000_000 + "]}]",
            r"'in\.json' is not JSON that can be read: .* digits",
        ),
        ('[{"\\ud83d": [1]}]', "names an input with half of a character"),
    ],
    ids=["a number of a million digits", "half of a character"],
)
def test_what_no_reader_of_json_takes(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(text)
    with pytest.raises(InputProblem, match=said):
        polygraphy.read_inputs(path)
