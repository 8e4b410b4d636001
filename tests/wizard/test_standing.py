"""Where a session stands and how its verdict is taken."""

from pathlib import Path

import msgspec
import pytest

from narrowdown.wizard.flow.load import load, shipped
from narrowdown.wizard.runner import progress
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.standing import choose_tone, group_families, name_standing, stand
from narrowdown.wizard.tui import scene


def entry(name: str, parent: str = "", **more: str) -> Summary:
    return Summary(name, Path("/s") / name, parent=parent, **more)  # type: ignore[arg-type]


def test_every_phase_has_one_word() -> None:
    phases = ("starting", "offer", "running", "ask", "stopped", "")
    words = {phase: name_standing(ended=False, phase=phase) for phase in phases}
    assert words == {
        "starting": "starting", "offer": "waiting", "running": "running", "ask": "waiting",
        "stopped": "stopped", "": "stopped",
    }  # fmt: skip
    assert name_standing(ended=True, phase="running") == "ended"
    paused = [name_standing(ended=False, phase=phase, paused=True) for phase in phases]
    assert paused.index("paused") == phases.index("running")
    assert paused.count("paused") == 1, "only what runs can be paused"


@pytest.mark.parametrize("phase", ["offer", "running", "ask"])
def test_list_and_header_use_the_same_word(tmp_path: Path, phase: str) -> None:
    progress.write(tmp_path, progress.Snapshot(phase=phase, paused=phase == "running"))
    listed = stand(Summary("a", tmp_path, holder="process 7"))
    flow = load("accuracy").flow
    seen = msgspec.structs.replace(
        scene.Scene(flow, tmp_path), work=scene.Work(phase=phase, paused=phase == "running")
    )
    if phase == "offer":
        assert (seen.face, seen.standing) == ("offer", listed.state)
    assert listed.state == name_standing(ended=False, phase=phase, paused=phase == "running")


def test_nobody_at_work_is_stopped_whatever_a_killed_runner_left(tmp_path: Path) -> None:
    progress.write(tmp_path, progress.Snapshot(phase="running"))
    assert stand(Summary("a", tmp_path)).state == "stopped"
    assert stand(Summary("a", tmp_path, problem="It is damaged.")).state == "unreadable"
    assert stand(Summary("a", tmp_path, end="worked-around")).state == "ended"


def test_each_end_of_the_shipped_flows_has_a_tone_and_only_a_fix_is_green() -> None:
    verdicts = {end.verdict for name in shipped() for end in load(name).flow.ends.values()}
    tones = {verdict: choose_tone(verdict) for verdict in verdicts}
    assert {v for v, tone in tones.items() if tone == "fixed"} == {
        "worked-around",
        "fixed-by-sanitizing",
    }
    assert tones["minimal-case"] == "case"
    assert tones["not-reproduced"] == tones["unresolved"] == "quiet"
    assert choose_tone("worked-around", holds=False) == "case", "what does not hold is no fix"


def test_a_session_stands_below_the_one_that_it_goes_on_from() -> None:
    listed = [entry("new"), entry("child", "old"), entry("other"), entry("grand", "child"), entry("old")]  # fmt: skip
    assert [(e.id, depth) for e, depth in group_families(listed)] == [
        ("new", 0), ("old", 0), ("child", 1), ("grand", 2), ("other", 0),
    ]  # fmt: skip
    gone = [entry("child", "removed"), entry("own", "own")]
    assert [(e.id, depth) for e, depth in group_families(gone)] == [("child", 0), ("own", 0)]


def test_a_circle_of_parents_loses_nobody() -> None:
    listed = [entry("a", "b"), entry("b", "a"), entry("c", "a")]
    assert sorted(e.id for e, _ in group_families(listed)) == ["a", "b", "c"]
