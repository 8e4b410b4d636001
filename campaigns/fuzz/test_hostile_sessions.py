"""A stranger's session whose files name what lies outside of it: nothing is opened, written or
started there."""

import contextlib
import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard.bundle.export import export
from narrowdown.wizard.cli.diff import read_side
from narrowdown.wizard.flow.load import FlowProblem
from narrowdown.wizard.report.canonical import canonical
from narrowdown.wizard.report.differences import compare_sides, say_differences
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import to_markdown
from narrowdown.wizard.report.read import read
from narrowdown.wizard.session import SessionProblem, folder as folders, journal

from . import commands, mutate, strays

GOLDEN = Path(__file__).parents[2] / "tests" / "sessions" / "format-1.zip"
SECRET = "the words of somebody else"


def test_the_campaign_sees_what_strays(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with strays.watch((inside,)) as touched:
        (inside / "a").write_text("fine")
        (inside / "a").read_text()
        (tmp_path / "b").write_text("not fine")
        Path("/etc/hostname").exists()
        with contextlib.suppress(OSError):
            (inside / ".." / "c").read_text()
        (inside / "link").symlink_to(tmp_path / "b")
        (inside / "link").read_text()
        subprocess.run(["true"], check=True)
    told = [
        line.split()[0] + " " + Path(line.split()[1]).name
        for line in touched
        if "Popen" not in line
    ]
    assert told == ["open b", "open c", "os.symlink b", "open b"]
    assert sum("Popen" in line for line in touched) == 1


def places(data: Any, above: str = "") -> Iterator[str]:
    """Where the texts are: ``kind.field.field``, all items of a list alike."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, f"{above}.{key}")
    elif isinstance(data, list):
        for value in data:
            yield from places(value, f"{above}[]")
    elif isinstance(data, str):
        yield above


def replaced(data: Any, wanted: str, text: str, above: str = "") -> Any:
    """The same with ``text`` in that place."""
    if isinstance(data, dict):
        return {key: replaced(value, wanted, text, f"{above}.{key}") for key, value in data.items()}
    if isinstance(data, list):
        return [replaced(value, wanted, text, f"{above}[]") for value in data]
    return text if isinstance(data, str) and above == wanted else data


def looks_like_a_file(data: Any, wanted: str, above: str = "") -> bool:
    """Whether what stands there is a digest or a path."""
    if isinstance(data, dict):
        return any(
            looks_like_a_file(value, wanted, f"{above}.{key}") for key, value in data.items()
        )
    if isinstance(data, list):
        return any(looks_like_a_file(value, wanted, f"{above}[]") for value in data)
    return above == wanted and isinstance(data, str) and (len(data) == 64 or "/" in data)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_session_that_names_what_lies_elsewhere(tmp_path: Path, every: bool) -> None:
    """Each text of the journal and of ``session.json`` in turn; in the fast suite some of the
    digests and paths."""
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path)
    session, secret, out = tmp_path / "session", tmp_path / "secret", tmp_path / "given" / "out"
    secret.write_text(SECRET)
    out.parent.mkdir()
    events = [json.loads(line) for line in (session / journal.NAME).read_bytes().splitlines()]
    for event in events:
        del event["crc"]
    head = json.loads((session / "session.json").read_bytes())
    found = {
        (event["kind"], place)
        for event in events
        for place in places(event, event["kind"])
        if ".kind" not in place
    }
    files = {
        place
        for kind, place in found
        if any(looks_like_a_file(e, place, kind) for e in events if e["kind"] == kind)
    }
    chosen = sorted({place for _, place in found} if every else files)
    heads = sorted(set(places(head, "session")))
    assert len(chosen) > 8
    assert len(heads) > 8
    original = (session / "session.json").read_bytes()
    tried = 0
    for place in (*chosen, *heads)[:: 1 if every else 8]:
        for text in (
            (str(secret), "../../../secret") if place in files and every else ("../../../secret",)
        ):
            changed = [replaced(event, place, text, event["kind"]) for event in events]
            (session / journal.NAME).write_bytes(b"".join(map(mutate._signed, changed)))
            (session / "session.json").write_bytes(
                json.dumps(replaced(head, place, text, "session")).encode()
                if place in heads
                else original
            )
            with (
                strays.watch((session, out.parent)) as touched,
                contextlib.suppress(SessionProblem, FlowProblem),
            ):
                looked_at(session, out, handed_on=place in files or not every)
            started = [
                line
                for line in touched
                if line.startswith("subprocess.Popen")
                and "narrowdown.engines.workers.modelfiles" in line
            ]
            assert [line for line in touched if line not in started] == [], (place, text)
            tried += 1
            assert not any(
                SECRET in path.read_text(errors="replace")
                for path in out.rglob("*")
                if path.is_file()
            ), place
            shutil.rmtree(out, ignore_errors=True)
    assert tried > (100 if every else 4)


@pytest.mark.parametrize("command", [["known"], ["show"], ["diff"]])
def test_no_list_of_nodes_takes_all_memory(tmp_path: Path, command: list[str]) -> None:
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path)
    session = tmp_path / "session"
    lines = (session / journal.NAME).read_bytes().splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        del event["crc"]
    place = "step.finished.findings.culprits[].case.node_ids"
    changed = [replaced(event, place, "0-99999999999999999999", event["kind"]) for event in events]
    assert changed != events
    (session / journal.NAME).write_bytes(b"".join(map(mutate._signed, changed)))
    ended = commands.run([*command, str(session)])
    assert (ended.code, "There is no report of" in ended.err) == (4, True)


def open_replaced(folder: Path, wanted: str, text: str) -> Path:
    """The golden session, signed anew, with this text in each place of its journal whose name ends
    as ``wanted`` says."""
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(folder)
    session = folder / "session"
    events = [json.loads(line) for line in (session / journal.NAME).read_bytes().splitlines()]
    for event in events:
        del event["crc"]
    found = {
        place
        for event in events
        for place in places(event, event["kind"])
        if place.endswith(wanted)
    }
    assert found
    for place in found:
        events = [replaced(event, place, text, event["kind"]) for event in events]
    (session / journal.NAME).write_bytes(b"".join(map(mutate._signed, events)))
    return session


@pytest.mark.parametrize("wanted", ["case.node_ids", "workaround.engine"])
def test_a_report_of_what_cannot_be_is_one_sentence(tmp_path: Path, wanted: str) -> None:
    """It ended in an error of the program's own: a part that is no list of nodes, an engine that
    has no name."""
    session = open_replaced(tmp_path, wanted, "../../../secret")
    with pytest.raises(
        SessionProblem, match=r"There is no report of .*somebody has changed its journal"
    ):
        read(session).report()


WORDS = "\x1b[31mRED\x9b2J\u202eEVIL<script>alert(1)</script>\r\n# A heading of somebody's\x00"


@pytest.mark.parametrize(
    "wanted",
    [
        "question.answered.answer", "question.asked.recommended", "culprits[].cause", "case.ops[]", "case.verified",
        "session.opened.id", "session.opened.versions.onnx", "probe.started.probe.op", "case.nodes[]",
        "engine_info.version", "reference_info.name",
    ],
)  # fmt: skip
def test_no_word_of_somebody_acts_or_begins_a_line_of_ours(tmp_path: Path, wanted: str) -> None:
    """Fields that are words of ours wherever we wrote them, which no form made literal: in a
    terminal, in what is handed to the maintainers of an engine, in JSON that somebody prints."""
    session, out = open_replaced(tmp_path, wanted, WORDS), tmp_path / "out"
    try:
        reading = read(session)
        report = reading.report()
        page = to_html(report)
        texts = [
            canonical(reading.state, reading.flow),
            to_markdown(report),
            to_json(report),
            report.next,
        ]
        texts += say_differences(compare_sides(*[read_side(str(session))[0]] * 2))
        export(reading, out)
    except SessionProblem as problem:
        page, texts = "", [str(problem)]
    texts += [
        path.read_text()
        for path in sorted(out.rglob("*"))
        if path.suffix in (".md", ".txt", ".json", ".sh", ".py")
    ]
    assert "<script>alert" not in page
    for text in texts:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), text[:400]
        assert not re.search("^# A heading of", text, re.MULTILINE), text[:400]


def looked_at(session: Path, out: Path, *, handed_on: bool) -> None:
    """All that can be done with a stranger's session without running anything of it; exported only
    if ``handed_on``."""
    folders.summary(session)
    journal.repair((session / journal.NAME).read_bytes(), session / journal.NAME)
    reading = read(session)
    canonical(reading.state, reading.flow)
    report = reading.report()
    for form in (to_html, to_markdown, to_json):
        assert SECRET not in form(report)
    if handed_on:
        export(reading, out)
