"""What a user counts by: labels, and a function of a script that runs by consent alone."""

from pathlib import Path

import numpy as np
import pytest

from narrowdown.engines.consent import Consent
from narrowdown.engines.data import held
from narrowdown.engines.data.score import Sample, apply_score, hold_to_labels
from narrowdown.engines.store import digest_file

from ...consents import to_files

OUTPUTS = {
    "logits": np.float32([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]),
    "kept": np.float32([[1.0], [2.0], [3.0]]),
}
SAMPLE = Sample({"x": np.float32([1, 2])}, "real:1")


def test_labels_count_rows_sample_by_sample() -> None:
    labels = np.array([0, 0, 0, 1, 0, 0])
    assert hold_to_labels(labels, OUTPUTS, 0) == pytest.approx(1 / 3)
    assert hold_to_labels(labels, OUTPUTS, 1) == pytest.approx(2 / 3)
    with pytest.raises(match="3 rows in 'logits', and of 6 labels 0 are left"):
        hold_to_labels(labels, OUTPUTS, 2)
    with pytest.raises(match=r"the model has 2 \('a', 'b'\)"):
        hold_to_labels(labels, {"a": np.eye(2), "b": np.eye(2)}, 0)


@pytest.mark.parametrize(("name", "data"), [("l.txt", b"0 0 0\n1,0 0"), ("l.npy", None)])
def test_labels_are_read_as_text_or_as_an_array(
    tmp_path: Path, name: str, data: bytes | None
) -> None:
    file = tmp_path / name
    if data is None:
        np.save(file, np.int32([[0], [0], [0], [1], [0], [0]]))
    else:
        file.write_bytes(data)
    assert apply_score(str(file), OUTPUTS, SAMPLE, digest_file(file)) == pytest.approx(2 / 3)
    with pytest.raises(match="has changed since"):
        apply_score(str(file), OUTPUTS, SAMPLE, "0" * 64)


@pytest.mark.parametrize("data", [b"one two", b"\x93NUMPY", b"0.5 1", b"\xff\xfe"])
def test_what_are_no_labels_is_said(tmp_path: Path, data: bytes) -> None:
    for name in ("l.txt", "l.npy"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(match=f"'{name}'"):
            apply_score(str(tmp_path / name), OUTPUTS, SAMPLE)
    np.save(tmp_path / "o.npy", np.array([object()]))
    with pytest.raises(match=r"o\.npy"):
        apply_score(str(tmp_path / "o.npy"), OUTPUTS, SAMPLE)


GIVEN = """
import numpy as np
def score(outputs, sample):
    outputs["logits"][:] = 0  # its own copies
    assert list(sample) == ["x"] and (sample.id, sample.index) == ("real:1", 1)
    return np.float32(0.25)
def nothing(outputs, sample): return None
def nan(outputs, sample): return float("nan")
def one(outputs): return 1.0
def stops(outputs, sample): raise KeyError("label")
"""


def test_a_script_is_given_outputs_and_sample_and_returns_a_number(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(GIVEN)
    with held.under(to_files(file)):
        before = {name: value.copy() for name, value in OUTPUTS.items()}
        assert apply_score(str(file), OUTPUTS, SAMPLE, digest_file(file)) == 0.25
        assert all(np.array_equal(OUTPUTS[name], before[name]) for name in before)
        assert apply_score(f"{file}:nan", OUTPUTS, SAMPLE) is None
        for function, said in (
            ("nothing", "returned nothing; let it return one number"),
            ("one", "must take two arguments"),
            ("stops", "'mine.py', line 10, stopped with KeyError"),
            ("gone", "has no function 'gone'"),
        ):
            with pytest.raises(match=said):
                apply_score(f"{file}:{function}", OUTPUTS, SAMPLE)


def test_nobody_agreed_so_nothing_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{GIVEN}")
    with held.under(Consent()), pytest.raises(held.NotAgreed):
        apply_score(str(file), OUTPUTS, SAMPLE)
    assert not (tmp_path / "ran").exists()
