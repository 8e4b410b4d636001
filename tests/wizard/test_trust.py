"""Scripts and commands run only where somebody on this machine agreed to them."""

from pathlib import Path

import pytest

from wizard import trust
from wizard.problem import Problem


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "loader.py"
    path.write_text("import numpy\n\x1b[31mdef load_data(): ...\n")
    return path


def test_what_would_run(script: Path) -> None:
    problem = Problem(model="m", inputs=(f"{script}:batches", "data.npz", str(script)), check="mycheck {model}")
    found = trust.items(problem)
    assert [item.kind for item in found] == ["data loader script", "data loader script", "check command"]
    assert found[0].digest == found[1].digest != ""
    assert found[0].first_lines[0] == "import numpy"


def test_nothing_is_trusted_until_it_was_typed_here(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),), check="mycheck")
    assert len(trust.strangers(problem, [])) == 2
    trust.remember(trust.items(problem))
    assert trust.strangers(problem, []) == []
    assert trust.trust_file().stat().st_mode & 0o777 == 0o600
    script.write_text("something else")
    assert [item.path for item in trust.strangers(problem, [])] == [str(script)]


def test_one_digest_or_all_may_be_named(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),), check="mycheck")
    first = trust.items(problem)[0]
    assert [item.kind for item in trust.strangers(problem, [first.digest])] == ["check command"]
    assert trust.strangers(problem, ["all"]) == []


def test_the_sentence_shows_and_obeys_nothing(script: Path) -> None:
    text = trust.sentence(trust.items(Problem(model="m", inputs=(str(script),))))
    assert "--yes-run-scripts" in text
    assert "import numpy" in text
    assert "\x1b" not in text


def test_a_trust_file_that_others_can_write_trusts_nothing(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),))
    trust.remember(trust.items(problem))
    trust.trust_file().chmod(0o666)
    assert len(trust.strangers(problem, [])) == 1


def test_a_broken_trust_file_trusts_nothing_and_is_written_anew(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),))
    trust.trust_file().parent.mkdir(parents=True)
    trust.trust_file().write_text("{broken")
    trust.trust_file().chmod(0o600)
    assert len(trust.strangers(problem, [])) == 1
    trust.remember(trust.items(problem))
    assert trust.strangers(problem, []) == []


def test_a_script_that_is_gone_cannot_run(tmp_path: Path) -> None:
    problem = Problem(model="m", inputs=(str(tmp_path / "gone.py"),))
    assert trust.items(problem)[0].digest == ""
    assert trust.strangers(problem, []) == []
