"""A session that is taken up again after its files have changed."""

import os
from pathlib import Path

from engines.store.content import digest_file
from wizard.given import changed_since
from wizard.problem import Problem


def test_what_is_not_what_it_was_is_named(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("m.onnx", "same.npz", "other.npz", "gone.npz", "check.py")]
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
    assert changed_since(problem, began) == (str(files[0]), str(files[2])), "a script asks for consent instead"
    os.utime(files[0], (began - 5, began - 5))
    assert changed_since(problem, began) == (str(files[2]),), "what is older than the session is not read again"
