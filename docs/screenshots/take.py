"""Screenshots of each face and some cards, as SVG, from a real session of the demo ``shapes``:
python docs/screenshots/take.py [FOLDER]

The program runs as it always does, with a real runner and real engines; only the terminal is
Textual's own headless one.
"""

import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SIZE = (104, 32)
FACES = ("running", "ask", "finish")
CARDS = {"ask": {"m": "map"}}  # face -> key -> picture
PLACE = Path(tempfile.gettempdir()) / "demo"  # what the pictures show as the folder of the model


def slim(svg: str) -> str:
    """Without fonts from the network: any monospaced font will do."""
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "monospace")
    svg = re.sub(
        r"terminal-\d+-", "", svg
    )  # each picture is a document of its own, so its names need no prefix
    return re.sub(r"\n\s+", "\n", svg)


async def take(folder: Path) -> None:
    """Walk the demo by Enter and keep one picture of each face."""
    from narrowdown.wizard import demo
    from narrowdown.wizard.tui import keys
    from narrowdown.wizard.tui.app import Narrowdown
    from narrowdown.wizard.tui.library import Sessions
    from narrowdown.wizard.tui.literal import UNICODE

    library = Sessions()
    found = demo.problem("shapes", PLACE)
    names = {name: str(shutil.copy(name, PLACE)) for name in (found.model, *found.inputs)}
    digests = {names[name]: digest for name, digest in found.digests.items()}
    import msgspec

    problem = msgspec.structs.replace(
        found,
        model=names[found.model],
        inputs=tuple(names[name] for name in found.inputs),
        digests=digests,
    )
    session = library.create(problem)
    app = Narrowdown(library, folder=session, glyph_set=UNICODE, keymap=keys.Keymap())
    kept: set[str] = set()

    async with app.run_test(size=SIZE) as pilot:

        async def until(ready: Callable[[], bool]) -> None:
            for _ in range(3000):
                if ready():
                    return
                await pilot.pause(0.05)
            raise SystemExit("The demo did not come to that.")

        async def keep(name: str, settle: float = 0.6) -> None:
            if name not in kept:
                kept.add(name)
                await pilot.pause(settle)
                (folder / f"{name}.svg").write_text(
                    slim(app.export_screenshot(title="narrowdown")), encoding="utf-8"
                )

        async def cards(face: str) -> None:
            for key, name in CARDS[face].items():
                if name not in kept:
                    await pilot.press(key)
                    await until(lambda: bool(app.screen.query(".card")))
                    await keep(name)
                    await pilot.press("escape")
                    await until(lambda: not app.screen.query(".card"))

        def face() -> str:
            return app.scene.face if app.scene else ""

        def node() -> str:
            return app.scene.node if app.scene else ""

        while face() != "ended":
            await until(lambda: face() in ("offer", "ask", "ended"))
            if (face(), node()) == ("ask", "tactics"):
                await keep("ask")
                await cards("ask")
            before = (face(), node())
            if before[0] == "ended":
                break
            await pilot.press("enter")  # an answer starts the next step, too

            def hunting() -> bool:  # a step tries parts of the model, and one of them fails
                return face() == "running" and bool(app.scene and app.scene.hunt.strip.suspects)

            def settled(before: tuple[str, str] = before) -> bool:
                return (face(), node()) != before and face() != "running"

            await until(lambda: hunting() or settled())
            if hunting():
                await keep("running", 0.05)
            await until(lambda before=before: (face(), node()) != before and face() != "running")
        await until(lambda: bool(app.scene and app.scene.files))
        await keep("finish")
    missing = {*FACES, *(name for face in CARDS.values() for name in face.values())} - kept
    if missing:
        raise SystemExit(f"Not taken: {', '.join(sorted(missing))}; try again.")


def main() -> None:
    """Sessions live in a folder of their own while the pictures are taken."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    PLACE.mkdir(exist_ok=True)
    os.environ |= {
        "NARROWDOWN_HOME": str(PLACE / "sessions"),
        "XDG_STATE_HOME": str(PLACE / "state"),
        "NARROWDOWN_THEME": "dark",
        "TEXTUAL_ANIMATIONS": "none",
    }
    try:
        asyncio.run(take(folder))
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


if __name__ == "__main__":
    main()
