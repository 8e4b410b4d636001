"""The numbers of each node as a file for a graph viewer, and what a bundle has of them."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from narrowdown.engines.store.content import Store, write_atomically
from narrowdown.wizard.bundle.models import find_model
from narrowdown.wizard.machine_room import ask
from narrowdown.wizard.report.overlay import (
    draw_neighbourhood,
    list_overlaid,
    write_node_data,
    write_notes,
)
from narrowdown.wizard.report.read import Reading
from narrowdown.wizard.session.problems import SessionProblem
from narrowdown.wizard.words import count

NODE_DATA, AROUND = "nodes.json", "around.svg"  # in a bundle


class NothingMeasured(SessionProblem):
    """No step has looked at single nodes yet."""

    code = 6


def write_overlay_file(reading: Reading, target: Path) -> str:
    """Write ``.json``, ``.onnx`` or ``.svg``; returns what it holds, in words. Raises
    ``ValueError`` for another name, NothingMeasured, MachineProblem, OSError."""
    kind = target.suffix.lower()
    if kind not in (".json", ".onnx", ".svg"):
        raise ValueError(
            f"'{target.name}' ends in none of .json (Model Explorer), .onnx (Netron) and .svg (a picture)."
        )
    rows = list_overlaid(reading.state, reading.table)
    if not rows:
        raise NothingMeasured(
            f"The session {reading.description.id} has measured no single node yet, so there is nothing to lay over a graph."
        )
    report = reading.report()
    if kind == ".svg":
        drawn = [draw_neighbourhood(c.around) for c in report.culprits]
        if not any(drawn):
            raise NothingMeasured(
                f"The session {reading.description.id} has found no culprit whose surroundings are known."
            )
        for number, text in enumerate(drawn, 1):
            place = target if number == 1 else target.with_stem(f"{target.stem}-{number}")
            write_atomically(place.absolute(), text)
        return f"the surroundings of {count(len(drawn), 'culprit')}"
    if kind == ".json":
        write_atomically(target.absolute(), write_node_data(rows, report.tolerance, report.metric))
        return f"node data of {count(len(rows), 'node')} for Model Explorer"
    notes = write_notes(rows, report.tolerance, report.metric)
    with tempfile.TemporaryDirectory(prefix="narrowdown-overlay-") as folder:
        told = Path(folder, "notes.json")
        told.write_bytes(msgspec.json.encode(notes))
        stored = find_model(Store(reading.folder), reading.state.findings.model)
        written = ask(
            "narrowdown.engines.workers.modelfiles",
            "noted",
            str(stored),
            str(told),
            str(target.absolute()),
        )
    return f"the model as the session has it, with notes on {count(int(written or 0), 'node')}"


def place_overlays(
    reading: Reading, folder: Path, around: str, clean: Callable[[str], str]
) -> None:
    """Node data, and the picture ``around`` the first culprit, into a bundle's folder; nothing
    where nothing was measured. ``clean`` takes out what tells whose it is."""
    if rows := list_overlaid(reading.state, reading.table):
        criterion = reading.state.findings.criterion
        tolerance, metric = (criterion.tolerance, criterion.metric) if criterion else (None, "")
        (folder / NODE_DATA).write_text(
            clean(write_node_data(rows, tolerance, metric)), encoding="utf-8"
        )
    if around:
        (folder / AROUND).write_text(around, encoding="utf-8")
