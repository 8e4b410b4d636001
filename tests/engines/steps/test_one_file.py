"""What belongs to a step stands in its own file: nobody else in the product says its name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from narrowdown import wizard
from narrowdown.engines.findings import Findings
from narrowdown.engines.steps import surroundings
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.steps.surroundings import PREPARED

ROOT = Path(str(wizard.__path__[0])).parent  # the checkout, or where the wheel is installed

# Names that are also words for something else. These count only where they can only mean the step:
# beside ``.step``, ``.use`` or ``STEPS``, or in a list with another step's.
HOMONYMS = {
    "inputs": "what a model is fed: a field of the problem, of probes, of findings",
    "precision": "an option and a fact of engines; a kind of workaround",
    "tactics": "a capability of engines; an option",
    "workaround": "the role of a model and of decisive probes",
    "quantization": "an option of engines; a cause",
    "nondeterminism": "a cause",
    "score": "a field of the problem and of probes; an option",
    "rewrite": "a kind of workaround; a field of probes",
    "rebuild": "a capability of engines",
    "trigger": "the command",
    "known": "the command and the folder of the table of known bugs; what was measured before; a part of the last screen",
}
# (file, name) -> why it has to say it.
ALLOWED = {
    ("engines/search/remedy.py", "confirm"): "who found a case, in every journal",
    ("engines/probe.py", "sanitize"): "the tag of the probe of that name in every journal",
    (
        "wizard/report/gather.py",
        "sanitize",
    ): "a question's id in the shipped flows, in sessions that there are",
    (
        "wizard/report/gather.py",
        "nondeterminism",
    ): "a question's id in the shipped flows, in sessions that there are",
    (
        "wizard/report/gather.py",
        "tactics",
    ): "a question's id in the shipped flows, in sessions that there are",
}


def mentions(text: str) -> Iterator[str]:
    """Steps' names that a module holds as strings, and that mean the steps."""
    if not any(f'"{name}"' in text or f"'{name}'" in text for name in STEPS):
        return  # most modules: parsing all of them took ten seconds
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in STEPS and node.value not in HOMONYMS:
            yield str(node.value)
        yield from _as_steps(node)


def _as_steps(node: ast.AST) -> Iterator[str]:
    """Homonyms that are steps here."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
        parts = node.keys if isinstance(node, ast.Dict) else node.elts
        held = {
            c.value for part in parts if part for c in ast.walk(part) if isinstance(c, ast.Constant)
        } & STEPS.keys()
        if len(held) > 1 and not held <= HOMONYMS.keys():
            yield from held
    if isinstance(node, ast.Compare | ast.Subscript | ast.Call | ast.Match):
        told = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        told |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if isinstance(node, ast.Compare | ast.Subscript) and told & {"step", "use", "STEPS"}:
            yield from (
                c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and c.value in STEPS
            )


def test_no_step_is_named_outside_of_its_file() -> None:
    found = set()
    for path in [p for room in ("wizard", "engines") for p in sorted((ROOT / room).rglob("*.py"))]:
        where = path.relative_to(ROOT).as_posix()
        for name in mentions(path.read_text(encoding="utf-8")):
            if (
                where
                != STEPS[name].outcome.__module__.removeprefix("narrowdown.").replace(".", "/")
                + ".py"
            ):
                found.add((where, name))
    assert found - ALLOWED.keys() == set(), "let the step's SPEC say it"
    assert ALLOWED.keys() - found == set(), "no longer needed"


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ('if visit.step == "reduce": pass', {"reduce"}),
        ('if visit.step in ("workaround", "precision"): pass', {"workaround", "precision"}),
        ('ORDER = ("sanitize", "inputs")', {"sanitize", "inputs"}),
        ('ENDS = {"compare": 1, "tactics": 2}', {"compare", "tactics"}),
        ('STEPS["quantization"].run', {"quantization"}),
        ('engine.get("precision"); facts["inputs"]; role == "workaround"', set()),
    ],
)
def test_what_counts_as_naming_one(text: str, counted: set[str]) -> None:
    assert set(mentions(text)) == counted


@pytest.mark.parametrize("name", STEPS)
def test_what_is_declared_is_there(name: str) -> None:
    """Every field that a SPEC names exists; every model that it makes has an end where none is
    made."""
    spec = STEPS[name]
    fields = spec.outcome.__struct_fields__
    assert set(spec.labels) <= set(fields)
    assert set(spec.sets) <= set(Findings.__struct_fields__) - set(PREPARED)
    for end in spec.ends:
        assert end.field in fields
        outcome = msgspec.to_builtins(spec.outcome()) | {end.field: end.value}
        msgspec.convert(outcome, spec.outcome)  # a value that it can have
    assert set(PREPARED) <= set(Findings.__struct_fields__), surroundings.__name__
