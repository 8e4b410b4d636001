"""What every engine is here, asked in a process of their own, and each in one of its own where that
dies: a library that crashes while it loads is a line of the answer."""

import json
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from narrowdown.engines import backends, discovery, installed
from narrowdown.engines.declaration import Declaration
from narrowdown.engines.faults import say_in_one_line, signal_name
from narrowdown.engines.processes import run_module

_SECONDS = 120.0


def describe_engine(name: str) -> dict[str, Any]:
    """One engine with its default options, as plain data: name, summary, source, present, reason,
    version, device, options, capabilities and the rest of ``EngineInfo``. Never raises
    ``Exception``; a native library that dies takes this process along."""
    declared = discovery.engines()[name]
    row = _bare_row(declared)
    if not declared.refusal:
        try:
            row |= msgspec.to_builtins(backends.make(name).info)
            row |= {"present": True, "reason": ""}
        except Exception as error:
            row["reason"] = say_in_one_line(error)
    return row


def survey_engines(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every engine (or those named) as ``describe_engine`` gives it, then broken plug-ins. Never
    raises ``Exception``."""
    known = discovery.engines()
    wanted = [known[n] for n in names] if names else [d for d in known.values() if not d.hidden]
    asked = [d for d in wanted if not d.refusal and installed.importable(d.package)]
    found = {d.name: _bare_row(d) for d in wanted} | {row["name"]: row for row in _ask_all(asked)}
    rows = [found[d.name] for d in wanted]
    return rows if names else [*rows, *(_broken_row(p) for p in discovery.plugins() if p.broken)]


def _ask_all(asked: Sequence[Declaration]) -> list[dict[str, Any]]:
    """All in one process, as most of what it costs to ask one is to load what they share; each
    alone where that one dies."""
    try:
        rows = _told(run_module("narrowdown.engines.backends", [d.name for d in asked], _SECONDS))
        if len(rows) == len(asked):
            return rows
    except (subprocess.TimeoutExpired, OSError, ValueError, IndexError):
        pass
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(_ask_process, asked))


def _ask_process(declared: Declaration) -> dict[str, Any]:
    row = _bare_row(declared)
    try:
        done = run_module("narrowdown.engines.backends", [declared.name], _SECONDS)
        if done.returncode == 0:
            return _told(done)[0]
        ended = (
            f"it died of {signal_name(-done.returncode)}"
            if done.returncode < 0
            else f"it ended with {done.returncode}"
        )
        again = installed.command(declared.install)
        row["reason"] = (
            f"{declared.name} is installed but does not load here: {ended}; install it again: {again}."
        )
    except subprocess.TimeoutExpired:
        row["reason"] = f"{declared.name} is installed but gave no answer within {_SECONDS:.0f} s."
    except (OSError, ValueError, IndexError) as error:
        row["reason"] = f"{declared.name} could not be asked: {say_in_one_line(error)}."
    return row


def _told(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """The rows of a process that ended well, none of another. Raises ``ValueError``, ``IndexError``
    for no rows."""
    rows: list[dict[str, Any]] = (
        json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []
    )
    return rows


def _bare_row(declared: Declaration) -> dict[str, Any]:
    """An engine of which nothing is known but its declaration."""
    return {
        "name": declared.name,
        "summary": declared.summary,
        "source": next((p.source for p in discovery.plugins() if p.declared is declared), ""),
        "present": False,
        "reason": backends.say_absent(declared),
        "version": "",
        "device": "",
        "options": msgspec.to_builtins(declared.options),
        "capabilities": {},
    }


def _broken_row(plugin: discovery.Plugin) -> dict[str, Any]:
    away = installed.command(f"pip uninstall {plugin.package}")
    return {
        "name": plugin.name,
        "summary": "",
        "source": plugin.source,
        "present": False,
        "reason": f"{plugin.source} brings it. {plugin.broken} Tell its author, or remove it: {away}",
        "version": "",
        "device": "",
        "options": [],
        "capabilities": {},
    }
