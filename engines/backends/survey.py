"""What every engine is here, each asked in a process of its own, so that a library that crashes while it loads is a line of the
answer."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from engines import backends, discovery, installed
from engines.declaration import Declaration

_SECONDS = 120.0


def describe(name: str) -> dict[str, Any]:
    """One engine with its default options, as plain data: name, summary, source, present, reason, version, device, options,
    capabilities and the rest of ``EngineInfo``. Never raises ``Exception``; a native library that dies takes this process
    along."""
    declared = discovery.engines()[name]
    row = _row(declared)
    if not declared.refusal:
        try:
            row |= msgspec.to_builtins(backends.make(name).info)
            row |= {"present": True, "reason": ""}
        except Exception as error:
            row["reason"] = backends.line(error)
    return row


def survey(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every engine (or those named) as ``describe`` gives it, then the plug-ins that are broken. Never raises ``Exception``."""
    known = discovery.engines()
    wanted = [known[n] for n in names] if names else [d for d in known.values() if not d.hidden]
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(_ask, wanted))
    return rows if names else [*rows, *(_broken(p) for p in discovery.plugins() if p.broken)]


def _ask(declared: Declaration) -> dict[str, Any]:
    row = _row(declared)
    if declared.refusal or not installed.importable(declared.package):
        return row
    command = [sys.executable, "-P", "-m", "engines.backends", declared.name]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False
        )  # fmt: skip
        if done.returncode == 0:
            rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
            return rows[0]
        ended = _signal(-done.returncode) if done.returncode < 0 else f"it ended with {done.returncode}"
        again = installed.command(declared.install)
        row["reason"] = f"{declared.name} is installed but does not load here: {ended}; install it again: {again}."
    except subprocess.TimeoutExpired:
        row["reason"] = f"{declared.name} is installed but gave no answer within {_SECONDS:.0f} s."
    except (OSError, ValueError, IndexError) as error:
        row["reason"] = f"{declared.name} could not be asked: {backends.line(error)}."
    return row


def _row(declared: Declaration) -> dict[str, Any]:
    """An engine of which nothing is known but its declaration."""
    return {
        "name": declared.name,
        "summary": declared.summary,
        "source": next((p.source for p in discovery.plugins() if p.declared is declared), ""),
        "present": False,
        "reason": backends.absent(declared),
        "version": "",
        "device": "",
        "options": msgspec.to_builtins(declared.options),
        "capabilities": {},
    }


def _broken(plugin: discovery.Plugin) -> dict[str, Any]:
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


def _signal(number: int) -> str:
    try:
        return f"it died of {signal.Signals(number).name}"
    except ValueError:
        return f"it died of signal {number}"
