"""Golden outputs of every kind of file that people have, each written by whoever really writes it
where that can be had."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from narrowdown.engines.backends.golden.engine import make
from narrowdown.engines.data import InputProblem, golden, golden_files, polygraphy
from narrowdown.engines.spec import parse

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 7


def pb(path: Path, value: np.ndarray, name: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    return path


def test_npz_is_one_sample_each(tmp_path: Path) -> None:
    for n in range(3):
        np.savez(tmp_path / f"out{n}.npz", y=X + n, inner=X)
    samples = golden.read([str(p) for p in golden_files.list_golden_files(tmp_path)])
    assert [float(s["y"][0, 0]) for s in samples] == [0, 1, 2]
    assert set(samples[0]) == {"y", "inner"}


def test_safetensors_are_one_sample_each(tmp_path: Path) -> None:
    header = json.dumps(
        {"y": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, X.nbytes]}}
    ).encode()
    for n in range(2):
        made = len(header).to_bytes(8, "little") + header + (X + n).tobytes()
        (tmp_path / f"out{n}.safetensors").write_bytes(made)
    samples = golden.read([str(p) for p in golden_files.list_golden_files(tmp_path)])
    assert [s["y"].tolist() for s in samples] == [X.tolist(), (X + 1).tolist()]


def test_npy_files_of_a_folder_are_one_sample(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", X)
    np.save(tmp_path / "z.npy", X + 1)
    (sample,) = golden.read([str(p) for p in golden_files.list_golden_files(tmp_path)])
    assert set(sample) == {"y", "z"}


def test_polygraphys_own_files(tmp_path: Path) -> None:
    polygraphy.write_outputs(tmp_path / "ours.json", [{"y": X}, {"y": X + 1}])
    assert [s["y"].tolist() for s in golden.read([str(tmp_path / "ours.json")])] == [
        X.tolist(),
        (X + 1).tolist(),
    ]
    comparator = pytest.importorskip("polygraphy.comparator")
    results = comparator.RunResults()
    results.append(("torch", [comparator.IterationResult({"y": X}, runner_name="torch")]))
    results.save(str(tmp_path / "theirs.json"))
    (sample,) = golden.read([str(tmp_path / "theirs.json")])
    assert sample["y"].tolist() == X.tolist()
    results.append(("trt", [comparator.IterationResult({"y": X + 1}, runner_name="trt")]))
    results.save(str(tmp_path / "both.json"))
    with pytest.raises(InputProblem, match=r"of several runners \('torch', 'trt'\)"):
        golden.read([str(tmp_path / "both.json")])


def test_what_trtexec_exports(tmp_path: Path) -> None:
    said = [{"name": "y", "dimensions": "2x3", "values": X.ravel().tolist()}]
    (tmp_path / "out.json").write_text(json.dumps(said))
    (sample,) = golden.read([str(tmp_path / "out.json")])
    assert sample["y"].dtype == np.float32
    np.testing.assert_allclose(sample["y"], X)
    said[0]["dimensions"] = "2x4"
    (tmp_path / "bad.json").write_text(json.dumps(said))
    with pytest.raises(InputProblem, match="does not hold 2x4 numbers"):
        golden.read([str(tmp_path / "bad.json")])


def test_onnxs_test_data_are_in_order_and_named_by_place(tmp_path: Path) -> None:
    for n in (0, 2, 10):
        pb(tmp_path / f"test_data_set_{n}" / "output_0.pb", X + n)
        pb(tmp_path / f"test_data_set_{n}" / "output_1.pb", X, "named")
        pb(tmp_path / f"test_data_set_{n}" / "input_0.pb", X)
    samples = golden.read([str(p) for p in golden_files.list_golden_files(tmp_path)])
    assert [float(s["#0"][0, 0]) for s in samples] == [0, 2, 10]
    assert all(set(s) == {"#0", "named"} for s in samples)


def test_what_is_no_tensor_is_a_sentence(tmp_path: Path) -> None:
    sequence = onnx.SequenceProto(name="s", elem_type=onnx.SequenceProto.TENSOR)
    (tmp_path / "output_0.pb").write_bytes(sequence.SerializeToString())
    (tmp_path / "empty.pb").write_bytes(b"")
    (tmp_path / "text.pb").write_text("no protobuf at all")
    for name in ("output_0.pb", "empty.pb", "text.pb"):
        with pytest.raises(InputProblem, match="holds no single tensor"):
            golden.read([str(tmp_path / name)])


def test_a_folder_without_outputs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    pb(tmp_path / "input_0.pb", X)
    with pytest.raises(InputProblem, match="holds no golden outputs"):
        golden_files.list_golden_files(tmp_path)


def test_an_engine_of_nothing_says_what_it_needs() -> None:
    with pytest.raises(Exception, match="need a file"):
        make(parse("golden"))
