"""The shipped flow: clean, complete as the contract lists it, and leading where the guide leads."""

import itertools
import random
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.steps.compare import CompareOutcome
from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard import BY_VERDICT
from narrowdown.wizard.flow.check import check, outcome_fields
from narrowdown.wizard.flow.expressions import render
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.flow.model import FlowNode, targets
from narrowdown.wizard.flow.rules import destination, holds, recommend

from ...patience import allow

LOADED = load("accuracy")
FLOW = LOADED.flow

# CONTRACTS: the answer ids that an answers file may name.
ANSWERS = {
    "reproduce": "accumulates yes as-built no noise reference refused refused-whole export kept",
    "rebuild": "alike passes no",
    "consistency": "yes no",
    "sanitize": "yes no stuck",
    "real-inputs": "yes no only-real none",
    "intermittent": "yes no foretold same-engine whole",
    "nondeterminism": "yes no",
    "tactics": "yes no",
    "layerwise": "yes nobody no stuck",
    "extract": "yes no",
    "reduce": "yes no",
    "double-check": "tolerance metric regex sample linear seed stop",
    "minimal-case": "workaround report another",
    "workaround": "yes mostly no",
}


def outcome(node: str, **values: Any) -> dict[str, Any]:
    """What the node's step answers, with these fields."""
    use = FLOW.nodes[node].step
    assert use is not None
    made = STEPS[use.use].outcome(**values)
    return dict(msgspec.to_builtins(made))


def test_nothing_is_wrong_with_it() -> None:
    assert check(LOADED) == []


def test_nodes_and_answers_are_those_of_the_contract() -> None:
    assert {name: set(node.answers) for name, node in FLOW.nodes.items()} == {
        name: set(ids.split()) for name, ids in ANSWERS.items()
    }


def test_every_verdict_has_an_end_and_an_exit_code() -> None:
    assert {end.verdict for end in FLOW.ends.values()} == set(BY_VERDICT)


@pytest.mark.parametrize(
    ("node", "values", "answer", "to"),
    [
        ("reproduce", {"verdict": "fails"}, "yes", "sanitize"),
        ("reproduce", {"verdict": "export"}, "export", "export-at-fault"),
        ("reproduce", {"verdict": "passes"}, "no", "not-reproduced"),
        ("reproduce", {"verdict": "passes", "explanation": "keeps-higher"}, "kept", "kept-in-fp32"),
        (
            "reproduce",
            {"verdict": "noise", "explanation": "keeps-higher"},
            "noise",
            "not-determined",
        ),
        ("reproduce", {"verdict": "reference"}, "reference", "consistency"),
        ("reproduce", {"verdict": "fails", "as_built": True}, "as-built", "rebuild"),
        ("reproduce", {"verdict": "refused", "as_built": True}, "as-built", "rebuild"),
        ("reproduce", {"verdict": "passes", "as_built": True}, "no", "not-reproduced"),
        ("rebuild", {"verdict": "alike"}, "alike", "rebuilt-fails"),
        ("rebuild", {"verdict": "otherwise"}, "alike", "rebuilt-fails"),
        ("rebuild", {"verdict": "passes"}, "passes", "rebuilt-right"),
        ("rebuild", {"verdict": "refused"}, "no", "unresolved"),
        ("consistency", {"verdict": "contradicts"}, "yes", "contradicts"),
        ("consistency", {"verdict": "stale"}, "yes", "contradicts"),
        ("consistency", {"verdict": "consistent"}, "no", "reference-suspect"),
        ("consistency", {"verdict": "unresolved"}, "no", "reference-suspect"),
        ("reproduce", {"verdict": "noise"}, "noise", "not-determined"),
        ("reproduce", {"verdict": "unresolved"}, "no", "unresolved"),
        ("sanitize", {"verdict": "fails"}, "yes", "real-inputs"),
        ("sanitize", {"verdict": "passes"}, "no", "fixed-by-sanitizing"),
        ("sanitize", {"verdict": "could-not"}, "stuck", "real-inputs"),
        ("real-inputs", {"verdict": "helps"}, "yes", "input-sensitive"),
        ("real-inputs", {"verdict": "no"}, "no", "intermittent"),
        ("real-inputs", {"verdict": "only-real"}, "only-real", "intermittent"),
        ("real-inputs", {"verdict": "none-given"}, "none", "intermittent"),
        ("intermittent", {"behaviour": "same-engine", "whole_only": True}, "whole", "whole-only"),
        (
            "intermittent",
            {"behaviour": "same-engine", "switchable": True},
            "same-engine",
            "nondeterminism",
        ),
        ("intermittent", {"behaviour": "rebuilds-differ"}, "yes", "tactics"),
        ("intermittent", {"behaviour": "steady"}, "no", "layerwise"),
        ("intermittent", {"behaviour": "steady", "switchable": True}, "no", "tactics"),
        ("intermittent", {"behaviour": "unresolved"}, "no", "layerwise"),
        ("nondeterminism", {"nondeterministic": True}, "yes", "extract"),
        ("nondeterminism", {"nondeterministic": False}, "no", "layerwise"),
        ("tactics", {"found": True}, "yes", "minimal-case"),
        ("tactics", {"found": False}, "no", "layerwise"),
        ("reproduce", {"verdict": "refused", "failure": "build"}, "refused", "sanitize"),
        (
            "reproduce",
            {"verdict": "refused-whole", "failure": "build"},
            "refused-whole",
            "refused-whole",
        ),
        ("sanitize", {"verdict": "fails", "failure": "build"}, "yes", "reduce"),
        ("sanitize", {"verdict": "could-not", "failure": "build"}, "stuck", "reduce"),
        (
            "minimal-case",
            {"confirmed": True, "cause": "build-failure", "culprits": 1},
            "report",
            "refused-part",
        ),
        ("reproduce", {"verdict": "refused", "no_reference": True}, "refused", "refused"),
        ("workaround", {"cause": "build-failure", "culprits": 1}, "no", "refused-part"),
        (
            "minimal-case",
            {"confirmed": True, "cause": "build-failure", "culprits": 1, "fixable": True},
            "workaround",
            "workaround",
        ),
        ("layerwise", {"observer": "reproduces", "culprit": "n"}, "yes", "extract"),
        ("layerwise", {"observer": "reproduces"}, "nobody", "reduce"),
        ("layerwise", {"observer": "reproduces", "spread": True}, "yes", "workaround"),
        ("layerwise", {"observer": "improves"}, "no", "reduce"),
        ("layerwise", {"observer": "cannot-run"}, "stuck", "reduce"),
        ("extract", {"reproduced": True}, "yes", "minimal-case"),
        ("extract", {"reproduced": False}, "no", "reduce"),
        ("reduce", {"verdict": "reduced"}, "yes", "minimal-case"),
        ("reduce", {"verdict": "not-reproduced"}, "no", "double-check"),
        ("reduce", {"verdict": "unresolved"}, "no", "double-check"),
        *(
            ("double-check", {"suggestion": s}, s, "reduce")
            for s in ANSWERS["double-check"].split()
            if s != "stop"
        ),
        ("double-check", {"suggestion": "stop", "culprits": 0}, "stop", "unresolved"),
        ("double-check", {"suggestion": "stop", "culprits": 1}, "stop", "workaround"),
        ("double-check", {"suggestion": "stop", "cured": True}, "stop", "workaround"),
        (
            "minimal-case",
            {"confirmed": True, "patched_fails": True, "culprits": 1},
            "another",
            "layerwise",
        ),
        (
            "minimal-case",
            {"confirmed": True, "patched_fails": True, "culprits": 8},
            "workaround",
            "workaround",
        ),
        (
            "minimal-case",
            {"confirmed": True, "patched_fails": False, "culprits": 1},
            "workaround",
            "workaround",
        ),
        ("minimal-case", {"confirmed": False, "culprits": 1}, "report", "unresolved"),
        ("minimal-case", {"confirmed": False, "culprits": 2}, "report", "case-found"),
        ("workaround", {"holds": True, "mostly": True, "known": True}, "yes", "worked-around"),
        ("workaround", {"holds": True, "mostly": True, "known": False}, "yes", "works"),
        ("workaround", {"holds": False, "mostly": True}, "mostly", "works-mostly"),
        ("workaround", {"holds": False}, "no", "case-found"),
        ("workaround", {"holds": False, "culprits": 0}, "no", "unresolved"),
    ],
)
def test_what_is_measured_leads_where_the_guide_leads(
    node: str, values: dict[str, Any], answer: str, to: str
) -> None:
    measured = outcome(node, **values)
    found = recommend(FLOW.nodes[node], measured).answer
    assert found == answer
    assert destination(FLOW.nodes[node].answers[found], measured) == to


@pytest.mark.parametrize(
    ("node", "answer", "to"),
    [
        ("reproduce", "no", "unresolved"),  # nothing was measured: that is not "it passes"
        ("sanitize", "stuck", "real-inputs"),
        ("real-inputs", "none", "intermittent"),
        ("intermittent", "no", "layerwise"),
        ("nondeterminism", "no", "layerwise"),
        ("tactics", "no", "layerwise"),
        ("layerwise", "stuck", "reduce"),
        ("extract", "no", "reduce"),
        ("reduce", "no", "double-check"),
        ("double-check", "stop", "unresolved"),
        ("minimal-case", "workaround", "workaround"),
        ("workaround", "no", "case-found"),
    ],
)
def test_a_step_that_failed_is_no_dead_end(node: str, answer: str, to: str) -> None:
    assert recommend(FLOW.nodes[node], None).answer == answer
    assert destination(FLOW.nodes[node].answers[answer], None) == to


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return st.tuples(*map(values_of, typing.get_args(kind)))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(0, 9) | st.integers(0, 2000),
        float: st.one_of(st.floats(0, 1e30), st.sampled_from([0.0, 1.0, 1e300])),
        bool: st.booleans(),
        str: st.text(
            st.characters(exclude_characters="{"), max_size=20
        ),  # a brace left over is the flow's own
        type(None): st.none(),
    }
    return st.one_of(*(simple[k] for k in typing.get_args(kind) or (kind,)))


def outcomes_of(node: FlowNode) -> st.SearchStrategy[dict[str, Any]]:
    assert node.step is not None
    return st.fixed_dictionaries(
        {n: values_of(k) for n, k in outcome_fields(STEPS[node.step.use].outcome).items()}
    )


@pytest.mark.parametrize("name", FLOW.nodes)
def test_every_answer_explains_itself_whatever_was_measured(name: str) -> None:
    node = FLOW.nodes[name]

    @given(outcomes_of(node))
    @settings(max_examples=20)
    def explains(measured: dict[str, Any]) -> None:
        for answer in node.answers.values():
            assert "{{" not in render(answer.because, measured)
        assert recommend(node, measured).answer in node.answers

    explains()


def compared(when: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Every (field, value) that a rule compares, in its groups too."""
    for key, value in (when or {}).items():
        match key, value:
            case "all" | "any", parts:
                for part in parts:
                    yield from compared(part)
            case "not", part:
                yield from compared(part)
            case field, dict(operators):
                for operand in operators.values():
                    yield from (
                        (field, item)
                        for item in (operand if isinstance(operand, list) else [operand])
                    )
            case field, operand:
                yield field, operand


def told_apart(kind: Any, operands: list[Any]) -> list[Any]:
    """The values of a field that rules with these operands can tell from each other."""
    found: list[Any] = []
    for part in (
        (kind,) if typing.get_origin(kind) is typing.Literal else typing.get_args(kind) or (kind,)
    ):
        if typing.get_origin(part) is typing.Literal:
            found += typing.get_args(part)
        elif part is bool:
            found += [False, True]
        elif part is types.NoneType:
            found.append(None)
        elif part is str:
            found += [*operands, "something else"]
        else:
            found += [part(operand + step) for operand in operands for step in (-1, 0, 1)]
    return found


def test_every_answer_but_a_persons_own_is_recommended_by_some_measurement() -> None:
    assert {
        name: missing for name, node in FLOW.nodes.items() if (missing := never_recommended(node))
    } == {}


def never_recommended(node: FlowNode) -> set[str]:
    """The answers that no measurement speaks for, of all that the rules can tell apart (none by
    chance)."""
    assert node.step is not None
    operands: dict[str, list[Any]] = {}
    for answer in node.answers.values():
        for field, operand in compared(answer.when):
            operands.setdefault(field, []).append(operand)
    kinds = outcome_fields(STEPS[node.step.use].outcome)
    values = [told_apart(kinds[field], given) for field, given in operands.items()]
    measurements = (
        dict(zip(operands, combination, strict=True)) for combination in itertools.product(*values)
    )
    return set(node.answers) - {recommend(node, measured).answer for measured in measurements}


def test_an_answer_that_nothing_speaks_for_is_found() -> None:
    node = FLOW.nodes["reproduce"]
    unknown = {
        **node.answers,
        "noise": msgspec.structs.replace(node.answers["noise"], when={"verdict": "loud"}),
    }
    assert never_recommended(msgspec.structs.replace(node, answers=unknown)) == {"noise"}
    greedy = msgspec.structs.replace(node.answers["yes"], when={"not": {"verdict": "fails"}})
    hidden = msgspec.structs.replace(node, answers={"greedy": greedy, **node.answers})
    assert never_recommended(hidden) == {
        "reference",
        "accumulates",
        "refused",
        "refused-whole",
        "noise",
        "export",
        "kept",
        "no",
    }


def test_every_walk_ends() -> None:
    """However the questions are answered: an answer that was never tried first, each walk within
    the visits allowed."""
    tried: set[tuple[str, str, str]] = set()
    ways = {
        (n, id_, t)
        for n, node in FLOW.nodes.items()
        for id_, a in node.answers.items()
        for t in targets(a)
    }
    for seed in range(900):
        chance = random.Random(seed)
        here, visits, steps = FLOW.start, dict.fromkeys(FLOW.nodes, 0), 0
        while here not in FLOW.ends:
            steps += 1
            assert steps <= sum(node.max_visits for node in FLOW.nodes.values())
            node = FLOW.nodes[here]
            if visits[here] == node.max_visits:
                here = node.limit
                continue
            visits[here] += 1
            choices = sorted((id_, t) for id_, a in node.answers.items() for t in targets(a))
            fresh = [c for c in choices if (here, *c) not in tried]
            # The longest walk there is (seed 0), then those that try what was never tried, where
            # there is such.
            id_, target = (
                next((c for c in choices if c[1] in FLOW.nodes), choices[0])
                if seed == 0
                else chance.choice(fresh or choices)
            )
            tried.add((here, id_, target))
            here = target
        assert here in FLOW.ends
    assert tried == ways


def test_a_search_may_name_eight_more_culprits() -> None:
    """The longest sensible walk: eight times another culprit, each through extract and reduce, is
    not cut short by a limit."""
    visits = dict.fromkeys(FLOW.nodes, 0)
    route = [
        "reproduce",
        "sanitize",
        "real-inputs",
        "intermittent",
        "nondeterminism",
        "extract",
        "reduce",
    ]
    route += ["double-check", "reduce"] * 3 + ["minimal-case"]
    route += ["layerwise", "extract", "reduce", "minimal-case"] * 8 + ["workaround"]
    for here in route:
        visits[here] += 1
        assert visits[here] <= FLOW.nodes[here].max_visits, here
    for a, b in pairwise(route):
        assert b in {t for answer in FLOW.nodes[a].answers.values() for t in targets(answer)}


def test_words_for_a_newcomer() -> None:
    for name, node in FLOW.nodes.items():
        assert len(node.title) <= 26, name
        assert node.title != node.ask
        assert len(node.explain.splitlines()) <= 5, name
        assert all(len(line) <= 78 for line in node.explain.splitlines()), name
        assert node.ask.endswith("?"), name
        assert len(node.evidence) >= 2, name
        for id_, answer in node.answers.items():
            assert answer.because, (name, id_)
            assert len(answer.text) <= 46, (name, id_)
    for name, end in FLOW.ends.items():
        assert len(end.explain.splitlines()) <= 5, name


def test_no_sentence_of_the_flow_runs_into_another() -> None:
    for name, node in FLOW.nodes.items():
        for id_, answer in node.answers.items():
            kind = STEPS[node.step.use].outcome if node.step else CompareOutcome
            said = render(answer.because, msgspec.to_builtins(kind(message="It said so.")))
            assert not re.search(r"[.?!][A-Z]|\s[.,;]|\n", said.strip()), (name, id_, said)


def test_rules_that_a_person_would_expect() -> None:
    another = FLOW.nodes["minimal-case"].answers["another"].when
    assert holds(another, {"confirmed": True, "patched_fails": True, "culprits": 7})
    assert not holds(another, {"confirmed": True, "patched_fails": None, "culprits": 1})
    assert not holds(another, {"confirmed": None, "patched_fails": True, "culprits": 1})


def test_loading_and_checking_needs_no_engine() -> None:
    code = (
        "import sys; from narrowdown.wizard.flow.load import load; from narrowdown.wizard.flow.check import check; from narrowdown.wizard.flow import render;"  # noqa: E501
        "assert check(load('accuracy')) == []; render.svg(load('accuracy').flow);"
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'onnx', 'onnxruntime', 'tensorrt', 'textual')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=allow(120)
    )
    assert done.stdout.strip() == "[]"
