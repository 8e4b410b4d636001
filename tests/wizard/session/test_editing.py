"""A session with another set-up takes over exactly the measurements that the change leaves true."""

from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.probe import (
    AnyProbe,
    Check,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
)
from narrowdown.wizard import Refusal
from narrowdown.wizard.changed_problem import begin, change_problem, changes, tell_options
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import events as e, folder as folders
from narrowdown.wizard.session.editing import holds
from narrowdown.wizard.session.journal import NAME, Journal, read
from narrowdown.wizard.session.state import fold

MODEL = "/models/net.onnx"
HERE = Problem(model=MODEL, engine="emulate:precision=fp16", digests={MODEL: "a" * 64})
PROBES: dict[str, AnyProbe] = {
    "inspect": Inspect(engine=HERE.engine),
    "import": Import(path=MODEL, digest="a" * 64),
    "inputs": LoadInputs(model="m"),
    "measure": Measure(
        model="m", inputs="i", samples=("s",), engine=HERE.engine, reference=HERE.reference
    ),
    "on the reference": Measure(
        model="m", inputs="i", samples=("s",), engine=HERE.reference, reference=HERE.reference
    ),
    "processed": Measure(
        model="m",
        inputs="i",
        samples=("s",),
        engine=HERE.engine,
        reference=HERE.reference,
        postprocess=("top-5",),
    ),
    "check": Check(model="m", command="/bin/true"),
    # Read anew always: nobody recorded what else was read.
    "of a folder": LoadInputs(model="m", sources=("/data/batches",)),
    "of a script": LoadInputs(
        model="m", sources=("/data/loader.py:load",), source_digests=("c" * 64,)
    ),
}
ANEW = {"inspect", "import", "of a folder", "of a script"}
ALL_MEASURED = set(PROBES) - ANEW


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"tolerance": {"": 0.5}}, set()),
        ({"metric": "max_abs"}, set()),
        ({"timeout": 9.0}, set()),
        ({"seed": 7}, {"inputs", "measure", "on the reference", "processed"}),
        ({"input_shapes": {"x": (1,)}}, {"inputs", "measure", "on the reference", "processed"}),
        ({"engine": "emulate:precision=bf16"}, {"measure", "processed"}),
        ({"reference": "other"}, {"measure", "on the reference", "processed"}),
        ({"postprocess": ("top-1",)}, {"processed"}),
        ({"check": "/bin/false"}, {"check"}),
        ({"digests": {MODEL: "b" * 64}}, ALL_MEASURED),
        ({"model": "/models/other.onnx"}, ALL_MEASURED),
        ({"model": "/moved/net.onnx", "digests": {"/moved/net.onnx": "a" * 64}}, set()),
    ],
)
def test_what_a_change_leaves_true(change: dict[str, object], gone: set[str]) -> None:
    before = msgspec.structs.replace(HERE, check="/bin/true", postprocess=("top-5",))
    after = msgspec.structs.replace(before, **change)
    assert {
        name for name, probe in PROBES.items() if not holds(probe, before, after)
    } == gone | ANEW


def session(root: Path, problem: Problem) -> Path:
    """One with a route, an answer that is sound, one that is none, and a file of the store."""
    place = folders.create(problem, load("accuracy").text, root)
    (place / "captures" / "kept").write_text("captured")
    journal = Journal(place / NAME)
    journal.append(e.SessionOpened(id=place.name))
    journal.append(e.StepStarted(run=1, node="compare", visit=1, step="compare", step_version=1))
    for key, status in (("measure", "ok"), ("processed", "timeout")):
        journal.append(e.ProbeStarted(key=key, run=1, probe=PROBES[key]))
        journal.append(e.ProbeFinished(key=key, run=1, measurement=Measurement(status=status)))
    journal.append(e.SessionClosed(end="", exit_code=130))
    journal.close()
    return place


def test_a_new_session_knows_what_was_measured_and_has_no_route_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path))
    place = session(tmp_path, HERE)
    before = (place / NAME).read_bytes()
    made, known = begin(place, msgspec.structs.replace(HERE, tolerance={"": 0.5}))
    state = fold(read(made / NAME))
    assert (known, set(state.known), state.route, state.end) == (1, {"measure"}, (), "")
    assert state.known["measure"].run == 0, "it belongs to no step of the new session"
    assert (made / "captures" / "kept").read_text() == "captured"
    assert "changed: tolerance. 1 measurement taken over." in state.notes[0].text
    assert folders.describe(made).problem.tolerance == {"": 0.5}
    assert made != place, "the old session stays as it is"
    assert (place / NAME).read_bytes() == before
    other, nothing = begin(place, msgspec.structs.replace(HERE, engine="emulate:precision=bf16"))
    assert nothing == 0
    assert (
        "changed: engine. Nothing that was measured there serves here."
        in fold(read(other / NAME)).notes[0].text
    )
    assert not (other / "captures" / "kept").exists(), "what nothing of it needs is not copied"


def test_options_that_are_not_given_stay_to_the_last_digit(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x08\x0a\x3a\x04\x0a\x02\x08\x01")
    base = change_problem(Problem(model=str(model)), {"engine": "emulate:precision=fp16"})
    base = msgspec.structs.replace(
        base,
        tolerance={"": 1 / 3, "y:0": 1e-7},
        val_range={"": (0, 2**53 + 1)},
        input_shapes={"x:0": (1, 3)},
        seed=5,
    )
    assert change_problem(base, {}) == base
    changed = change_problem(base, {"tolerance": ["0.25"], "timeout": 4.0})
    assert changes(base, changed) == ("tolerance", "timeout")
    assert changed == msgspec.structs.replace(base, tolerance={"": 0.25}, timeout=4.0)
    assert tell_options(base)["tolerance"] == [repr(1 / 3), "y:0:1e-07"]
    model.write_bytes(model.read_bytes() + b"\x42\x02\x10\x11")
    assert changes(base, change_problem(base, {})) == ("model",), "the file is another one now"
    with pytest.raises(Refusal, match="belongs to the metric elementwise"):
        change_problem(msgspec.structs.replace(base, metric="max_abs"), {"atol": ["1"]})
    moved = model.rename(tmp_path / "moved.onnx")
    with pytest.raises(
        Refusal,
        match=r"The model .* not there any more: '.*m\.onnx'\. Put it back, or .* --model FILE",
    ):
        change_problem(base, {"seed": 9})
    assert change_problem(base, {"model": str(moved)}).model == str(moved)
    with pytest.raises(
        Refusal, match=r"The inputs file .* any more: '.*gone\.npz'\. .* --inputs FILE"
    ):
        change_problem(
            msgspec.structs.replace(base, inputs=(f"x={tmp_path / 'gone.npz'}",)),
            {"model": str(moved)},
        )
