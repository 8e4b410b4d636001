"""One case in one release: its check.py in a process of its own, which is ended with all that it started."""

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from engines.store import decoding, regular
from engines.store.content import write_atomically
from engines.store.scratch import scratch
from wizard.bundle.case import FILES
from wizard.ladder.environments import Place, install
from wizard.ladder.rungs import Outcome

OUTCOMES: dict[int, Outcome] = {0: "passes", 1: "fails"}
_ENGINE = re.compile(r"^on (.*); the case was found with (.*)$", re.MULTILINE)


class Answer(msgspec.Struct, frozen=True):
    """``engine``: what ran, by its own words; ``found``: what the case was found with; ``said``: its line that decides."""

    outcome: Outcome
    engine: str = ""
    found: str = ""
    said: str = ""
    seconds: float = 0.0


class Case(msgspec.Struct, frozen=True):
    """``folder``: where check.py lies. ``words``: what it is told. ``key``: sha256 of everything that the check reads."""

    name: str
    folder: Path
    words: tuple[str, ...] = ()
    key: str = ""


def case_key(folder: Path) -> str:
    """What an answer depends on: names and content of the case's own files."""
    found = hashlib.sha256()
    for name in ("check.py", *FILES):
        with contextlib.suppress(OSError, ValueError), regular.opened(folder / name) as file:
            found.update(name.encode())
            while piece := file.read(1 << 20):
                found.update(hashlib.sha256(piece).digest())
    return found.hexdigest()


def ask(case: Case, place: Place, timeout: float, kept: Path) -> Answer:
    """Install the release where that was asked for, and run the check. An answer of an installed release is kept in the folder
    ``kept`` and not asked for again: neither of the two changes."""
    if (known := recall(case, place, kept)) is not None:
        return known
    if problem := install(place):
        return Answer("cannot tell", said=problem)
    answer = _run(case, place, timeout)
    if place.folder is not None and answer.outcome != "cannot tell":
        kept.mkdir(parents=True, exist_ok=True)
        write_atomically(_record(case, place, kept), msgspec.json.encode(answer))
    return answer


def recall(case: Case, place: Place, kept: Path) -> Answer | None:
    """What this release was seen to answer; None where it was not asked, or is not one that was installed for ladders."""
    if place.folder is not None:
        with contextlib.suppress(OSError, ValueError):
            return decoding.decode(_record(case, place, kept).read_bytes(), Answer)
    return None


def _record(case: Case, place: Place, kept: Path) -> Path:
    return kept / f"{hashlib.sha256(f'{case.key} {place.words} {place.name}'.encode()).hexdigest()}.json"


def _run(case: Case, place: Place, timeout: float) -> Answer:
    """Its temporary files go with it, whatever ends it: some releases leave a log of their own there."""
    with scratch("narrowdown-check-") as temporary:
        return _run_in(case, place, timeout, str(temporary))


def _run_in(case: Case, place: Place, timeout: float, temporary: str) -> Answer:
    begun = time.monotonic()
    words = [*place.words, "check.py", *case.words]
    process = subprocess.Popen(
        words, cwd=case.folder,
        env={**os.environ, **place.variables, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": temporary},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return Answer("cannot tell", said=f"It was ended after {timeout:g} s.", seconds=timeout)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    seconds = round(time.monotonic() - begun, 3)
    named = _ENGINE.search(output)
    engine, found = (named[1], named[2]) if named else ("", "")
    lines = output.rstrip().splitlines() or ["it said nothing"]
    outcome = OUTCOMES.get(process.returncode, "cannot tell") if named else "cannot tell"
    if process.returncode < 0:
        said = f"It died of signal {-process.returncode}."
    elif outcome != "cannot tell" and _is_another(place.version, engine):
        outcome, said = "cannot tell", f"Another release ran than was asked for: {engine}."
    else:
        said = next((line.strip() for line in lines if line.startswith("  ")), lines[-1]) if named else lines[-1]
    return Answer(outcome, engine, found, said, seconds)


def _is_another(version: str, engine: str) -> bool:
    """Whether the engine names its version, and it is not the one that was installed. The check of a crash names none."""
    named = re.findall(r"\d+(?:\.\d+)+(?:[.-]?\w+)*", engine)
    return bool(version and named) and not any(re.match(re.escape(version) + r"(?![0-9.])", name) for name in named)
