"""How a session runs when the application opens it."""

from pathlib import Path
from typing import Any

import pytest

from narrowdown.engines.probe import Check, Import, Measurement
from narrowdown.wizard import Refusal
from narrowdown.wizard.changed_problem import change_problem
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import events as e, folder as folders, journal
from narrowdown.wizard.tui.library import Sessions


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options that runners were started with."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HF_TOKEN", "t")
    monkeypatch.chdir(tmp_path)
    started: list[Options] = []
    monkeypatch.setattr(
        "narrowdown.wizard.tui.library.Client.open",
        lambda _folder, options: started.append(options),
    )
    return started


def problem(**more: Any) -> Problem:
    return change_problem(Problem(model=str(MODELS / "pillars_add.onnx")), more)


def test_sessions_run_as_the_command_line_says(opened: list[Options]) -> None:
    library = Sessions(Options(jobs=2, budget=60.0))
    library.open(library.create(problem()))
    assert [(o.jobs, o.budget) for o in opened] == [(2, 60.0)]


def test_variables_go_to_the_checker_and_are_remembered(opened: list[Options]) -> None:
    made = Sessions(Options(handed=("HF_TOKEN",)))
    folder = made.create(problem(check="true {model}"))
    made.open(folder)
    Sessions().open(folder)
    assert [o.handed for o in opened] == [("HF_TOKEN",), ("HF_TOKEN",)]


def test_variables_without_a_checker_make_no_session(opened: list[Options], tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="give its command with --check"):
        Sessions(Options(handed=("HF_TOKEN",))).create(problem())
    assert not list((tmp_path / "home").rglob("session.json"))
    assert opened == []


def test_a_session_without_a_change_is_no_new_one(opened: list[Options]) -> None:
    library = Sessions()
    folder = library.create(problem())
    with pytest.raises(Refusal, match="Nothing is another than it was"):
        library.edit(folder, problem())
    assert opened == []


@pytest.mark.parametrize(
    ("names", "kept"),
    [(("HF_TOKEN",), ["k"]), (("HOME_OF_MINE",), []), ((), ["k"])],
    ids=["same", "other", "as before"],
)
def test_answers_of_a_checker_with_other_variables_are_not_taken_over(
    opened: list[Options], monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], kept: list[str]
) -> None:
    monkeypatch.setenv("HOME_OF_MINE", "h")
    checked = problem(check="true {model}")
    first = Sessions(Options(handed=("HF_TOKEN",)))
    folder = first.create(checked)
    first.open(folder)
    book = journal.Journal(folder / journal.NAME)
    for key, probe in (
        ("m", Import(path=checked.model, digest="d")),
        ("k", Check(model="m", command="true")),
    ):
        book.append(e.ProbeStarted(key=key, run=1, probe=probe))
        book.append(e.ProbeFinished(key=key, run=1, measurement=Measurement()))
    book.close()
    library = Sessions(Options(handed=names))
    again = library.edit(folder, problem(check="true {model}", seed=5))
    assert [
        event.key
        for event in journal.read(again / journal.NAME)
        if isinstance(event, e.ProbeFinished)
    ] == kept
    library.open(again)
    assert opened[-1].handed == (names or ("HF_TOKEN",))


def test_a_session_that_lies_elsewhere_is_in_the_list_while_it_is_open(
    opened: list[Options], tmp_path: Path
) -> None:
    """Whoever went back to the list from it was told "Enter goes back", and Enter did nothing, or
    opened another one."""
    library = Sessions()
    home = library.create(problem())
    folders.create(problem(), (home / folders.FLOW).read_text(), folder=tmp_path / "elsewhere")
    assert [s.path for s in library.entries()] == [home]
    assert [s.path for s in library.entries((home, tmp_path / "elsewhere"))] == [
        tmp_path / "elsewhere",
        home,
    ]
