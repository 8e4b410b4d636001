"""Scripts and files that misbehave: each ends in a sentence that says where."""

import json
import pickle
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from narrowdown.engines.data import InputProblem, files


def script(folder: Path, text: str) -> Path:
    path = folder / "loader.py"
    path.write_text(text)
    return path


def test_a_script_yields_feeds_and_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_loader.py").write_text("VALUE = 7\n")
    text = (
        "import numpy as np\nfrom neighbour_of_loader import VALUE\n"
        "def load_data():\n  for i in range(2): yield {'x': np.full(3, VALUE + i)}\n"
    )
    before = list(sys.path)
    feeds = list(files.read(str(script(tmp_path, text)), ["x"]))
    assert [f.arrays["x"].tolist() for f in feeds] == [[7] * 3, [8] * 3]
    assert feeds[0].source == "loader.py"
    assert sys.path == before
    assert not any(name.startswith("_narrowdown_loader") for name in sys.modules)
    sys.modules.pop("neighbour_of_loader", None)


def test_a_named_function_and_a_list(tmp_path: Path) -> None:
    path = script(tmp_path, "def feeds(): return [{'x': [1.0, 2.0]}]\n")
    (feed,) = files.read(f"{path}:feeds", ["x"])
    assert feed.arrays["x"].tolist() == [1.0, 2.0]
    with pytest.raises(InputProblem, match=r"has no function 'feed': did you mean feeds"):
        list(files.read(f"{path}:feed", ["x"]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def load_data(:\n", r"'loader.py', line 1, is not Python"),
        ("import no_such_module_here\n", r"line 1, stopped with ModuleNotFoundError"),
        (
            "def load_data():\n  yield {}\n  raise RuntimeError('no data')\n",
            r"line 3, stopped with RuntimeError: no data\.",
        ),
        ("def load_data():\n  return 1 / 0\n", r"line 2, stopped with ZeroDivisionError"),
        ("def load_data():\n  raise SystemExit(3)\n", r"line 2, stopped with SystemExit"),
        ("def load_data():\n  return int('x' + 1)\n", r"line 2, stopped with TypeError"),
        (
            "def load_data():\n  yield [1, 2]\n",
            r"must yield dicts of arrays by input name, but feed 0 is of type list",
        ),
        ("def load_data():\n  return []\n", r"gave no feed at all"),
        ("def load_data():\n  return None\n", r"returned nothing; let it yield dicts"),
        ("def load_data(path):\n  yield {}\n", r"must take no arguments"),
        ("def load_data():\n  yield {'x': object()}\n", r"'x' from 'loader.py' is not an array"),
        ("load_data = 3\n", r"has no function 'load_data'"),
    ],
)
def test_a_bad_script_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputProblem, match=says):
        list(files.read(str(script(tmp_path, text)), ["x"]))


@pytest.mark.parametrize("limit", ["feeds", "bytes"])
def test_a_loader_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "feeds":
        monkeypatch.setattr(files, "_MOST_FEEDS", 5)
    else:
        monkeypatch.setattr(files.packed, "most_bytes", lambda: 39)
    text = "def load_data():\n  while True: yield {'x': 1.0}\n"
    *feeds, last = files.read(str(script(tmp_path, text)), ["x"])
    assert [set(given.arrays) for given in feeds] == [{"x"}] * 5
    assert (
        last.warning == "load_data() in 'loader.py' gives more than 5 feeds: the first 5 are used."
    )


def test_a_loader_that_ends_at_the_bound_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_FEEDS", 2)
    text = "def load_data():\n  return [{'x': 1.0}, {'x': 2.0}]\n"
    assert [given.warning for given in files.read(str(script(tmp_path, text)), ["x"])] == ["", ""]


def test_a_script_runs_where_the_user_stood(tmp_path: Path) -> None:
    """Every part of it: the module, the function and each step of a generator; and nothing else
    does."""
    here, before = tmp_path / "here", Path.cwd()
    here.mkdir()
    (here / "value.txt").write_text("3.5")
    text = (
        "first = open('value.txt').read()\n"
        "def load_data():\n  yield {'x': float(first)}\n  yield {'x': float(open('value.txt').read())}\n"
    )
    path = script(tmp_path, text)
    for given in files.read(str(path), ["x"], str(here)):
        assert given.arrays["x"] == 3.5
        assert Path.cwd() == before
    (tmp_path / "value.txt").write_text("4.5")
    gone = files.read(str(path), ["x"], str(tmp_path / "gone"))
    assert [float(given.arrays["x"]) for given in gone] == [4.5, 4.5]


def test_files_that_are_not_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"PK not really")
    (tmp_path / "bad.npy").write_bytes(b"")
    (tmp_path / "bad.txt").write_text("1 2 3")
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "pickle.npz", x=np.array([{}], dtype=object))
    (tmp_path / "raw.npy").write_bytes(pickle.dumps({"x": 1}))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "pickle.npz").read_bytes()[:40])
    for name, says in (
        ("bad.npz", r"cannot be read as an archive of numpy arrays: it is something else"),
        ("cut.npz", r"cannot be read as an archive of numpy arrays: .*zip"),
        ("bad.npy", r"is empty \(0 bytes\)"),
        ("pickle.npy", r"holds pickled Python objects, which are not opened"),
        ("pickle.npz", r"holds pickled Python objects, which are not opened"),
        ("raw.npy", r"holds pickled Python objects, which are not opened"),
    ):
        with pytest.raises(InputProblem, match=f"'{name}' {says}"):
            list(files.read(str(tmp_path / name), ["x"]))
    with pytest.raises(
        InputProblem, match=r"not a kind of inputs file that can be read; give one of .json"
    ):
        list(files.read(str(tmp_path / "bad.txt"), ["x"]))
    with pytest.raises(InputProblem, match=r"There is no inputs file"):
        list(files.read(str(tmp_path / "none.npz"), ["x"]))
    (tmp_path / "bad.npz").rename(tmp_path / "real.npy")
    np.savez(tmp_path / "archive.npz", x=np.ones(1))
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    with pytest.raises(InputProblem, match=r"is an archive of arrays; give it the ending .npz"):
        list(files.read(str(tmp_path / "archive.npy"), ["x"]))
    np.save(tmp_path / "one.npy", np.ones(1))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(InputProblem, match=r"is a single array; give it the ending .npy"):
        list(files.read(str(tmp_path / "one.npz"), ["x"]))


def test_an_equals_sign_in_a_path_is_no_name(tmp_path: Path) -> None:
    folder = tmp_path / "a=b"
    folder.mkdir()
    np.save(folder / "x.npy", np.ones(1))
    (given,) = files.read(str(folder / "x.npy"), ["x"])
    assert list(given.arrays) == ["x"]


def test_a_folder_of_archives_is_a_sample_each_9_before_10(tmp_path: Path) -> None:
    for i in (10, 9):
        np.savez(tmp_path / f"{i}.npz", x=np.full(2, i))
    assert [(g.source, int(g.arrays["x"][0])) for g in files.read(str(tmp_path), ("x",))] == [
        ("9.npz", 9),
        ("10.npz", 10),
    ]


def write_tensors(path: Path, header: dict[str, object], data: bytes) -> None:
    """As the safetensors package writes: the length of the header, the header, the values."""
    told = json.dumps(header).encode()
    path.write_bytes(len(told).to_bytes(8, "little") + told + data)


def test_safetensors_are_one_feed(tmp_path: Path) -> None:
    x, y = np.float32([[1, 2], [3, 4]]), np.array([1.5, -2], ml_dtypes.bfloat16)
    header = {
        "__metadata__": {"made": "by"},
        "x": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "y": {"dtype": "BF16", "shape": [2], "data_offsets": [16, 20]},
    }
    write_tensors(tmp_path / "in.safetensors", header, x.tobytes() + y.tobytes())
    (given,) = files.read(str(tmp_path / "in.safetensors"), ["x", "y"])
    assert {n: (a.dtype, a.tolist()) for n, a in given.arrays.items()} == {
        "x": (x.dtype, x.tolist()),
        "y": (y.dtype, y.tolist()),
    }
    whole = (tmp_path / "in.safetensors").read_bytes()
    odd = {"x": {"dtype": "F32", "shape": [9], "data_offsets": [0, 16]}}
    for made in (b"", b"\xff" * 40, whole[:60], whole[:-1], json.dumps(odd).encode()):
        (tmp_path / "bad.safetensors").write_bytes(made)
        with pytest.raises(InputProblem, match=r"'bad.safetensors' cannot be read as safetensors"):
            list(files.read(str(tmp_path / "bad.safetensors"), ["x"]))
    write_tensors(tmp_path / "bad.safetensors", odd, x.tobytes())
    with pytest.raises(InputProblem, match=r"'bad.safetensors' cannot be read as safetensors"):
        list(files.read(str(tmp_path / "bad.safetensors"), ["x"]))


def test_a_folder_of_arrays_is_one_feed_by_their_names_and_else_one_each(tmp_path: Path) -> None:
    for kind, names in (("named", "x y"), ("numbered", "10 9")):
        (tmp_path / kind).mkdir()
        for name in names.split():
            np.save(tmp_path / kind / f"{name}.npy", np.ones(2))
    named, numbered = (
        list(files.read(str(tmp_path / kind), ["x", "y"])) for kind in ("named", "numbered")
    )
    assert [list(g.arrays) for g in named] == [["x"], ["y"]]
    assert [(g.source, list(g.arrays), g.alone) for g in numbered] == [
        ("9.npy", [""], True),
        ("10.npy", [""], True),
    ]
    assert [list(g.arrays) for g in files.read(f"y={tmp_path / 'numbered'}", ["x", "y"])] == [
        ["y"],
        ["y"],
    ]


def test_a_folder_of_anything_else_says_what_it_holds_and_what_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(
        InputProblem,
        match=r"holds only files of \.txt; a folder of \.json, images, \.npz, \.safetensors or \.npy can be given",
    ):
        list(files.read(str(tmp_path), ("x",)))
