"""The parts that need no screen: keys, checks, bars, the probes' table, what the package
imports."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st
from textual.app import App, ComposeResult

from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Inspect, Measurement
from narrowdown.engines.workers.executor import Slot
from narrowdown.wizard import Refusal
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.facts import label, show_fact, show_value
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.report import pictures
from narrowdown.wizard.report.probe_words import verdict
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.events import Offered
from narrowdown.wizard.terminal import fold
from narrowdown.wizard.tui import checks, themes
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.board import Board, Hunt, Row
from narrowdown.wizard.tui.client import bundle, latest_log
from narrowdown.wizard.tui.literal import ASCII, UNICODE, choose_glyphs
from narrowdown.wizard.tui.scene import Scene, Work
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.lines import pairs, wrap
from narrowdown.wizard.words import ago

from . import scripted as s
from .scripted import FakeSession

MODEL = MODELS / "pillars_add.onnx"


def test_the_terminal_ui_loads_no_engine() -> None:
    heavy = (
        "{'numpy', 'onnx', 'onnxruntime', 'tensorrt', 'openvino', 'onnx_graphsurgeon', 'ml_dtypes'}"
    )
    script = f"import sys, narrowdown.wizard.tui.app; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
    assert found.stderr == ""


# What the environment asks for


def test_glyphs_and_theme_follow_the_environment() -> None:
    assert choose_glyphs({"NARROWDOWN_ASCII": "1"}, "utf-8") is ASCII
    assert choose_glyphs({}, "ISO-8859-1") is ASCII
    assert choose_glyphs({"NARROWDOWN_ASCII": "0"}, "UTF-8") is UNICODE
    assert choose_glyphs({"LC_ALL": "C"}, "utf-8") is ASCII
    assert choose_glyphs({"LANG": "POSIX", "TERM": "xterm"}, "utf-8") is ASCII
    assert choose_glyphs({"LANG": "C", "LC_ALL": "C.UTF-8"}, "utf-8") is UNICODE
    assert choose_glyphs({"TERM": "vt220", "LANG": "de_DE.UTF-8"}, "utf-8") is ASCII
    assert choose_glyphs({"TERM": "linux", "LANG": "de_DE.UTF-8"}, "utf-8") is ASCII
    assert choose_glyphs({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, "utf-8") is UNICODE
    assert choose_glyphs({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8") is ASCII, (
        "Python itself has set the latter"
    )
    assert choose_glyphs({"LC_CTYPE": "C.UTF-8"}, "utf-8") is UNICODE
    assert (
        choose_glyphs({"LC_CTYPE": "C.UTF-8", "TMUX": "/tmp/tmux-0/default,1,0"}, "utf-8") is ASCII
    ), "tmux knows no UTF-8 here"
    assert (
        choose_glyphs({"LANG": "en_US.UTF-8", "TMUX": "/tmp/tmux-0/default,1,0"}, "utf-8")
        is UNICODE
    )
    assert all(str(value).isascii() for value in msgspec.structs.asdict(ASCII).values())
    assert themes.default({"NARROWDOWN_THEME": "light"}) == "narrowdown-light"
    assert themes.default({"TERM": "xterm"}) == "narrowdown-ansi"
    assert themes.default({"TERM": "xterm-256color"}) == "narrowdown-dark"


# Setup's checks


@pytest.mark.skipif(not MODEL.exists(), reason="the committed models are not here")
def test_a_real_model_looks_like_one() -> None:
    assert checks.problem_with("model", str(MODEL)) == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08",
        b"\x89PNG\r\n\x1a\n",
        b"PK\x03\x04",
        b"\x08\x07",
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\xff" * 40,
        b"hello",
    ],
)
def test_other_files_do_not(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.onnx"
    file.write_bytes(data)
    assert "x.onnx" in checks.problem_with("model", str(file))


@pytest.mark.parametrize(
    ("field", "text", "part"),
    [
        ("model", "", "Which model"),
        ("engine", "onnxrutime", "onnxruntime"),
        ("engine", "onnxruntime:optimisation=all", "optimization"),
        ("inputs", "/nowhere/in.npz", "no inputs file"),
        ("tolerance", "a:b", "a:b"),
        ("tolerance", "-1", "-1"),
    ],
)
def test_problems_are_sentences(field: str, text: str, part: str) -> None:
    said = checks.problem_with(field, text)
    assert part in said
    assert said.endswith((".", "?"))


def test_empty_fields_take_defaults() -> None:
    assert [
        checks.problem_with(field, "") for field in ("engine", "reference", "inputs", "tolerance")
    ] == [""] * 4
    with pytest.raises(Refusal):
        checks.build(dict.fromkeys(checks.FIELDS, ""))


# Bars and words


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(0, 80))
def test_bars_fit_and_keep_the_worst(values: list[float], width: int) -> None:
    text = pictures.draw_bars(values, width, UNICODE.levels)
    assert len(text) == min(width, len(values))
    points = pictures.resample(values, width)
    if points:
        assert max(points) == max(values)
        if max(points) > min(points):
            assert text[points.index(max(points))] == UNICODE.levels[-1]


def test_two_bars() -> None:
    assert pictures.draw_bars([0, 7], 2, UNICODE.levels) == "▁█"


def test_a_precision_is_written_as_the_sentences_have_it() -> None:
    assert [show_fact("precision", value, "rel_l2") for value in ("fp16", "int8", "")] == [
        "FP16",
        "INT8",
        "?",
    ]


def test_words() -> None:
    assert label("worst_output") == "worst output"
    assert label("no_such_field") == "no such field"
    assert [show_value(v) for v in (None, "", True, 0.41, 1e300, ["a", 1], 3)] == [
        "?",
        "?",
        "yes",
        "0.41",
        "not finite",
        "a, 1",
        "3",
    ]
    assert [ago(v) for v in (1, 90, 7200, 200000)] == [
        "just now",
        "1 min ago",
        "2 hours ago",
        "2 days ago",
    ]


# The probes' table


def test_rows_of_a_run(session: FakeSession) -> None:
    s.running(session)
    board = Board(session.folder)
    for event in session.script.events:
        board.extend([event])
    rows = board.hunt.rows
    assert [(row.number, row.what, row.state) for row in rows] == [
        (1, "nodes 0-95", "passes"),
        (2, "nodes 96-191", "fails"),
        (3, "nodes 96-143", "fails"),
        (4, "nodes 144-191", "unresolved"),
        (5, "nodes 96-119", "running"),
    ]
    assert board.hunt.finished == 4
    assert len(board.hunt.strip.suspects) == 48
    assert rows[3].detail == "the engine crashed, signal 11"


def test_speculative_probes_show_only_once_they_count(session: FakeSession) -> None:
    board = Board(session.folder)
    script = s.Script()
    script.add(e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1))
    script.add(e.ProbeStarted(key="a", run=1, probe=s.measure("0-3"), speculative=True))
    script.add(e.ProbeStarted(key="b", run=1, probe=s.measure("4-7"), speculative=True))
    board.extend(script.events)
    assert board.hunt.rows == ()
    board.extend([e.ProbeFinished(seq=4, key="b", run=1, measurement=s.measured(0.1, 4))])
    assert [row.what for row in board.hunt.rows] == ["nodes 4-7"]
    board.extend([e.ProbeStarted(seq=5, key="a", run=1, probe=s.measure("0-3"))])
    assert [row.number for row in board.hunt.rows] == [1, 2]


def test_a_measurement_in_an_artifact_is_read(session: FakeSession) -> None:
    from narrowdown.engines.store import Store

    blob = Store(session.folder).put(msgspec.json.encode(s.measured(0.5, 7)))
    board = Board(session.folder)
    s.running(session)
    board.extend(session.script.events)
    board.extend([e.ProbeFinished(seq=99, key="k5", run=2, blob=blob)])
    assert board.hunt.rows[-1].state == "fails"


def test_a_look_at_an_engine_has_a_row_only_where_it_goes_wrong(session: FakeSession) -> None:
    board = Board(session.folder)
    s.running(session)
    board.extend(session.script.events)
    rows, finished = len(board.hunt.rows), board.hunt.finished
    look = Inspect(engine="tensorrt")
    board.extend([e.ProbeStarted(seq=98, key="i1", run=2, probe=look)])
    board.extend([e.ProbeFinished(seq=99, key="i1", run=2, measurement=Measurement())])
    assert (len(board.hunt.rows), board.hunt.finished) == (rows, finished)
    board.extend([e.ProbeStarted(seq=100, key="i2", run=2, probe=look)])
    broken = Measurement(status="error", message="It is not here.")
    board.extend([e.ProbeFinished(seq=101, key="i2", run=2, measurement=broken)])
    assert (len(board.hunt.rows), board.hunt.rows[-1].state) == (rows + 1, "unresolved")


def test_verdicts_before_a_tolerance_is_known() -> None:
    assert verdict(s.measure("*"), s.measured(0.25, 9), Findings()) == ("done", "wrong by 25 %")
    assert (
        verdict(
            Inspect(engine="x"), Measurement(status="error", message="It is not here."), Findings()
        )[0]
        == "unresolved"
    )
    assert verdict(None, None, Findings()) == ("done", "")
    known = Findings(criterion=Criterion(tolerance=0.5))
    assert verdict(s.measure("*"), s.measured(0.25, 9), known)[0] == "passes"


# Faces


@pytest.mark.parametrize(
    ("make", "alive", "face"),
    [(s.opened, True, "offer"), (s.opened, False, "stopped"), (s.running, True, "running"), (s.running, False, "stopped"),
     (s.asking, True, "ask"), (s.asking, False, "ask"), (s.ended, False, "ended")],
)  # fmt: skip
def test_face_follows_the_journal(
    session: FakeSession, make: Callable[[FakeSession], FakeSession], alive: bool, face: str
) -> None:
    make(session)
    board = Board(session.folder)
    board.extend(session.script.events)
    work = Work(phase=str((session.snapshot or {}).get("phase", "")))
    scene = Scene(
        session.flow, session.folder, state=board.state, hunt=board.hunt, work=work, alive=alive
    )
    assert scene.face == face
    assert scene.node == {"offer": "reproduce", "ended": "minimal"}.get(
        face, "layerwise" if make is not s.opened else "reproduce"
    )


def test_the_end_of_the_latest_log(tmp_path: Path) -> None:
    rows = (Row(1, "a", "x", log="logs/1.log"), Row(2, "b", "x"))
    assert latest_log(tmp_path, Work(), Hunt()) == ()
    assert latest_log(tmp_path, Work(), Hunt(rows)) == (), "its file is gone"
    (tmp_path / "logs").mkdir()
    first, second = (tmp_path / "logs" / f"{n}.log" for n in (1, 2))
    first.write_bytes(b"one\ntwo\xff\n")
    second.write_bytes(b"x" * 100_000 + b"\nlast\n")
    assert latest_log(tmp_path, Work(), Hunt(rows)) == ("one", "two\N{REPLACEMENT CHARACTER}")
    running = latest_log(tmp_path, Work(log="logs/2.log"), Hunt(rows))
    assert running[-1] == "last"
    assert sum(map(len, running)) <= 64 << 10


def test_bundle_files(tmp_path: Path) -> None:
    assert bundle(tmp_path) == ()
    (tmp_path / "case" / "culprit-2").mkdir(parents=True)
    (tmp_path / "case" / "check.py").write_text("")
    (tmp_path / "case" / "culprit-2" / "model.onnx").write_text("")
    assert bundle(tmp_path) == ("case/check.py", "case/culprit-2/model.onnx")


def test_exit_codes(session: FakeSession, make_app: Callable[..., Narrowdown]) -> None:
    app = make_app()
    board = Board(session.folder)
    s.ended(session)
    board.extend(session.script.events)
    assert app._code(None) == 0
    assert app._code(Scene(session.flow, session.folder)) == 130
    assert app._code(Scene(session.flow, session.folder, state=board.state)) == 0


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"worker": 2, "device": 2}, " on GPU 2"),
        ({"worker": 2, "device": 1, "host": "node7"}, " on node7"),
        ({"worker": 2}, ""),
    ],
)
def test_a_worker_is_named_with_its_place_where_there_are_several(told: dict, said: str) -> None:
    assert msgspec.convert({**told, "pid": 7, "op": "measure"}, Slot).place == said


async def test_where_an_answer_leads_is_cut_at_its_end() -> None:
    """At 80 columns: how a title begins tells more than both of its ends."""

    class Alone(App[None]):
        glyphs = UNICODE

        def compose(self) -> ComposeResult:
            yield Answers()

    flow = load("accuracy").flow
    offer = Offered("yes", "Yes, real inputs are right", "input-sensitive", recommended=True)
    app = Alone()
    async with app.run_test(size=(80, 24)):
        answers = app.query_one(Answers)
        answers.show(flow, (offer,))
        said = answers._prompt(0, 74, 44).plain
    assert said == "❯ 1 Yes, real inputs are right  recommended  → Sensitive to its inputs, n…"
    assert len(said) == 74


@pytest.mark.parametrize("width", range(14, 40))
def test_a_number_and_its_unit_stand_in_one_row(width: int) -> None:
    text = "wrong by 0.00000517 % (95 % confidence) in 12 ms, after 3 steps and 128 MiB"
    told = {
        "wrap": [row.plain for row in wrap(text, width, "bold")],
        "pairs": [row.plain for row in pairs([("error", text)], width + 10)],
        "fold": fold(f"    {text}", width + 10),
    }
    for how, rows in told.items():
        assert " ".join(" ".join(rows).replace("error", "").split()) == text, how
        assert not [row for row in rows if row.strip().startswith(("%", "ms", "MiB"))], how
    assert any(row.strip().startswith("steps") for row in wrapped_at(text, "steps")), (
        "a word is no unit"
    )


def wrapped_at(text: str, word: str) -> list[str]:
    """The rows of the text, as wide as it is up to that word."""
    return [row.plain for row in wrap(text, text.index(word) + 1)]
