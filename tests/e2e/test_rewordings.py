"""Sentences that nobody understood, and what is said in their place: the old one is nowhere, the
new one is really said."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from narrowdown.engines.compare.judge import Criterion, Verdict
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Candidate, Measure, Measurement
from narrowdown.wizard.report import probe_words
from narrowdown.wizard.report.strip import Trail
from narrowdown.wizard.session.state import State
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.tui.troubles import troubles
from narrowdown.wizard.tui.widgets.evidence import facts
from narrowdown.wizard.words import price
from tests.docs import test_words as places

from .conftest import Walk, Walked
from .test_every_end import not_reproduced, worked_around


class Pair(NamedTuple):
    """``old``: what no text of the program's holds any more. ``new``: what ``said`` gives."""

    old: str
    new: str
    said: Callable[["Said"], str]


class Said(NamedTuple):
    """What was really said: two whole sessions, their reports, the golden screens."""

    fails: Walked
    passes: Walked
    monkeypatch: pytest.MonkeyPatch


def failing(said: Said) -> str:
    return said.fails.ran.said


def passing(said: Said) -> str:
    return said.passes.ran.said


def golden(name: str, _said: Said) -> str:
    return (places.ROOT / "tests" / "wizard" / "tui" / "goldens" / name).read_text(encoding="utf-8")


def code(_said: Said) -> str:
    return "\n".join(text for _, text in places.read_code())


def not_measured(_said: Said) -> str:
    outcome = {"precision": "fp16", "emulated_error": None}
    return "\n".join(
        f"{label}: {value}" for label, value in facts(outcome, ("emulated_error",), "compare")
    )


def unpriced(_said: Said) -> str:
    """Of a step whose runs nothing has timed yet. A session may have timed them by then, on a slow
    machine."""
    return price(9)


def skipped(said: Said) -> str:
    """As the strip tells it, of a probe that was judged."""
    probe = Measure(
        model="m",
        inputs="i",
        samples=("real:0",),
        engine="e",
        reference="r",
        candidate=Candidate(nodes="70"),
    )
    judged = Verdict("unresolved", "unrepresentable-input")
    said.monkeypatch.setattr(probe_words, "judge_recorded", lambda *_, **__: judged)
    findings = Findings(criterion=Criterion(precision="fp16"))
    trail = Trail(95)
    trail.take("70", *probe_words.verdict(probe, Measurement(), findings))
    return trail.strip.said[0]


def stopped(said: Said) -> str:
    scene = Scene(said.fails.reading.flow, said.fails.folder, state=State(), alive=False)
    (told,) = [each for each in troubles(scene) if each.title == "Stopped"]
    return f"{told.text} {told.next}".replace("{retry}", "R")


PAIRS = {
    "how wrong": Pair(
        r"is off by \d|allowed [0-9.]+ for fp16",
        r"is wrong by [0-9.]+ % \(up to 1 % is normal for FP16\)\. Worst: sample \d+\.",
        failing,
    ),
    "how rare": Pair(
        r"a fault rarer than|more looks without a failure", r"300 runs, no failure\.", passing
    ),
    "made up": Pair(
        r"All of these runs were of one",
        r"Only one made-up input was tried\. Give real ones: --inputs batch\.npz",
        passing,
    ),
    "looking inside": Pair(
        r"Marking did not hide",
        r"Still wrong when we look inside: \d+ of \d+ tensors differ\.",
        failing,
    ),
    "every layer": Pair(
        r"show when every tensor is an output",
        r"Is it still wrong when we look at every layer\?",
        failing,
    ),
    "the precision's own": Pair(
        r"faultless engine would give",
        r"^not measured: error that FP16 alone explains$",
        not_measured,
    ),
    "skipped": Pair(
        r"cannot tell unrepresentable-input",
        r"^Node 70: skipped, its input no longer fits FP16\.$",
        skipped,
    ),
    "an extra check": Pair(
        r"died with exit status",
        r"An extra check took longer than \{\} s and was left out; --timeout gives it more\.",
        code,
    ),
    "stopped": Pair(
        r"Nothing works on this session",
        r"Stopped\. Everything measured is kept\. Press R to go on\.$",
        stopped,
    ),
    "held": Pair(
        r"held by (?:process|\{\})|is being worked on by",
        r"open in another window",
        partial(golden, "sessions-80x24.txt"),
    ),
    "not known yet": Pair(
        r"nothing of the kind was measured|this step will tell|\? seconds",
        r"^about 9 runs$",
        unpriced,
    ),
}
# In docs, with what stands there now.
RIDDLES = (
    r"a fault hides in company",
    r"Asked by what the installed",
    r"plan that is used up",
    r"rarer than 1\.34",
    r"isolated subgraph",
    r"reproduces the failure",
)


@pytest.fixture
def said(walk: Walk, models: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(walk(*worked_around(models)), walk(*not_reproduced(models)), monkeypatch)


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_said_now(said: Said, name: str) -> None:
    pair = PAIRS[name]
    text = pair.said(said)
    assert re.search(pair.new, text, re.MULTILINE), text[-3000:]


@pytest.mark.parametrize("place", places.PLACES)
def test_what_nobody_says_any_more(place: str) -> None:
    old = re.compile("|".join((*(pair.old for pair in PAIRS.values()), *RIDDLES)))
    found = [(where, text.strip()) for where, text in places.PLACES[place][0]() if old.search(text)]
    assert found == []


def test_nor_a_session_and_its_report(said: Said) -> None:
    old = re.compile("|".join((*(pair.old for pair in PAIRS.values()), *RIDDLES)))
    for walked in (said.fails, said.passes):
        told = [
            walked.ran.out,
            walked.ran.err,
            (walked.folder / "report.html").read_text(encoding="utf-8"),
        ]
        assert [line for text in told for line in text.splitlines() if old.search(line)] == []
