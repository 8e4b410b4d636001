"""The parts of the last screen: sections of the report, what to do, the way here, the files to
share."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from textual.content import Content

from narrowdown.wizard.report.hand_on import Deed
from narrowdown.wizard.report.sections import (
    Block,
    Bullets,
    Cell,
    Code,
    Facts,
    Name,
    Names,
    Says,
    Section,
    Table,
)
from narrowdown.wizard.standing import Tone
from narrowdown.wizard.tui.literal import elide, fit, literal, row, wrap_words
from narrowdown.wizard.tui.widgets.lines import Lines, pairs, wrap
from narrowdown.wizard.words import NAME, listing

TALL = 32  # rows of a terminal that is tall, as in the style sheet


class ReportText(Lines[Sequence[Section]]):
    """Sections of the report, as letters say them: no picture. Long lists of names are folded away
    until they are ``opened``."""

    opened = False

    @property
    def folds(self) -> bool:
        """Whether a list is folded away, or was."""
        return any(isinstance(cell, Names) and cell.line for cell in self._cells())

    def unfold(self) -> None:
        """Open what is folded away, or fold it again."""
        self.opened = not self.opened
        self.changed()

    def _cells(self) -> Iterator[Cell]:
        for section in self._told or ():
            for block in section.blocks:
                if isinstance(block, Facts):
                    yield from (cell for _, cell in block.rows)

    def rows(self, told: Sequence[Section], width: int) -> list[Content]:
        rows: list[Content] = []
        several = sum(section.level == 2 for section in told) > 1
        for section in told:
            if several or section.level > 2:
                rows += [*([Content()] if rows else []), row([(section.title, "bold $fails")])]
            rows += [line for block in section.blocks for line in self._write(block, width)]
        return rows

    def _write(self, block: Block, width: int) -> list[Content]:
        if isinstance(block, Facts):
            return pairs([(label, self._unfolded(cell)) for label, cell in block.rows], width)
        return write(block, width)

    def _unfolded(self, cell: Cell) -> str:
        """A fact; of what is folded away the line that it stands behind, and the key that opens
        it."""
        if not isinstance(cell, Names) or not cell.line:
            return say_cell(cell)
        if self.opened:
            return f"{cell.line}: {say_cell(Names(cell.names, len(cell.names)))}"
        return f"{cell.line} ({self.fill_in_keys('{details}')} lists them)"


def write(block: Block, width: int) -> list[Content]:
    """A block in rows; none of a picture, and of what to do, which stands in a panel of its own."""
    match block:
        case Says(cell):
            return wrap(say_cell(cell), width)
        case Bullets(items):
            return [line for item in items for line in wrap(f"- {say_cell(item)}", width)]
        case Code(text):
            return [
                line for typed in text.split("\n") for line in wrap_words(literal(typed), width)
            ]
        case Table(columns, table):
            told = [[say_cell(cell) for cell in cells] for cells in table]
            rows = [(cells[0], _say_row(columns[1:], cells[1:], max(60, width))) for cells in told]
            return pairs(rows, width)
    return []


def _say_row(columns: Sequence[str], cells: Sequence[str], room: int) -> str:
    """The cells of a row with their names, those that fit."""
    said = ""
    for name, cell in zip(columns, cells, strict=True):
        told = f"; {name}: {cell}" if said else f"{name}: {cell}"
        said += told if cell and len(said) + len(told) <= room else ""
    return said


def say_cell(cell: Cell) -> str:
    """What stands in a line, names shortened."""
    match cell:
        case tuple():
            return " ".join(filter(None, map(say_cell, cell)))
        case Names(names, most):
            return listing([elide(name, NAME) for name in names], most)
        case Name():
            return elide(cell, NAME)
    return cell


class Banner(Lines[tuple[str, str, Tone]]):
    """The verdict over the whole width, in its colour: three rows where there are many, else one.
    What ended it stands on the left, the verdict's name on the right."""

    def rows(self, told: tuple[str, str, Tone], width: int) -> list[Content]:
        title, verdict, tone = told
        style = f"bold reverse ${tone}"
        room = max(1, width - 2)
        rows = literal(title).wrap(room)
        last = rows[-1].plain if rows else ""
        if verdict and cell_len(last) + cell_len(verdict) + 2 <= room:
            rows[-1:] = [literal(last + " " * (room - cell_len(last + verdict)) + verdict)]
        edge = [Content()] if self.app.size.height >= TALL else []
        return [row([(fit(f" {one.plain}", width), style)]) for one in (*edge, *rows, *edge)]


class Todos(Lines[Sequence[Deed]]):
    """What to do now, numbered, with what to type below it."""

    def rows(self, told: Sequence[Deed], width: int) -> list[Content]:
        rows: list[Content] = []
        for position, todo in enumerate(told, 1):
            rows += pairs([(str(position), todo.text)], width)
            typed = wrap_words(literal(todo.typed), max(1, width - 3)) if todo.typed else []
            rows += [row([("   ", ""), (line.plain, "bold")]) for line in typed]
        return rows
