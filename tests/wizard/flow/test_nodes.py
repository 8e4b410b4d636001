"""Whatever is written in a file is read, or refused in a sentence."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from narrowdown.wizard.flow.load import FlowProblem, Lines, _Reader, load, parse

SMALL = """a: 1
b: [1, 2, {c: d}]
d: |
  text
  more
e: >-
  fold
  ed
with: {size: 512MiB, no: 1e-3}
g: "a\\n\\u00e9b"
# c
h:
- 1
- - 2
  - 3
- {x: ~, y: null, 'z': 'x''y'}
"""
ODD = (
    *" \t\n:-[]{}#'\"&*!|>%@`,?a0é\u2028\x85\ufeff\\~=<.\0\x07", "---", "...", "\n- ", "? ", ": ", "\\x41", "\\ud800", "\r\n",
    "\r", "%YAML 1.2\n", "--- ", "\xa0", "\U0001f600", "!!str ", "!=", "!=2, ", "&a ", "*a", "<<: ", "\u2029", "|2\n", "|+", " #",
    "[", "{}", "[a, {b: [c]}]", "{? a : b}", "- - ", "\n\n", "\n    ",
)  # fmt: skip


def read(text: str) -> Any:
    """What comes of a text: its data and every place in it, or the sentence."""
    lines = Lines()
    try:
        return _Reader("f", lines).read(text), lines._keys, lines._values
    except FlowProblem as problem:
        return str(problem)


def damaged(text: str, seed: int) -> str:
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, way = rng.randrange(len(text) + 1), rng.random()
        put = "" if way < 0.25 else rng.choice(ODD)
        text = text[:at] + put + text[at + (0 if way > 0.6 else rng.randrange(1, 4)) :]
    return text


@given(st.integers(0, 1 << 40))
@settings(max_examples=400)
def test_a_damaged_text_is_read_or_refused_in_a_sentence(seed: int) -> None:
    text = damaged(SMALL, seed)
    read(text)


@given(st.text(st.sampled_from(" \n:-[]{}#'\"&*!|>?,a\t"), max_size=12))
@example("a: {x: , y: 1}")
@example("a: [1? , 2]")
@example("a: &a [*a]")
@example("--- ")
@example("a: >\t\n b")
@example("\ufeffa: 1\n\ufeffb: 2")
@settings(max_examples=400)
def test_a_strange_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    read(text)


@pytest.mark.parametrize("text", ["[" * 500_000, "- " * 400_000, "a: " * 100_000, "{a: " * 5_000])
def test_nothing_nested_breaks_the_scanner(text: str) -> None:
    with pytest.raises(FlowProblem):
        parse(text)


def test_a_flow_is_read_once_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(load("accuracy").text)
    (tmp_path / "b.yaml").write_text("nodes: 3\n")
    (tmp_path / "c.yaml").write_text("nodes: 3\n")
    assert load(tmp_path / "a.yaml").flow is load("accuracy").flow
    for name in "bc":
        with pytest.raises(FlowProblem, match=f"/{name}.yaml:1:8: "):
            load(tmp_path / f"{name}.yaml")


def test_an_alias_of_many_is_refused_at_once() -> None:
    rows = [
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    with pytest.raises(FlowProblem, match="has no aliases"):
        parse("a: &a [1]\n" + "\n".join(rows))
