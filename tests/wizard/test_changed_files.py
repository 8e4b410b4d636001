"""A session that is taken up again after its files have changed."""

import os
import time
from pathlib import Path

import pytest
from onnx import TensorProto, external_data_helper, helper

from narrowdown.engines.store.content import digest_file
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


@pytest.mark.parametrize(("name", "beside"), [("m.onnx", "m.data"), ("m.xml", "m.bin")])
def test_weights_in_a_file_of_their_own_that_were_written_since_are_named(
    tmp_path: Path, name: str, beside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, weights = tmp_path / name, tmp_path / beside
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=bytes(16))
    external_data_helper.set_external_data(tensor, beside, offset=0, length=16)
    made = helper.make_model(helper.make_graph([], "g", [], [], [tensor]))
    model.write_bytes(made.SerializeToString() if name == "m.onnx" else b"<net/>")
    weights.write_bytes(bytes(16))
    problem = Problem(model=str(model), digests={str(model): digest_file(model)})
    began = weights.stat().st_mtime + 10
    assert changed_since(problem, began) == ()
    os.utime(weights, (began + 10, began + 10))
    assert changed_since(problem, began) == (str(weights),)
    place = folders.create(problem, "a flow", folder=tmp_path / "s")
    os.utime(weights, (time.time() + 10, time.time() + 10))
    assert session_folder(problem, "a flow", str(place)) == place
    assert f"{beside} was changed, or written anew, since this session began" in " ".join(
        capsys.readouterr().err.split()
    )
    weights.unlink()
    assert changed_since(problem, began) == (), "the session has a copy"
