"""Every engine by name. Importing this package loads no native library; making an engine does."""

import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.options import DECLARED, Declaration, check
from engines.spec import EngineSpec

if TYPE_CHECKING:
    from engines.backends.base import Engine

__all__ = ["check", "describe", "make", "survey"]

_SURVEY_SECONDS = 120.0


def make(spec: str | EngineSpec) -> "Engine":
    """The engine of a spec. Raises ``EngineMissing`` where it is not installed, cannot be loaded or has no device,
    ``ValueError`` for a wrong spec; both with a sentence."""
    from engines.backends.base import EngineMissing

    checked = check(spec)
    declared = DECLARED[checked.name]
    if declared.refusal:
        raise EngineMissing(_absent(declared))
    if not importable(declared.package):
        raise EngineMissing(_absent(declared))
    try:
        module = importlib.import_module(f"engines.backends.{declared.module}")
    except (ImportError, OSError) as error:
        raise EngineMissing(
            f"{declared.name} is installed but does not load ({_line(error)}); install it again: {declared.install}."
        ) from error
    engine: Engine = module.make(checked)
    for option, what in (("model", "float original"), ("calibration", "calibration cache")):
        if not (file := checked.get(option)):
            continue
        import msgspec

        from engines.data.store import digest_file

        try:
            content = digest_file(Path(file))
        except OSError as error:
            raise EngineMissing(f"The {what} '{file}' cannot be read ({error.strerror}).") from error
        engine.info = msgspec.structs.replace(engine.info, fingerprint=f"{engine.info.fingerprint}-{content[:16]}")
    return engine


def describe(name: str) -> dict[str, Any]:
    """One engine with its default options, as plain data: name, summary, present, reason, version, device, options,
    capabilities and the rest of ``EngineInfo``. Never raises ``Exception``; a native library that dies takes this process
    along."""
    import msgspec

    declared = DECLARED[name]
    row = _row(declared)
    if declared.package:
        try:
            row |= msgspec.to_builtins(make(name).info)
            row |= {"present": True, "reason": ""}
        except Exception as error:
            row["reason"] = _line(error)
    return row


def survey(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every engine (or those named) as ``describe`` gives it. Each is asked in a process of its own, so that a library that
    crashes while it loads is a line of the answer. Never raises ``Exception``."""
    wanted = [DECLARED[n] for n in names] if names else [d for d in DECLARED.values() if not d.hidden]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(_ask, wanted))


def importable(package: str) -> bool:
    """Whether a package of this import name is installed; it is not loaded."""
    try:
        return bool(package) and find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _ask(declared: Declaration) -> dict[str, Any]:
    row = _row(declared)
    if declared.refusal or not importable(declared.package):
        return row
    command = [sys.executable, "-P", "-m", "engines.backends", declared.name]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SURVEY_SECONDS, check=False
        )  # fmt: skip
        if done.returncode == 0:
            rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
            return rows[0]
        ended = _signal(-done.returncode) if done.returncode < 0 else f"it ended with {done.returncode}"
        row["reason"] = (
            f"{declared.name} is installed but does not load here: {ended}; install it again: {declared.install}."
        )
    except subprocess.TimeoutExpired:
        row["reason"] = f"{declared.name} is installed but gave no answer within {_SURVEY_SECONDS:.0f} s."
    except (OSError, ValueError, IndexError) as error:
        row["reason"] = f"{declared.name} could not be asked: {_line(error)}."
    return row


def _row(declared: Declaration) -> dict[str, Any]:
    """An engine of which nothing is known but its declaration."""
    import msgspec

    return {
        "name": declared.name,
        "summary": declared.summary,
        "present": False,
        "reason": _absent(declared),
        "version": "",
        "device": "",
        "options": msgspec.to_builtins(declared.options),
        "capabilities": {},
    }


def _absent(declared: Declaration) -> str:
    here = importable(declared.package)
    if declared.refusal:
        if not declared.package:
            return f"{declared.refusal}."
        return f"{declared.refusal}; its package '{declared.package}' {'can' if here else 'cannot'} be imported here."
    lacks = f"{declared.name} is not installed; install it with: {declared.install}"
    return f"{lacks}. {declared.needs}" if declared.needs else lacks


def _signal(number: int) -> str:
    try:
        return f"it died of {signal.Signals(number).name}"
    except ValueError:
        return f"it died of signal {number}"


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
