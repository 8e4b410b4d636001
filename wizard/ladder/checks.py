"""One case in one release: its check.py, run as any checker is (``engines.checker``), and ended
with all that it started."""

import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from narrowdown.engines.data.held import NotAgreed
from narrowdown.engines.store import decoding
from narrowdown.engines.store.content import write_atomically
from narrowdown.engines.store.scratch import scratch
from narrowdown.wizard.bundle.withheld import Trial
from narrowdown.wizard.ladder.environments import Place, install
from narrowdown.wizard.ladder.rungs import Outcome

OUTCOMES: dict[int, Outcome] = {0: "passes", 1: "fails"}
_ENGINE = re.compile(r"^on (.*); the case was found with (.*)$", re.MULTILINE)


class Answer(msgspec.Struct, frozen=True):
    """``engine``: what ran, by its own words; ``found``: what the case was found with; ``said``:
    its line that decides."""

    outcome: Outcome
    engine: str = ""
    found: str = ""
    said: str = ""
    seconds: float = 0.0


class Case(msgspec.Struct, frozen=True):
    """``folder``: where check.py lies, a private copy. ``trial``: what it is run with. ``key``:
    sha256 of everything that it reads; "" where that cannot be told."""

    name: str
    folder: Path
    trial: Trial = Trial()
    key: str = ""


def case_key(*read: Mapping[str, str]) -> str:
    """What an answer depends on: names and content of what the check reads."""
    return hashlib.sha256(msgspec.json.encode([sorted(each.items()) for each in read])).hexdigest()


def ask(case: Case, place: Place, timeout: float, kept: Path) -> Answer:
    """Install the release where that was asked for, and run the check. An answer of an installed
    release is kept in the folder ``kept`` and not asked for again: neither of the two changes."""
    if (known := recall(case, place, kept)) is not None:
        return known
    if problem := install(place):
        return Answer("cannot tell", said=problem)
    answer = _run(case, place, timeout)
    if case.key and place.folder is not None and answer.outcome != "cannot tell":
        kept.mkdir(parents=True, exist_ok=True)
        write_atomically(_record(case, place, kept), msgspec.json.encode(answer))
    return answer


def recall(case: Case, place: Place, kept: Path) -> Answer | None:
    """What this release was seen to answer; None where it was not asked, or is not one that was
    installed for ladders."""
    if case.key and place.folder is not None:
        with contextlib.suppress(OSError, ValueError):
            return decoding.decode(_record(case, place, kept).read_bytes(), Answer)
    return None


def _record(case: Case, place: Place, kept: Path) -> Path:
    return (
        kept
        / f"{hashlib.sha256(f'{case.key} {place.words} {place.name}'.encode()).hexdigest()}.json"
    )


def _run(case: Case, place: Place, timeout: float) -> Answer:
    """Its temporary files go with it, whatever ends it: some releases leave a log of their own
    there."""
    with scratch("narrowdown-check-") as temporary:
        return _run_in(case, place, timeout, str(temporary))


def _run_in(case: Case, place: Place, timeout: float, temporary: str) -> Answer:
    ours = {**place.variables, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": temporary}
    try:
        done = case.trial.run(place.words, case.folder, timeout, ours)
    except NotAgreed as problem:
        return Answer("cannot tell", said=str(problem))
    seconds = round(done.seconds, 3)
    if done.status == "timeout":
        return Answer("cannot tell", said=f"It was ended after {timeout:g} s.", seconds=timeout)
    if done.message:
        return Answer("cannot tell", said=done.message)
    named = _ENGINE.search(done.stdout)
    engine, found = (named[1], named[2]) if named else ("", "")
    lines = (
        done.stdout.rstrip().splitlines()
        or done.stderr.rstrip().splitlines()
        or ["it said nothing"]
    )
    outcome = OUTCOMES.get(done.returncode, "cannot tell") if named else "cannot tell"
    if done.signal:
        outcome, said = "cannot tell", f"It died of signal {done.signal}."
    elif outcome != "cannot tell" and _is_another(place.version, engine):
        outcome, said = "cannot tell", f"Another release ran than was asked for: {engine}."
    else:
        said = (
            next((line.strip() for line in lines if line.startswith("  ")), lines[-1])
            if named
            else lines[-1]
        )
    return Answer(outcome, engine, found, said, seconds)


def _is_another(version: str, engine: str) -> bool:
    """Whether the engine names its version, and it is not the one that was installed. The check of
    a crash names none."""
    named = re.findall(r"\d+(?:\.\d+)+(?:[.-]?\w+)*", engine)
    return bool(version and named) and not any(
        re.match(re.escape(version) + r"(?![0-9.])", name) for name in named
    )
