"""The moving picture of the README: a real session of the demo ``shapes`` in one SVG, played by CSS
alone, from the command to the verdict. python docs/screenshots/moving.py [SESSION]

The demo is walked with a real runner and real engines, or a finished session's folder is named; its
journal is then shown to the screens bit by bit. How long a frame stays is chosen for reading. Rows
that frames share are stored once.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

SIZE = (100, 30)
PLACE = Path(tempfile.gettempdir()) / "demo"
WIDE, TALL, TOP = 8.4, 17.0, 26.0  # of a cell, and of the title bar
COMMAND = (
    "$ narrowdown open shapes_cnn.onnx --engine onnxruntime:optimization=all",
    "    --inputs shapes_cnn_in.npz",
)
MOST = 4  # frames of one step at work
# Seconds that a word, a frame at work, a question and the last screen stay.
TYPED, SHORT, LONG, END = 0.25, 0.4, 1.5, 6.0

Row = tuple[
    tuple[str, str, str, bool], ...
]  # text, its colour, the colour behind it, whether it is bold


class Frame(NamedTuple):
    """A screen, and how long it is seen (seconds)."""

    rows: tuple[Row, ...]
    seconds: float


def typed() -> list[Frame]:
    """The command, word by word, as the first thing that is seen."""
    shown, frames = "", []
    for part in "\n".join(COMMAND).split(" "):
        shown = f"{shown} {part}" if frames else part
        rows = tuple(((line, "#e4e7eb", "", False),) for line in f"{shown}\u2588".split("\n"))
        if part or not frames:
            frames.append(Frame(rows, TYPED))
    return [*frames[:-1], frames[-1]._replace(seconds=LONG)]


def rows_of(app: Any) -> tuple[Row, ...]:
    """What the terminal shows now."""
    found = []
    for strip in app.screen._compositor.render_strips():
        row: list[tuple[str, str, str, bool]] = []
        for text, style, control in strip:
            if control or not text:
                continue
            ink = style.color.get_truecolor().hex if style and style.color else "#e4e7eb"
            paper = style.bgcolor.get_truecolor().hex if style and style.bgcolor else ""
            if style and style.reverse:
                ink, paper = paper or "#1c1c1c", ink
            look = (ink, paper, bool(style and style.bold))
            if row and row[-1][1:] == look:
                row[-1] = (row[-1][0] + text, *look)
            else:
                row.append((text, *look))
        found.append(tuple(row))
    return tuple(found)


def drawn_row(row: Row, classes: dict[tuple[str, bool], str]) -> str:
    """One row as SVG, at the left upper corner."""
    from rich.cells import cell_len

    parts, x = [], 0
    for text, ink, paper, bold in row:
        wide = cell_len(text)
        if paper and paper != "#1c1c1c":
            parts.append(
                f'<path fill="{paper}" d="M{x * WIDE:.1f} 0h{wide * WIDE:.1f}v{TALL:g}h-{wide * WIDE:.1f}z"/>'
            )
        bare = text.strip()
        if bare:
            at = x + cell_len(text[: len(text) - len(text.lstrip())])
            kind = classes.setdefault((ink, bold), f"c{len(classes)}")
            parts.append(
                f'<text class="{kind}" x="{at * WIDE:.1f}" y="13" textLength="{cell_len(bare) * WIDE:.1f}">{escape(bare)}</text>'
            )
        x += wide
    return "".join(parts)


def moving(frames: Sequence[Frame]) -> str:
    """All frames as one SVG that plays for ever; the last one alone where motion is not wanted."""
    classes: dict[tuple[str, bool], str] = {}
    ids: dict[Row, str] = {}
    shown = []
    for n, frame in enumerate(frames):
        used = []
        for y, row in enumerate(frame.rows):
            if any(text.strip() or (paper and paper != "#1c1c1c") for text, _, paper, _ in row):
                used.append(
                    f'<use href="#{ids.setdefault(row, f"r{len(ids)}")}" y="{TOP + y * TALL:g}"/>'
                )
        shown.append(f'<g class="f" style="animation-name:f{n}">{"".join(used)}</g>')
    whole = sum(frame.seconds for frame in frames)
    at, steps = 0.0, []
    for n, frame in enumerate(frames):
        first, last = 100 * at / whole, 100 * (at + frame.seconds) / whole
        before = "0%{visibility:hidden}" if n else ""
        after = (
            f"{last:.2f}%,100%{{visibility:hidden}}"
            if n < len(frames) - 1
            else "100%{visibility:visible}"
        )
        steps.append(f"@keyframes f{n}{{{before}{first:.2f}%{{visibility:visible}}{after}}}")
        at += frame.seconds
    rows = "".join(f'<g id="{name}">{drawn_row(row, classes)}</g>' for row, name in ids.items())
    colours = "".join(
        f".{name}{{fill:{ink}{';font-weight:bold' if bold else ''}}}"
        for (ink, bold), name in classes.items()
    )
    width, height = SIZE[0] * WIDE + 16, SIZE[1] * TALL + TOP + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {width:g} {height:g}" role="img" '
        'aria-label="A session of the demo shapes, from the command to the cause and the workaround">'
        f"<style>text{{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}}{colours}"
        f".f{{visibility:hidden;animation:{whole:.2f}s steps(1,end) infinite}}{''.join(steps)}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:last-of-type{visibility:visible}}</style>"
        f'<defs>{rows}</defs><rect x="-8" width="{width:g}" height="{height:g}" rx="8" fill="#1c1c1c"/>'
        '<circle cx="8" cy="13" r="5" fill="#ff5f57"/><circle cx="25" cy="13" r="5" fill="#febc2e"/>'
        f'<circle cx="42" cy="13" r="5" fill="#28c840"/>{"".join(shown)}</svg>\n'
    )


class Replayed:
    """A finished session as the screens met it while it ran: its journal up to ``at`` events."""

    def __init__(self, folder: Path) -> None:
        from narrowdown.wizard.report.read import read
        from narrowdown.wizard.session import journal

        self.folder, self.flow = folder, read(folder).flow
        self.events = journal.read(folder / journal.NAME)
        self.at = self._given = 0
        self.work: dict[str, Any] = {"phase": "starting"}

    def poll(self) -> tuple[Any, ...]:
        news = tuple(self.events[self._given : self.at])
        self._given = self.at
        return news

    def progress(self) -> dict[str, Any]:
        return self.work

    def send(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return {"ok": True}

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def moments(self, told: Callable[[str], str]) -> list[tuple[int, float, dict[str, Any]]]:
        """(events so far, seconds that it is seen, what the runner would say): each step at work,
        each question, the end. ``told``: what a step does."""
        from narrowdown.wizard.session.events import (
            ProbeFinished,
            QuestionAsked,
            SessionClosed,
            StepFinished,
            StepStarted,
        )

        found: list[tuple[int, float, dict[str, Any]]] = []
        nodes = next(
            (
                n
                for e in self.events
                for n in [getattr(getattr(e, "measurement", None), "nodes", 0)]
                if n
            ),
            -1,
        )
        for i, event in enumerate(self.events):
            if isinstance(event, StepStarted):
                rest = range(i + 1, len(self.events))
                end = next(j for j in rest if isinstance(self.events[j], StepFinished))
                done = [j for j in range(i, end) if isinstance(self.events[j], ProbeFinished)]
                many = min(MOST, len(done) // 3 + 1) if done else 0
                for part in range(1, many + 1):
                    n = max(1, len(done) * part // many - 1)
                    work = {
                        "phase": "running",
                        "text": told(event.step),
                        "done": n,
                        "expected": len(done),
                    }
                    work["nodes"] = nodes
                    found.append((done[n - 1] + 1, SHORT, work))
            elif isinstance(event, QuestionAsked):
                found.append((i + 1, LONG, {"phase": "ask"}))
            elif isinstance(event, SessionClosed) and event.end:
                found.append((i + 1, END, {"phase": "ended"}))
        return found


async def frames_of(folder: Path) -> list[Frame]:
    """A frame for each moment of a finished session, on the clock of its journal."""
    import msgspec

    from narrowdown.wizard.tui import client, keys
    from narrowdown.wizard.tui.app import Narrowdown
    from narrowdown.wizard.tui.library import Sessions
    from narrowdown.wizard.tui.literal import UNICODE

    session = Replayed(folder)

    class Played(Sessions):
        def open(self, folder: Path, first: Sequence[Any] = ()) -> Any:  # noqa: ARG002
            return session

        def problem(self, folder: Path) -> Any:
            return msgspec.structs.replace(
                super().problem(folder), model="shapes_cnn.onnx", inputs=("shapes_cnn_in.npz",)
            )

        def finish(self, folder: Path) -> None:
            """Report and bundle are there already."""

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def time() -> float:
            return float(session.events[max(0, session.at - 1)].ts)

    client.time = Clock  # type: ignore[assignment]
    client.latest_log = lambda *_: ()  # it would hold the dates and folders of this machine
    library = Played()
    app = Narrowdown(library, folder=folder, glyph_set=UNICODE, keymap=keys.Keymap())
    frames: list[Frame] = []
    async with app.run_test(size=SIZE) as pilot:
        for at, seconds, work in session.moments(library.summary):
            session.work, session.at = work, at
            wanted = session.events[at - 1].seq
            for _ in range(400):
                await pilot.pause(0.05)
                if (
                    app.scene
                    and app.scene.state.seq == wanted
                    and app.scene.work.phase == work["phase"]
                ):
                    break
            else:
                raise SystemExit(f"The screens did not come to event {wanted}.")
            before: tuple[Row, ...] = ()
            # Until nothing moves any more; a screen that was just made is empty for a moment.
            while (rows := rows_of(app)) != before or sum(
                bool(row) for row in rows if any(t.strip() for t, *_ in row)
            ) < 5:
                before = rows
                await pilot.pause(0.15)
            if not frames or frames[-1].rows != rows:
                frames.append(Frame(rows, seconds))
    return frames


def main() -> None:
    """Walk the demo in a folder of its own, unless a finished session is named; then draw it."""
    target = Path(__file__).with_name("moving.svg")
    PLACE.mkdir(exist_ok=True)
    os.environ |= {"NARROWDOWN_THEME": "dark", "TEXTUAL_ANIMATIONS": "none"}
    try:
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1])
        else:
            home = {
                "NARROWDOWN_HOME": str(PLACE / "sessions"),
                "XDG_STATE_HOME": str(PLACE / "state"),
            }
            start = "import sys; from narrowdown.wizard.cli import main; sys.exit(main())"
            words = [sys.executable, "-P", "-c", start, "demo", "shapes", "--display", "none"]
            subprocess.run(words, env={**os.environ, **home}, check=True)
            (folder,) = (journal.parent for journal in (PLACE / "sessions").glob("*/journal.jsonl"))
        # Paths are shown from the home folder on: those of this machine are no picture.
        os.environ |= {"HOME": str(folder.parent), "NARROWDOWN_HOME": str(folder.parent)}
        frames = asyncio.run(frames_of(folder))
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
    frames = [*typed(), *frames]
    target.write_text(moving(frames), encoding="utf-8")
    print(
        f"{target}: {len(frames)} frames, {sum(f.seconds for f in frames):.0f} s, {target.stat().st_size >> 10} KiB"
    )


if __name__ == "__main__":
    main()
