"""A small flow that is right, and a way to break one place of it."""

from collections.abc import Callable
from typing import Literal

import msgspec
import pytest

from narrowdown.engines.asking import Count
from narrowdown.wizard.flow.check import Problem, check
from narrowdown.wizard.flow.load import parse

RIGHT = """\
schema: 1
id: small
title: A small flow
start: look
params: {tries: 2}
nodes:
  look:
    title: Look
    explain: One ‹tolerance› is enough.
    step: {use: looking, with: {depth: 3, way: fast}}
    ask: Is it wrong?
    answers:
      "yes":
        text: Yes
        goto: look
        when: {verdict: wrong, error: {gt: 0.5}}
        because: "Off by {{ error|number }}."
      "maybe":
        text: Perhaps
        goto: think
        when: {any: [{steady: false}, {not: {count: {in: [1, 2]}}}]}
        detour: {when: {error: null}, goto: done}
      "no":
        text: No
        goto: done
    evidence: [verdict, error]
    terms: [tolerance]
    commands:
      "polygraphy>=0.53": polygraphy run {{ model }}
    max_visits: 2
    limit: done
  think:
    title: Think
    explain: No step here.
    ask: And now?
    answers:
      "stop":
        text: Stop
        goto: done
ends:
  done:
    title: Done
    explain: That was it.
    verdict: unresolved
"""


class Looked(msgspec.Struct, frozen=True):
    verdict: Literal["wrong", "right"] = "right"
    error: float | None = None
    count: int = 0
    steady: bool = True
    names: str = ""


class Looking(msgspec.Struct, frozen=True):
    depth: Count = 1
    way: Literal["fast", "slow"] = "fast"
    tries: int = 1


class Facts(msgspec.Struct, frozen=True):
    outcome: type = Looked
    params: type = Looking


@pytest.fixture(scope="session")
def right() -> str:
    return RIGHT


@pytest.fixture(scope="session")
def steps() -> dict[str, Facts]:
    return {"looking": Facts()}


@pytest.fixture(scope="session")
def lint(steps: dict[str, Facts]) -> Callable[[str], list[Problem]]:
    return lambda text: check(parse(text, "small.yaml"), steps)


@pytest.fixture(scope="session")
def broken() -> Callable[[str, str], str]:
    """The right flow with one piece of text, which must be there exactly once, replaced."""

    def change(old: str, new: str) -> str:
        assert RIGHT.count(old) == 1, f"{old!r} is there {RIGHT.count(old)} times"
        return RIGHT.replace(old, new)

    return change
