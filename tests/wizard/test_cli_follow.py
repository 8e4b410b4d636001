"""Walking along with a session on a text display: prompts, Ctrl-C, open questions, runners that
die."""

import io
from typing import Any

import pytest

from narrowdown.engines import installed
from narrowdown.wizard import Exit
from narrowdown.wizard.cli import follow
from narrowdown.wizard.cli.follow import Follower, Prompt
from narrowdown.wizard.flow.model import Answer, Flow, FlowNode
from narrowdown.wizard.plain import PlainDisplay
from narrowdown.wizard.session.events import (
    Offered,
    QuestionAnswered,
    QuestionAsked,
    Rewound,
    SessionClosed,
    SessionOpened,
)

NODE = FlowNode(
    "Does it fail?", "Because it may.", "Does it?",
    {"yes": Answer("Yes", "end"), "tolerance": Answer("Tighten", "end", settings={"tolerance": "new tolerance"})},
)  # fmt: skip
FLOW = Flow(
    schema=1, id="accuracy", title="", start="reproduce", nodes={"reproduce": NODE}, ends={}
)
OFFERED = (Offered("yes", "Yes", "end", True), Offered("tolerance", "Tighten", "end"))
OPENED = SessionOpened(id="k7f3", seq=1)
QUESTION = QuestionAsked(
    node="reproduce", visit=1, ask="Does it?", answers=OFFERED, recommended="yes", seq=2
)
ANSWERED = QuestionAnswered(node="reproduce", visit=1, answer="yes", by="person", seq=3)
CLOSED = SessionClosed(end="found", exit_code=0, seq=4)


class Session:
    """A scripted runner: each look gives the next thing, an exception is raised; after the last it
    is gone."""

    def __init__(
        self,
        *script: Any,
        code: int | None = None,
        snapshot: dict[str, Any] | None = None,
        ok: bool = True,
    ) -> None:
        self.script, self.code, self.snapshot, self.ok = list(script), code, snapshot, ok
        self.sent: list[dict[str, Any]] = []
        self.role, self.holder, self.taken, self.earlier = "controller", "", False, 0

    def poll(self) -> tuple[Any, ...]:
        if not self.script:
            return ()
        first = self.script.pop(0)
        if isinstance(first, BaseException):
            raise first
        return tuple(first)

    def progress(self) -> dict[str, Any] | None:
        return self.snapshot

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        self.sent.append(request)
        return {"ok": self.ok, "error": "no"}

    def alive(self) -> bool:
        return bool(self.script)

    def exit_code(self) -> int | None:
        return self.code

    def crashed(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "INTERVAL", 0.0)
    monkeypatch.setattr(follow, "PATIENCE", 0.0)


def walked(
    session: Session, typed: str | None = None, since: int = 0, **rest: Any
) -> tuple[int, str, list[str]]:
    out, said = io.StringIO(), []
    prompt = Prompt(FLOW, io.StringIO(typed), out) if typed is not None else None
    code = Follower(
        session, PlainDisplay(FLOW, out), prompt=prompt, since=since, say=said.append
    ).run(**rest)
    return code, out.getvalue(), said


@pytest.mark.parametrize("typed", ["1\n", "yes\n", "\n", "7\nyes\n", "?\nyes\n"])
def test_a_prompt_takes_a_number_an_id_or_nothing(typed: str) -> None:
    session = Session([OPENED, QUESTION], [ANSWERED, CLOSED])
    code, text, _ = walked(session, typed)
    assert code == 0
    assert session.sent == [
        {
            "do": "answer",
            "node": "reproduce",
            "visit": 1,
            "answer": "yes",
            "note": "",
            "settings": {},
            "go": True,
        }
    ]
    assert ("is not one of the answers" in text) == typed.startswith("7")
    assert ("Because it may." in text) == typed.startswith("?")


def test_an_answer_that_carries_settings_asks_for_them() -> None:
    session = Session([OPENED, QUESTION], [ANSWERED, CLOSED])
    walked(session, "2\n1e-3\n")
    assert session.sent[0]["settings"] == {"tolerance": "1e-3"}


def test_what_an_earlier_runner_closed_is_no_end() -> None:
    left = SessionClosed(
        exit_code=130, reason="the program that controlled the session ended", seq=2
    )
    session = Session([left], [SessionOpened(id="k7f3", resumed=True, seq=3)], [CLOSED])
    session.earlier = 3
    code, text, _ = walked(session, since=1)
    assert code == 0
    assert "the program that controlled" not in text


def test_the_end_of_input_needs_a_person() -> None:
    session = Session(
        [OPENED, QUESTION], [], [SessionClosed(exit_code=130, reason="stopped", seq=3)]
    )
    code, _, said = walked(session, "")
    assert code == Exit.NEEDS_PERSON
    assert session.sent == [{"do": "stop", "hard": False}]
    assert "resume" in said[0]


def test_ctrl_c_is_soft_then_hard() -> None:
    closed = SessionClosed(exit_code=130, reason="stopped", seq=3)
    session = Session([OPENED], KeyboardInterrupt(), KeyboardInterrupt(), [closed])
    code, _, said = walked(session)
    assert code == Exit.STOPPED
    assert [request.get("hard") for request in session.sent] == [False, True]
    assert len(said) == 2


def test_a_probe_that_goes_on_after_ctrl_c_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PATIENCE", 0.0)
    closed = SessionClosed(exit_code=130, reason="stopped", seq=3)
    session = Session([OPENED], KeyboardInterrupt(), [], [], [closed])
    assert walked(session)[0] == Exit.STOPPED
    assert [request.get("hard") for request in session.sent] == [False, True]


def test_ctrl_c_while_watching_stops_nothing() -> None:
    session = Session([OPENED], KeyboardInterrupt(), [CLOSED])
    code, _, _ = walked(session, controls=False)
    assert code == Exit.STOPPED
    assert session.sent == []


def test_a_question_is_seen_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner takes a while to say that it goes on; the question from before waits for that."""
    monkeypatch.setattr(follow, "PATIENCE", 60.0)
    again = SessionOpened(id="k7f3", resumed=True, seq=3)
    session = Session([OPENED, QUESTION], [], [], [again], [], [msg(ANSWERED, 4), msg(CLOSED, 5)])
    _, text, _ = walked(session, "\n", since=2)
    assert text.index("resumed k7f3") < text.index("Does it?") < text.index("answer (1-2")
    assert text.count("Does it?") == text.count("answer (1-2") == 1


def test_a_question_of_a_runner_that_is_at_work_already_is_shown_too() -> None:
    session = Session([OPENED, QUESTION], [], [], [], [ANSWERED, CLOSED])
    _, text, _ = walked(session, "\n", since=2)
    assert text.index("Does it?") < text.index("answer (1-2")


def test_what_was_before_is_not_told_again_but_an_open_question_is() -> None:
    again = SessionOpened(id="k7f3", resumed=True, seq=3)
    session = Session([OPENED, QUESTION, again], [msg(ANSWERED, 4), msg(CLOSED, 5)])
    _, text, _ = walked(session, "\n", since=2)
    assert text.count("Does it?") == 1
    assert text.startswith("resumed k7f3")
    assert len(session.sent) == 1


def test_a_question_that_was_rewound_is_not_asked() -> None:
    session = Session([OPENED, QUESTION, Rewound(to=1, seq=3)], [CLOSED])
    walked(session, "yes\n")
    assert session.sent == []


def test_a_question_that_was_rewound_to_is_asked_again() -> None:
    """It is open once more, though its event is an old one."""
    session = Session(
        [OPENED, QUESTION, ANSWERED, Rewound(to=2, seq=4)], [msg(ANSWERED, 5), msg(CLOSED, 6)]
    )
    _, text, _ = walked(session, "yes\n")
    assert [request["do"] for request in session.sent] == ["answer"]
    assert text.count("Does it?") == 2


@pytest.mark.parametrize(("typed", "to"), [("back\n", "back"), ("back reproduce\n", "reproduce")])
def test_back_at_a_prompt_is_a_rewind(typed: str, to: str) -> None:
    session = Session([OPENED, QUESTION], [CLOSED])
    walked(session, typed)
    assert session.sent == [{"do": "rewind", "to": to}]


def test_a_refused_answer_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session([OPENED, QUESTION], [], [ANSWERED, CLOSED], ok=False)
    walked(session, "yes\nyes\n")
    assert len(session.sent) == 2
    assert "narrowdown: no\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "snapshot", "expected", "word"),
    [
        (None, None, Exit.STOPPED, "it was killed"),
        (1, None, 1, "goes on"),
        (4, {"phase": "stopped", "text": "The disk is full."}, 4, "disk is full"),
    ],
)
def test_a_runner_that_is_gone(
    code: int | None, snapshot: dict[str, Any] | None, expected: int, word: str
) -> None:
    found, _, said = walked(Session([OPENED], code=code, snapshot=snapshot))
    assert found == expected
    assert word in said[-1]


def test_nobody_at_work_is_no_fault_of_the_one_who_looks() -> None:
    """'narrowdown watch' of a session that was killed, or had not begun, ended with 70, our own
    fault."""
    found, _, said = walked(Session([OPENED], code=None, snapshot=None), controls=False)
    assert found == Exit.STOPPED
    assert "nothing on this machine works on this session" in said[-1]


def test_a_runner_that_is_gone_with_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "say_change", lambda: "It was changed.")
    assert (
        walked(Session([OPENED], code=None, snapshot=None))[2][-1] == "narrowdown: It was changed."
    )


def test_the_reason_of_a_bad_end_is_said() -> None:
    session = Session([OPENED, SessionClosed(exit_code=2, reason="The model is no model.", seq=2)])
    code, _, said = walked(session)
    assert code == 2
    assert said == ["narrowdown: The model is no model."]


def msg(event: Any, seq: int) -> Any:
    import msgspec

    return msgspec.structs.replace(event, seq=seq)


def test_where_another_window_takes_over_it_says_so_and_goes_on_once_that_has_left() -> None:
    class Taken(Session):
        """Taken over at the second look, given back at the fourth."""

        looks = 0

        def progress(self) -> dict[str, Any] | None:
            self.looks += 1
            self.taken = self.looks in (2, 3)
            self.role = "watch" if self.taken else "controller"
            return None

    said: list[str] = []
    follower = Follower(
        Taken([], [], [], [], [], [], code=0),
        PlainDisplay(FLOW, io.StringIO()),
        name="bug",
        say=said.append,
    )
    follower.run()
    assert "has taken over" in said[0]
    assert "'narrowdown resume bug' and T take it back" in said[0]
    assert "this one goes on" in said[1]
    assert not follower.watched
