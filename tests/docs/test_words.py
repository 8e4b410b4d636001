"""Words that people read: what a machine can hold of the page of style in CONTRIBUTING.md, in every
place that they are read."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from narrowdown import engines, flows, wizard
from tests.docs.test_reference import commands

ROOT = Path(__file__).parents[2]
PRODUCT, ENGINES, FLOWS = (Path(made.__file__).parent for made in (wizard, engines, flows))
INSTALLED = PRODUCT.parent  # the checkout, or where the wheel was put


class Bar(NamedTuple):
    """Words that nobody is to read, and what is said instead. ``seen``: a text that is found,
    ``fine``: one that is not."""

    pattern: str
    say: str
    seen: str
    fine: str


BARS = {
    "insides": Bar(
        r"\berrno\b|exit status|\[Errno|returncode|nothing of the kind was measured|held by process",
        "what happened and what to do, in words",
        "Worker 1 died with exit status -15",
        "It ends with exit code 1.",
    ),
    "ids": Bar(
        r"\b(?:unrepresentable-input|amplified-downstream|different-outputs|reference-failed|check-died|refused-otherwise)\b",
        "the words of wizard/report/probe_words.py",
        "node 70 cannot tell unrepresentable-input",
        "Its input no longer fits this precision.",
    ),
    "no number": Bar(r"1e\+?300", "not finite", "an error of 1e+300", "an error of 1e-3"),
    "share": Bar(
        r"\boff by (?:[0-9{.]|$)|\b(?:is|are|be) off by\b|\bown error [0-9{]|\bown [0-9.]+,|"
        r"\beffect [0-9{]|(?<!metric )\brel_l2 [0-9{]",
        "wrong by 1.23 %",
        "logits is off by 1.12 (rel_l2)",
        "all of them switched off by halves",
    ),
    "one": Bar(
        r"\b(?:if|as|that|what|where|how|when|than|which|so) one (?:may|can|has|had|wants|would|will|looks|needs|must|reads|"
        r"gives|does|knows|sees|likes|types|trusts|waits)\b|"
        r"\bOne (?:may|can|cannot|would|wants|must|should|has to|reads|looks)\b",
        "you, or who does it",
        "it works where one types",
        "how long one takes is told",
    ),
    "looks": Bar(
        r"\b(?:more|fresh|of|in|many|few|the|these|those|all|some|other|both|further|\d+|\{\}) looks\b(?! (?:the same|like))|"
        r"\blooks? (?:without|misses|in which|so far|would|fails?|passes|passed)\b",
        "runs, builds or tries",
        "75 more looks without a failure",
        "it looks like a known bug",
    ),
    "judge": Bar(
        r"\b(?:a|the|its|their|no|another|other|by|second|exact) judges?\b(?! (?:it|the|a|them|this|by)\b)",
        "a more exact computation",
        "compared with a more exact judge",
        "that can judge by itself; to judge it again",
    ),
    "riddles": Bar(
        r"faultless engine|(?<!`)\bforetold\b|a fault rarer|every tensor is an output|more looks without|Marking did not|"
        r"Nothing works on this session|hides in company|Asked by what|is used up goes on|Weakly typed, a fault",
        "short and active, with the user's own words",
        "A faultless engine would be wrong",
        "It fails in 5 of 5 runs.",
    ),
    # Phrases of the words that the program does not use: those that mean nothing else.
    "ours": Bar(
        r"(?<!`)\b(?:mended|mends it|comes? right|came right|cured it|cures? (?:it|this))\b|"
        r"(?<!by )\bhand(?:s|ed)? (?:it |this )?on\b|infinitely wrong|what is accused|you know why it did not|"
        r"[Nn]obody can say|neither right nor wrong|itself is not what was recorded|refuses all of it|could not be cleaned|"
        r"comes and goes needs|the last place of (?:its|the)|nothing to spare|goes on with that|gives your own|"
        r"\bit was (?:not )?made on\b|[Ii]t had not seen|top-1 answer",
        "the words of CONTRIBUTING.md: fixed, works, share, held-out samples, Inf or NaN, the nodes found so far",
        "right on 8 of 8 it was made on",
        "run it by hand on a model; it was made once more",
    ),
}
# (place, bar) -> why it stays. A field's name or a recorded sentence is no sentence of ours; each
# must still be needed.
FINE = {
    ("docs/json.md", "no number"): "for programs: the value as it stands in the files",
    ("docs/json.md", "share"): "for programs: `allowed` as it stands in the file",
    ("docs/session-format.md", "insides"): "for programs: names of fields",
    ("engines/checker/keeper.py", "insides"): "a line from a process to its parent",
    ("wizard/cli/shown.py", "share"): "every metric of one measurement by its name",
    ("docs/tutorial.md", "share"): "what check.py prints, for which a user's metric is the word",
}


def literals(path: Path) -> Iterator[str]:
    """Every text of a module that has a blank in it, but docstrings; what is filled in stands as
    ``{}``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield text


def strings(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)
    elif isinstance(value, str) and " " in value.strip():
        yield value


def lines(path: Path) -> Iterator[str]:
    yield from path.read_text(encoding="utf-8").splitlines()


def read_code() -> Iterator[tuple[str, str]]:
    for path in sorted(
        [*PRODUCT.rglob("*.py"), *ENGINES.rglob("*.py"), PRODUCT / "bundle" / "check.py.txt"]
    ):
        yield from ((path.relative_to(INSTALLED).as_posix(), text) for text in literals(path))


def read_flows() -> Iterator[tuple[str, str]]:
    for path in sorted(FLOWS.rglob("*.yaml")):
        yield from (
            (path.name, text) for text in strings(yaml.safe_load(path.read_text(encoding="utf-8")))
        )


def read_help() -> Iterator[tuple[str, str]]:
    yield from (
        (f"{name} --help", " ".join(made.format_help().split()))
        for name, made in commands().items()
    )


def read_pages(*globs: str, below: Path = ROOT) -> Iterator[tuple[str, str]]:
    for path in sorted(path for each in globs for path in below.glob(each)):
        yield from ((path.relative_to(below).as_posix(), line) for line in lines(path))


PLACES: dict[
    str, tuple[Callable[[], Iterator[tuple[str, str]]], int]
] = {  # how each is read, and texts that there are at least
    "code": (read_code, 4000),
    "flows": (read_flows, 300),
    "help": (read_help, 24),
    "terms": (lambda: read_pages("flows/terms/*.md", below=INSTALLED), 300),
    "docs": (lambda: read_pages("docs/*.md", "README.md", "SECURITY.md"), 4000),
    # Its sentences stand in wizard/report/sections.py, which is code.
    "report": (lambda: read_pages("wizard/report/*.j2", below=INSTALLED), 50),
    "screens": (lambda: read_pages("tests/wizard/tui/goldens/*.txt"), 400),
}
SEEN: dict[str, set[tuple[str, str]]] = {}  # by place: the exceptions that it needs


@pytest.mark.parametrize("place", PLACES)
def test_nobody_reads_a_barred_word(place: str) -> None:
    read, least = PLACES[place]
    texts = list(read())
    assert len(texts) >= least, "it is read"
    found = [
        (where, name, text.strip(), bar.say)
        for name, bar in BARS.items()
        for where, text in texts
        if re.search(bar.pattern, text)
    ]
    assert [each for each in found if each[:2] not in FINE] == []
    if place in ("code", "docs"):
        mine = {each for each in FINE if each[0].endswith(".py") == (place == "code")}
        assert mine - {each[:2] for each in found} == set(), "an exception that nothing needs"


@pytest.mark.parametrize("name", BARS)
def test_a_bar_finds_what_it_bars(name: str) -> None:
    bar = BARS[name]
    assert re.search(bar.pattern, bar.seen)
    assert not re.search(bar.pattern, bar.fine)
