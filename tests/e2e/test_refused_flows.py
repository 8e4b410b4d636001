"""A flow or an answers file with anything wrong in it: ``file:line:column: sentence``, the same
from every command."""

import re
from pathlib import Path

import pytest

from . import tiny

FLOW = """\
schema: 1
id: mini
title: A mini flow
start: first
params: {search: auto}
nodes:
  first:
    title: Does it fail?
    explain: Look for a ‹tolerance›.
    step: {use: compare}
    ask: Does it fail?
    answers:
      "yes": {text: It fails, goto: again, when: {verdict: fails}, because: "{{ message }}"}
      "no": {text: It passes, goto: passes}
    evidence: [error]
    terms: [tolerance]
    commands:
      "polygraphy>=0.53": polygraphy run {{ model }}
  again:
    title: Make it small
    explain: Cut.
    step: {use: reduce, with: {verify: 2}}
    ask: Is it small?
    answers:
      "yes": {text: Yes, goto: done, when: {nodes_after: {le: 3}}}
      "once-more": {text: Once more, goto: again, when: {verdict: reduced}, sets: {seed: 2}}
      "no": {text: No, goto: done, detour: {when: {verdict: unresolved}, goto: passes}}
    max_visits: 2
    limit: done
ends:
  done: {title: Done, explain: It was found., verdict: minimal-case}
  passes: {title: It passes, explain: Nothing fails., verdict: not-reproduced}
"""

# (text of the flow, what stands in its place, said); ``¦`` stands before the place that must be
# named.
FORM = [
    ("title: A mini flow\n", "title: [A mini\nstart¦: first\n", "this is not YAML"),
    ("    title: Make", "¦\ttitle: Make", "this is not YAML: found character '\\t'"),
    ("schema: 1", "schema: ¦2", "this file is of schema 2; this program reads schema 1."),
    ("schema: 1\n", "¦", "the flow lacks 'schema'"),
    (
        "title: A mini flow",
        "¦titel: A mini flow",
        "there is no 'titel' at the top of a flow. Did you mean 'title'?",
    ),
    ("title: A mini flow", "title: ¦5", "'title' must be text, and this is a whole number."),
    ("title: A mini flow", "title: A\n¦title: B", "'title' is here already, in line 3."),
    (
        "title: A mini flow",
        "¦1: A",
        "'1' is not text, and every key of a flow is. Put it in quotes.",
    ),
    ("title: A mini flow", '¦"\\e[31mred": A', "there is no '\\x1b[31mred' at the top of a flow."),
    ("title: A mini flow", "title: ¦!!python/name:os.system x", "a flow has no tags"),
    (
        "title: A mini flow",
        "title: ¦&a A\nexplain: *a",
        "a flow has no aliases (*name): write the value again.",
    ),
    ("title: A mini flow", "title: A¦\0B", "there is a control character that text does not hold."),
    ("verify: 2", "verify: ¦99999999999999999999999", "the number is too large."),
    ("verify: 2", f"verify: ¦{'9' * 9000}", "the number is too large."),
    ("verify: 2", "verify: ¦9223372036854775808", "the number is too large."),
    ("verify: 2", "verify: ¦-9223372036854775808", "the number is too large."),
    ("verify: 2", "verify: ¦1e400", "'1e400' is not a finite number."),
    (
        "title: A mini flow",
        'title: ¦"\\ud83d"',
        "the text holds '\\ud83d', half of a character, which no text can hold.",
    ),
    ("search: auto", '¦"\\ude00": auto', "the key holds '\\ude00', half of a character."),
    ("verify: 2", "verify: ¦.nan", "'.nan' is not a finite number."),
    ("    ask: Is it small?\n", "", "node 'again' lacks 'ask'."),
    (
        "params: {search: auto}",
        "params: " + "[" * 40 + "¦" + "[" * 20 + "]" * 60,
        "the file is nested too deeply.",
    ),
]
LINTS = [
    ("start: first", "start: ¦frist", "the flow starts at 'frist', which is not a node. Did you mean 'first'?"),
    ("  again:\n", "  ¦Again:\n", "'Again' must be lower case letters, digits and hyphens."),
    ("verdict: minimal-case", "verdict: ¦minimal", "'minimal' is not a verdict. Did you mean 'minimal-case'?"),
    ("  done: {title", "  ¦first: {title", "'first' is also a node (line 7); a goto could mean either."),
    ("use: reduce", "use: ¦reduse", "there is no step 'reduse'. Did you mean 'reduce'?"),
    ("verify: 2", "¦verfy: 2", "step 'reduce' takes no 'verfy'. Did you mean 'verify'?"),
    ("verify: 2", "verify: ¦two", "'verify' of step 'reduce' is a whole number from 0 on, and never 'two'."),
    ("search: auto", "¦serch: auto", "no step of this flow takes a parameter 'serch'. Did you mean 'search'?"),
    ("max_visits: 2", "max_visits: ¦0", "max_visits must be 1 or more."),
    ("limit: done", "limit: ¦doen", "'doen' is not an end, and limit must name one. Did you mean 'done'?"),
    ("Look for a ‹tolerance›", "¦Look for a ‹cosine›", "‹cosine› is not among the terms of this node. Add cosine to terms."),
    ("terms: [tolerance]", "terms: [¦tolerence, tolerance]", "there is no card terms/tolerence.md."),
    ("evidence: [error]", "evidence: [¦eror]", "step 'compare' does not measure 'eror'. Did you mean 'error'?"),
    ('"polygraphy>=0.53"', '¦"polygraphy=0.53"', "polygraphy=0.53"),
    ("polygraphy run {{ model }}", "¦polygraphy run {{ modl }}", "there is no field 'modl' here. Did you mean 'model'?"),
    ("goto: passes}\n    evid", "goto: ¦pases}\n    evid", "there is no node or end 'pases'. Did you mean 'passes'?"),
    ('"yes": {text: It fails, goto: again, when: {verdict: fails}', '¦"yes": {text: It, goto: again', "'yes' has no 'when'"),
    ("goto: passes}\n    evid", "goto: passes, ¦when: {error: 1}}\n    evid", "the last answer is what remains"),
    ("verdict: fails", "verdict: ¦fail", "'verdict' is never 'fail'. Did you mean 'fails'?"),
    ("verdict: fails", "¦verdikt: fails", "step 'compare' does not measure 'verdikt'. Did you mean 'verdict'?"),
    ("{le: 3}", "{¦lte: 3}", "there is no comparison 'lte'. Known: ge, gt, le, lt, ne, in."),
    ("{le: 3}", "{in: ¦3}", "'in' takes a list of values."),
    ("{le: 3}", "{le: ¦few}", "'nodes_after' is a number, and never 'few'."),
    ("when: {nodes_after: {le: 3}}", "when: {verdict: {¦le: 3}}", "is not a number, so 'le' can never hold"),
    ("when: {verdict: fails}", "when: {any: ¦{verdict: fails}}", "'any' takes a list of rules."),
    ("when: {verdict: fails}", "when: ¦{}", "a rule is a mapping of fields to values."),
    ("when: {verdict: reduced}", "¦when: {nodes_after: {le: 3}}", "'yes' has the same rule, so 'once-more' is never"),
    ("sets: {seed: 2}", "sets: {¦sed: 2}", "there is no setting 'sed'. Did you mean 'seed'?"),
    ('"{{ message }}"', '¦"{{ mesage }}"', "there is no field 'mesage' here. Did you mean 'message'?"),
    ("{{ message }}", "{{ " + "9" * 9000 + " }}", "this template holds a number that is too large."),
    ("{{ message }}", "{{ 1e400 }}", "this template holds a number that is too large."),
    ("{{ message }}", "{{ 0x" + "f" * 9000 + " }}", "this template holds a number that is too large."),
    ("{{ message }}", "{{ '\\\\ud800' }}", "this template holds half of a character, which no text can hold."),
    ("  again:\n", "  ¦astray:\n", "no route from 'first' reaches node 'astray'."),
    ("goto: again, when: {verdict: fails}", "goto: passes, when: {verdict: fails}", "no route from 'first' reaches node 'again'"),
    ("    limit: done\n", "", "'again' can be entered again and names no limit."),
]  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.faultless(tmp_path)


def everywhere(narrowdown, model: Path, flow: Path, place: str, said: str) -> None:
    """``check`` lists all there is, the others give the first and refuse; none leaves a session
    behind."""
    checked = narrowdown("flow", "check", flow)
    first = (checked.out or checked.err).splitlines()[0].removeprefix("narrowdown: ")
    assert checked.code == 2
    for words in (
        ["flow", "show", flow],
        ["run", model, "--flow", flow],
        ["open", model, "--flow", flow],
    ):
        ran = narrowdown(*words)
        assert ran.code == 2, (words, ran.err)
        assert ran.err.startswith(f"narrowdown: {first}"), (words, ran.err, first)
        assert ran.err.count("\n") == 1
    lines = [
        line for line in (checked.out + checked.err).splitlines() if f"{flow.name}:{place}" in line
    ]
    assert any(said in line for line in lines), checked.out + checked.err
    assert not (model.parent / "sessions").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [*FORM, *LINTS],
    ids=[new[:40] or old for old, new, _ in [*FORM, *LINTS]],
)
def test_a_fault_in_a_flow(
    narrowdown, model: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert FLOW.count(old) == 1
    written = FLOW.replace(old, new)
    before, mark, _ = written.partition("¦")
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: " if mark else ""
    flow = tmp_path / "own.yaml"
    flow.write_text(written.replace("¦", ""), encoding="utf-8")
    everywhere(narrowdown, model, flow, place, said)


def test_the_right_flow_and_other_ways_to_write_it(narrowdown, tmp_path: Path) -> None:
    flow = tmp_path / "own.yaml"
    for data in (
        FLOW.encode(),
        b"\xef\xbb\xbf" + FLOW.encode(),
        FLOW.replace("\n", "\r\n").encode(),
    ):
        flow.write_bytes(data)
        assert narrowdown("flow", "check", flow).code == 0
    for data, said in (
        (FLOW.encode("utf-16"), "the file is not UTF-8 text (byte 0)"),
        (
            FLOW.replace("mini flow", "m\u00fcni flow")
            .replace("‹tolerance›", "")
            .encode("latin-1"),
            "the file is not UTF-8 text (byte ",
        ),
        (b"", ":1:1: the file is empty."),
        (
            FLOW.encode() + b"#" * (1 << 20),
            "the file is larger than 1,048,576 bytes, which no flow is.",
        ),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "a flow has no aliases"),
        (b"a: " + b"[" * 600, "the file is nested too deeply."),
        (b"- a\n", "a flow is a mapping with the keys schema"),
        (FLOW.encode() + b"---\na: 1\n", "but found another document"),
    ):
        flow.write_bytes(data)
        ran = narrowdown("flow", "check", flow)
        assert ran.code == 2
        assert said in ran.err, ran.err
    ran = narrowdown("flow", "show", tmp_path)
    assert (ran.code, f"'{tmp_path}' is a folder; name the flow file inside it." in ran.err) == (
        2,
        True,
    )
    assert "Did you mean 'own.yaml'?" in narrowdown("flow", "check", tmp_path / "won.yaml").err


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("reproduc: yes\n", ":1:1", "has no question 'reproduc'. Did you mean 'reproduce'?"),
        ("reproduce: perhaps\n", ":1:12", "'reproduce' has no answer 'perhaps'."),
        ("sanitize: [yes, maybe]\n", ":1:17", "'sanitize' has no answer 'maybe'."),
        ("reproduce: yes\nreproduce: no\n", ":2:1", "'reproduce' is here already, in line 1."),
        ("reproduce: []\n", ":1:12", "'reproduce' has an empty list of answers"),
        ("reproduce:\n", ":1:11", "'reproduce' has no answer here."),
        ("reproduce: [yes\n", ":2:1", "this is not YAML"),
        ("reproduce: y\0es\n", ":1:13", "there is a control character"),
        ("reproduce: yes\n\tx: y\n", ":2:1", "this is not YAML"),
        ("- reproduce\n", ":1:1", "an answers file is a mapping of nodes to answers."),
        ("reproduce: [[yes]]\n", ":1:13", "an answer of 'reproduce' is one word"),
        (
            "reproduce: {a: b}\n",
            ":1:12",
            "an answer with values is written {answer: ID, NAME: VALUE}",
        ),
        ("a: &a [x]\nb: *a\n", ":1:4", "an answers file has no aliases"),
        ("reproduce: " + "[" * 600, "", "the file is nested too deeply."),
        (
            "#" * (1 << 20) + "\n",
            "",
            "the file is larger than 1,048,576 bytes, which no answers file is.",
        ),
        (b"\xff\xfe", "", "the file is not UTF-8 text (byte 0)"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_fault_in_an_answers_file(
    narrowdown, model: Path, tmp_path: Path, text: str | bytes, place: str, said: str
) -> None:
    path = tmp_path / "answers.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    ran = narrowdown("run", model, "--answers", path)
    assert ran.code == 2
    assert f"{path}{place}: " in ran.err, ran.err
    assert re.search(re.escape(said), ran.err), ran.err
    assert not (model.parent / "sessions").exists()


def test_an_answers_file_that_cannot_be_read(narrowdown, model: Path, tmp_path: Path) -> None:
    for path, said in ((tmp_path, "it is a folder"), (tmp_path / "none.yaml", "No such file")):
        ran = narrowdown("run", model, "--answers", path)
        assert (ran.code, f"{path}: the file cannot be read: {said}" in ran.err) == (2, True), (
            ran.err
        )
