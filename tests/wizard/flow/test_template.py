"""Templates: what they may hold, what they refuse, and that no value of a model gets further than
it should."""

import contextlib
import shlex
import time

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.probe import HUGE
from narrowdown.wizard.flow.expressions import (
    LARGEST,
    TemplateProblem,
    Words,
    fields,
    render,
    render_command,
)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("plain", {}, "plain"),
        ("{{ a }} of {{ b }}", {"a": 3, "b": 12}, "3 of 12"),
        ("{{ a }}", {"a": None}, "?"),
        ("{{ a }}", {"a": True}, "yes"),
        ("{{ a }}", {"a": 0.0123456}, "0.0123"),
        ("{{ a }}", {"a": ("x", 2)}, "x, 2"),
        ("{{ a|number }}", {"a": 1.25e-7}, "1.25e-7"),
        ("{{ a|number }}", {"a": None}, "?"),
        ("{{ a|number }}", {"a": HUGE}, "not finite"),
        ("{{ a|percent }}", {"a": 0.037}, "3.7 %"),
        ("{{ a|percent }}", {"a": 1}, "100 %"),
        ("{{ a|percent }}", {"a": 0.0}, "0 %"),
        ("{{ a|percent }}", {"a": None}, "?"),
        ("{{ a|plural('node') }}", {"a": 1}, "1 node"),
        ("{{ a|plural('node') }}", {"a": 1412}, "1,412 nodes"),
        ("{{ a|plural('box', 'boxes') }}", {"a": 0}, "0 boxes"),
        ("{{ a|plural('node') }}", {"a": None}, "? nodes"),
        ("{{ a|duration }}", {"a": 200}, "3 min 20 s"),
        ("{{ a|short(9) }}", {"a": "/layer3/conv2/Conv"}, "/lay…Conv"),
        ("{{ a|short }}", {"a": "short"}, "short"),
        ("{{ a - b }}", {"a": 5, "b": 2}, "3"),
        ("{{ 'x ' ~ a|number ~ '.' if a != none else '' }}", {"a": 0.5}, "x 0.5."),
        ("{{ 'x ' ~ a|number ~ '.' if a != none else '' }}", {"a": None}, ""),
        ("{{ a or b }}", {"a": "", "b": "why"}, "why"),
        ("{{ 'low' if a < 3 and not b else 'high' }}", {"a": 2, "b": False}, "low"),
        ("line\n{{ a }}\n", {"a": 1}, "line\n1\n"),
        ("${HOME} {x} }} %} #}", {}, "${HOME} {x} }} %} #}"),
        ("{{ a }}", {"a": "{{ b }} {% x %}"}, "{{ b }} {% x %}"),
        ("{{ a }}", {"a": "<b>&"}, "<b>&"),
    ],
)
def test_what_templates_do(text: str, values: dict[str, object], expected: str) -> None:
    assert render(text, values) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 9**9**9 }}",
        "{{ a % a }}",
        "{{ '%s' % a }}",
        "{{ 7 // 2 }}",
        "{{ a() }}",
        "{{ range(10) }}",
        "{{ a.b }}",
        "{{ a['b'] }}",
        "{{ a[0] }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ a.format(a) }}",
        "{{ a is defined }}",
        "{{ a|lower }}",
        "{{ a|attr('b') }}",
        "{{ a|map('b') }}",
        "{{ a|plural(one='x') }}",
        "{{ a|short(*b) }}",
        "{{ [1, 2] }}",
        "{{ {1: 2} }}",
        "{{ (1, 2) }}",
        "{{ a[1:2] }}",
        "{{ self }}",
        "{{ __name__ }}",
        "{{ loop }}",
        "{% for i in a %}{{ i }}{% endfor %}",
        "{% set x = 1 %}",
        "{%- if a %}x{% endif %}",
        "{% include 'x' %}",
        "{% raw %}x{% endraw %}",
        "{# comment #}",
        "{{ a",
        "{{ }}",
        "{{ a b }}",
        "{{ 'a }}",
        "{{ " + "(" * 3000 + "a" + ")" * 3000 + " }}",
        "{{ " + "not " * 3000 + "a }}",
        "x" * (17 << 10),
    ],
)
def test_what_templates_refuse(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(TemplateProblem) as caught:
        render(text, {"a": "value", "b": "other"})
    assert str(caught.value).endswith(".")
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{{ a }}", {}),
        ("{{ a|number }}", {}),
        ("{{ a|number }}", {"a": "text"}),
        ("{{ a|percent }}", {"a": True}),
        ("{{ a|plural('x') }}", {"a": "1"}),
        ("{{ a / b }}", {"a": 1, "b": 0}),
        ("{{ a + b }}", {"a": 1, "b": "x"}),
        ("{{ a < b }}", {"a": None, "b": 1}),
        ("{{ a|short(b) }}", {"a": "x", "b": "wide"}),
        ("{{ a }}", {"a": "x" * (LARGEST + 1)}),
        ("{{ a }}" * 40, {"a": "x" * 2000}),
    ],
)
def test_values_that_do_not_fit_are_sentences(text: str, values: dict[str, object]) -> None:
    with pytest.raises(TemplateProblem, match=r"\.$"):
        render(text, values)


def test_fields_are_named_once() -> None:
    assert sorted(fields("{{ b }} {{ a if c else b }}")) == ["a", "b", "c"]
    with pytest.raises(TemplateProblem) as caught:
        fields("one\n{{ b }}\n{{ bad }}", ["b"])
    assert caught.value.name == "bad"


@given(st.text(max_size=60))
def test_any_template_renders_or_is_refused(text: str) -> None:
    with contextlib.suppress(TemplateProblem):
        assert isinstance(render(text, {}), str)


@given(st.text(max_size=60))
def test_any_value_is_shown_as_it_is(value: str) -> None:
    assert render("<{{ a }}>", {"a": value}) == f"<{value}>"


PRINTABLE = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")), max_size=30)


@given(PRINTABLE, st.lists(PRINTABLE, max_size=4))
def test_commands_quote_every_value(model: str, words: list[str]) -> None:
    command = render_command("tool {{ m }} --flag{{ w }} end", {"m": model, "w": Words(words)})
    assert shlex.split(command) == ["tool", model, "--flag", *words, "end"]


@given(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp")))
def test_commands_refuse_control_characters(character: str) -> None:
    for value in (f"a{character}b", Words([f"a{character}b"])):
        with pytest.raises(TemplateProblem, match="control characters"):
            render_command("tool {{ m }}", {"m": value})


def test_commands_leave_no_gap_for_no_words() -> None:
    assert render_command("tool{{ w }} end", {"w": Words()}) == "tool end"
    assert render_command("--atol {{ a }}", {"a": 1e-4}) == "--atol 0.0001"


@pytest.mark.parametrize(
    "name", ["message", "self", "loop", "not", "none", "true", "class", "is", "a_b2"]
)
@pytest.mark.parametrize(
    "value", ["text", "{{ x }}\r\n", None, True, 0.1234567, 12, ["a", 1.5], "x" * (LARGEST + 1)]
)
def test_a_field_alone_reads_as_in_a_longer_text(name: str, value: object) -> None:
    said = []
    for text in (f"{{{{ {name} }}}}", f"{{{{ {name} }}}}{{{{ nothing }}}}"):
        try:
            said.append(render(text, {name: value, "nothing": ""}))
        except TemplateProblem as problem:
            said.append(str(problem))
    assert said[0] == said[1]
