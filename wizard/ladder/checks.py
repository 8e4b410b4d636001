"""One case in one release: its check.py, run as any checker is (``engines.checker``), and ended
with all that it started."""

import re
from pathlib import Path

import msgspec

from narrowdown.engines.data.held import NotAgreed
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
    """``folder``: where check.py lies, a private copy. ``trial``: what it is run with."""

    name: str
    folder: Path
    trial: Trial = Trial()


def ask(case: Case, place: Place, timeout: float) -> Answer:
    """Install the release where that was asked for, and run the check. Its temporary files go with
    it, whatever ends it: some releases leave a log of their own there."""
    if problem := install(place):
        return Answer("cannot tell", said=problem)
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
    # Versions that the engine names; the check of a crash names none.
    ran = re.findall(r"\d+(?:\.\d+)+(?:[.-]?\w+)*", engine) if place.version else []
    asked = re.compile(re.escape(place.version) + r"(?![0-9.])")
    if done.signal:
        outcome, said = "cannot tell", f"It died of signal {done.signal}."
    elif outcome != "cannot tell" and ran and not any(map(asked.match, ran)):
        outcome, said = "cannot tell", f"Another release ran than was asked for: {engine}."
    else:
        said = (
            next((line.strip() for line in lines if line.startswith("  ")), lines[-1])
            if named
            else lines[-1]
        )
    return Answer(outcome, engine, found, said, seconds)
