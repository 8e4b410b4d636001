"""``--pass-env``: said by who starts a session, kept on this machine, never asked for by a
session."""

from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.probe import Measurement
from narrowdown.wizard import BadUsage, passed_variables
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.drive import say_missed
from narrowdown.wizard.session import SessionProblem, folder as folders


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HF_TOKEN", "t")
    monkeypatch.setenv("KUBECONFIG", "k")


def session(folder: Path, check: str = "mycheck") -> Path:
    return folders.create(
        Problem(model="/m.onnx", check=check, folder="/here"), "flow", folder=folder
    )


def test_what_was_said_is_remembered_for_the_session_in_its_place(tmp_path: Path) -> None:
    place = session(tmp_path / "s")
    assert passed_variables.chosen(place, ["HF_TOKEN", "HF_TOKEN"]) == ("HF_TOKEN",)
    assert passed_variables.chosen(place) == ("HF_TOKEN",)
    assert passed_variables.file().stat().st_mode & 0o777 == 0o600
    assert b"HF_TOKEN" not in b"".join(p.read_bytes() for p in place.rglob("*") if p.is_file()), (
        "the session says nothing"
    )
    place.rename(tmp_path / "elsewhere")
    assert passed_variables.chosen(tmp_path / "elsewhere") == (), (
        "another folder is another session"
    )
    assert passed_variables.chosen(session(tmp_path / "s", "mycheck --more")) == (), (
        "and so is another command in its place"
    )


def test_a_file_that_others_can_write_hands_on_nothing(tmp_path: Path) -> None:
    place = session(tmp_path / "s")
    passed_variables.chosen(place, ["HF_TOKEN"])
    passed_variables.file().chmod(0o666)
    assert passed_variables.chosen(place) == ()


def test_a_session_that_names_variables_is_not_heard(tmp_path: Path) -> None:
    """Whatever somebody writes into one, in whatever field."""
    place = session(tmp_path / "s")
    about = msgspec.json.decode((place / folders.DESCRIPTION).read_bytes())
    about |= {"handed": ["HF_TOKEN"], "pass_env": ["HF_TOKEN"]}
    about["problem"] |= {"handed": ["HF_TOKEN"], "pass_env": ["HF_TOKEN"]}
    about["crc"] = folders.checksum(about)
    (place / folders.DESCRIPTION).write_bytes(msgspec.json.encode(about))
    assert passed_variables.chosen(place) == ()


@pytest.mark.parametrize(
    ("check", "names", "executor", "said"),
    [
        ("", ["HF_TOKEN"], "local", "give its command with --check"),
        ("c", ["HF_TOKEN"], "tcp://h:1", "variables of this machine"),
        ("c", ["NOT_SET_AT_ALL"], "local", "is not set here"),
        ("c", ["HF_TOKEN=x"], "local", "give the name alone"),
    ],
)
def test_what_cannot_be_handed_on_is_refused(
    check: str, names: list[str], executor: str, said: str
) -> None:
    with pytest.raises(BadUsage, match=said) as refused:
        passed_variables.refuse(Problem(model="m", check=check), names, executor)
    assert refused.value.code == 2


def test_one_that_is_set_no_more_is_named_when_the_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = session(tmp_path / "s")
    passed_variables.chosen(place, ["HF_TOKEN"])
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(BadUsage, match="'HF_TOKEN' is not set here"):
        passed_variables.chosen(place)


def test_what_cannot_be_remembered_is_said(tmp_path: Path) -> None:
    place = session(tmp_path / "s")
    (tmp_path / "state").write_text("a file where the folder should be")
    assert passed_variables.chosen(place) == (), "there is nothing to remember"
    with pytest.raises(SessionProblem, match="could not be remembered"):
        passed_variables.chosen(place, ["HF_TOKEN"])


def test_what_a_checker_missed_is_said_with_what_to_do() -> None:
    said = say_missed(Measurement(facts={"missed": ["HF_TOKEN", "KUBECONFIG"]}))
    assert said.endswith("begin a new session with --pass-env HF_TOKEN --pass-env KUBECONFIG.")
    assert say_missed(Measurement(facts={"missed": []})) == say_missed(Measurement()) == ""
