"""What a user's script or a top-K makes of outputs, and what is refused."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from narrowdown.engines.data.postprocess import apply_postprocess, top_indices
from narrowdown.engines.sources import TopK, top_k
from narrowdown.engines.store import digest_file

Array = np.ndarray[Any, Any]
Y: dict[str, Array] = {"y": np.float32([[0, 3, 1], [5, 4, 9]]), "z": np.int64([7])}


@pytest.fixture
def scripted(tmp_path: Path):
    def run(
        text: str, outputs: dict[str, Array] = Y, function: str = "", **rest: str
    ) -> dict[str, Array]:
        path = tmp_path / "post.py"
        path.write_text(text)
        return apply_postprocess(
            (f"{path}:{function}" if function else str(path),), outputs, "emulate", **rest
        )

    return run


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("top-5", TopK("", 5, -1)),
        ("y:top-1,axis=0", TopK("y", 1, 0)),
        ("a:b/c:top-12,axis=-2", TopK("a:b/c", 12, -2)),
        ("top-0", None),
        ("top-x", None),
        ("y:top-3,axis=", None),
        ("post.py:top", None),
        (":top-3", None),
    ],
)
def test_top_k_is_read(text: str, read: TopK | None) -> None:
    assert top_k(text) == read


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float16, np.int8, np.uint8, np.int64, np.uint64, np.bool_]),
        arrays.array_shapes(min_dims=1, max_dims=3, max_side=6),
    ),
    st.integers(1, 8),
    st.data(),
)
def test_the_largest_come_first(value: Array, k: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-value.ndim, value.ndim - 1))
    found = top_indices("y", value, k, axis)
    assert found.dtype == np.int64
    assert found.shape[axis] == min(k, value.shape[axis])
    for line, at in zip(np.moveaxis(value, axis, -1).reshape(-1, value.shape[axis]),
                        np.moveaxis(found, axis, -1).reshape(-1, found.shape[axis]), strict=True):  # fmt: skip
        numbers = [x.item() for x in line]
        right = sorted(
            range(len(numbers)), key=lambda i: (numbers[i] != numbers[i], -numbers[i], i)
        )
        assert at.tolist() == right[:k]


def test_outputs_of_their_own() -> None:
    made = apply_postprocess(("y:top-1,axis=0", "top-2"), Y, "emulate")
    assert made["y"].tolist() == [[1, 1, 1]]
    assert made["z"].tolist() == [0]
    assert apply_postprocess(("y:top-1",), Y, "emulate")["z"] is Y["z"], "what is not named stays"


def test_a_script_may_change_rename_and_drop(scripted) -> None:
    made = scripted(
        "def postprocess_outputs(r):\n  r['y'] *= 2\n  assert r.runner_name == 'emulate'\n"
        "  return {'twice': r['y'], 'list': [1, 2]}\n"
    )
    assert made["twice"].tolist() == (2 * Y["y"]).tolist()
    assert made["list"].tolist() == [1, 2]
    assert Y["y"][0, 1] == 3, "what it changes in place is a copy"


def test_every_call_begins_anew_in_the_folder(scripted, tmp_path) -> None:
    folder = tmp_path / "where"
    folder.mkdir()
    (folder / "n.txt").write_text("4")
    (tmp_path / "beside.py").write_text("PLUS = 1")
    text = (
        "from beside import PLUS\nseen = []\nclass Post:\n  def __call__(self, r):\n    seen.append(1)\n"
        "    return {'n': len(seen) + PLUS + int(open('n.txt').read())}\n"
    )
    for _ in range(2):
        assert scripted(text, function="Post", folder=str(folder))["n"] == 6


def test_bf16_comes_as_float32(scripted) -> None:
    made = scripted("def postprocess_outputs(r): return r", {"y": np.ones(2, ml_dtypes.bfloat16)})
    assert made["y"].dtype == np.float32


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def postprocess_outputs(r):\n  return 1 / 0\n",
            r"script 'post.py', line 2, stopped with ZeroDivisionError",
        ),
        (
            "def postprocess_outputs(r):\n  raise SystemExit(3)\n",
            r"line 2, stopped with SystemExit",
        ),
        ("def postprocess_outputs(:\n", r"script 'post.py', line 1, is not Python"),
        ("def postprocess_outputs(r): pass", r"returned nothing; let it return the outputs"),
        ("def postprocess_outputs(r): return [r['y']]", r"returned a value of type list"),
        ("def postprocess_outputs(r): return {}", r"returned no outputs"),
        ("def postprocess_outputs(r): return {'y': object()}", r"'y', which is not an array"),
        (
            "def postprocess_outputs(r): return {'y': [[1], [1, 2]]}",
            r"cannot be turned into arrays",
        ),
        ("def postprocess_outputs(r): return {3: r['y']}", r"an output named 3"),
        ("def postprocess_outputs(): return {}", r"must take one argument"),
        (
            "def postprocess(r): return r",
            r"has no function 'postprocess_outputs': did you mean postprocess\?",
        ),
    ],
)
def test_nonsense_is_refused(scripted, text: str, said: str) -> None:
    with pytest.raises(match=said):
        scripted(text)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (("q:top-1",), r"no output 'q'. It has 'y', 'z'"),
        (("top-1,axis=1",), r"'z' has 1 dimensions, so no axis 1"),
        (("/nowhere/post.py",), r"There is no postprocess script"),
    ],
)
def test_what_does_not_fit_is_refused(chosen: tuple[str, ...], said: str) -> None:
    with pytest.raises(match=said):
        apply_postprocess(chosen, Y, "emulate")


def test_a_changed_script_is_not_run(scripted, tmp_path) -> None:
    path = tmp_path / "post.py"
    path.write_text("def postprocess_outputs(r): return r")
    digest = digest_file(path)
    with pytest.raises(match="has changed since"):
        scripted("raise SystemExit", digest=digest)
