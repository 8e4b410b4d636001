"""The reference pages are what the code declares: the command line, the engines, the steps, the
journal.

``NARROWDOWN_WRITE_DOCS=1 pytest tests/docs/test_reference.py`` writes their tables anew.
"""

import argparse
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest

from narrowdown import engines as engine_room, wizard
from narrowdown.engines import discovery
from narrowdown.engines.backends.base import EngineInfo
from narrowdown.engines.compare.judge import METRICS, TOLERANCE_BY_PRECISION
from narrowdown.engines.compare.tolerance import ULPS
from narrowdown.engines.data.tactic_replay import Suspect
from narrowdown.engines.declaration import Option, Recipe
from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard import Exit
from narrowdown.wizard.cli.arguments import parser
from narrowdown.wizard.cli.grammar import DEMOS
from narrowdown.wizard.cli.parsing import Parser, inner
from narrowdown.wizard.report import document
from narrowdown.wizard.report.differences import Difference
from narrowdown.wizard.runner.table import Result
from narrowdown.wizard.session import events, folder
from tests.wizard.schemas.generate import remarks

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- generated: {} -->\n\n", "\n\n<!-- end -->"


def held_to(path: Path, part: str, made: str) -> None:
    """The part of a page between its marks is this text; with NARROWDOWN_WRITE_DOCS it becomes
    it."""
    text = path.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN.format(part))
    written, end, tail = rest.partition(END)
    assert begin, f"{path.name} has no place for {part}"
    assert end, f"{path.name} has no end of {part}"
    if os.environ.get("NARROWDOWN_WRITE_DOCS"):
        path.write_text(f"{head}{begin}{made}{end}{tail}", encoding="utf-8")
        return
    assert written == made, (
        "the page is older than the code: NARROWDOWN_WRITE_DOCS=1 pytest tests/docs"
    )


def commands(made: Parser | None = None, before: str = "") -> dict[str, Parser]:
    """Every command by its words, those of a command (``sessions rm``) behind it."""
    found: dict[str, Parser] = {}
    for name, command in inner(made or parser()).items():
        found |= (
            {f"{before}{name}": command, **commands(command, f"{before}{name} ")}
            if inner(command)
            else {f"{before}{name}": command}
        )
    return found


def row(action: argparse.Action) -> tuple[str, str]:
    """An option or a positional word, and what it does."""
    value = str(action.metavar or ("" if action.nargs == 0 else "|".join(action.choices or ())))
    names = action.option_strings or [value or action.dest]
    shown = ", ".join(f"`{name}`" for name in names)
    assert action.help or action.dest in ("model", "session"), f"{shown} says nothing in --help"
    said = (action.help or "").replace("%(choices)s", ", ".join(action.choices or ()))
    return (f"{shown} `{value}`" if action.option_strings and value else shown), said


def group(command: Parser, title: str) -> list[argparse.Action]:
    found = [g for g in command._action_groups if g.title == title]
    return [a for g in found for a in g._group_actions if not isinstance(a, argparse._HelpAction)]


def options(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- {shown}: {said}" for shown, said in rows)


def command_line() -> str:
    known = commands()
    parts = []
    for name, command in known.items():
        all_places = group(command, "positional arguments")
        places = [a for a in all_places if not isinstance(a, argparse._SubParsersAction)]
        words = [
            f"{word} ..." if a.nargs in ("*", "+") else word
            for a in places
            for word in [row(a)[0].strip("`")]
        ]
        words = [
            word if a.nargs not in ("?", "*") else f"[{word}]"
            for a, word in zip(places, words, strict=True)
        ]
        own = [
            row(a)
            for a in (*places, *group(command, "options"))
            if a.dest not in ("model", "session", "sessions")
        ]
        lines = [
            f"### narrowdown {' '.join((name, *words))}",
            str(command.description).replace("?.", "?"),
        ]
        shared = [title for title in ("problem", "session") if group(command, title)]
        if shared:
            whole = {a.dest for title in shared for a in group(known["run"], title)}
            lacks = sorted(whole - {a.dest for title in shared for a in group(command, title)})
            also = " and ".join(f"the [{title} options](#{title}-options)" for title in shared)
            but = f", but for {', '.join(f'`--{name}`' for name in lacks)}" if lacks else ""
            lines.append(f"It takes {also}{but}.")
        if own:
            lines.append(options(own))
        parts.append("\n\n".join(lines))
    for title in ("problem", "session"):
        parts.append(f"### {title} options\n\n{options(map(row, group(known['run'], title)))}")
    return "\n\n".join(parts)


def values(option: Option) -> str:
    if option.choices:
        return ", ".join(f"`{c}`" for c in option.choices)
    bounds = [str(limit) for limit in (option.least, option.most) if limit is not None]
    kind = {"str": "", "int": "", "float": "", "bool": "`true`, `false`", "command": "a command", "list": "a list",
            "library": "a list", "file": "a file"}[option.type]  # fmt: skip
    return kind or (
        " to ".join(bounds) if len(bounds) == 2 else f"from {bounds[0]}" if bounds else ""
    )


def default(option: Option) -> str:
    if option.default in (None, "", ()):
        return ""
    return f"default `{str(option.default).lower() if option.type == 'bool' else option.default}`"


def engines() -> str:
    """Each engine's options; one that an earlier engine has in the same words is only named."""
    parts, known = [], dict[Option, str]()
    for declared in discovery.ours().values():
        if declared.hidden or declared.refusal:
            continue
        rows, same = [], dict[str, list[str]]()
        for option in declared.options:
            if option in known:
                same.setdefault(known[option], []).append(f"`{option.name}`")
                continue
            known[option] = declared.name
            about = ", ".join(filter(None, (values(option), default(option))))
            rows.append((f"`{option.name}`{f' ({about})' if about else ''}", option.help))
        rows += [(f"as for {name}", ", ".join(names)) for name, names in same.items()]
        how = f"`{declared.install}`. {declared.needs}".strip()
        parts.append(f"### {declared.name}\n\n{declared.summary}\n\n{how}\n\n{options(rows)}")
    return "\n\n".join(parts)


def choices(annotation: Any) -> str:
    """The words that a field may hold, where they are a few."""
    found = [
        c
        for part in (annotation, *get_args(annotation))
        if get_origin(part) is Literal
        for c in get_args(part)
    ]
    return ", ".join(f"`{c}`" for c in found)


def refers(annotation: Any, titles: Mapping[Any, str]) -> str:
    """The section of the page that says what a field holds, where there is one."""
    if annotation in titles:
        return f"[{titles[annotation]}](#{titles[annotation]})"
    return next(filter(None, (refers(part, titles) for part in get_args(annotation))), "")


def records(text: str, structs: Mapping[str, type[msgspec.Struct]], *, defaults: bool) -> str:
    """A list a struct. What a field means stands in the source where there is a remark, else it is
    taken over from the page."""
    titles = {struct: title for title, struct in structs.items()}
    parts = []
    for title, struct in structs.items():
        section = text.partition(f"### {title}\n")[2].partition("\n### ")[0].partition(END)[0]
        kept = dict(re.findall(r"^- `(\w+)`(?: \(.*?\))?: (.*)$", section, re.MULTILINE))
        for name, cells in re.findall(r"^\| `(\w+)` \|(.*)\|$", section, re.MULTILINE):
            kept[name] = re.split(r"(?<!\\)\|", cells)[-1].strip().replace(r"\|", "|")
        said = remarks(struct)
        lines = []
        for field in msgspec.structs.fields(struct):
            means = said.get(field.name) or kept.get(field.name, "")
            assert means, f"what does {title}'s '{field.name}' mean? Say it in a comment behind it"
            default = (
                "" if not defaults or field.default is msgspec.NODEFAULT else written(field.default)
            )
            if defaults and field.default_factory is not msgspec.NODEFAULT:
                default = written(field.default_factory())
            about = ", ".join(
                filter(None, (refers(field.type, titles), default and f"default {default}"))
            )
            words = choices(field.type)
            means = means if not words or words in means else f"{words}. {means}"
            lines.append(f"- `{field.name}`{f' ({about})' if about else ''}: {means}")
        parts.append(f"### {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


SESSION = {"session": folder.Description}
REPORT = {
    "report": document.Report,
    "culprit": document.Culprit,
    "workaround": document.Workaround,
    "recipe": Recipe,
    "stop": document.Stop,
    "depth": document.Depth,
    "ruled-out": document.RuledOut,
}
LISTED = {"summary": folder.Summary}
REPLAYED = {"replay": Result}
SUSPECTED = {"suspect": Suspect}


@pytest.mark.parametrize(
    ("page", "part", "structs", "defaults"),
    [
        ("session-format", "session.json", SESSION, True),
        ("json", "report", REPORT, False),
        ("json", "sessions", LISTED, False),
        ("json", "replay", REPLAYED, False),
        ("json", "diff-tactics", SUSPECTED, False),
        ("json", "diff", {"difference": Difference}, False),
    ],
)
def test_the_page_holds_what_is_written_as_json(
    page: str, part: str, structs: Mapping[str, type[msgspec.Struct]], defaults: bool
) -> None:
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8")
    held_to(path, part, records(text.partition(BEGIN.format(part))[2], structs, defaults=defaults))


def written(value: Any) -> str:
    """A default as a flow file would say it; empty text as nothing."""
    if value == "" and isinstance(value, str):
        return ""
    return f"`{value if isinstance(value, str) else msgspec.json.encode(value).decode()}`"


def listed(struct: type[msgspec.Struct], told: Mapping[str, str], *, defaults: bool) -> list[str]:
    """A line a field: its name, default, words and meaning. What has no words and no meaning of its own, or the one
    that is told of several steps, stands in one line at the end."""
    said, lines, plain = remarks(struct), list[str](), list[str]()
    for field in msgspec.structs.fields(struct):
        words, means = choices(field.type), said.get(field.name, "")
        means = "" if told.get(field.name) == means else means
        value = written(field.default) if defaults else ""
        if words or means:
            left = f" (default {value})" if value else ""
            lines.append(f"- `{field.name}`{left}: {'. '.join(filter(None, (words, means)))}")
        else:
            plain.append(f"`{field.name}`{f' ({value})' if value else ''}")
    return [*lines, *([f"- {', '.join(plain)}"] if plain else [])]


def shared() -> dict[str, str]:
    """What a field means in the same words in several steps."""
    counts = Counter(
        pair
        for spec in STEPS.values()
        for struct in (spec.params, spec.outcome)
        for pair in remarks(struct).items()
    )
    return {name: means for (name, means), times in sorted(counts.items()) if means and times > 1}


def steps() -> str:
    told = shared()
    parts = ["\n".join(f"- `{name}`: {means}" for name, means in told.items())]
    for name, spec in STEPS.items():
        lines = [f"### {name}", f"{spec.summary[:1].upper()}{spec.summary[1:].rstrip('.')}."]
        if spec.needs:
            lines.append(f"It needs {' and '.join(need.what for need in spec.needs)}.")
        if taken := listed(spec.params, told, defaults=True):
            lines += ["`with`:", "\n".join(taken)]
        lines += ["`outcome`:", "\n".join(listed(spec.outcome, told, defaults=False))]
        parts.append("\n\n".join(lines))
    return "\n\n".join(parts)


@pytest.mark.parametrize(
    ("page", "made"), [("cli", command_line), ("engines", engines), ("steps", steps)]
)
def test_the_page_holds_what_the_code_declares(page: str, made: Callable[[], str]) -> None:
    held_to(DOCS / f"{page}.md", page, made())


def test_every_field_of_an_outcome_means_something() -> None:
    """By a comment of its own in the source, or by the page's table of what means the same
    everywhere."""
    page = (DOCS / "steps.md").read_text(encoding="utf-8").partition(BEGIN[:8])[0]
    common = set(re.findall(r"`(\w+)`", page.partition("These mean the same")[2]))
    bare = {
        (name, field)
        for name, spec in STEPS.items()
        for struct in (spec.outcome, spec.params)
        for field in {f.name for f in msgspec.structs.fields(struct)}
        - common
        - {k for k, v in remarks(struct).items() if v}
    }
    assert bare == set()


def test_every_field_of_an_engine_is_listed() -> None:
    section = (DOCS / "json.md").read_text(encoding="utf-8").partition("## The engines")[2]
    told = set(
        re.findall(
            r"`(\w+)`", section.partition("(name to")[0] + section.partition("`reason`),")[2]
        )
    )
    assert told == {*EngineInfo.__struct_fields__, "summary", "source", "present", "reason"}


def test_every_exit_code_is_explained() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == set(Exit)


def test_every_message_in_troubleshooting_is_one_of_ours() -> None:
    """What stands in a symptom between ``...`` is in the code, word by word, wherever a string is
    broken over lines."""
    sources = [
        p
        for package in (wizard, engine_room)
        for p in Path(package.__file__ or "").parent.rglob("*.py")
    ]
    code = re.sub(r'"\s*f?"', "", "\n".join(p.read_text(encoding="utf-8") for p in sources))
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    symptoms = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    told = [said for symptom in symptoms for said in re.findall(r"`([^`]+)`", symptom)]
    assert len(told) > 20
    pieces = [piece.strip(" '()") for said in told for piece in said.split("...")]
    assert [piece for piece in pieces if piece not in code] == []


def test_metrics_and_default_tolerances_are_the_codes() -> None:
    text = (DOCS / "tolerance.md").read_text(encoding="utf-8")
    precisions, metrics = text.partition("## The metrics")[::2]
    told = {
        name: float(limit)
        for name, limit in re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", precisions, re.MULTILINE)
    }
    assert told == TOLERANCE_BY_PRECISION
    assert tuple(re.findall(r"^\| `(\w+)` \|", metrics, re.MULTILINE)) == METRICS
    assert re.search(r"`ulp` .* (\d+) unless told", metrics)[1] == f"{ULPS:.0f}"  # type: ignore[index]


def test_every_demo_is_named() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    assert {name for name in DEMOS if f"`{name}`" in text} == set(DEMOS)


@pytest.mark.parametrize("event", get_args(events.AnyEvent), ids=lambda e: e.__struct_config__.tag)
def test_every_event_and_its_fields_are_in_the_session_format(event: type[msgspec.Struct]) -> None:
    text = (DOCS / "session-format.md").read_text(encoding="utf-8")
    (line,) = [
        row
        for row in text.splitlines()
        if row.startswith("|") and f"`{event.__struct_config__.tag}`" in row
    ]
    everywhere = {"seq", "ts", "blob", "blobs"}  # explained above the table
    assert {f.name for f in msgspec.structs.fields(event)} - everywhere <= set(
        re.findall(r"`([a-z_.]+)`", line)
    )
    assert all(f"`{name}`" in text for name in everywhere)


def test_every_page_is_in_the_index_and_every_link_leads_somewhere() -> None:
    pages = sorted(DOCS.glob("*.md"))
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [p.name for p in pages if p.name != "README.md" and f"({p.name})" not in index] == []
    root = DOCS.parent
    assert "(SECURITY.md)" in (root / "README.md").read_text(encoding="utf-8")
    more = [path for path in (root / "campaigns").rglob("*.md") if path.name != "page.md"]
    for page in (
        *pages,
        *more,
        *(root / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    ):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            place, _, part = link.partition("#")
            if "://" in place:
                continue
            target = page.parent / place if place else page
            assert target.exists(), f"{page.name}: {link}"
            if part:
                titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {
                    re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
                }
                assert part in slugs, f"{page.name}: {link}"


def test_every_table_of_figures_says_how_they_are_made_again() -> None:
    """A table a quarter of whose cells are numbers stands in a section, or on a page whose
    beginning, names the command or the test that makes them. Codes and limits are no measurements:
    the code holds them."""
    silent = []
    for page in (*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"):
        text = re.sub(
            r"<!-- generated.*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        beginning, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
        for section in (beginning, *sections):
            for found in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
                head, _, *rows = found.strip().splitlines()
                cells = [c.strip(" *") for row in rows for c in row.strip("|").split("|")]
                numbers = [c for c in cells if re.fullmatch(r"[<>~]?\d[\d,.]*( [a-zA-Z%/ ]+)?", c)]
                if len(numbers) * 4 < len(cells) or head.startswith(("| exit code", "| precision")):
                    continue
                if not re.search(
                    r"(?m)(?:`|^)(make|pytest|python) [\w-]|(?:tests|campaigns)/\w+/",
                    section + beginning,
                ):
                    silent.append((page.name, head))
    assert silent == []


def test_every_shipped_flow_is_named() -> None:
    text = (DOCS / "flows.md").read_text(encoding="utf-8")
    shipped = {
        Path(str(f)).stem
        for f in files("narrowdown.flows").iterdir()
        if Path(str(f)).suffix == ".yaml"
    }
    assert len(shipped) >= 5
    assert {name for name in shipped if f"`{name}`" in text} == shipped


def test_every_file_that_is_named_is_there() -> None:
    roots = (DOCS.parent, Path(wizard.__file__ or "").parents[1])
    written_by_the_reader = {"engines/backends/evaluator.py"}
    told = {
        name
        for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "SECURITY.md")
        for name in re.findall(
            r"`((?:wizard|engines|flows|tests|campaigns|docs)/[\w./-]*)`",
            page.read_text(encoding="utf-8"),
        )
    }
    assert len(told) > 40
    assert {
        name
        for name in told - written_by_the_reader
        if not any((root / name).exists() for root in roots)
    } == set()


LLMS = DOCS.parent / "llms.txt"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def index_pages() -> Iterator[Path]:
    """README, then each page that the index names, in its order."""
    yield DOCS.parent / "README.md"
    links = (
        target.partition("#")[0]
        for _, target in LINK.findall((DOCS / "README.md").read_text("utf-8"))
    )
    for target in dict.fromkeys(link for link in links if link.endswith(".md")):
        yield (DOCS / target).resolve()


def page_entry(page: Path) -> str:
    """``- [title](path): first sentence``."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    blocks = [" ".join(block.split()) for block in text.split("\n\n") if block.strip()]
    title = next(block.removeprefix("# ") for block in blocks if block.startswith("# "))
    prose = (LINK.sub(r"\1", block) for block in blocks if re.match(r"[\w`*'\"(]|\[(?!!)", block))
    first = re.split(r"(?<=[.?!]) (?=[A-Z`*])", next(prose, ""))[0].replace("**", "")
    place = page.relative_to(DOCS.parent).as_posix()
    return f"- [{title}]({place})" + (f": {first}" if first else "")


def llms() -> str:
    about = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"][
        "description"
    ]
    return "\n".join(
        ["# Narrowdown", "", f"> {about}", "", "## Docs", "", *map(page_entry, index_pages()), ""]
    )


@pytest.mark.skipif(not (DOCS.parent / "AGENTS.md").exists(), reason="not in a checkout")
def test_llms_txt_lists_every_page_of_the_index() -> None:
    """The manual for programs that read."""
    if os.environ.get("NARROWDOWN_WRITE_DOCS"):
        LLMS.write_text(llms(), encoding="utf-8")
    assert LLMS.read_text(encoding="utf-8") == llms(), (
        "older than the pages: NARROWDOWN_WRITE_DOCS=1 pytest tests/docs"
    )
    named = [DOCS.parent / target for _, target in LINK.findall(LLMS.read_text(encoding="utf-8"))]
    assert len(named) > 10
    assert [page for page in named if not page.is_file()] == []
