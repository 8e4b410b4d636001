"""What the rooms promise of themselves: types with names, constants that say why, and tests that
stand where the room stands."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

from narrowdown import engines, wizard

ROOT = Path(__file__).parents[2]
PACKAGES = {"engines": Path(str(engines.__path__[0])), "wizard": Path(str(wizard.__path__[0]))}
PURE = sorted(
    [PACKAGES["engines"] / name for name in ("findings.py", "switches.py", "views.py")]
    + [
        path
        for room in ("asking", "search", "steps")
        for path in (PACKAGES["engines"] / room).rglob("*.py")
    ]
)
ROOMS = sorted(
    f"{package}/{path.parent.name}"
    for package, root in PACKAGES.items()
    for path in root.glob("*/__init__.py")
)
# Rooms whose tests stand elsewhere, and where.
ELSEWHERE = {
    "engines/contract": "engines/backends/test_contract.py",  # it is a suite of tests itself: our engines run it
    "engines/demos": "e2e/test_quantized_models.py",  # what they make is tested as models
    "wizard/demo": "e2e/test_whole_routes.py",  # the routes are those of the demos
    "wizard/cli": "wizard/test_cli_grammar.py",  # a file each for its commands: test_cli_*.py
    "wizard/trust": "wizard/test_trust.py",
}


def named(path: Path) -> str:
    return path.name


def untyped(source: str) -> list[int]:
    """The lines that name ``Any``."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Name) and node.id == "Any")
        or (isinstance(node, ast.Attribute) and node.attr == "Any")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "Any" for alias in node.names))
    )


def unexplained(source: str) -> list[str]:
    """The constants of a module that hold a number, and no comment: on their lines, or right above
    them and those before them."""
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines, found = source.split("\n"), []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        numbers = [
            c.value
            for c in ast.walk(node.value)
            if isinstance(c, ast.Constant) and type(c.value) in (int, float)
        ]
        if not numbers or isinstance(
            node.value, ast.Call
        ):  # a declaration says what it is by its fields
            continue
        above = node.lineno - 1
        while above and lines[above - 1].strip() and above not in comments:
            above -= 1
        if not comments.intersection(
            (above, *range(node.lineno, (node.end_lineno or node.lineno) + 1))
        ):
            found.append(lines[node.lineno - 1])
    return found


@pytest.mark.parametrize("path", PURE, ids=named)
def test_nothing_of_steps_and_search_is_any(path: Path) -> None:
    assert untyped(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PURE, ids=named)
def test_each_constant_says_why(path: Path) -> None:
    assert unexplained(path.read_text(encoding="utf-8")) == []


def test_the_two_above_can_fail() -> None:
    assert untyped(
        "from typing import Any\ndef f(x: Any) -> 'list[int]': ...\nimport typing\ny: typing.Any = 1\n"
    ) == [
        1,
        2,
        4,
    ]
    assert unexplained(
        "A = 1\n\n# why\nB = 2\nC = 3  # why\n\nD = (4, 'x')\nE = 'no number'\nF = True\n"
    ) == [
        "A = 1",
        "D = (4, 'x')",
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_tests_mirror_the_rooms(room: str) -> None:
    here = ROOT / "tests" / ELSEWHERE.get(room, room)
    assert here.exists(), f"the tests of {room} stand in tests/{room}, or ELSEWHERE says where"
    assert here.is_file() or any(here.glob("test_*.py"))
    assert room not in ELSEWHERE or not (ROOT / "tests" / room).exists(), (
        "it is where it should be: no exception"
    )
