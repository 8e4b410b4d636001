"""Every construction of the table on the engines that are installed: what the release is said to
do, it does."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

from narrowdown.engines.asking import Note
from narrowdown.engines.known.entry import Bug
from narrowdown.engines.known.table import read_table
from narrowdown.engines.steps.known import KnownRow, hold_trigger, show_bug

# As people run it; what a bug needs beside it is in its settings.
ENGINES = {"onnxruntime": "onnxruntime:optimization=all", "openvino": "openvino"}
MADE = [
    bug
    for bug in read_table()
    if bug.make is not None and bug.engine in ENGINES and not bug.precision
]


WRONG = {"wrong": "fails", "refused": "fails", "right": "passes"}


def drive(here: Any, walked: Any) -> Any:
    """What a sub-step ends with, asked of the real workers' operations."""
    answer: Any = None
    try:
        while True:
            asked = walked.send(answer)
            answer = None if isinstance(asked, Note) else here.ask(asked)
    except StopIteration as end:
        return end.value


@pytest.mark.slow
@pytest.mark.parametrize("bug", MADE, ids=lambda bug: bug.id)
def test_a_construction_does_what_the_table_says_of_this_release(
    bug: Bug, session: Callable[..., Any]
) -> None:
    """And where it fails, its trigger holds: it fires in every variant that says so, and in none
    beside it."""
    pytest.importorskip(bug.engine)
    here = session("shapes_cnn", ENGINES[bug.engine])
    shown, error = drive(here, show_bug(here.context(), bug))
    said = bug.ran.get(version(bug.engine))
    if said is None:
        pytest.skip(
            f"{bug.id} was not run on {bug.engine} {version(bug.engine)} when it was written; here it {shown}"
        )
    assert shown == WRONG[said], error
    if shown == "fails":
        held = drive(here, hold_trigger(here.context(), bug, KnownRow(bug.id, "", "")))
        assert held.against == ""
        assert held.holds
