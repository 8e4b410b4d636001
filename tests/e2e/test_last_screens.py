"""The last screen of the terminal UI at every end of the flow, over real sessions: what was found,
what to do now."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.library import Sessions
from narrowdown.wizard.tui.literal import UNICODE
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.widgets.finish import Todos

from ..patience import allow
from .conftest import Walk
from .test_every_end import ENDS, End

# What one is told to do, in this order; SESSION stands for the session's folder.
TODO: Mapping[str, tuple[str, ...]] = {
    "not-reproduced": ("Does it fail on another machine?", "narrowdown replay SESSION", "report.html tells all"),
    "not-determined": ("Start again with another measure of what is wrong", "report.html tells all"),
    "reference-suspect": ("Start again with a reference that can be trusted (--reference)", "report.html tells all"),
    "fixed-by-sanitizing": ("Use the cleaned model. This writes it:", "narrowdown step sanitize", "report.html tells all"),
    "case-found": (
        "It looks like openvinotoolkit/openvino#25169: read that first", "If it is another fault, send the case folder",
        "python SESSION/case/check.py", "Is it that bug", "narrowdown replay SESSION --expect fixed",
        "report.html tells all",
    ),
    "worked-around": (
        "Paste this first (TensorRT in Python", "for the rest and for other tools see SESSION/case/workaround.md",
        "assert parser.parse_from_file('worked-around.onnx'),", "Use this model in place of yours:",
        "SESSION/worked-around.onnx", "Send the case folder",
        "python SESSION/case/check.py", "narrowdown replay SESSION --expect fixed", "report.html tells all",
    ),
    "unresolved": ("Press [r] to go back to any question and answer it otherwise.", "report.html tells all"),
}  # fmt: skip


def last_screen(folder: Path) -> str:
    """What the terminal shows, on as many lines as it takes."""

    async def shown() -> str:
        app = Narrowdown(
            Sessions(watch=True), folder=folder, glyph_set=UNICODE, keymap=keys.Keymap()
        )
        async with app.run_test(size=(80, 120)) as pilot:
            deadline = time.monotonic() + allow(30)
            while not (
                isinstance(app.screen, FinishScreen)
                and any(todos.size.height for todos in app.screen.query(Todos))
            ):
                assert time.monotonic() < deadline, "it never came to the last screen"
                await pilot.pause(0.05)
            await pilot.pause()
            strips = app.screen._compositor.render_strips()
            return "\n".join(
                "".join(segment.text for segment in strip).rstrip() for strip in strips
            )

    return asyncio.run(shown())


def flowed(text: str) -> str:
    """Without the frames, and the breaks that wrapping makes, also within long words."""
    return "".join("".join(line.strip(" │─╭╮╰╯") for line in text.splitlines()).split())


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.end)
def test_every_end_says_what_was_found_and_what_to_do_now(
    end: End, walk: Walk, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Paths are shown whole. It exists, as ONNX Runtime keeps files of its own there: in '/nowhere',
    # for root.
    monkeypatch.setenv("HOME", str(tmp_path))
    walked = walk(*end.words(models))
    text = last_screen(walked.folder)
    print(text)
    seen = flowed(text)
    # The last question is shown with its answer. Behind a suspect reference it is whether the
    # engine agrees with itself.
    last = "No, or that could not be asked" if end.end == "reference-suspect" else end.said[0]
    assert flowed(last) in seen
    at = -1
    for said in (end.headline, *TODO[end.end]):
        found = seen.find(flowed(said.replace("SESSION", str(walked.folder))), at + 1)
        assert found > at, f"'{said}' is not there, or not in its place"
        at = found
    assert ("Toshare" in seen) == ("Whatfails" in seen) == end.exports
    assert "{" not in text
    assert "None" not in text
