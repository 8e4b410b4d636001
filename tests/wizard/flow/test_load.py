"""Reading flow files: YAML 1.2, positions, and what is refused where."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from narrowdown.wizard.flow.load import FlowProblem, load, parse, shipped
from narrowdown.wizard.flow.model import Flow

Change = Callable[[str, str], str]


def refused(text: str) -> FlowProblem:
    with pytest.raises(FlowProblem) as caught:
        parse(text, "f.yaml")
    return caught.value


def problem_of(text: str) -> FlowProblem | None:
    """What is wrong with a text; None where it is a flow. Any other exception is a fault of
    ours."""
    try:
        assert isinstance(parse(text).flow, Flow)
    except FlowProblem as problem:
        return problem
    return None


def test_the_parts_arrive(right: str) -> None:
    flow = parse(right).flow
    assert (flow.id, flow.start, list(flow.nodes), list(flow.ends)) == (
        "small",
        "look",
        ["look", "think"],
        ["done"],
    )
    look = flow.nodes["look"]
    assert look.step is not None
    assert look.step.with_ == {"depth": 3, "way": "fast"}
    assert list(look.answers) == ["yes", "maybe", "no"]
    assert look.answers["maybe"].detour is not None
    assert look.answers["maybe"].detour.when == {"error": None}
    assert (look.max_visits, look.limit, look.terms) == (2, "done", ("tolerance",))


def test_unquoted_yes_and_no_are_text(broken: Change) -> None:
    flow = parse(broken('"yes":', "yes:").replace('"no":', "no:")).flow
    assert list(flow.nodes["look"].answers) == ["yes", "maybe", "no"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-1.", -1.0),
        ("+2", 2),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("~", None),
        ("null", None),
        ("", None),
        ("1:30", "1:30"),  # a sexagesimal number in YAML 1.1
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("2024-01-01", "2024-01-01"),  # a date in YAML 1.1
        ("<<", "<<"),
        ("=", "="),
        ("512MiB", 512 << 20),
        ("'512MiB'", "512MiB"),
        ("3 GiB", "3 GiB"),
    ],
)
def test_scalars_follow_yaml_1_2(broken: Change, written: str, value: object) -> None:
    made = (
        parse(
            broken(
                "{use: looking, with: {depth: 3, way: fast}}",
                f"\n      use: looking\n      with:\n        depth: {written}",
            )
        )
        .flow.nodes["look"]
        .step
    )
    assert made is not None
    assert made.with_["depth"] == value
    assert type(made.with_["depth"]) is type(value)


@pytest.mark.parametrize("written", [".inf", "-.INF", ".nan", "1e999"])
def test_numbers_without_end_are_refused(broken: Change, written: str) -> None:
    problem = refused(broken("depth: 3", f"depth: {written}"))
    assert (problem.line, problem.column) == (10, 40)
    assert "not a finite number" in problem.message


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message", "suggestion"),
    [
        (
            "start: look\n",
            "start: look\nstart: think\n",
            5,
            1,
            "'start' is here already, in line 4.",
            "",
        ),
        ('      "no":\n', '      "yes":\n', 23, 7, "'yes' is here already, in line 13.", ""),
        (
            "title: Look",
            "titel: Look",
            8,
            5,
            "there is no 'titel' in node 'look'.",
            "Did you mean 'title'?",
        ),
        ("        goto: look\n", "", 13, 7, "answer 'yes' of node 'look' lacks 'goto'.", ""),
        (
            "text: Perhaps",
            "text: 3",
            19,
            15,
            "'text' must be text, and this is a whole number.",
            "",
        ),
        (
            "max_visits: 2",
            "max_visits: two",
            30,
            17,
            "'max_visits' must be a whole number, and this is text.",
            "",
        ),
        (
            "terms: [tolerance]",
            "terms: [tolerance, 1]",
            27,
            24,
            "'terms' must be text, and this is a whole number.",
            "",
        ),
        (
            "schema: 1",
            "schema: 2",
            1,
            9,
            "this file is of schema 2; this program reads schema 1.",
            "",
        ),
        (
            "id: small",
            "id: Small Flow",
            2,
            5,
            "'id' must be lower case letters, digits and hyphens.",
            "",
        ),
        (
            "verdict: unresolved",
            "verdict: null",
            44,
            14,
            "'verdict' must be text, and this is nothing.",
            "",
        ),
        (
            "{use: looking, with: {depth: 3, way: fast}}",
            "looking",
            10,
            11,
            "'step' must be a mapping, and this is text.",
            "",
        ),
        (
            "    explain: No step here.",
            "    1: x",
            34,
            5,
            "'1' is not text, and every key of a flow is.",
            "Put it in quotes.",
        ),
        ("goto: look", "goto: &a look", 0, 0, "", ""),
    ],
)
def test_what_does_not_fit_is_pointed_at(
    broken: Change, old: str, new: str, line: int, column: int, message: str, suggestion: str
) -> None:
    if not message:
        assert (
            parse(broken(old, new)).flow.nodes["look"].answers["yes"].goto == "look"
        )  # an anchor alone harms nothing
        return
    problem = refused(broken(old, new))
    assert (problem.line, problem.column, problem.message, problem.suggestion) == (
        line,
        column,
        message,
        suggestion,
    )
    assert str(problem).startswith(f"f.yaml:{line}:{column}: {message}")


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the file is empty."),
        ("# nothing\n", 1, 1, "the file is empty."),
        ("- a\n", 1, 1, "a flow is a mapping"),
        ("just words", 1, 1, "a flow is a mapping"),
        ("a: [1\nb: 2\n", 2, 2, "Look for a bracket or a quote that is opened and not closed."),
        ("a: b: c\n", 1, 5, "Put quotes around a text that holds ': '"),
        ("\ta: 1\n", 1, 1, "Indent with blanks, not with tabs."),
        ("a: *b\n", 1, 4, "Put quotes around a text that begins with '*'."),
        ('a: "b\nc: "d"\n', 2, 5, "each quote that opens is closed"),
        ("a: &x [1]\nb: *x\n", 1, 4, "no aliases"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, 4, "no tags"),
        ("a: !mine 3\n", 1, 4, "no tags"),
        ("a: !!binary aGk=\n", 1, 4, "no tags"),
        ("? [a]\n: 1\n", 1, 3, "every key of a flow is"),
        ("a: 1\nb: \x07\n", 2, 4, "control character"),
        ("a: 123456789012345678901234567890\n", 1, 4, "too large"),
        ("a: 1\n---\nb: 2\n", 2, 1, "this is not YAML"),
        ("a: {{ x }}\n", 1, 5, "every key"),
    ],
)
def test_files_that_are_no_flows(text: str, line: int, column: int, message: str) -> None:
    problem = refused(text)
    assert message in str(problem)
    assert (problem.line, problem.column) == (line, column)


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    rows = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    rows += [
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(12)
    ]
    assert "no aliases" in refused("\n".join(rows)).message


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 60 + "]" * 60,
        "a: " + "[" * 5000 + "]" * 5000,
        "a: " + "{b: " * 50 + "1" + "}" * 50,
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert "nested too deeply" in refused(text).message


@given(st.text(max_size=200))
def test_any_text_is_a_flow_or_a_problem(text: str) -> None:
    found = problem_of(text)
    assert found is None or ("\n" not in found.message and found.message.endswith("."))


@given(st.data())
def test_any_damage_to_a_flow_is_a_problem_with_a_place(right: str, data: st.DataObject) -> None:
    text = right
    start = data.draw(st.integers(0, len(text) - 1))
    cut = data.draw(st.integers(0, 12))
    damaged = (
        text[:start]
        + data.draw(st.text("ab:{}[]\"'\n -&*!%|>#,?1", max_size=4))
        + text[start + cut :]
    )
    found = problem_of(damaged)
    assert found is None or (1 <= found.line <= damaged.count("\n") + 2 and found.column >= 1)


def test_files_and_names(tmp_path: Path, right: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("\ufeff" + right, encoding="utf-8")
    loaded = load(path)
    assert (loaded.path, loaded.flow.id) == (str(path), "small")
    assert load(str(path)).flow == loaded.flow
    assert "accuracy" in shipped()
    assert load("accuracy").flow.id == "accuracy"


def test_files_that_cannot_be_read_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(
        FlowProblem, match=r"^acuracy: no flow of this name .* Did you mean 'accuracy'\?$"
    ):
        load("acuracy")
    with pytest.raises(FlowProblem, match="cannot be read: No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(FlowProblem, match="the file cannot be read: it is a folder"):
        load(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    with pytest.raises(FlowProblem, match=r"not UTF-8 text \(byte 3\)"):
        load(tmp_path / "bytes.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(FlowProblem, match="larger than"):
        load(tmp_path / "large.yaml")


def test_positions_of_keys_and_values(right: str) -> None:
    lines = parse(right).lines
    assert lines.key("nodes", "look", "answers", "yes", "goto") == (15, 9)
    assert lines.value("nodes", "look", "answers", "yes", "goto") == (15, 15)
    assert lines.value("nodes", "look", "evidence", 1) == (26, 25)
    assert lines.key("nodes", "look", "nothing", "such") == lines.key("nodes", "look") == (7, 3)
    assert lines.key("nowhere") == (1, 1)
