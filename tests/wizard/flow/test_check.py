"""Each lint has a flow that it catches, at the exact place; the rules mean what docs/flows.md
says."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from narrowdown.wizard.flow.check import Problem
from narrowdown.wizard.flow.load import FlowProblem
from narrowdown.wizard.flow.model import Answer, Detour, FlowNode
from narrowdown.wizard.flow.rules import destination, holds, recommend

Lint = Callable[[str], list[Problem]]
Change = Callable[[str, str], str]


def test_the_right_flow_has_no_problems(lint: Lint, right: str) -> None:
    assert lint(right) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("depth", "rings"),
        ("depth", "most_culprits"),
        ("depth", "most_rounds"),
        ("tries", "headroom"),
    ],
)
def test_a_parameter_of_an_earlier_version_is_taken(
    lint: Lint, right: str, old: str, new: str
) -> None:
    assert lint(right.replace(f"{old}: ", f"{new}: ")) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message", "suggestion"),
    [
        # places
        ("start: look", "start: lok", 4, 8, "the flow starts at 'lok', which is not a node.", "Did you mean 'look'?"),
        ("goto: think", "goto: thikn", 20, 15, "there is no node or end 'thikn'.", "Did you mean 'think'?"),
        ("goto: done}", "goto: dome}", 22, 45, "there is no node or end 'dome'.", "Did you mean 'done'?"),
        ("limit: done", "limit: think", 31, 12, "'think' is not an end, and limit must name one.", ""),
        ("max_visits: 2", "max_visits: 0", 30, 17, "max_visits must be 1 or more.", ""),
        ("verdict: unresolved", "verdict: unresolvd", 44, 14, "'unresolvd' is not a verdict.", "Did you mean 'unresolved'?"),
        ("  think:\n", "  Think:\n", 32, 3, "'Think' must be lower case letters, digits and hyphens.", ""),
        ("ends:\n", "ends:\n  look: {title: Look, explain: Again, verdict: unresolved}\n", 41, 3,
         "'look' is also a node (line 7); a goto could mean either.", ""),
        ('      "stop":\n', '      "Stop!":\n', 37, 7, "'Stop!' must be lower case letters, digits and hyphens.", ""),
        ("params:", "reference: onnxruntime:threads=many\nparams:", 5, 12,
         "the flow's reference cannot be used: onnxruntime: threads=many is not a whole number.", ""),
        # steps and what they declare
        ("use: looking", "use: lookng", 10, 17, "there is no step 'lookng'.", "Did you mean 'looking'?"),
        ("depth: 3", "dept: 3", 10, 33, "step 'looking' takes no 'dept'.", "Did you mean 'depth'?"),
        ("depth: 3", "depth: three", 10, 40, "'depth' of step 'looking' is a whole number from 0 on, and never 'three'.", ""),
        ("depth: 3", "depth: -3", 10, 40, "'depth' of step 'looking' is a whole number from 0 on, and never '-3'.", ""),
        ("way: fast", "way: fats", 10, 48, "'way' of step 'looking' is never 'fats'.", "Did you mean 'fast'?"),
        ("tries: 2", "tires: 2", 5, 10, "no step of this flow takes a parameter 'tires'.", "Did you mean 'tries'?"),
        ("tries: 2", "tries: many", 5, 17, "'tries' of step 'looking' is a whole number, and never 'many'.", ""),
        ("[verdict, error]", "[verdict, eror]", 26, 25, "step 'looking' does not measure 'eror'.", "Did you mean 'error'?"),
        ("    ask: And now?", "    evidence: [error]\n    ask: And now?", 35, 16,
         "'error' is measured by nothing: this node has no step.", ""),
        # rules
        ("verdict: wrong", "verdct: wrong", 16, 16, "step 'looking' does not measure 'verdct'.", "Did you mean 'verdict'?"),
        ("verdict: wrong", "verdict: wrng", 16, 25, "'verdict' is never 'wrng'.", "Did you mean 'wrong'?"),
        ("{gt: 0.5}", "{gr: 0.5}", 16, 40, "there is no comparison 'gr'.", "Known: ge, gt, le, lt, ne, in."),
        ("{gt: 0.5}", "{gt: much}", 16, 44, "'error' is a number, and never 'much'.", ""),
        ("error: {gt: 0.5}", "names: {gt: 0.5}", 16, 40, "'names' is not a number, so 'gt' can never hold.", ""),
        ("steady: false", "steady: 0", 21, 31, "'steady' is true or false, and never '0'.", ""),
        ("{in: [1, 2]}", "{in: [1, two]}", 21, 62, "'count' is a whole number, and never 'two'.", ""),
        ("{in: [1, 2]}", "{in: 1}", 21, 58, "'in' takes a list of values.", ""),
        ("any: [{steady: false}", "any: [{stedy: false}", 21, 23,
         "step 'looking' does not measure 'stedy'.", "Did you mean 'steady'?"),
        ("{error: null}", "{}", 22, 24, "a rule is a mapping of fields to values.", ""),
        # order of answers
        ("        when: {verdict: wrong, error: {gt: 0.5}}\n", "", 13, 7,
         "'yes' has no 'when', so no answer after it can be recommended.", "Give it a rule, or put it last."),
        ('"no":\n        text: No', '"no":\n        when: {steady: true}\n        text: No', 24, 9,
         "the last answer is what remains when no rule holds, so it has no 'when'.",
         "Remove this rule, or add an answer after it."),
        ("{any: [{steady: false}, {not: {count: {in: [1, 2]}}}]}", "{verdict: wrong, error: {gt: 0.5}}", 21, 9,
         "'yes' has the same rule, so 'maybe' is never recommended.", ""),
        # texts
        ("{{ error|number }}", "{{ eror|number }}", 17, 18, "there is no field 'eror' here.", "Did you mean 'error'?"),
        ("{{ error|number }}", "{{ error|numbr }}", 17, 18, "there is no filter 'numbr'.", "Did you mean 'number'?"),
        ("{{ error|number }}", "{{ error * 9 }}", 17, 18, "'*' is not allowed in a template.", ""),
        ("{{ error|number }}", "{% if error %}", 17, 18,
         "only {{ field }} is allowed; statements and comments are not.", ""),
        ("ask: Is it wrong?", 'ask: "Is {{ it }} wrong?"', 11, 10, "there is no field 'it' here.", ""),
        ("run {{ model }}", "run {{ modell }}", 29, 27, "there is no field 'modell' here.", "Did you mean 'model'?"),
        ('"polygraphy>=0.53"', '"polygraphy>=new"', 29, 7,
         "'polygraphy>=new' does not name a tool; write a name, and bounds such as >=0.53,<1 if it matters.", ""),
        # terms
        ("terms: [tolerance]", "terms: [tolerance, tolerence]", 27, 24,
         "there is no card terms/tolerence.md.", "Did you mean 'tolerance'?"),
        ("One ‹tolerance›", "One ‹tolerance› and ‹mark all›", 9, 14,
         "‹mark all› is not among the terms of this node.", "Add mark-all to terms."),
        # settings
        ("        text: Stop\n", "        text: Stop\n        settings: {tolerence: New}\n", 39, 20,
         "there is no setting 'tolerence'.", "Did you mean 'tolerance'?"),
        ("        text: Stop\n", "        text: Stop\n        sets: {way: slwo}\n", 39, 21,
         "'way' is never 'slwo'.", "Did you mean 'slow'?"),
    ],
)  # fmt: skip
def test_each_lint_points_at_its_place(
    lint: Lint,
    broken: Change,
    old: str,
    new: str,
    line: int,
    column: int,
    message: str,
    suggestion: str,
) -> None:
    found = lint(broken(old, new))
    assert Problem(line, column, message, suggestion) in found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "goto: think",
            "goto: done",
            [Problem(32, 3, "no route from 'look' reaches node 'think'.")],
        ),
        (
            "        text: Stop\n        goto: done",
            "        text: Stop\n        goto: think",
            [
                Problem(
                    32,
                    3,
                    "'think' can be entered again and names no limit.",
                    "Say max_visits, and with limit the end that is reached after them.",
                ),
                Problem(32, 3, "no route from 'think' reaches an end."),
            ],
        ),
        (
            "    max_visits: 2\n    limit: done\n",
            "",
            [
                Problem(
                    7,
                    3,
                    "'look' can be entered again and names no limit.",
                    "Say max_visits, and with limit the end that is reached after them.",
                )
            ],
        ),
        (
            "        text: Stop\n        goto: done",
            "        text: Stop\n        goto: look",
            [
                Problem(
                    32,
                    3,
                    "'think' can be entered again and names no limit.",
                    "Say max_visits, and with limit the end that is reached after them.",
                )
            ],
        ),
        (
            "ends:\n",
            "ends:\n  other: {title: Other, explain: Never, verdict: unresolved}\n",
            [Problem(41, 3, "no route from 'look' reaches end 'other'.")],
        ),
    ],
)
def test_the_graph_as_a_whole(
    lint: Lint, broken: Change, old: str, new: str, expected: list[Problem]
) -> None:
    assert lint(broken(old, new)) == expected


@pytest.mark.parametrize("part", ["nodes: {}", "ends: {}"])
def test_an_empty_flow(lint: Lint, right: str, part: str) -> None:
    name = part.partition(":")[0]
    cut = {"nodes: {}": right[: right.index("nodes:")] + "nodes: {}\n" + right[right.index("ends:") :],
           "ends: {}": right[: right.index("ends:")] + "ends: {}\n"}[part]  # fmt: skip
    assert any(p.message.startswith(f"the flow has no {name}") for p in lint(cut))


def test_a_node_without_answers(lint: Lint, right: str) -> None:
    cut = right.replace(
        '    answers:\n      "stop":\n        text: Stop\n        goto: done\n', "    answers: {}\n"
    )
    assert any(p.message == "node 'think' has no answers." for p in lint(cut))


# -- rules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "outcome", "expected"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": False}, {"a": 0}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"a": {"ge": 1, "lt": 2}}, {"a": 1.5}, True),
        ({"a": {"ge": 1, "lt": 2}}, {"a": 2}, False),
        ({"a": {"gt": 1}}, {"a": 1}, False),
        ({"a": {"le": 1}}, {"a": 1}, True),
        ({"a": {"gt": 0}}, {"a": True}, False),
        ({"a": {"gt": 0}}, {"a": "1"}, False),
        ({"a": {"in": ["x", "y"]}}, {"a": "y"}, True),
        ({"a": {"in": [1]}}, {"a": True}, False),
        ({"a": {"ne": "x"}}, {"a": "y"}, True),
        ({"a": {"ne": "x"}}, {"a": None}, False),
        ({"a": {"ne": None}}, {"a": 0}, True),
        ({"a": {"ne": None}}, {}, False),
        ({"a": None}, {}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": {"gt": -1e9}}, {"a": None}, False),
        ({"not": {"a": {"gt": 0}}}, {"a": None}, True),
        ({"all": []}, {}, True),
        ({"any": []}, {}, False),
        ({"any": [{"a": 1}, {"b": 1}], "c": 1}, {"b": 1, "c": 1}, True),
    ],
)
def test_holds(when: dict[str, Any], outcome: dict[str, Any], expected: bool) -> None:
    assert holds(when, outcome) is expected


VALUES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["x", "y"])
)
NAMES = st.sampled_from(["a", "b", "c"])
OUTCOMES = st.dictionaries(NAMES, VALUES)
COMPARISONS = st.one_of(
    VALUES,
    st.dictionaries(st.sampled_from(["ge", "gt", "le", "lt"]), st.integers(-3, 3), min_size=1),
    st.fixed_dictionaries({"in": st.lists(VALUES, max_size=3)}),
    st.fixed_dictionaries({"ne": VALUES}),
)
RULES = st.recursive(
    st.dictionaries(NAMES, COMPARISONS, min_size=1, max_size=2),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"all": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"any": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"not": inner}),
    ),
    max_leaves=6,
)


@given(RULES, RULES, OUTCOMES)
def test_rules_are_logic(p: dict[str, Any], q: dict[str, Any], outcome: dict[str, Any]) -> None:
    a, b = holds(p, outcome), holds(q, outcome)
    assert holds({"not": p}, outcome) is (not a)
    assert holds({"all": [p, q]}, outcome) is (a and b)
    assert holds({"any": [p, q]}, outcome) is (a or b)
    assert holds({"not": {"any": [p, q]}}, outcome) is holds(
        {"all": [{"not": p}, {"not": q}]}, outcome
    )


@given(st.floats(-5, 5), st.floats(-5, 5))
def test_comparisons_are_an_order(a: float, b: float) -> None:
    outcome = {"a": a}
    assert holds({"a": {"ge": b}}, outcome) is not holds({"a": {"lt": b}}, outcome)
    assert holds({"a": {"le": b}}, outcome) is not holds({"a": {"gt": b}}, outcome)
    assert holds({"a": {"ge": b, "le": b}}, outcome) is holds({"a": b}, outcome)


@given(OUTCOMES)
def test_what_was_not_measured_compares_with_nothing(outcome: dict[str, Any]) -> None:
    outcome.pop("a", None)
    for operator in ("ge", "gt", "le", "lt", "ne"):
        assert not holds({"a": {operator: 0}}, outcome)
        assert not holds({"a": {operator: 0}}, {**outcome, "a": None})
    assert holds(None, outcome)


def node(**answers: Answer) -> FlowNode:
    return FlowNode(title="", explain="", ask="", answers=answers)


@given(st.lists(RULES, max_size=3), OUTCOMES)
def test_the_first_rule_that_holds_is_recommended(
    rules: list[dict[str, Any]], outcome: dict[str, Any]
) -> None:
    answers = {f"a{i}": Answer(text="", goto="", when=rule) for i, rule in enumerate(rules)}
    found = recommend(node(**answers, last=Answer(text="", goto="")), outcome).answer
    assert found == next((f"a{i}" for i, rule in enumerate(rules) if holds(rule, outcome)), "last")


def test_a_step_that_failed_leaves_the_last_answer() -> None:
    asked = node(
        yes=Answer(text="", goto="x", when={"a": 1}, because="{{ a }}"),
        no=Answer(text="", goto="y", because="{{ a }}"),
    )
    assert (recommend(asked, {"a": 1}).answer, recommend(asked, {"a": 1}).because) == ("yes", "1")
    assert (recommend(asked, None).answer, recommend(asked, None).because) == ("no", "")
    assert recommend(asked, {"b": 1}).because == ""  # the words fail, the recommendation stands


def test_a_detour_wins_where_its_rule_holds() -> None:
    answer = Answer(text="", goto="here", detour=Detour(when={"switchable": True}, goto="there"))
    assert destination(answer, {"switchable": True}) == "there"
    assert destination(answer, {"switchable": False}) == "here"
    assert destination(answer, None) == "here"
    assert destination(Answer(text="", goto="here"), {"switchable": True}) == "here"


def test_of_several_detours_the_first_whose_rule_holds_wins() -> None:
    ways = (Detour(when={"a": 1}, goto="one"), Detour(when={"b": 1}, goto="two"))
    answer = Answer(text="", goto="here", detour=ways)
    led = [destination(answer, {"a": a, "b": b}) for a, b in ((1, 1), (0, 1), (0, 0))]
    assert led == ["one", "two", "here"]


def test_each_of_several_detours_is_checked_in_its_place(broken: Change, lint: Lint) -> None:
    one = "detour: {when: {error: null}, goto: done}"
    more = "detour:\n          - {when: {error: null}, goto: done}\n          - {when: {stedy: true}, goto: don}"
    found = [(p.line, p.column, p.message) for p in lint(broken(one, more))]
    assert found == [
        (24, 21, "step 'looking' does not measure 'stedy'."), (24, 41, "there is no node or end 'don'."),
    ]  # fmt: skip
    with pytest.raises(
        FlowProblem, match=r"24:14: there is no 'wenn' in 'detour' of node 'look'\."
    ):
        lint(broken(one, more.replace("when: {stedy", "wenn: {stedy")))
