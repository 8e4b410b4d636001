"""A session that is taken up again after its files have changed."""

import os
import time
from pathlib import Path

import pytest

from narrowdown.engines.store import digest_file
from narrowdown.wizard.cli.run import session_folder
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.problem_options import changed_since
from narrowdown.wizard.session import folder as folders


def test_what_is_not_what_it_was_is_named(tmp_path: Path) -> None:
    files = [
        tmp_path / name for name in ("m.onnx", "same.npz", "other.npz", "gone.npz", "check.py")
    ]
    for file in files:
        file.write_bytes(b"before")
    problem = Problem(model=str(files[0]), digests={str(f): digest_file(f) for f in files})
    began = files[0].stat().st_mtime + 10
    assert changed_since(problem, began) == ()
    files[3].unlink()
    for file in (files[0], files[2], files[4]):
        file.write_bytes(b"after")
    for file in (files[0], files[1], files[2], files[4]):
        os.utime(file, (began + 10, began + 10))
    assert changed_since(problem, began) == (str(files[0]), str(files[2])), (
        "a script asks for consent instead"
    )
    os.utime(files[0], (began - 5, began - 5))
    assert changed_since(problem, began) == (str(files[2]),), (
        "what is older than the session is not read again"
    )


def test_who_goes_on_with_a_session_is_told_what_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"before")
    problem = Problem(model=str(model), digests={str(model): digest_file(model)})
    place = folders.create(problem, "a flow", folder=tmp_path / "s")
    model.write_bytes(b"after")
    os.utime(model, (time.time() + 10, time.time() + 10))
    assert session_folder(problem, "a flow", str(place)) == place
    assert "m.onnx was changed, or written anew, since this session began" in " ".join(
        capsys.readouterr().err.split()
    )
    model.unlink()
    assert changed_since(problem, 0.0) == (), "the session has a copy"
