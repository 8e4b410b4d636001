"""A checker is started from what was agreed to, and finds its neighbours as before."""

import sys
from pathlib import Path

import pytest

from narrowdown.engines.consent import Consent
from narrowdown.engines.data import held
from narrowdown.engines.probe import Check, Measurement
from narrowdown.engines.workers.operations import execute_probe

from ...consents import to_check


def checked(session, command: str, user: Path, *covered: Path) -> Measurement:
    """The command asked about the whole model, in the ``user``'s folder."""
    agreed = to_check(command, str(user), *covered)
    return lambda: _asked(session, command, user, agreed)


def _asked(session, command: str, user: Path, agreed: Consent) -> Measurement:
    with held.under(agreed):
        return execute_probe(
            Check(model=session.model, command=command, folder=str(user)),
            session.store,
            lambda _: None,
        )


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def unsafe_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python finds modules beside a script, as it does for users; the suite beside a wheel says
    otherwise for itself."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)


@pytest.mark.parametrize(
    "command", ["{python} {user}/check.py", "{python} -m check", "sh -c '{python} check.py'"]
)
def test_a_check_that_was_swapped_is_not_started(opened, tmp_path: Path, command: str) -> None:
    canary, script = tmp_path / "canary", write(tmp_path / "user", "check.py", "")
    ask = checked(
        opened("shapes_cnn"),
        command.format(python=sys.executable, user=script.parent),
        script.parent,
        script,
    )
    assert ask().facts["returncode"] == 0
    script.write_text(f"open({str(canary)!r}, 'w').close()", encoding="utf-8")
    answer = ask()
    assert (answer.status, answer.facts["changed"]) == ("refused", str(script))
    assert not canary.exists()


@pytest.mark.parametrize("command", ["{python} {user}/check.py", "{python} -m check"])
def test_a_neighbour_is_found_and_held(opened, tmp_path: Path, command: str) -> None:
    user = tmp_path / "user"
    script = write(
        user,
        "check.py",
        "import pack.part, loose\nprint(pack.part.WORD, loose.WORD, open('data.txt').read())",
    )
    part = write(user, "pack/part.py", "from pack import more\nWORD = more.WORD")
    init, more = write(user, "pack/__init__.py", ""), write(user, "pack/more.py", "WORD = 'packed'")
    write(
        user, "loose.py", "WORD = 'loose'"
    )  # not among what was told to be covered: found through a link
    write(user, "data.txt", "data")
    ask = checked(
        opened("shapes_cnn"),
        command.format(python=sys.executable, user=user),
        user,
        script,
        part,
        init,
    )
    answer = ask()
    assert answer.facts["stdout"].strip() == "packed loose data", answer.facts["stderr"]
    assert not [word for word in answer.facts["command"] if "held-" in word], (
        "named as the user named it"
    )
    assert more.exists()
    part.write_text("WORD = 'swapped'", encoding="utf-8")
    assert ask().facts["changed"] == str(part)


def test_a_script_elsewhere_runs_from_a_private_copy_with_its_neighbours(
    opened, tmp_path: Path
) -> None:
    script = write(
        tmp_path / "tools", "check.py", "import beside, sys\nprint(beside.WORD, sys.path[0])"
    )
    write(tmp_path / "tools", "beside.py", "WORD = 'beside'")
    (tmp_path / "user").mkdir()
    ask = checked(opened("shapes_cnn"), f"{sys.executable} {script}", tmp_path / "user", script)
    word, place = ask().facts["stdout"].split()
    assert word == "beside"
    assert place != str(script.parent)
    assert not Path(place).exists(), "it goes with the check"


def test_a_script_that_keeps_something_beside_itself_runs_where_it_lies(
    opened, tmp_path: Path
) -> None:
    script = write(
        tmp_path / "user",
        "check.py",
        "import pathlib\npathlib.Path(__file__).with_name('seen').write_text('kept')",
    )
    ask = checked(opened("shapes_cnn"), f"{sys.executable} {script}", script.parent, script)
    assert ask().status == "ok"
    assert (script.parent / "seen").read_text() == "kept"
    script.write_text("raise SystemExit(3)", encoding="utf-8")
    assert ask().facts["changed"] == str(script)


def test_a_script_that_changes_as_it_runs_is_no_answer(opened, tmp_path: Path) -> None:
    script = write(tmp_path / "user", "check.py", "open(__file__, 'a').write('#')")
    ask = checked(opened("shapes_cnn"), f"{sys.executable} {script}", script.parent, script)
    assert ask().facts["changed"] == str(script)


def test_compiled_python_of_the_users_is_not_shown(opened, tmp_path: Path) -> None:
    script = write(tmp_path / "user", "check.py", "import os\nprint(os.listdir())")
    (tmp_path / "user" / "__pycache__").mkdir()
    ask = checked(opened("shapes_cnn"), f"{sys.executable} -B -m check", script.parent, script)
    assert "__pycache__" not in ask().facts["stdout"]


@pytest.mark.parametrize("asks", ["", "__file__\n"])
@pytest.mark.parametrize("name", ["helper.so", "helper/__init__.py"])
def test_no_compiled_module_is_taken_in_place_of_a_text(
    opened, tmp_path: Path, asks: str, name: str
) -> None:
    """Put beside the text once that was agreed to: Python takes a library, and a package, before
    it."""
    script = write(tmp_path / "user", "check.py", f"{asks}import helper\nprint(helper.WORD)")
    helper = write(tmp_path / "user", "helper.py", "WORD = 'text'")
    ask = checked(
        opened("shapes_cnn"), f"{sys.executable} -B check.py", script.parent, script, helper
    )
    write(tmp_path / "user", name, "WORD = 'other'")
    answer = ask()
    if asks and name == "helper.so":
        assert (answer.status, answer.facts["changed"]) == ("refused", str(script.parent / name))
    elif not asks:
        assert answer.facts["stdout"] == "text\n"
