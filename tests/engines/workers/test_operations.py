"""The other probes: engines, models, inputs and external checkers."""

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from narrowdown.engines.data import held
from narrowdown.engines.exporting import launch
from narrowdown.engines.graph import load, ranges
from narrowdown.engines.probe import (
    Candidate,
    Check,
    Describe,
    Edit,
    Import,
    Inspect,
    LoadInputs,
    Sanitize,
)
from narrowdown.engines.problem import Exported, Problem
from narrowdown.engines.spec import parse
from narrowdown.engines.store import Store
from narrowdown.engines.workers.operations import execute_probe
from narrowdown.wizard import trust
from narrowdown.wizard.demo import MODELS


def run(probe, root: Path):
    return execute_probe(probe, Store(root), lambda _: None)


def python(code: str, *words: str) -> str:
    """A check command that runs Python code on the words."""
    return " ".join([shlex.quote(sys.executable), "-c", shlex.quote(code), *words])


def test_inspect_tells_what_an_engine_is(tmp_path: Path) -> None:
    facts = run(Inspect(engine="emulate:precision=bf16"), tmp_path).facts
    assert (facts["storage"], facts["precision"]) == ("bfloat16", "bf16")
    assert facts["fingerprint"]
    json.dumps(facts, allow_nan=False)


@pytest.mark.parametrize(
    ("engine", "status"),
    [
        ("openvino:device=NPU.7", "unsupported"),
        ("emulate:precison=fp16", "refused"),
        ("", "refused"),
    ],
)
def test_inspect_of_what_is_not_there_is_a_sentence(
    tmp_path: Path, engine: str, status: str
) -> None:
    m = run(Inspect(engine=engine), tmp_path)
    assert m.status == status
    assert m.message.endswith((".", ")", "]")) or " " in m.message


def test_import_and_sanitize(tmp_path: Path) -> None:
    taken = run(Import(path=str(MODELS / "shapes_cnn.onnx"), digest=""), tmp_path)
    assert taken.facts["nodes"] == taken.nodes == 52
    clean = run(Sanitize(model=taken.facts["model"]), tmp_path)
    assert clean.status == "ok"
    assert clean.facts["nodes_before"] == 52
    assert 0 < clean.facts["nodes_after"] <= 52
    assert run(Describe(model=clean.facts["model"]), tmp_path).nodes == clean.facts["nodes_after"]


def test_import_of_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"not a model")
    for path in (tmp_path / "x.onnx", tmp_path / "missing.onnx"):
        m = run(Import(path=str(path), digest=""), tmp_path)
        assert m.status == "refused", m
        assert path.name in m.message


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError(os.strerror(errno.ENOSPC))],
    ids=["as the system says it", "in a library's words"],
)
def test_a_full_disk_is_no_answer(error: Exception, tmp_path: Path, monkeypatch) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(load, "import_model", failing)
    answer = run(Import(path=str(MODELS / "shapes_cnn.onnx"), digest=""), tmp_path)
    assert (answer.status, answer.facts) == ("fault", {"errno": errno.ENOSPC})


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model = run(Import(path=str(MODELS / "shapes_cnn.onnx"), digest=""), tmp_path).facts["model"]
    np.savez(tmp_path / "in.npz", imago=np.zeros((1, 1, 64, 64), np.float32))
    m = run(LoadInputs(model=model, sources=(str(tmp_path / "in.npz"),)), tmp_path)
    assert m.status == "refused"
    assert "image" in m.message


# -- external checkers


def check(session, command: str, candidate: Candidate | None = None, **fields):
    return session.run(
        Check(
            model=session.model,
            command=command,
            candidate=candidate or Candidate(),
            inputs=session.inputs,
            sample="real:0/0",
            reference="onnxruntime",
            **fields,
        )
    )


def test_a_checker_sees_a_model_that_loads_with_its_inputs_and_what_is_right(opened) -> None:
    session = opened("sort_tf_massive_m4")
    code = """
import json, sys, onnx, numpy as np, onnxruntime as ort
from polygraphy.json import load_json
model, inputs, expected = sys.argv[1:]
onnx.checker.check_model(onnx.load(model), full_check=True)
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
session = ort.InferenceSession(model, options)
feed, = load_json(inputs)
runner, = load_json(expected).lst
right = {k: v.numpy() if hasattr(v, "numpy") else v for k, v in runner[1][0].items()}
names = [o.name for o in session.get_outputs()]
assert set(feed) == {i.name for i in session.get_inputs()}
assert set(names) == set(right), (names, right)
for name, value in zip(names, session.run(names, feed)):
    np.testing.assert_allclose(value, right[name], rtol=1e-5)
print("right", len(names))
sys.exit(7)
"""
    n = session.by_op("Pow")[2]
    for candidate in (
        Candidate(),
        session.nodes(n),
        session.nodes(*range(n, n + 40)),
        session.nodes(*range(n)),
    ):
        m = check(session, python(code, "{model}", "{inputs}", "{expected}"), candidate)
        assert m.status == "ok", m.message
        assert m.facts["returncode"] == 7, m.facts["stderr"]
        assert "right" in m.facts["stdout"]
    assert list((session.root / "checks").iterdir()) == []


@pytest.mark.parametrize("model", ["sort_tf_massive_m4", "shapes_cnn"])
@pytest.mark.parametrize("control", ["identity", "answers"])
def test_a_control_is_a_model_that_is_right_whatever_runs_it(
    opened, model: str, control: str
) -> None:
    """Real runs, real comparison: of the same inputs; its outputs are what the checker is told to
    expect."""
    session = opened(model)
    code = """
import sys, onnx, numpy as np, onnxruntime as ort
from polygraphy.json import load_json
model, inputs, expected = sys.argv[1:]
onnx.checker.check_model(onnx.load(model), full_check=True)
session = ort.InferenceSession(model)
feed, = load_json(inputs)
runner, = load_json(expected).lst
right = {k: v.numpy() if hasattr(v, "numpy") else v for k, v in runner[1][0].items()}
assert [i.name for i in session.get_inputs()] == list(feed)
names = [o.name for o in session.get_outputs()]
assert set(names) == set(right), (names, right)
for name, value in zip(names, session.run(names, feed)):
    np.testing.assert_array_equal(value, right[name])
print(*names, sep="|")
"""
    m = check(session, python(code, "{model}", "{inputs}", "{expected}"), control=control)
    assert (m.status, m.facts["returncode"]) == ("ok", 0), m.facts["stderr"]
    own = [session.index.tensors[t].name for t in session.index.outputs]
    names = m.facts["stdout"].strip().split("|")
    assert names == own if control == "answers" else not set(names) & set(own)


def test_node_names_are_kept_and_the_model_is_appended(opened) -> None:
    session = opened("shapes_cnn")
    code = "import sys, onnx; print(*[n.name for n in onnx.load(sys.argv[1]).graph.node], sep='|')"
    m = check(session, python(code), session.nodes(4, 5, 6))
    assert m.facts["stdout"].strip().split("|") == [session.index.nodes[n].name for n in (4, 5, 6)]
    assert m.nodes == 3


def test_no_reference_is_needed_where_nothing_asks_for_values(opened) -> None:
    session = opened("shapes_cnn")
    m = session.run(
        Check(
            model=session.model,
            command=python("import onnx, sys; onnx.load(sys.argv[1])"),
            candidate=session.nodes(4, 5, 6),
            inputs=session.inputs,
            sample="real:0",
            reference="fake:fault=error",
        )
    )
    assert (m.status, m.facts["returncode"]) == ("ok", 0)
    bare = session.run(Check(model=session.model, command="true"))
    assert (bare.status, bare.facts["returncode"]) == ("ok", 0)


@pytest.mark.parametrize(
    ("command", "status", "fact"),
    [
        ("false", "ok", ("returncode", 1)),
        (python("import os; os.kill(os.getpid(), 11)"), "ok", ("signal", 11)),
        (python("import time; time.sleep(60)"), "timeout", ("timed_out", True)),
        ("no-such-checker-anywhere", "unsupported", ("started", False)),
        ("echo 'unclosed", "refused", None),
    ],
)
def test_how_a_checker_ends(opened, command: str, status: str, fact) -> None:
    m = check(opened("shapes_cnn"), command, timeout=1.0 if "sleep" in command else 0.0)
    assert m.status == status
    if fact:
        assert m.facts[fact[0]] == fact[1]
    if status != "ok":
        assert len(m.message.split()) > 3


@pytest.mark.parametrize(("kills", "status"), [(0, "ok"), (1, "out-of-memory")])
def test_a_shell_whose_program_is_killed_for_memory_is_no_verdict(
    opened, monkeypatch, kills: int, status: str
) -> None:
    """The shell ends with 137, which counts as a failure of the model; the kernel's count says
    whose doing it was."""
    counted = iter([0, kills])
    monkeypatch.setattr("narrowdown.engines.store.memory.kernel_kills", lambda: next(counted))
    m = check(opened("shapes_cnn"), "sh -c 'sh -c \"kill -9 \\$\\$\"; exit $?' checker")
    assert (m.status, m.facts.get("returncode", 137)) == (status, 137)


def test_much_output_is_bounded_and_kept_beside(opened) -> None:
    session = opened("shapes_cnn")
    m = check(session, python("print('begin'); print('x' * 3_000_000); print('the end')"))
    assert len(m.facts["stdout"]) < 2_100_000
    assert 900_000 < m.facts["left_out"] < 1_000_000
    assert m.facts["stdout"].startswith("begin")
    assert m.facts["stdout"].rstrip().endswith("the end")
    assert len(session.store.get(m.artifacts["output"])) > 1_500_000


def test_what_a_checker_leaves_is_kept_when_it_was_named(opened) -> None:
    session = opened("shapes_cnn")
    code = "open('found.txt', 'w').write('here'); open('other.txt', 'w').write('no')"
    m = check(
        session,
        python(code),
        artifacts=("found.txt", "missing.txt", "../../session.json", "/etc/hostname"),
    )
    assert set(m.artifacts) == {"found.txt"}
    assert session.store.get(m.artifacts["found.txt"]) == b"here"


def test_an_edited_candidate_is_checked_with_its_own_values(opened) -> None:
    session = opened("shapes_cnn")
    feeds, _ = session.index.boundary([0])
    edit = Edit("fill", tensor=feeds[0], value=0.25)
    code = """
import sys, numpy as np
from polygraphy.json import load_json
feed, = load_json(sys.argv[1])
assert all((v == 0.25).all() for v in feed.values())
"""
    m = check(session, python(code, "{inputs}", "{expected}"), Candidate(nodes="0", edits=(edit,)))
    assert (m.status, m.facts["returncode"]) == ("ok", 0), m


def test_a_candidate_that_the_model_does_not_have_is_refused(opened) -> None:
    session = opened("shapes_cnn")
    m = session.run(session.probe("onnxruntime", Candidate(nodes=ranges.encode([9999]))))
    assert m.status == "refused"
    assert "9999" in m.message


def test_a_stored_model_is_never_changed(opened) -> None:
    session = opened("shapes_cnn")
    path = session.store.models / f"{session.model}.onnx"
    before = path.read_bytes()
    session.measure("emulate:precision=fp16", save="x", samples=("real:0/0",))
    check(session, "true")
    assert path.read_bytes() == before
    onnx.load(path)


LOADS = "import os, onnx; onnx.checker.check_model({model!r}, full_check=True); print(sorted(os.listdir()))"


def test_a_checker_finds_the_model_under_polygraphys_name(opened) -> None:
    session = opened("shapes_cnn")
    m = check(session, python(LOADS.format(model="polygraphy_debug.onnx")))
    assert m.facts["returncode"] == 0, m.facts["stderr"]
    assert m.facts["stdout"].strip() == "['model.onnx', 'polygraphy_debug.onnx']"
    assert m.facts["command"][-1] != "model.onnx"


def test_large_weights_are_copied_only_for_who_looks_for_that_name(
    opened, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("narrowdown.engines.workers.artifact_files._COPY", 0)
    session = opened("shapes_cnn")
    m = check(
        session,
        python("import os, sys, onnx; onnx.load(sys.argv[1]); print(os.listdir())", "{model}"),
    )
    assert (m.facts["returncode"], m.facts["stdout"].strip()) == (0, "[]")
    (tmp_path / "look.py").write_text(LOADS.format(model="polygraphy_debug.onnx"))
    named = check(
        session, f"{shlex.quote(sys.executable)} {shlex.quote(str(tmp_path / 'look.py'))}"
    )
    assert named.facts["returncode"] == 0, named.facts["stderr"]
    assert named.facts["stdout"].strip() == "['model.onnx', 'polygraphy_debug.onnx', 'weights.bin']"
    kept = check(session, python("print()", "{model}"), artifacts=("model.onnx", "weights.bin"))
    assert set(kept.artifacts) >= {"model.onnx", "weights.bin"}


def test_a_checker_sees_the_users_folder_beside_its_own_files(opened, tmp_path: Path) -> None:
    session = opened("shapes_cnn")
    user = tmp_path / "user"
    (user / "data").mkdir(parents=True)
    for name in ("model.onnx", "polygraphy_debug.onnx", "out.txt", "data/golden.txt"):
        (user / name).write_text("the user's")
    code = (
        "import onnx; assert open('data/golden.txt').read() == \"the user's\"\n"
        "onnx.load('model.onnx'); onnx.load('polygraphy_debug.onnx'); open('out.txt', 'w').write('mine')"
    )
    m = check(session, python(code), folder=str(user), artifacts=("out.txt",))
    assert m.facts["returncode"] == 0, m.facts["stderr"]
    assert session.store.get(m.artifacts["out.txt"]) == b"mine"
    assert (user / "out.txt").read_text() == "the user's"  # what the checker writes is its own
    assert (user / "data/golden.txt").exists()
    assert check(session, python("print()"), folder=str(tmp_path / "gone")).facts["returncode"] == 0


def test_a_checker_does_not_see_the_session_that_it_works_for(opened) -> None:
    """A link to it would lie inside of it, and a checker that is killed leaves its links behind."""
    session = opened("shapes_cnn")
    root = session.store.root
    root.with_name("beside").mkdir(exist_ok=True)
    m = check(session, python("import os; print(sorted(os.listdir()))"), folder=str(root.parent))
    assert "beside" in m.facts["stdout"]
    assert root.name not in m.facts["stdout"]


def test_a_folder_too_full_to_be_shown_is_said(opened, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("narrowdown.engines.checker.command._MOST_LINKS", 2)
    session = opened("shapes_cnn")
    for i in range(3):
        (tmp_path / f"{i}.txt").touch()
    m = check(session, python("print()"), folder=str(tmp_path))
    assert m.status == "ok"
    assert "too many files" in m.notes[0]


@pytest.mark.parametrize("how", ["gone", "empty", "another"])
def test_an_engine_that_cannot_read_the_sessions_own_weights_says_nothing_of_the_candidate(
    session_of, tmp_path: Path, how: str
) -> None:
    """It was told as a model that the engine cannot build, and the search went on with that."""
    session = session_of(tmp_path, MODELS / "shapes_cnn.onnx", MODELS / "shapes_cnn_in.npz")
    (weights,) = Store(tmp_path).weights.glob("*.bin")
    weights.unlink()  # not cut short: this process has it in memory
    if how != "gone":
        weights.write_bytes(b"" if how == "empty" else b"x")
    m = session.run(session.probe("onnxruntime:optimization=all"))
    assert m.facts == {"damaged": f"models/weights/{weights.name}"}, m
    assert f"The session's file 'models/weights/{weights.name}' is " in m.message


WRITES = """
import shutil
import program  # the user's own, as it was agreed to
assert open("weights").read() == program.WEIGHTS
shutil.copy(MODEL, "made.onnx")
"""


@pytest.mark.parametrize("deed", ["as it is", "changed", "not agreed to", "fails"])
def test_a_model_that_a_text_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    """Beside the script, in the user's folder; only where both are what was agreed to."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    theirs, root = tmp_path / "theirs", tmp_path / "root"
    theirs.mkdir()
    root.mkdir()
    script = theirs / "program.py"
    script.write_text("WEIGHTS = 'w'\n")
    (theirs / "weights").write_text("" if deed == "fails" else "w")
    words = shlex.join([sys.executable, "-c", launch.RUNS, str(script)])
    program = str(parse("torch").with_option("program", words))
    problem = Problem(folder=str(theirs), exported=Exported("", "", program=program))
    asked = trust.admit if deed == "not agreed to" else trust.agree
    consent = asked(problem)
    if deed == "changed":
        script.write_text("WEIGHTS = 'w'  # or another\n")
    text = WRITES.replace("MODEL", repr(str(MODELS / "shapes_cnn.onnx")))
    with held.under(consent):
        m = run(Import(path="made.onnx", digest="", program=program, text=text), root)
    if deed == "as it is":
        assert load.load(Store(root), m.facts["model"]).index.nodes
    else:
        assert m.status == ("build-failed" if deed == "fails" else "refused"), m
        assert m.message
    assert bool(trust.admit(problem).permits) == (deed in ("as it is", "fails"))
