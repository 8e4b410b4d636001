"""``step --json``: the contract's fields, whatever the step found."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.graph import external, load
from narrowdown.engines.graph.typed import to_precision
from narrowdown.engines.probe import HUGE, Candidate
from narrowdown.engines.steps.compare import CompareOutcome
from narrowdown.engines.steps.layerwise import LayerwiseOutcome
from narrowdown.engines.steps.precision import PrecisionOutcome
from narrowdown.engines.steps.reduce import ReduceOutcome
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.steps.repeat import RepeatOutcome
from narrowdown.engines.store import Store
from narrowdown.engines.workers import artifact_files
from narrowdown.wizard import Exit, Refusal
from narrowdown.wizard.bundle.models import write_models, write_whole
from narrowdown.wizard.cli.step import nothing_failed, parameters, result
from narrowdown.wizard.report.read import Reading
from narrowdown.wizard.session import SessionProblem
from narrowdown.wizard.session.state import Visit

CASE = Case(
    Candidate("3-4"),
    "real:0",
    nodes=("Pad", "MaxPool"),
    inputs=("a",),
    outputs=("b",),
    verified="3/3",
    own=HUGE,
)


def found(
    step: str,
    outcome: Any,
    tables: dict[str, list[dict[str, Any]]] | None = None,
    case: Case | None = None,
    **visit: Any,
) -> dict[str, Any]:
    tables = tables or {}
    named = {name: name for name in tables}
    plain = msgspec.to_builtins(outcome)
    made = Visit(
        step,
        step=step,
        status="done",
        outcome=plain,
        findings=Findings(case=case),
        tables=named,
        **visit,
    )
    whole = result(made, lambda digest: tables[digest], "/out.onnx", "/out-good.onnx", "/session")
    return msgspec.json.decode(msgspec.json.encode(whole))


def test_reduce() -> None:
    outcome = ReduceOutcome(
        verdict="reduced",
        nodes_before=45,
        nodes_after=2,
        probes=9,
        verifications=6,
        verified="3/3",
        own=HUGE,
    )
    row = found("reduce", outcome, case=CASE, seconds=1.5, speculative=2, cached=1, builds=14)
    assert row["nodes"] == ["Pad", "MaxPool"]
    assert (row["inputs"], row["outputs"]) == (["a"], ["b"])
    assert (row["speculative"], row["cached"], row["builds"], row["seconds"]) == (2, 1, 14, 1.5)
    assert (row["model"], row["good_model"]) == ("/out.onnx", "/out-good.onnx")
    assert row["session"] == "/session"
    fields = "verdict nodes_before nodes_after nodes inputs outputs probes verifications speculative cached builds unresolved"
    assert set(f"{fields} seconds verified own effect model good_model".split()) <= set(row)


def test_what_is_not_finite_is_null_and_named() -> None:
    """1e300 stands for infinity in files; a program that reads a step is told so in words."""
    row = found("reduce", ReduceOutcome(verdict="reduced", own=HUGE, effect=0.5))
    assert (row["own"], row["effect"], row["not_finite"]) == (None, 0.5, ["own"])
    tensors = [{"name": "a", "error": HUGE, "added": 0.1}, {"name": "b", "error": 0.9}]
    row = found(
        "layerwise", LayerwiseOutcome(observer="reproduces", first_bad="a"), {"tensors": tensors}
    )
    lost = {"name": "a", "error": None, "added": 0.1, "not_finite": ["error"]}
    assert (row["tensors"], row["first_bad"]) == ([lost, tensors[1]], lost)
    assert "not_finite" not in row


def test_a_step_s_own_word_for_no_failure_stands() -> None:
    """An engine that agrees with itself was told as "no-batch", the last of the words with which
    the step ends so."""
    for verdict, told in (("consistent", {}), ("no-batch", {}), ("", {"verdict": "consistent"})):
        assert nothing_failed(STEPS["consistency"], {"verdict": verdict}) == told
    assert nothing_failed(STEPS["known"], {"verdict": "none"}) == {"verdict": "passes"}


def test_reduce_that_found_nothing() -> None:
    row = found("reduce", ReduceOutcome(verdict="not-reproduced"))
    assert row["nodes"] == []
    assert row["effect"] is None


def test_layerwise() -> None:
    tensors = [{"name": "a", "error": 0.1}, {"name": "b", "error": 0.9}]
    row = found(
        "layerwise",
        LayerwiseOutcome(observer="reproduces", first_bad="b", culprit=""),
        {"tensors": tensors},
    )
    assert row["culprit"] is None
    assert row["first_bad"] == tensors[1]
    assert row["tensors"] == tensors
    assert "model" not in row


def test_compare_lists_every_metric_of_every_sample() -> None:
    outputs = [
        {"sample": "real:0", "output": "y", "badness": 0.5, "name": "y", "rel_l2": 0.5},
        {"sample": "real:1", "output": "y", "badness": 0.0, "name": "y"},
    ]
    row = found("compare", CompareOutcome(verdict="fails", samples=2), {"outputs": outputs})
    assert [s["sample"] for s in row["samples"]] == ["real:0", "real:1"]
    assert row["samples_n"] == 2
    score = row["samples"][1]["outputs"][0]
    assert {
        "max_abs",
        "max_rel",
        "rel_l2",
        "cosine",
        "sqnr_db",
        "ulp",
        "mismatched",
        "new_nonfinite",
    } <= set(score)
    assert score["cosine"] == 1.0


def test_repeat_and_precision() -> None:
    row = found(
        "repeat", RepeatOutcome(builds=5, runs=5, failures=2, interval_low=0.05, interval_high=0.85)
    )
    assert row["interval"] == [0.05, 0.85]
    keep = [{"node": "Sum_1"}]
    row = found(
        "precision",
        PrecisionOutcome(
            outcome="found",
            keep=1,
            samples=24,
            samples_ok=24,
            margin=2.0,
            builds=9,
            unseen=41,
            unseen_ok=40,
        ),
        {"keep": keep},
    )
    assert row["keep_higher"] == ["Sum_1"]
    assert row["samples_n"] == 24
    assert (row["held_out_ok"], row["held_out_n"], row["accused_inside"]) == (40, 41, None)
    assert {
        "outcome",
        "keep_higher",
        "minimal",
        "samples_ok",
        "samples_n",
        "margin",
        "builds",
        "model",
    } <= set(row)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_a_result(step: str) -> None:
    row = found(step, STEPS[step].outcome())
    assert "message" in row


def test_parameters_are_checked() -> None:
    assert parameters("repeat", []) == {}
    with pytest.raises(Refusal, match="no parameter") as refused:
        parameters("reduce", ["verfy=3"])
    assert refused.value.code == Exit.BAD_USAGE
    assert "Did you mean 'verify'?" in str(refused.value)
    assert parameters("reduce", ["verify=3"]) == {"verify": "3"}
    with pytest.raises(Refusal, match="--with"):
        parameters("reduce", ["verify=three"])
    with pytest.raises(Refusal, match=r"--with budget=-4: 'budget' must be 0 or more\."):
        parameters("precision", ["budget=-4"])
    for step in ("precision", "quantization"):
        with pytest.raises(Refusal, match=r"--with margin=-1.5: 'margin' must be 0 or more\."):
            parameters(step, ["margin=-1.5"])


@pytest.mark.parametrize("role", ["case", "workaround"])
def test_a_model_too_large_for_one_file_comes_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """``-o`` writes the weights beside the model under the name that the model points to, whichever
    of the two was asked for."""
    monkeypatch.setattr(artifact_files, "INSIDE", 0)
    weight = np.arange(1000, dtype=np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1000]) for n in "xy")
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph), tmp_path / "given.onnx")
    store = Store(tmp_path / "session")
    stored = load.load(store, load.import_model(tmp_path / "given.onnx", store).digest)
    kept: dict[str, str] = {}
    for name in ("model.onnx", "engine.onnx"):
        kept |= artifact_files.put_model(store, name, stored.proto, stored.weights_dir)
    table = store.put(msgspec.json.encode([{"role": role, "files": kept}]))
    reading = Reading(store.root, *[None] * 3)  # type: ignore[arg-type]
    visit = Visit("reduce", step="reduce", status="done", tables={"bundle": table})
    made, good = write_models(reading, visit, str(tmp_path / "out" / "part.onnx"))
    assert good is None
    np.testing.assert_array_equal(
        numpy_helper.to_array(onnx.load(str(made)).graph.initializer[0]), weight
    )


def test_a_cleaned_model_is_written_where_one_was_made(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph), tmp_path / "given.onnx")
    store = Store(tmp_path / "session")
    cleaned = load.import_model(tmp_path / "given.onnx", store).digest
    reading = Reading(store.root, *[None] * 3)  # type: ignore[arg-type]

    def write(*rows: dict[str, str]) -> str | None:
        table = store.put(msgspec.json.encode(rows))
        visit = Visit("sanitize", step="sanitize", status="done", tables={"sanitized": table})
        return write_models(reading, visit, str(tmp_path / "out.onnx"))[0]

    assert write() is None
    assert write({"model": cleaned}) == str(tmp_path / "out.onnx")
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["Relu"]


def test_a_kept_model_points_to_the_sessions_weights_until_it_is_written_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of its own are in it; those of the session, converted or not, come in when it is
    written. Damaged or gone, that is said in a sentence, and nothing is written."""
    monkeypatch.setattr(artifact_files, "SMALL", 1)
    values = np.arange(1000, dtype=np.float32)
    weights = [numpy_helper.from_array(values + i, name) for i, name in enumerate("wv")]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1000]) for n in "xy")
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "v"], ["y"])]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights)), tmp_path / "given.onnx"
    )
    store = Store(tmp_path / "session")
    stored = load.load(store, load.import_model(tmp_path / "given.onnx", store).digest)
    halves = to_precision(stored.proto, "fp16", ())
    made = artifact_files.put_model(
        store, "engine.onnx", halves, stored.weights_dir, external.locations(stored.proto)
    )
    assert store.path(made["engine.onnx"]).stat().st_size < 2000
    for path in store.weights.glob("*.*.bin"):
        path.unlink()  # as when the session ends
    target, (own,) = tmp_path / "out.onnx", store.weights.iterdir()
    write_whole(store, {target: store.path(made["engine.onnx"])})
    for i, tensor in enumerate(onnx.load(target).graph.initializer):
        np.testing.assert_array_equal(
            numpy_helper.to_array(tensor), (values + i).astype(np.float16)
        )
    target.unlink()
    bytes_ = own.read_bytes()
    for damage, said in (
        (lambda: own.write_bytes(bytes_[:-1] + b"x"), "is damaged"),
        (own.unlink, "is gone"),
    ):
        damage()
        with pytest.raises(SessionProblem, match=f"'models/weights/{own.name}'.* {said}"):
            write_whole(store, {target: store.path(made["engine.onnx"])})
        assert not target.exists()
