"""The page of the field campaign: every test that it names is there."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "field.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_case_names_tests_that_are_there() -> None:
    section = (
        PAGE.read_text(encoding="utf-8")
        .partition("## Cases that went wrong once")[2]
        .partition("\n## ")[0]
    )
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    there: dict[str, set[str]] = {}
    for row in rows:
        named = NAMED.findall(row)
        assert named, f"no test holds this case: {row}"
        for path, name in named:
            if path not in there:
                tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
                there[path] = {
                    d.name
                    for d in ast.walk(tree)
                    if isinstance(d, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            assert name in there[path], f"{path} has no {name}"


def test_the_readme_says_what_the_page_says() -> None:
    page, readme = (
        PAGE.read_text(encoding="utf-8"),
        (TESTS.parent / "README.md").read_text(encoding="utf-8"),
    )
    (told,) = re.findall(
        r"(\d+) questions about models of strangers\]\S+ (\d+) were answered right, (\w+) wrong, (\d+) ",
        readme,
    )
    counted = r"models, (\d+) cases: (\d+) right \(\d+ %\), (\d+) partly \(\d+ %\), (\d+) wrong \(\d+ %\), (\d+) cannot tell"
    ((cases, right, partly, wrong, cannot),) = re.findall(counted, page)
    assert told == (cases, right, {"0": "none"}.get(wrong, wrong), str(int(partly) + int(cannot)))
