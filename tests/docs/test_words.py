"""Words that people read: what a machine can hold of the page of style in CONTRIBUTING.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import engines
import flows
import wizard

PRODUCT = Path(wizard.__file__).parent
# No insides of the program, no numbers that mean "no number", no words where the user has one.
BARRED = re.compile(
    r"(?<!switched )\boff by\b|errno|exit status|1e\+?300|faultless engine would|every tensor is an output|"
    r"more looks without|Marking did not|"
    r"Nothing works on this session|nothing of the kind was measured",
    re.IGNORECASE,
)
ROOMS = (
    PRODUCT / "tui",
    PRODUCT / "report",
    PRODUCT / "cli",
    PRODUCT / "flow",
    Path(engines.__file__).parent / "steps",
    Path(engines.__file__).parent / "compare",
)
ENGINES = Path(engines.__file__).parent / "backends"
SAYING = sorted(
    [*(Path(engines.__file__).parent / "search").rglob("*.py"), Path(engines.__file__).parent / "causes.py"]
)
SCREENS = sorted([*(file for room in ROOMS for file in room.rglob("*.py")), *PRODUCT.glob("*.py")])
ENDINGS = sorted([*ENGINES.rglob("*.py"), Path(engines.__file__).parent / "workers" / "pool.py"])
# In pages: what is barred everywhere, and sentences that were found to need reading twice.
IN_PAGES = re.compile(r"off by [0-9]|exit status|hides in company|Asked by what|is used up goes on", re.IGNORECASE)
PAGES = sorted([*Path(__file__).parents[2].glob("docs/*.md"), Path(__file__).parents[2] / "README.md"])

FLOWS = sorted(Path(flows.__file__).parent.glob("*.yaml"))


def texts(path: Path) -> Iterator[str]:
    """Every text of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("path", SCREENS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_screens_and_reports_speak_the_users_words(path: Path) -> None:
    assert [text for text in texts(path) if BARRED.search(text)] == []


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_flows_speak_the_users_words(path: Path) -> None:
    flow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert [text for text in strings(flow) if BARRED.search(text)] == []


@pytest.mark.parametrize("path", ENDINGS, ids=lambda path: path.name)
def test_what_engines_and_workers_died_of_is_said_without_inner_words(path: Path) -> None:
    assert [text for text in texts(path) if re.search(r"exit status|\[Errno", text)] == []


@pytest.mark.parametrize("path", [p for p in PAGES if p.name != "newcomer.md"], ids=lambda path: path.name)
def test_pages_are_read_once(path: Path) -> None:
    assert [line for line in path.read_text(encoding="utf-8").splitlines() if IN_PAGES.search(line)] == []


def test_what_is_barred_is_noticed() -> None:
    for text in (
        "died with exit status 3",
        "[Errno 2] No such file",
        "an error of 1e+300",
        "A faultless engine would be wrong",
        "the case is off by 0.5",
        "the rest is off by ",
    ):
        assert BARRED.search(text), text


@pytest.mark.parametrize("path", SAYING, ids=lambda path: path.name)
def test_evidence_says_wrong_by(path: Path) -> None:
    assert [text for text in texts(path) if re.search(r"\boff by\b", text)] == []


def test_something_is_read() -> None:
    assert len(SCREENS) > 90
    assert len(ENDINGS) > 10
    assert len(PAGES) > 40
    assert len(FLOWS) >= 6
