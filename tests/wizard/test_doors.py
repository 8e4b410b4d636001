"""The doors of the screens and of the matrix, one by one: a stranger's session is refused there
before anything is made, started or remembered."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.wizard import Exit, Refusal, trust
from narrowdown.wizard.cli import entry, matrix
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.follow_up import ALL
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.tui.library import Sessions


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session of somebody else's, whose inputs are a script."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    for started in ("tui.library.Client.open", "tui.library.begin", "cli.from_session.begin"):
        monkeypatch.setattr(
            f"narrowdown.wizard.{started}", lambda *_, **__: pytest.fail("it was let in")
        )
    (script := tmp_path / "evil.py").write_text("raise SystemExit")
    return made(tmp_path / "theirs", inputs=(str(script),))


def made(place: Path, **more: Any) -> Path:
    problem = Problem(str(MODELS / "pillars_add.onnx"), engine="emulate", **more)
    return folders.create(problem, load("accuracy").text, folder=place)


@pytest.mark.parametrize("inputs", ["kept", "left out"])
def test_an_edit_of_a_strangers_session_needs_a_person(theirs: Path, inputs: str) -> None:
    library, problem = Sessions(Options()), folders.describe(theirs).problem
    mine = msgspec.structs.replace(problem, seed=9, **({} if inputs == "kept" else {"inputs": ()}))
    with pytest.raises(Refusal) as refused:
        library.edit(theirs, mine)
    words = ["edit", str(theirs), "--display", "none", "--seed", "9"]
    assert entry.main([*words, *(["--default", "inputs"] if inputs != "kept" else [])]) == 3
    assert (refused.value.code, trust.trusted()) == (Exit.NEEDS_PERSON, {})


def test_what_an_edit_keeps_is_asked_about_as_it_is_by_then(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = trust.items(folders.describe(theirs).problem)

    def swapped(*_: object) -> list[str]:
        Path(item.path).write_text("swapped = 1\n")
        return ["seed"]

    monkeypatch.setattr("narrowdown.wizard.cli.from_session.list_changes", swapped)
    words = ["edit", str(theirs), "--display", "none", "--seed", "9"]
    assert entry.main([*words, "--yes-run-scripts", item.digest]) == Exit.NEEDS_PERSON


def test_a_strangers_session_is_not_opened_by_the_screens(theirs: Path) -> None:
    for first in ((), ({"do": "rewind", "to": "sanitize"},)):
        with pytest.raises(Refusal) as refused:
            Sessions(Options()).open(theirs, first)
        assert refused.value.code == Exit.NEEDS_PERSON


def test_no_cell_of_a_matrix_begins_before_all_are_agreed_to(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "run_module", lambda *_, **__: pytest.fail("a cell began"))
    words = ["replay", str(made(tmp_path / "mine")), str(theirs)]
    assert entry.main([*words, "--engine", "emulate"]) == Exit.NEEDS_PERSON


def test_nothing_is_made_of_a_session_that_goes_on_before_it_is_agreed_to(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``after`` made the new session first, and asked then."""
    for door in ("follow_up", "tui.library", "cli.from_session"):
        monkeypatch.setattr(
            f"narrowdown.wizard.{door}.begin_after", lambda *_, **__: pytest.fail("it was made")
        )
    with pytest.raises(Refusal) as refused:
        Sessions(Options()).after(theirs, ALL)
    assert refused.value.code == Exit.NEEDS_PERSON
    for command in ("after", "trigger"):
        words = [command, str(theirs), "--display", "none"]
        assert entry.main(words) == Exit.NEEDS_PERSON
    score = tmp_path / "mine.py"
    score.write_text("def score(outputs, sample): return 1.0\n")
    assert entry.main(["after", str(theirs), "--display", "none", "--score", str(score)]) == 3
    scored = made(tmp_path / "scored", score=str(tmp_path / "evil.py"))
    assert entry.main(["after", str(scored), "--display", "none", "--score", str(score)]) == 3
