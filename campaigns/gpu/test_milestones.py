"""When a session had what, told from its journal as it grows, whole or torn."""

import json
from pathlib import Path

from .milestones import Story


def event(kind: str, at: float, **rest: object) -> str:
    return json.dumps({"kind": kind, "ts": 100 + at, **rest}) + "\n"


def build(key: str, at: float, seconds: float, **probe: object) -> list[str]:
    asked = {"op": "measure", "engine": "tensorrt:precision=fp16", "samples": ["real:0"], **probe}
    return [
        event("probe.started", at, key=key, run=1, probe=asked),
        event(
            "probe.finished",
            at + seconds,
            key=key,
            run=1,
            seconds=seconds,
            measurement={"build_seconds": seconds},
        ),
    ]


def ended(run: int, at: float, **outcome: object) -> str:
    return event("step.finished", at, run=run, seconds=5.0, outcome=outcome)


def test_milestones_are_told_once_in_seconds_and_in_b(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [
        event("session.opened", 0),
        event("step.started", 1, run=1, step="compare"),
        *build("a", 2, 40.0),
        ended(1, 50, verdict="fails", message="it fails"),
        event("step.started", 50, run=2, step="repeat"),
        *build("b", 50, 8.0, keep="1-3"),
        ended(2, 60, cured=True, message="cured"),
        event("step.started", 60, run=3, step="confirm"),
        ended(3, 100, confirmed=True, names="Pow", nodes=1, message="confirmed"),
    ]
    text = "".join(lines)
    torn = len(text) - 30
    path.write_text(text[:torn])
    story = Story(path)
    first = story.look()
    assert first[0] == "B = 40.0 s (compare)"
    assert [line for line in first if "FIRST" in line] == [
        "60.0 s = 1.50 B: FIRST CURED: what the reference foretells, in FP32",
    ]
    assert story.look() == []
    path.write_text(text)
    assert any("100.0 s = 2.50 B: FIRST MINIMAL: 1 nodes: Pow" in line for line in story.look())
    facts = story.facts()
    assert (facts["B"], facts["named_B"], facts["cured_B"], facts["minimal_B"]) == (
        40.0,
        2.5,
        1.5,
        2.5,
    )
    assert facts["steps"] == "compare 5 repeat 5 confirm 5"
    assert [b["keep"] for b in story.builds] == [False, True]


def test_a_session_that_did_not_begin_tells_nothing(tmp_path: Path) -> None:
    story = Story(tmp_path / "none" / "journal.jsonl")
    assert story.look() == []
    assert story.facts() == {"B": 0.0, "builds": 0, "steps": ""}


def test_a_part_that_is_built_where_the_whole_is_refused_is_no_b(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    asked = {"op": "measure", "engine": "tensorrt:precision=fp16", "samples": ["real:0"]}
    refused = {"build_seconds": 6.5, "status": "build-failed"}
    lines = [
        event("session.opened", 0),
        event("step.started", 1, run=1, step="compare"),
        event("probe.started", 1, key="whole", run=1, probe=asked),
        event("probe.finished", 8, key="whole", run=1, seconds=6.5, measurement=refused),
        *build("alone", 8, 0.1, candidate={"nodes": "0"}),
    ]
    path.write_text("".join(lines))
    story = Story(path)
    assert story.look() == []
    assert story.facts()["B"] == 0.0
    path.write_text("".join([*lines, *build("open", 9, 47.0, candidate={"nodes": "*"})]))
    assert story.look() == ["B = 47.0 s (compare)"]
