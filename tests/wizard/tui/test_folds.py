"""What is folded away on the last page and in the report, and how long words are parted."""

from pathlib import Path

import pytest
from textual.content import Content

from narrowdown.wizard.report.html import show_cell
from narrowdown.wizard.report.markdown import cell
from narrowdown.wizard.report.sections import FEW, Facts, Names, Section
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.literal import literal, wrap_words
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.widgets.finish import ReportText

from . import golden, scripted as s
from .scripted import FakeSession, settle

MANY = tuple(f"/block.{n}/norm/Mul" for n in range(28))
LINE = "28 of 95 nodes, worst 0.99 % of 1 %"
LONG = Names(MANY, FEW, LINE)


def test_a_report_folds_a_long_list_and_no_short_one() -> None:
    page = str(show_cell(LONG))
    assert page.startswith("<details><summary>28 of 95 nodes")
    assert all(name in page for name in MANY), "nothing is lost behind the fold"
    assert "<details>" not in str(show_cell(Names(MANY[:FEW], FEW, LINE)))
    assert cell(LONG).startswith("28 of 95 nodes")
    assert MANY[-1] not in cell(LONG), "Markdown has no room for all"


async def test_the_key_opens_what_is_folded_away_and_folds_it_again(
    session: FakeSession, make_app: object
) -> None:
    s.ended(session)
    app: Narrowdown = make_app()  # type: ignore[operator]
    async with app.run_test(size=(100, 60)) as pilot:
        await settle(pilot, lambda: isinstance(app.screen, FinishScreen))
        cure = app.screen.query_one("#cure", ReportText)
        cure.tell([Section("", (Facts([("keep", LONG)]),))])
        app.screen.query_one("#cure-panel").display = True
        drawn = [" ".join(row.plain for row in cure.lines(60))]
        for _ in range(2):
            await pilot.press("d")
            await pilot.pause()
            drawn.append(" ".join(row.plain for row in cure.lines(60)))
        assert [LINE.split(",")[0] in text for text in drawn] == [True] * 3
        assert [sum(name in text for name in MANY) for text in drawn] == [0, len(MANY), 0]


async def test_the_last_page_says_that_it_is_being_written_until_it_is(
    session: FakeSession, make_app: object
) -> None:
    s.ended(session)
    app: Narrowdown = make_app()  # type: ignore[operator]
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: isinstance(app.screen, FinishScreen))
        shown = app.screen.query_one("#todo-panel")
        said = app.screen.query_one("#writing")
        assert (shown.display, said.display) == (True, False)
        app.writing.add(session.folder)
        assert app.scene is not None
        app.screen._draw(app.scene)  # type: ignore[attr-defined]
        assert (shown.display, said.display) == (False, True)
        app._write_end(session.folder)
        await settle(pilot, lambda: shown.display)
        assert not said.display
        assert session.folder not in app.writing
        assert "narrowdown" in golden.text_of(app)


@pytest.mark.parametrize("width", [20, 39, 75])
def test_a_path_is_parted_behind_a_slash_alone(width: int) -> None:
    path = str(Path("/home/somebody/.local/state/narrowdown/sessions/wbkxz/case/workaround.md"))
    rows = [row.plain for row in wrap_words(literal(f"see {path} for more", "bold"), width)]
    assert all(len(row) <= width for row in rows)
    joined = "".join(row if row.endswith("/") else f"{row} " for row in rows)
    assert path in joined


def test_styles_stay_where_they_were_and_a_giant_word_has_an_end() -> None:
    text = Content.assemble(("x" * 25, "bold"), (" next", "italic"))
    rows = wrap_words(text, 10)
    assert [row.plain for row in rows] == ["x" * 10, "x" * 10, "xxxxx next"]
    assert [(s.start, s.end, str(s.style)) for s in rows[2].spans] == [(0, 5, "bold"), (5, 10, "italic")]  # fmt: skip
    assert len(wrap_words(literal("y/" * 200_000), 75)) > 5_000
