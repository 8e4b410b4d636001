"""The search inside of If, Loop and Scan: a culprit is named with its body and iteration, and has a
minimal case of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx.parser
import pytest

from narrowdown.engines.graph.names import all_nodes
from narrowdown.engines.graph.typed import mark, to_precision, to_rounded
from narrowdown.engines.workers import unrolling

Open = Callable[..., Any]
FP16 = "emulate:precision=fp16"
BF16 = "emulate:precision=bf16"

# The state doubles in each iteration; its square is beyond what FP16 stores from 256 on.
GROWING = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,4] x) => (float[1,4] y) {
  m = Constant <value_int: int = 8> ()
  yes = Constant <value: tensor = bool {1}> ()
  [grow] h, all = Loop (m, yes, x) <body = b (int64 i, bool c, float[1,4] s) => (bool c2, float[1,4] s2, float[1,4] o) {
    c2 = Identity (c)
    two = Constant <value_float: float = 2.0> ()
    [double] s2 = Mul (s, two)
    [square] q = Mul (s2, s2)
    [root] r = Sqrt (q)
    [ratio] o = Div (r, s2)
  }>
  t = ReduceMean <axes = [0], keepdims = 0> (all)
  y = Add (t, x)
}
"""
# A running sum, walked backwards, of what is squared: 300 is the third row from the end.
WALKED = """
<ir_version: 8, opset_import: ["":17]>
g (float[5,2] x) => (float[5,2] y, float[2] total) {
  zero = Constant <value: tensor = float[2] {0, 0}> ()
  [walk] total, y = Scan (zero, x) <num_scan_inputs: int = 1, scan_input_directions = [1], body = b (float[2] s, float[2] row)
      => (float[2] s2, float[2] o) {
    [sum] s2 = Add (s, row)
    [square] q = Mul (row, row)
    [root] o = Sqrt (q)
  }>
}
"""
# What goes on is small beside the state, so that a half rounds it, and from one row to the next.
SMOOTHED = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,8] state0, float[60,1,8] x) => (float[1,8] state_n, float[60,1,8] y) {
  [walk] state_n, y = Scan (state0, x) <num_scan_inputs: int = 1, body = b (float[1,8] t, float[1,8] row)
      => (float[1,8] t2, float[1,8] o) {
    few = Constant <value_float: float = 0.01> ()
    most = Constant <value_float: float = 0.99> ()
    [new] n = Mul (row, few)
    [old] m = Mul (t, most)
    [sum] t2 = Add (n, m)
    [turn] o = Neg (t2)
  }>
}
"""
# A branch in each iteration of a loop that runs until its state is large enough.
NESTED = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,2] x, bool loud) => (float[1,2] y) {
  [outer] y = If (loud) <
    then_branch = t () => (float[1,2] yt) {
      yes = Constant <value: tensor = bool {1}> ()
      [steps] yt = Loop ("", yes, x) <body = b (int64 i, bool c, float[1,2] s) => (bool c2, float[1,2] s2) {
        top = ReduceMax <keepdims = 0> (s)
        limit = Constant <value_float: float = 500.0> ()
        big = Greater (top, limit)
        [inner] s2 = If (big) <
          then_branch = tt () => (float[1,2] a) { [square] p = Mul (s, s)
            [root] a = Sqrt (p) },
          else_branch = ee () => (float[1,2] e) { three = Constant <value_float: float = 3.0> ()
            [triple] e = Mul (s, three) }>
        c2 = Not (big)
      }>
    },
    else_branch = e () => (float[1,2] ye) { [quiet] ye = Abs (x) }>
}
"""
# A branch in a branch, both chosen by inputs.
BRANCHED = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,2] x, bool loud, bool sharp) => (float[1,2] y) {
  [outer] y = If (loud) <
    then_branch = t () => (float[1,2] yt) {
      [inner] r = If (sharp) <
        then_branch = tt () => (float[1,2] a) { [square] p = Mul (x, x)
          [root] a = Sqrt (p) },
        else_branch = ee () => (float[1,2] e) { [twice] e = Add (x, x) }>
      [sum] yt = Add (r, x)
    },
    else_branch = e () => (float[1,2] ye) { [quiet] ye = Abs (x) }>
}
"""


@pytest.fixture
def opened(open_model: Open, tmp_path: Path) -> Callable[..., Any]:
    """The model of a text, with samples of its inputs, on an engine."""

    def make(text: str, *samples: dict[str, Any], engine: str = FP16, **problem: Any) -> Any:
        onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
        for i, sample in enumerate(samples):
            np.savez(tmp_path / f"{i}.npz", **{k: np.asarray(v) for k, v in sample.items()})
        given = tuple(tmp_path / f"{i}.npz" for i in range(len(samples)))
        return open_model(tmp_path / "m.onnx", engine, given, **problem)

    return make


def rows(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_an_overflow_in_an_iteration_of_a_loop(opened: Any) -> None:
    s = opened(GROWING, {"x": rows(3, 5, 2, 4)})
    assert s.step("compare").finish.outcome.verdict == "fails"
    # 5 x 2^6 = 320 is the first beyond 256
    assert s.step("layerwise").finish.outcome.culprit == "grow/body/iteration_5/square"
    assert s.step("extract").finish.outcome.names == "grow/body/iteration_5/square"
    reduced = s.step("reduce").finish
    assert (reduced.outcome.names, reduced.outcome.minimal) == (
        "grow/body/iteration_5/square",
        True,
    )
    assert reduced.findings.case.inputs == ("grow/body/iteration_5/s2",)
    assert "Loop 'grow' runs 8 iterations: these nodes stand in their place." in " ".join(
        s.findings.notes
    )
    assert s.findings.original != s.findings.model
    done = s.step("precision").finish
    cure = done.findings.workaround
    # In every iteration, as the body has the node once; other tools are told of the Loop.
    assert (cure.in_model, cure.holders) == (("grow/body/square", "grow/body/root"), ("grow",))
    squares = {f"grow/body/iteration_{k}/square" for k in range(8)}
    assert squares <= set(cure.keep_names)
    assert "(your model with 2 nodes in FP32)" in cure.written


def test_an_overflow_in_an_iteration_of_a_scan_that_walks_backwards(opened: Any) -> None:
    x = np.ones((5, 2), np.float32)
    x[2, 1] = 300
    s = opened(WALKED, {"x": x})
    reduced = s.step("reduce").finish.outcome
    assert (reduced.names, reduced.minimal) == ("walk/body/iteration_2/square", True)


def test_what_grows_from_one_iteration_to_the_next_is_one_node_of_the_body(opened: Any) -> None:
    """Each copy of them is right by itself: all of them are blamed, left out and cured as one."""
    x = np.abs(np.random.default_rng(0).normal(size=(60, 1, 8))).astype(np.float32)
    s = opened(SMOOTHED, {"state0": np.full((1, 8), 0.5, np.float32), "x": x}, engine=BF16)
    assert "--carry" not in s.step("compare").finish.outcome.message
    assert s.step("layerwise").finish.outcome.culprit_op in ("Mul", "Add")
    for step in ("extract", "reduce"):
        done = s.step(step).finish
        nodes = {name.rpartition("/")[2] for name in done.findings.case.nodes}
        assert nodes <= {"old", "sum"}
        assert len(done.findings.case.ops) == len(nodes) < len(done.findings.case.nodes)
    assert not s.step("confirm").finish.outcome.patched_fails


def test_bodies_in_bodies(opened: Any) -> None:
    s = opened(NESTED, {"x": rows(1, 7), "loud": True})
    reduced = s.step("reduce").finish.outcome
    # 7, 21, 63, 189, 567: squared in the fifth iteration
    assert reduced.names == "outer/then_branch/steps/body/iteration_4/inner/then_branch/square"
    assert reduced.minimal


@pytest.mark.parametrize(
    ("text", "fed", "other", "names", "beside"),
    [
        (
            BRANCHED, {"x": rows(1, 300), "loud": np.array(True), "sharp": np.array(True)},
            {"x": rows(1.0001, 7.0001), "loud": np.array(False), "sharp": np.array(True)},
            "outer/then_branch/inner/then_branch/", 2,
        ),
        (WALKED, {"x": np.full((5, 2), 300, np.float32)}, None, "walk/body/", 0),
    ],
)  # fmt: skip
def test_what_is_kept_is_written_into_the_body_and_branches_that_did_not_run_stay(
    opened: Any, tmp_path: Path, text: str, fed: Any, other: Any, names: str, beside: int
) -> None:
    import onnxruntime as ort

    s = opened(text, fed)
    s.step("reduce")
    done = s.step("precision").finish
    cure = done.findings.workaround
    assert f"{names}square" in cure.in_model, cure.in_model
    assert all(name.startswith(names) for name in cure.in_model)
    assert f"your model with {len(cure.in_model)} nodes in FP32" in cure.written
    assert (f"({beside} nodes)" in cure.written) == bool(beside)
    [kept] = done.tables["bundle"]
    file = s.store.path(kept["files"]["worked-around.onnx"]).read_bytes()
    onnx.checker.check_model(onnx.load_from_string(file), full_check=True)
    ours, theirs = (
        ort.InferenceSession(m, providers=["CPUExecutionProvider"])
        for m in (file, str(tmp_path / "m.onnx"))
    )
    for given, allowed in ((fed, 1e-2), (other, 0.0)):
        for a, b in (
            zip(ours.run(None, given), theirs.run(None, given), strict=True) if given else ()
        ):
            assert np.allclose(a, b, atol=0, rtol=allowed)


def test_what_a_kept_node_gives_out_of_a_branch_is_not_rounded_at_its_end() -> None:
    import onnxruntime as ort

    model = onnx.parser.parse_model(BRANCHED)
    [kept] = [node for node in all_nodes(model.graph.node) if node.name == "sum"]
    mark(kept)
    made = to_rounded(to_precision(model, "fp16", ()))
    fed = {"x": rows(1.0001, 7.0001), "loud": np.array(True), "sharp": np.array(False)}
    [y] = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, fed
    )
    assert np.array_equal(y, rows(2, 14) + fed["x"])


def test_samples_that_take_another_branch_are_left_out_and_that_is_said(opened: Any) -> None:
    s = opened(
        NESTED,
        {"x": rows(1, 7), "loud": False},
        {"x": rows(1, 7), "loud": True},
        {"x": rows(2, 8), "loud": True},
    )
    reduced = s.step("reduce").finish
    assert reduced.outcome.names.startswith("outer/then_branch/")
    # 8 runs as many iterations as 7
    assert [x.id for x in s.findings.samples] == ["real:1", "real:2"]
    assert "1 of 3 samples run in another way and are left out of the search." in " ".join(
        s.findings.notes
    )


def test_a_fault_of_the_loop_itself_stays_one(opened: Any) -> None:
    """The engine is right once the loop is gone: taking it apart would lose the failure."""
    s = opened(GROWING, {"x": rows(3, 5, 2, 4)}, engine="fake:fault=wrong,ops=Loop,size=0.5")
    assert s.step("layerwise").finish.outcome.culprit == "grow"
    reduced = s.step("reduce").finish.outcome
    assert reduced.names == "grow"
    assert "The graph inside its Loop is left whole." in reduced.message
    assert "Then it passes, so that the fault may rest on the control flow itself" in " ".join(
        s.findings.notes
    )


def test_a_loop_that_would_become_too_many_nodes_is_a_sentence(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrolling, "MOST", 30)
    s = opened(GROWING, {"x": rows(3, 5, 2, 4)})
    watched = s.step("layerwise").finish.outcome
    assert watched.culprit == "grow"
    assert "1 of its nodes (Loop) hold graphs of their own, left whole" in watched.message
    assert (
        "'grow' (Loop) would become 40 nodes in 8 iterations, too many to search; it stays as it is."
        in s.findings.notes
    )


def test_a_loop_that_draws_is_not_taken_apart(opened: Any) -> None:
    text = GROWING.replace("[ratio] o = Div (r, s2)", "noise = RandomNormalLike <seed = 1.0> (s2)\n n0 = Sub (noise, noise)\n"
                           " r2 = Div (r, s2)\n o = Add (r2, n0)")  # fmt: skip
    s = opened(text, {"x": rows(3, 5, 2, 4)})
    assert s.step("layerwise").finish.outcome.culprit == "grow"
    assert "'grow' draws random numbers in each iteration, and stays as it is." in s.findings.notes


# An engine without control flow, which lies beside what it would take: the branch hangs on how
# large the input is.
CHOOSING = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,4] x) => (float[1,4] y) {
  top = ReduceMax <keepdims = 0> (x)
  limit = Constant <value_float: float = 2.0> ()
  [large] big = Greater (top, limit)
  [choice] h = If (big) <
    then_branch = t () => (float[1,4] a) { [double] a = Add (x, x) },
    else_branch = e () => (float[1,4] b) { [turn] b = Neg (x) }>
  y = Abs (h)
}
"""
NO_IF = "fake:fault=invalid-model,at=build,ops=If"


def test_an_engine_that_refuses_an_if_is_given_a_model_without_one_that_it_takes(
    opened: Any,
) -> None:
    s = opened(
        CHOOSING,
        {"x": rows(3, 5, 2, 4)},
        {"x": rows(7, 1, 1, 1)},
        {"x": rows(0, 1, 0, 1)},
        engine=NO_IF,
    )
    assert s.step("reduce").finish.outcome.names == "choice"
    [said] = [note for note in s.findings.notes if note.startswith("A way around")]
    # The third is small and takes the other branch.
    assert "It builds and is right on 2 of 3 samples." in said
    assert "'choice' (If) is decided by 'large' (Greater)." in said


# As a voice detector's: the branch hangs on the sampling rate, an input that is the same wherever
# the model is used.
RATED = CHOOSING.replace("float[1,4] x)", "float[1,4] x, int64 sr)").replace("(top, limit)", "(sr, limit)").replace(
    "top = ReduceMax <keepdims = 0> (x)", ""
).replace("<value_float: float = 2.0>", "<value: tensor = int64 {8000}>")  # fmt: skip


def rate(sr: int, *values: float) -> dict[str, Any]:
    return {"x": rows(*values), "sr": np.int64(sr)}


def test_the_refused_if_is_worked_around_by_a_model_without_it_that_says_while_what_it_is_right(
    opened: Any,
) -> None:
    s = opened(
        RATED,
        rate(16000, 1, 2, 3, 4),
        rate(16000, 5, 6, 7, 8),
        rate(8000, 1, 1, 1, 1),
        engine=NO_IF,
    )
    s.step("reduce")
    assert s.step("confirm").finish.outcome.fixable
    done = s.step("workaround").finish
    said = done.outcome
    assert (said.kind, said.what, said.condition, said.holds) == (
        "control-flow",
        "choice",
        "'sr' is 16000",
        True,
    )
    # The second sample and those made near: those of 8,000 Hz are no matter of this model.
    assert (said.samples_ok, said.samples, said.elsewhere) == (1, 1, 1)
    assert said.unseen == said.unseen_ok > done.findings.workaround.unseen.given == 1
    assert "It is right only while 'sr' is 16000." in said.message
    assert "Run again on the other samples alone" in said.message
    [kept] = done.tables["bundle"]
    made = onnx.load_from_string(s.store.get(kept["files"]["worked-around.onnx"]))
    assert [node.op_type for node in made.graph.node if node.name.endswith("double")] == ["Add"]
    assert "If" not in [node.op_type for node in made.graph.node]
    [shown] = done.decisive["workaround"]
    assert s.ask(shown).status == "ok"


def test_the_file_is_made_of_the_model_as_it_was_given(opened: Any) -> None:
    """Not of the cleaned one: its names are those that the user knows."""
    s = opened(RATED, rate(16000, 1, 2, 3, 4), engine=NO_IF)
    s.findings = msgspec.structs.replace(s.step("sanitize").finish.findings, opened=False)
    assert s.findings.model != s.findings.original
    s.step("reduce")
    asked = s.step("workaround").probes
    assert {p.model for p in asked if getattr(p, "written", "")} == {s.findings.original}


def test_what_the_engine_gets_wrong_without_its_if_is_no_workaround(opened: Any) -> None:
    """It takes the branch, and computes it wrong."""
    s = opened(RATED, rate(16000, 1, 2, 3, 4), engine=NO_IF)
    s.step("reduce")
    s.engine = "fake:fault=wrong,ops=Add,size=0.5"
    said = s.step("workaround").finish.outcome
    assert (said.holds, said.kind) == (False, "none")


def test_a_file_that_computes_something_else_by_the_reference_is_no_workaround(opened: Any) -> None:
    s = opened(RATED, rate(16000, 1, 2, 3, 4), engine=NO_IF)
    s.step("reduce")
    ask = s.ask

    def otherwise(probe: Any) -> Any:
        answer = ask(probe)
        if not (getattr(probe, "written", "") and probe.engine == s.reference):
            return answer
        [result, *others] = answer.results
        worse = [
            msgspec.structs.replace(score, rel_l2=1.0, max_abs=1.0, equal=False)
            for score in result.outputs
        ]
        return msgspec.structs.replace(
            answer, results=(msgspec.structs.replace(result, outputs=tuple(worse)), *others)
        )

    s.ask = otherwise
    said = s.step("workaround").finish.outcome
    assert (said.holds, said.kind) == (False, "none")


@pytest.mark.parametrize("worse", ["real:0", "real:1", "near:"])
def test_the_error_that_is_told_is_the_worst_of_all_that_were_tried(
    opened: Any, worse: str
) -> None:
    """Of the sample that it was made on, too."""
    s = opened(RATED, rate(16000, 1, 2, 3, 4), rate(16000, 5, 6, 7, 8), engine=NO_IF)
    s.step("reduce")
    ask = s.ask

    def slightly_off(probe: Any) -> Any:
        answer = ask(probe)
        if not (getattr(probe, "written", "") and probe.engine == NO_IF):
            return answer
        results = tuple(
            msgspec.structs.replace(
                r,
                outputs=tuple(
                    msgspec.structs.replace(
                        score, rel_l2=2e-5 if r.sample.startswith(worse) else 1e-5, equal=False
                    )
                    for score in r.outputs
                ),
            )
            for r in answer.results
        )
        return msgspec.structs.replace(answer, results=results)

    s.ask = slightly_off
    assert s.step("workaround").finish.findings.workaround.error == 2e-5


def test_where_nothing_can_run_it_the_file_is_held_to_the_model_by_the_reference(
    opened: Any,
) -> None:
    s = opened(RATED, rate(16000, 1, 2, 3, 4), engine=NO_IF)
    s.info = {
        **s.info,
        "capabilities": {**s.info["capabilities"], "run": {"present": False, "reason": "no GPU"}},
    }
    s.step("reduce")
    done = s.step("workaround")
    assert done.finish.outcome.holds
    assert {p.runs for p in done.probes if getattr(p, "written", "") and p.engine == NO_IF} == {0}
    assert "cannot be seen on this machine" in done.finish.findings.workaround.written


def test_a_sample_that_takes_the_other_branch_is_no_sample_of_the_way_around(opened: Any) -> None:
    s = opened(CHOOSING, {"x": rows(3, 5, 2, 4)}, {"x": rows(1, 1, 1, 1)}, engine=NO_IF)
    s.step("reduce")
    [said] = [note for note in s.findings.notes if note.startswith("A way around")]
    assert "right on 1 of 2 samples" in said


def test_a_model_that_is_refused_without_its_if_too_has_no_such_way_around(opened: Any) -> None:
    s = opened(
        CHOOSING, {"x": rows(3, 5, 2, 4)}, engine="fake:fault=invalid-model,at=build,ops=Abs"
    )
    s.step("reduce")
    assert not any(note.startswith("A way around") for note in s.findings.notes)
