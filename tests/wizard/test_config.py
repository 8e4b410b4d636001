"""The one file of settings: what it changes, and that damage is one sentence with its line."""

from pathlib import Path

import pytest

from narrowdown.wizard import Refusal, config
from narrowdown.wizard.cli import main
from narrowdown.wizard.problem_options import asked_engine
from narrowdown.wizard.session import folder
from narrowdown.wizard.tui import keys, themes


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's settings are read from; empty so far."""
    for name in ("NARROWDOWN_HOME", "NARROWDOWN_THEME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "narrowdown").mkdir()
    return tmp_path / "narrowdown" / config.NAME


def test_every_setting_is_used_and_the_environment_goes_before_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f"theme: light\nhome: {tmp_path}/here\nkeys:\n  why: v\n  pictures: [w, f6]\n")
    assert folder.home() == tmp_path / "here"
    assert themes.default() == "narrowdown-light"
    assert keys.of_user().keys == {"why": "v", "pictures": "w,f6"}
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "there"))
    monkeypatch.setenv("NARROWDOWN_THEME", "ansi")
    assert folder.home() == tmp_path / "there"
    assert themes.default() == "narrowdown-ansi"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "engin: x",
            "config.yaml:1: there is no setting 'engin'. Did you mean 'engine'? Known: theme, engine, home, keys.",
        ),
        ("zzz: x", "config.yaml:1: there is no setting 'zzz'. Known: "),
        (
            "theme: lihgt",
            "config.yaml:1: 'lihgt' is no theme. Did you mean 'light'? Known: dark, light, ansi.",
        ),
        ("\nhome: sessions", "config.yaml:2: 'home' is a whole path"),
        ("engine: [a, b]", "config.yaml:1: 'engine' is one plain value: the engine under test"),
        ("keys: v", "config.yaml:1: 'keys' holds lines of action: key"),
        ("theme: [", "this is not YAML: "),
        ("- a", "Mend the file, or move it away."),
    ],
)
def test_damage_is_a_sentence(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file.write_text(text)
    assert main(["sessions"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_the_engine_of_the_settings_is_asked_unless_another_is(file: Path) -> None:
    file.write_text("engine: emulate:precision=fp16\n")
    assert asked_engine(None) == "emulate:precision=fp16"
    assert asked_engine("onnxruntime:optimization=basic") == "onnxruntime:optimization=basic"
    file.write_text("engine: emulate:precison=fp16\n")
    with pytest.raises(Refusal, match=r"config\.yaml: engine: .* Did you mean 'precision'\?"):
        asked_engine(None)


def test_a_key_that_cannot_be_used_is_said_with_its_line(file: Path) -> None:
    file.write_text("keys:\n  why: v\n  wyh: x\n")
    (said,) = keys.of_user().problems
    assert said == f"{file}:3: there is no action 'wyh'. Did you mean 'why'?"
