"""The shipped schemas are what the structs give, and what a session's commands print conforms to
them."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard.cli.entry import main
from narrowdown.wizard.schemas.__main__ import NAMES
from tests.wizard.schemas.conforms import against
from tests.wizard.schemas.generate import SHIPPED, committed, hold

GOLDEN = Path(__file__).parents[2] / "sessions" / "format-1.zip"
PRINTED = {
    "events": (["watch", "session", "--display", "json"], 0),
    "report": (["report", "session", "--format", "json"], 0),
    "replay": (
        ["replay", "session", "--dry", "--json"],
        5,
    ),  # walked today, the flow asks another question
}


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[Any]]:
    """What the command prints on a finished session, its objects."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main sets its own
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path)

    def run(name: str) -> list[Any]:
        words, code = PRINTED[name]
        assert main(words) == code
        out = capsys.readouterr().out
        return (
            [json.loads(line) for line in out.splitlines()]
            if name == "events"
            else [json.loads(out)]
        )

    return run


@pytest.mark.parametrize("name", SHIPPED)
def test_the_committed_schema_has_not_drifted(name: str) -> None:
    hold(name)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_printed(name: str) -> None:
    words = [sys.executable, "-m", "narrowdown.wizard.schemas", name]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == committed(
        name
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_conforms(printed: Callable[[str], list[Any]], name: str) -> None:
    told = printed(name)
    assert [(value, said) for value in told if (said := against(name, value))] == []
    if name == "events":
        assert {"session.opened", "step.started", "step.finished", "probe.started", "probe.finished", "question.asked",
                "question.answered", "session.closed"} <= {line["kind"] for line in told}  # fmt: skip
    else:
        assert list(told[0].values())[-1] == told[0]["format"] == 1
        assert told[0]["route" if name == "report" else "rows"]


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda value: value.pop(name)


def _with(name: str, instead: Any) -> Callable[[dict[str, Any]], object]:
    return lambda value: value.update({name: instead})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("events", _without("v")),
        ("events", _without("seq")),
        ("events", _with("v", 2)),
        ("events", _with("kind", "session.begun")),
        ("events", _with("ts", "noon")),
        ("events", _with("pid", True)),
        ("events", _with("versions", {"onnx": 1})),
        ("report", _without("format")),
        ("report", _with("format", 2)),
        ("report", _with("verdict", "guilty")),
        ("report", _with("nodes", [1])),
        ("report", _with("margin", "2")),
        ("report", _with("more", 1)),
        ("report", lambda value: value["route"][0].pop("answer")),
        ("report", lambda value: value["culprits"][0]["around"]["spots"][0].update(op=None)),
        ("replay", _without("format")),
        ("replay", _without("engines")),
        ("replay", _with("expected", "other")),
        ("replay", lambda value: value["rows"][0].update(looks=0.5)),
        ("replay", lambda value: value["engines"][0]["now"].update(spec=None)),
    ],
)
def test_what_is_changed_does_not(
    printed: Callable[[str], list[Any]], name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    value = printed(name)[0]
    assert not against(name, value)
    change(value)
    assert against(name, value)


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("report", "Brought FactorRow Lookalike QuantizedLayer Rewritten Tried Trigger Weighed"),
        ("replay", "Compared Row Stand"),
        ("events", "Progress Slot"),
    ],
)
def test_what_the_manual_leaves_to_the_schema_is_described_there(schema: str, names: str) -> None:
    kinds = json.loads(committed(schema))["$defs"]
    bare = {
        field
        for name in names.split()
        for field, made in kinds[name]["properties"].items()
        if not made.get("description")
    }
    assert bare <= {"kind", "v"}
