"""Several culprits at once, as on a model that overflows in seven places: clear, short, and nothing
lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.engines.findings import Findings
from narrowdown.wizard.report import gather
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.gather import culprit
from narrowdown.wizard.report.sections import list_culprits
from narrowdown.wizard.report.vicinity import Spot, Vicinity
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui import narrative
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.board import Board
from narrowdown.wizard.tui.client import Watcher, bundle
from narrowdown.wizard.tui.ending import list_todo, report
from narrowdown.wizard.tui.literal import UNICODE
from narrowdown.wizard.tui.sight import Sight
from narrowdown.wizard.tui.widgets.evidence import drop_said, facts, surroundings
from narrowdown.wizard.tui.widgets.finish import ReportText

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    settle,
)

SEVEN = ("/b.0/l2", "/b.0/l1", "/b.1/l1", "/b.1/l2", "/b.2/l1", "/b.2/l2", "/l")


def blank_report(**told: Any) -> Report:
    """A report which says nothing else."""
    blank: dict[str, Any] = {}
    for field in msgspec.structs.fields(Report):
        if field.required:
            kind = getattr(field.type, "__origin__", field.type)
            blank[field.name] = kind() if kind in (str, int, float, tuple, dict) else None
    return Report(**{**blank, **told})


def headline(state: Any, flow: Any, verdict: str, found: tuple[Any, ...], cure: Any) -> str:
    said = blank_report(verdict=verdict, culprits=found, workaround=cure, nodes_before=412)
    return gather.headline(state, flow, said)


def seven() -> Findings:
    """One overflow in seven places, the third without numbers that show it."""
    one = s.findings().culprits[0]
    made = []
    for n, place in enumerate(SEVEN):
        case = msgspec.structs.replace(
            one.case,
            nodes=(f"{place}/Pow",),
            ops=("Pow",),
            node_ids=str(n),
            good=None,
            effect=0.5 + n,
        )
        evidence = (
            f"{place}/Pow (Pow) reaches {229_746 + n:,} in the reference; float16 ends at 65,504."
        )
        made.append(
            msgspec.structs.replace(
                one, case=case, cause="overflow", evidence=evidence if n != 2 else ""
            )
        )
    return msgspec.structs.replace(s.findings(), culprits=tuple(made))


@pytest.mark.parametrize("width", [40, 76, 116])
def test_the_others_are_told_by_what_is_their_own(width: int) -> None:
    told = blank_report(culprits=tuple(map(culprit, seven().culprits)), metric="rel_l2")
    drawn = ReportText()
    drawn._told = [*list_culprits(told)]
    rows = [row.plain for row in drawn.lines(width)]
    text = " ".join(" ".join(rows).split())
    assert "6 more fail in the same way:" in text
    for n, place in enumerate(SEVEN):
        assert f"{place}/Pow" in text
        assert f" by {100 * (0.5 + n):,.0f} %" in text, "its effect"
    assert text.count("values grow past") == 1, "the cause is explained once"
    assert width != 76 or len(rows) <= 24, "a screen of them, not five"


@pytest.mark.parametrize(
    ("causes", "many", "said"),
    [
        (("overflow",) * 7, "7 of 412 nodes fail: ", ", and 6 more in the same way"),
        (("overflow", "kernel"), "1 of 412 nodes fails: ", ", and 1 further culprit"),
        (
            ("overflow", "kernel", "overflow"),
            "2 of 412 nodes fail: ",
            ", and 1 more in the same way, and 1 further culprit",
        ),
    ],
)
def test_the_headline_counts_those_alike_and_says_that_there_are_others(
    session: FakeSession, causes: tuple[str, ...], many: str, said: str
) -> None:
    board = Board(session.folder)
    board.extend(s.ended(session).script.events)
    found = [
        msgspec.structs.replace(c, cause=cause)
        for c, cause in zip(seven().culprits, causes, strict=False)
    ]
    told = headline(board.state, session.flow, "minimal-case", tuple(map(culprit, found)), None)
    assert told.startswith(many)
    assert told.endswith(said)


@pytest.mark.parametrize(("fails", "verdict", "said"), [
    (True, "minimal-case", "(overflow); without it the model is still wrong by 12 %: something else is wrong, too"),
    (False, "minimal-case", "(overflow)"), (True, "worked-around", "(overflow)"),
])  # fmt: skip
def test_the_headline_says_what_is_left_where_the_user_stops(
    session: FakeSession, fails: bool, verdict: Any, said: str
) -> None:
    """The step that confirmed the culprit said so, and the last page did not."""
    board = Board(session.folder)
    board.extend(s.ended(session).script.events)
    outcome = {"patched_fails": fails, "patched_error": 0.12}
    state = msgspec.structs.replace(
        board.state,
        route=(*board.state.route, Visit("minimal-case", step="confirm", outcome=outcome)),
    )
    assert headline(
        state, session.flow, verdict, tuple(map(culprit, seven().culprits[:1])), None
    ).endswith(said)


def test_of_several_nodes_the_headline_names_the_one_that_the_evidence_is_about(
    session: FakeSession,
) -> None:
    board = Board(session.folder)
    board.extend(s.ended(session).script.events)
    first = seven().culprits[0]
    case = msgspec.structs.replace(
        first.case, nodes=("/Add", "/Mul", "/MatMul", "/b.1/l2/Pow", "/Div")
    )
    found = culprit(msgspec.structs.replace(first, case=case, at="/b.1/l2/Pow"))
    told = headline(board.state, session.flow, "minimal-case", (found,), None)
    assert told.endswith("/b.1/l2/Pow (overflow) together with /Add, /Mul, /MatMul and 1 more")
    nobody = headline(
        board.state,
        session.flow,
        "minimal-case",
        (msgspec.structs.replace(found, at="/gone"),),
        None,
    )
    assert "/Add, /Mul" in nobody
    assert "/gone" not in nobody


def test_places_that_look_the_same_are_drawn_once() -> None:
    places = [
        Vicinity((Spot("Sub", f"/{n}/Sub"), Spot("Pow", f"/{n}/Pow", (0,), suspect=True)))
        for n in SEVEN
    ]
    other = Vicinity((Spot("Exp", "/Exp", suspect=True),))
    text = "\n".join(
        row.plain for row in surroundings((*places[:4], other, *places[4:]), 76, UNICODE)
    )
    assert text.count("suspect") == 2
    assert "6 more places look the same" in text
    assert "/Exp" in text


async def test_the_step_draws_the_case_at_hand_not_the_last_one_found(
    session: FakeSession, make_app: Callable[..., Narrowdown]
) -> None:
    s.asking(session)
    app = make_app()
    first, last = (
        Vicinity((Spot("Pow", name, suspect=True),)) for name in ("/here/Pow", "/elsewhere/Pow")
    )
    async with app.run_test(size=(104, 60)) as pilot:
        await settle(pilot, lambda: app.scene is not None and app.scene.face == "ask")
        assert app.scene is not None
        scene = msgspec.structs.replace(app.scene, sight=Sight(places=(first, last), now=0))
        app.screen._draw(scene)  # type: ignore[attr-defined]
        await settle(pilot, lambda: "Around the suspect" in golden.text_of(app))
        assert "/here/Pow" in golden.text_of(app)
        assert "/elsewhere/Pow" not in golden.text_of(app)


def test_what_the_recommendation_says_is_not_said_again_below_it() -> None:
    shows = "/l/Pow (Pow) reaches 229,746 in the reference; float16 ends at 65,504."
    outcome = {
        "message": f"1 node fails. {shows} The same is wrong at 1 more: /m/Pow.",
        "evidence": shows,
        "alike": 1,
    }
    left = drop_said(outcome, f"1 node of 220 fails. {shows}")
    assert left["message"] == "1 node fails. The same is wrong at 1 more: /m/Pow."
    assert left["evidence"] == ""
    assert drop_said(outcome, "")["message"] == outcome["message"]
    names = ", ".join(f"/b.{n}/Pow" for n in range(9))
    left_named = drop_said(
        {
            "message": f"Keeping 9 nodes makes 8 of 8 pass: {names}.",
            "names": names,
            "what": "precision",
        },
        "",
    )
    assert (left_named["names"], left_named["what"]) == ("", "precision")
    assert facts(left, ("alike",), "confirm") == [("of them found with this one", "1")]
    assert facts({"alike": 0}, ("alike",), "confirm") == []


def test_the_first_case_is_listed_before_further_ones(tmp_path: Path) -> None:
    for n in range(2, 10):
        (tmp_path / "case" / f"culprit-{n}").mkdir(parents=True)
        for name in range(14):
            (tmp_path / "case" / f"culprit-{n}" / f"{name}.npz").write_text("")
    for name in ("check.py", "model.onnx", "report.html"):
        (tmp_path / "case" / name).write_text("")
    files = bundle(tmp_path)
    assert len(files) == 100
    assert set(files[:3]) == {"case/check.py", "case/model.onnx", "case/report.html"}


@pytest.mark.parametrize("given", [(), ("mine.npz",)])
def test_where_only_made_up_inputs_were_right_real_ones_are_asked_for_first(
    session: FakeSession, given: tuple[str, ...]
) -> None:
    script = s.opened(session).script
    script.add(e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1))
    script.add(
        e.StepFinished(run=1, node="reproduce", outcome={"verdict": "passes", "error": 1e-6})
    )
    script.add(e.QuestionAnswered(node="reproduce", visit=1, answer="no", by="person"))
    script.add(e.SessionClosed(end="not-reproduced", exit_code=10))
    problem = msgspec.structs.replace(s.FakeLibrary(session).problem(session.folder), inputs=given)
    first, second = list_todo(
        scene := Watcher(session, problem).look(), "not-reproduced", report(scene)
    )[:2]
    assert ("--inputs" in first.typed) == (not given)
    assert ("made-up" in first.text) == (not given)
    assert ("others of your samples" in second.text and "--inputs" in second.typed) == bool(given)


def test_only_a_part_of_the_model_is_the_smallest_that_fails(session: FakeSession) -> None:
    """The cleaned model has fewer nodes than the first one, and is whole all the same."""
    script = s.running(session).script
    script.add(e.StepStarted(run=3, node="layerwise", visit=1, step="layerwise", step_version=1))
    board = Board(session.folder)
    for key, part, nodes in (("a", "all", 220), ("b", "0-9", 10)):
        script.add(e.ProbeStarted(key=key, run=3, probe=s.measure(part)))
        script.add(
            e.ProbeFinished(key=key, run=3, seconds=1.0, measurement=s.measured(0.41, nodes))
        )
    board.extend(script.events)
    assert [row.state for row in board.hunt.rows] == ["fails", "fails"]
    assert len(board.hunt.strip.suspects) == 10


async def test_what_the_runner_notes_is_shown_at_its_step_and_kept(
    session: FakeSession, make_app: Callable[..., Narrowdown]
) -> None:
    s.asking(session)
    gone = "The session's artifacts and logs were over 200 KiB (--artifact-bytes), so these are gone: 2 files."
    session.script.add(e.NoteAdded(text=gone, node=""))
    async with played(make_app(), "ask", size=(104, 60)) as (app, pilot):
        assert app.scene is not None
        assert narrative.noted(app.scene) == (gone,)
        await settle(pilot, lambda: "Noted" in golden.text_of(app))
        assert "so these are gone: 2 files." in " ".join(
            golden.text_of(app).replace("│", " ").split()
        )


def test_of_a_model_that_nobody_takes_the_set_up_is_what_to_change(session: FakeSession) -> None:
    """To go back to a question and to answer it otherwise helps no model that does not load."""
    scene = Watcher(s.opened(session), s.FakeLibrary(session).problem(session.folder)).look()
    assert "{edit}" in list_todo(scene, "refused", report(scene))[0].text
    assert "{rewind}" in list_todo(scene, "unresolved", report(scene))[0].text
