"""The survey of the engines: asked once, and anew where anything that it follows from is
another."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.engines import discovery
from narrowdown.wizard import engine_survey
from narrowdown.wizard.machine_room import MachineProblem

Asked = list[tuple[str, ...]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What was asked of the process that loads engines, which says that one of them does not
    load."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    seen: Asked = []

    def ask(module: str, *words: str, timeout: float = 0.0) -> str:
        assert module == "narrowdown.engines.backends"
        seen.append(words)
        names = words or tuple(n for n, d in discovery.engines().items() if not d.hidden)
        return json.dumps(
            [
                {
                    "name": n,
                    "present": n in ("onnxruntime", "reference"),
                    "reason": f"asked {len(seen)} times",
                }
                for n in names
            ]
        )

    monkeypatch.setattr(engine_survey, "ask", ask)
    return seen


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of an engine that loads, with a library in a folder of its own."""
    place = tmp_path / "packages" / "loads"
    (place / "lib").mkdir(parents=True)
    (place / "__init__.py").write_text("")
    (place / "lib" / "native.so").write_text("one")
    monkeypatch.syspath_prepend(place.parent)
    declared = discovery.ours()
    told = {
        **declared,
        "reference": msgspec.structs.replace(declared["reference"], package="loads"),
    }
    monkeypatch.setattr(discovery, "engines", lambda: told)
    return place


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def test_what_loads_is_asked_once_and_what_does_not_each_time(asked: Asked) -> None:
    first = engine_survey.survey()
    assert names(first) == [n for n, d in discovery.engines().items() if not d.hidden]
    assert asked == [tuple(names(first))]
    second = engine_survey.survey()
    assert names(second) == names(first)
    again = [n for n in names(first) if n not in ("onnxruntime", "reference", "golden", "command")]
    here = [n for n in again if engine_survey.installed.importable(discovery.engines()[n].package)]
    assert asked[1] == tuple(
        here
    )  # installed, and does not load; what is not installed needs no look
    for before, after in zip(first, second, strict=True):
        assert after["reason"] == ("asked 2 times" if after["name"] in here else before["reason"])


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


CHANGES: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "a file of the package": lambda place, _: touch(place / "__init__.py"),
    "a library of the package": lambda place, _: (place / "lib" / "native.so").write_text(
        "another"
    ),
    "a library less": lambda place, _: (place / "lib" / "native.so").unlink(),
    "something is installed beside it": lambda place, _: (place.parent / "other").mkdir(),
    "where libraries are found": lambda _, patch: patch.setenv("LD_LIBRARY_PATH", "/elsewhere"),
    "which devices": lambda _, patch: patch.setenv("CUDA_VISIBLE_DEVICES", "1"),
    "the driver": lambda _, patch: patch.setattr(engine_survey, "_DRIVERS", ("/proc/self/comm",)),
    "Python": lambda _, patch: patch.setattr(sys, "executable", "/elsewhere/python"),
    "the format": lambda _, patch: patch.setattr(engine_survey, "FORMAT", engine_survey.FORMAT + 1),
    "a torn file": lambda *_: engine_survey._file().write_bytes(
        engine_survey._file().read_bytes()[:-9]
    ),
    "somebody else's file": lambda *_: engine_survey._file().chmod(0o666),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_asked_anew_where_something_has_changed(
    change: str, asked: Asked, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_survey.survey()
    engine_survey.survey()
    assert "reference" not in asked[-1]
    CHANGES[change](package, monkeypatch)
    engine_survey.survey()
    assert "reference" in asked[-1]


def test_what_is_fleeting_changes_nothing(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_survey.survey()
    monkeypatch.setenv("TERM", "another")
    monkeypatch.setenv("SECRET", "another")
    engine_survey.survey()
    assert "onnxruntime" not in asked[-1]


def test_it_is_asked_once_whatever_the_mask_of_new_files(asked: Asked) -> None:
    """By 002, where a group shares its files, no cache was ever believed."""
    before = os.umask(0o002)
    try:
        engine_survey.survey()
        engine_survey.survey()
    finally:
        os.umask(before)
    assert asked[1] != asked[0], "the second asks no more than what does not load"


def test_a_cache_that_cannot_be_written_is_none(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    assert engine_survey.survey()
    assert engine_survey.survey()
    assert "onnxruntime" in asked[1]


def test_a_process_that_says_no_is_heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def refuse(*_: str, timeout: float = 0.0) -> str:
        raise MachineProblem("It says no.")

    monkeypatch.setattr(engine_survey, "ask", refuse)
    with pytest.raises(MachineProblem, match="It says no"):
        engine_survey.survey()


def test_each_is_asked_alone_where_one_takes_the_others_along(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = engine_survey.ask

    def dying(module: str, *words: str, timeout: float = 0.0) -> str:
        if words[:1] != ("--apart",):
            asked.append(words)
            raise MachineProblem("It died.")
        return whole(module, *words[1:])

    monkeypatch.setattr(engine_survey, "ask", dying)
    found = engine_survey.survey()
    assert names(found) == [n for n, d in discovery.engines().items() if not d.hidden]
    assert asked == [tuple(names(found))] * 2


def test_the_real_survey_is_the_same_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = engine_survey.survey()
    assert {"onnxruntime", "reference"} <= {row["name"] for row in first if row["present"]}
    kept = engine_survey._read()
    assert {row["name"] for row in first if row["present"]} <= kept.keys()
    assert engine_survey.survey() == first
