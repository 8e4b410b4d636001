"""Bundles as an attacker would forge them, at every command that takes one: what their report says,
their check.py, and what lies beside it, agreed to as a reader does it, by the digests that the
program shows, and swapped afterwards."""

import contextlib
import importlib.util
import io
import json
import py_compile
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from narrowdown.engines import installed, options
from narrowdown.engines.spec import parse
from narrowdown.wizard.cli import entry

from . import doors, forge

_CHECK = """import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import json
import helper
import packed.inner
print("on onnxruntime 1.23.2; the case was found with onnxruntime 1.23.2")
print("  passes")
"""


def of_the_command_line() -> Iterator[doors.Door]:
    """Each command that takes a bundle, as its grammar says, and one more for each of its
    options."""
    for name, parser in doors.commands().items():
        if any(
            "bundle" in (action.help or "") and not action.option_strings
            for action in parser._actions
        ):
            for words in [[], *doors.options(parser)]:
                # Whatever else a ladder is asked, it has to be told of one release.
                here = (
                    ["--python", sys.prefix]
                    if name == "ladder" and words[:1] not in doors.RELEASES
                    else []
                )
                yield doors.Door(
                    " ".join(["bundle:", name, *words]),
                    doors.command(name, words + here, True),
                    gated=True,
                )


def kinds_of_engines() -> list[str]:
    """What a report's engines can run or load, of those that are installed: of any other one no
    command goes as far."""
    found = []
    for kind in forge.PAYLOADS:
        named = forge.named(kind, "/x")
        engines = [
            options.declared_as(parse(named[role]).name)
            for role in ("engine", "reference")
            if role in named
        ]
        found += (
            [kind]
            if engines and all(installed.importable(each.package) for each in engines)
            else []
        )
    return found


def made(folder: Path, base: Path) -> forge.Bench:
    """A bundle whose ``check.py`` imports what lies beside it, with the report of the session
    ``base``."""
    at = forge.bench(folder, base)
    place = folder / "bundle"
    (place / "packed").mkdir(parents=True)
    forge.model(place / "model.onnx", at.canary)
    np.savez(place / "inputs.npz", x=np.ones((1, 8), np.float32))
    (place / "check.py").write_text(_CHECK, encoding="utf-8")
    for name in ("helper.py", "packed/__init__.py", "packed/inner.py"):
        (place / name).write_text("", encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert (
            entry.main(
                [
                    "report",
                    str(at.session),
                    "--format",
                    "json",
                    "--output",
                    str(place / "report.json"),
                ]
            )
            == 0
        )
    return at._replace(session=place)


def in_the_report(at: forge.Bench, kind: str) -> None:
    """The payload wherever the report speaks of an engine or of what a problem says; its check is a
    stranger's, too."""
    named = forge.plant_beside(at, kind)
    path = at.session / "report.json"
    told = {
        **json.loads(path.read_bytes()),
        **{name: value for name, value in named.items() if name != "model"},
    }
    some = (
        {"onnxruntime"} if {"engine", "reference"} & named.keys() else {"an engine that nobody has"}
    )  # which begins nothing
    engines = {role: named.get(role, *some) for role in ("engine", "reference")}
    told["environment"] = {
        **told.get("environment", {}),
        **{role: {"spec": spec} for role, spec in engines.items()},
    }
    path.write_text(json.dumps(forge.exchanged(told, named)), encoding="utf-8")
    forge.script(at.session / "check.py", at.canary)


def _evil(name: str) -> Callable[[forge.Bench], None]:
    return lambda at: forge.script(at.session / name, at.canary)


def _compiled(name: str) -> Callable[[forge.Bench], None]:
    """Python that was compiled, and is believed whatever lies beside it."""

    def swap(at: forge.Bench) -> None:
        forge.script(at.strange / "evil.py", at.canary)
        always = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(
            str(at.strange / "evil.py"), str(at.session / name), invalidation_mode=always
        )

    return swap


# What is put there once everything was agreed to.
SWAPPED: dict[str, Callable[[forge.Bench], None]] = {
    "check.py": _evil("check.py"),
    "what it imports": _evil("helper.py"),
    "what it imports of a package": _evil("packed/inner.py"),
    "a module in the way of Python's": _evil("json.py"),
    "a compiled module": _compiled(importlib.util.cache_from_source("helper.py")),
    "a compiled module alone": _compiled("json.pyc"),
    "a library as a module": lambda at: forge.library(at.session / "json.so", at.canary),
}


def forged(folder: Path, base: Path, kind: str, way: str, door: doors.Door) -> forge.Forged:
    """The bundle. Raises ``Pointless``, also where there is nothing to agree to at this door."""
    at = made(folder, base)
    if way not in SWAPPED:
        in_the_report(at, kind)
        return forge.Forged(at.session, at.canary)
    (at.session / "report.json").write_text("{}", encoding="utf-8")
    agree = [word for digest in _asked(door, at) for word in ("--yes-run-scripts", digest)]
    if not agree or door.call(at.session, _work(at), tuple(agree)) in (2, 3):
        raise forge.Pointless
    assert not at.canary.exists()
    SWAPPED[way](at)
    return forge.Forged(at.session, at.canary)


def _asked(door: doors.Door, at: forge.Bench) -> list[str]:
    door.call(at.session, _work(at), ())
    return re.findall(r"sha256 ([0-9a-f]{64})", doors.SAID[-1])


def _work(at: forge.Bench) -> Path:
    work = at.session.parent / "reader"
    work.mkdir(exist_ok=True)
    return work
