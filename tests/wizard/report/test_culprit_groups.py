"""Culprits that fail in the same way: told once in every form, and nothing of them is lost."""

import json
import re

import msgspec
import pytest

from narrowdown.wizard.report.document import Report, groups, kind, others, to_json
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import to_markdown

from .test_forms import report


def seven() -> Report:
    """Six culprits of one kind, and one of another in their midst."""
    first = report().culprits[0]
    found = [
        msgspec.structs.replace(
            first,
            nodes=(f"/b.{n}/Sum",),
            effect=0.1 + n,
            evidence=f"/b.{n}/Sum reaches {n}00,000.",
            inputs=(f"in.{n}",),
            outputs=(f"out.{n}",),
            sample=f"real:{n}",
            dir=f"case/culprit-{n + 1}" if n else "case",
            cause="cancellation" if n == 3 else "overflow",
            also=("/far/Pow",) if n == 0 else (),
        )
        for n in range(7)
    ]
    return msgspec.structs.replace(report(), culprits=tuple(found), trigger=None)


def test_kinds_keep_the_order_in_which_they_first_appear() -> None:
    assert groups("abacb") == [(0, 2), (1, 4), (3,)]
    assert groups("") == []
    assert groups(map(kind, seven().culprits)) == [(0, 1, 2, 4, 5, 6), (3,)]
    higher = msgspec.structs.replace(seven().culprits[1], needs_higher_inputs=True)
    assert kind(higher) != kind(seven().culprits[1]), (
        "what needs its inputs in higher precision is told apart"
    )
    assert (others(1), others(5)) == ("1 more fails in the same way", "5 more fail in the same way")


@pytest.mark.parametrize("form", [to_html, to_markdown, to_json])
def test_every_form_keeps_every_fact(form) -> None:
    text = " ".join(
        form(seven()).split()
    )  # a number and its unit have a space that is no ordinary one
    for n in range(7):
        own = f"{n}.1" if form is to_json else f"{100 * n + 10} %"
        sample = f"real:{n}" if form is to_json else f"sample {n}"
        for fact in (
            f"/b.{n}/Sum",
            f"/b.{n}/Sum reaches {n}00,000",
            f"in.{n}",
            f"out.{n}",
            sample,
            own,
        ):
            assert fact in text, fact
        assert n == 0 or f"case/culprit-{n + 1}" in text
    assert "/far/Pow" in text


def test_the_others_are_a_table_behind_the_first() -> None:
    text = to_markdown(seven())
    assert re.findall(r"^##+ (Culprit.*)", text, re.MULTILINE) == [
        "Culprit 1 of 7",
        "Culprit 4 of 7",
    ]
    assert "5 more fail in the same way:" in text
    rows = [line for line in text.splitlines() if re.match(r"\| [23567] \|", line)]
    assert [row.split(" | ")[0] for row in rows] == ["| 2", "| 3", "| 5", "| 6", "| 7"]
    assert len({row.count("|") for row in rows}) == 1, "the table is one"
    assert re.findall(r"<h2>(Culprit[^<]*)", to_html(seven())) == [
        "Culprit 1 of 7",
        "Culprit 4 of 7",
    ]
    assert json.loads(to_json(seven()))["culprits"][6]["dir"] == "case/culprit-7"
