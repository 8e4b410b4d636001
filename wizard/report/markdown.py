"""The report as Markdown: for an issue tracker, a terminal, a reader without a browser."""

import re
from collections.abc import Sequence

from narrowdown.wizard.report.document import Report, Workaround
from narrowdown.wizard.report.sections import (
    ROWS,
    Aside,
    Block,
    Bullets,
    Cell,
    Code,
    Deeds,
    Facts,
    Name,
    Names,
    Picture,
    Says,
    Section,
    Table,
    Typed,
    list_sections,
)
from narrowdown.wizard.report.summary import count_kept
from narrowdown.wizard.words import LONGEST, NAME, TEXT, WORD, count, elide, listing, visible

MOST = 60_000  # characters: GitHub takes 65,536 in an issue, and its owner has a sentence to add
_WANTED = ("", "What to do now", "See it fail", "Environment")  # sections, before all others


def to_markdown(report: Report) -> str:
    """The sections of the report. Never longer than an issue may be: what does not fit is named."""
    parts = [(section.title, _write_section(section)) for section in list_sections(report)]
    parts[0] = ("", f"# {literal(report.headline)}\n\n{parts[0][1]}")
    room, kept = MOST - 500, set()
    order = sorted(range(len(parts)), key=lambda i: parts[i][0] not in _WANTED)
    for i in order:
        if len(parts[i][1]) + 2 <= room:
            room -= len(parts[i][1]) + 2
            kept.add(i)
    told = [text for i, (_, text) in enumerate(parts) if i in kept]
    if titles := [title for i, (title, _) in enumerate(parts) if i not in kept]:
        told.append(
            f"Too long for an issue, and only in report.html and report.json: {literal(elide(listing(titles), 300))}."
        )
    return "\n\n".join(told) + "\n"


def _write_section(section: Section) -> str:
    title = [f"{'#' * section.level} {literal(section.title)}"] if section.title else []
    return "\n\n".join([*title, *filter(None, map(write, section.blocks))])


def write(block: Block) -> str:
    """A block as Markdown; "" where it has nothing that letters could say."""
    match block:
        case Facts(rows):
            return table(("", ""), [(literal(label), cell(value)) for label, value in rows])
        case Table(columns, rows) if not block.folded:
            shown = [[cell(value) for value in row] for row in rows[:ROWS]]
            header = [inline(column) for column in columns]
            return table(header, shown) + _say_further(len(rows) - ROWS, block.of)
        case Says(value):
            return _line(value)
        case Bullets(items):
            lines = [f"- {_line(item)}" for item in items[:ROWS]]
            return "\n".join(lines) + _say_further(len(items) - ROWS, block.of)
        case Deeds(deeds):
            return "\n\n".join(
                f"**{n}.** {literal(deed.text)}"
                + (f"\n\n{fenced(deed.typed, '')}" if deed.typed else "")
                for n, deed in enumerate(deeds, 1)
            )
        case Code(text, language):
            return fenced(text, language)
        case Picture() if block.plain:
            return f"{fenced(block.plain, 'text')}\n\n{_line(block.caption)}"
    return ""


def _line(value: Cell) -> str:
    """What begins a line."""
    return cell(value) if isinstance(value, Name | Typed | Names) else _escape_start(cell(value))


def _say_further(n: int, of: tuple[str, str]) -> str:
    """A paragraph that says how many are left out here; empty for none."""
    one, many = of
    return f"\n\n{count(n, f'further {one}', f'further {many}')} in report.json." if n > 0 else ""


def how_to_apply(w: Workaround) -> str:
    """Every recipe, as a page of its own."""
    kept = f" Kept: {count_kept(w)}." if w.keep_higher else ""
    only = f" It is right only while {literal(w.condition)}." if w.condition else ""
    found = f"Found on {code(w.engine, LONGEST)}.{kept} `model.onnx` stands for your model.{only}"
    head = f"# How to apply the workaround\n\n{found}"
    return (
        "\n\n".join(
            [head, *(f"## {literal(r.tool)}\n\n{fenced(r.text, r.language)}" for r in w.apply)]
        )
        + "\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(cell.replace(chr(10), ' ') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def cell(value: Cell) -> str:
    """What stands in a line, names as code."""
    match value:
        case Aside():
            return ""
        case tuple():
            return " ".join(filter(None, map(cell, value)))
        case Names(names, most):
            behind = f"{inline(value.line)}: " if value.folded and value.line else ""
            return behind + listing([code(name) for name in names], most)
        case Typed():
            return code(value, LONGEST)
        case Name():
            return code(value)
    return inline(value)


def inline(text: str) -> str:
    """Text of a model or a log that Markdown must not read as markup; of a long word both ends."""
    shown = visible(elide(re.sub(r"\s+", " ", text).strip(), TEXT), longest=WORD)
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", shown)


def literal(text: str) -> str:
    """The same at the beginning of a line, where it must be no list and no underline either."""
    return _escape_start(inline(text))


def _escape_start(line: str) -> str:
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", line)


def code(text: str, longest: int = NAME) -> str:
    """Inline code that holds any text: a longer fence than any run of backticks inside, bars
    escaped for tables."""
    text = visible(elide(re.sub(r"\s+", " ", text), longest)) or "(no name)"
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{visible(text, keep=chr(10))}\n{fence}"
