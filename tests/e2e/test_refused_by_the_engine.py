"""A model that the engine refuses, in the flow accuracy: no wrong answer, no page of samples, down
to the refused node."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

from narrowdown.engines.installed import importable

from . import tiny
from .conftest import Walk, check

pytestmark = pytest.mark.skipif(not importable("openvino"), reason="OpenVINO is not installed")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of the test's own: each writes its models, and two at once tore one another's."""
    return tmp_path


def dynamic_rank(folder: Path) -> tuple[Path, Path]:
    """(model, inputs): a Squeeze of a tensor whose rank OpenVINO cannot know, behind a Reshape that
    it refuses in other words as soon as the shape is not a constant of the part."""
    node = helper.make_node
    nodes = [
        node("Relu", ["x"], ["a"], "/relu"),
        node("Exp", ["a"], ["b"], "/exp"),
        node("Reshape", ["b", "shape"], ["c"], "/reshape"),
        node("Squeeze", ["c"], ["d"], "/squeeze"),
        node("Neg", ["d"], ["e"], "/neg"),
        node("Abs", ["e"], ["y"], "/abs"),
    ]
    given = [
        helper.make_tensor_value_info("x", 1, [1, 4]),
        helper.make_tensor_value_info("shape", 7, ["n"]),
    ]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", 1, None)])
    path = folder / "dynamic_rank.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    inputs = folder / "dynamic_rank.npz"
    np.savez(inputs, x=np.ones((1, 4), np.float32), shape=np.array([1, 2, 2], np.int64))
    return path, inputs


def test_the_first_step_says_so_and_the_refused_node_is_found(walk: Walk, models: Path) -> None:
    model, inputs = dynamic_rank(models)
    walked = walk(model, "--inputs", inputs, "--engine", "openvino")
    assert walked.ran.code == 0, walked.ran.out
    assert (walked.reading.report().verdict, walked.reading.report().end) == (
        "build-failure",
        "refused-part",
    )
    assert walked.answers() == [
        ("reproduce", "refused"), ("sanitize", "yes"), ("reduce", "yes"), ("minimal-case", "report"),
    ]  # fmt: skip
    first = walked.visits("reproduce")[0].outcome
    assert (first["verdict"], first["failure"], first["error"]) == ("refused", "build", None)
    (culprit,) = walked.reading.report().culprits
    assert (culprit.cause, culprit.nodes) == ("build-failure", ("/reshape",))
    assert "Reshape operation with dynamic rank" in culprit.evidence
    assert walked.visits("reduce")[0].findings.signature.refusal
    assert "wrong by" not in walked.ran.out


@pytest.mark.slow
def test_what_is_refused_for_its_open_shapes_is_cut_out_with_open_shapes(
    walk: Walk, models: Path
) -> None:
    """speechmos' plcmos: a Squeeze without axes. With the shapes of a run it is taken, and 58 of 64
    nodes were named."""
    chain = ("Relu", "Exp", "Squeeze", "Neg", "Abs")
    names = ("x", "a", "b", "c", "d", "y")
    nodes = [
        helper.make_node(op, [a], [b], f"/{op.lower()}")
        for op, a, b in zip(chain, names, names[1:], strict=False)
    ]
    values = [
        helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", ["n", 4]), ("y", None))
    ]
    path = models / "open.onnx"
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    given = models / "open.npz"
    np.savez(given, x=np.ones((1, 4), np.float32))
    walked = walk(path, "--inputs", given, "--engine", "openvino")
    assert walked.ran.code == 0, walked.ran.out
    (culprit,) = walked.reading.report().culprits
    assert (culprit.cause, culprit.nodes) == ("build-failure", ("/squeeze",))


def test_a_crash_of_the_build_is_found_and_its_case_holds_what_was_built(
    walk: Walk, models: Path
) -> None:
    """The process that crashes keeps nothing. Where the case's check runs no engine, the fault is
    not called gone."""
    engine = "fake:fault=crash,at=build,ops=Sqrt"
    walked = walk(tiny.norm(models), "--engine", engine, "--flow", "build-failure")
    assert (walked.ran.code, walked.reading.report().verdict) == (0, "build-failure")
    (culprit,) = walked.reading.report().culprits
    assert (culprit.cause, culprit.nodes, culprit.verified) == ("crash", ("/length",), "5/5")
    case = walked.folder / "case"
    for name in ("model.onnx", "engine.onnx"):
        assert [n.op_type for n in onnx.load(case / name).graph.node] == ["Sqrt"]
    (fed,), (given,) = (np.load(case / f"{n}.npz").values() for n in ("inputs", "expected"))
    np.testing.assert_allclose(np.sqrt(fed), given, rtol=1e-6)
    assert "process of fake" in (case / "issue.md").read_text()
    assert check(case).returncode == 2


RATED = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,4] x, int64 sr) => (float[1,4] y) {
  wide = Constant <value: tensor = int64 {16000}> ()
  [is_wide] w = Equal (sr, wide)
  [choice] h = If (w) <
    then_branch = a () => (float[1,4] p) { [double] p = Add (x, x) },
    else_branch = b () => (float[1,4] q) { [turn] q = Neg (x) }>
  [after] y = Abs (h)
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("flow", ["accuracy", "build-failure"])
def test_a_refused_if_ends_with_a_model_that_is_right_while_its_condition_holds(
    walk: Walk, models: Path, flow: str
) -> None:
    onnx.save(onnx.parser.parse_model(RATED), models / "rated.onnx")
    np.savez(models / "rated.npz", x=np.ones((1, 4), np.float32), sr=np.int64(16000))
    engine = "fake:fault=invalid-model,at=build,ops=If"
    walked = walk(
        models / "rated.onnx", "--inputs", models / "rated.npz", "--engine", engine, "--flow", flow
    )
    assert walked.ran.code == 0, walked.ran.out
    assert walked.answers()[-2:] == [("minimal-case", "workaround"), ("workaround", "yes")]
    report = walked.reading.report()
    assert (report.verdict, report.workaround.condition) == ("worked-around", "'sr' is 16000")
    assert "right, while 'sr' is 16000" in report.headline
    made = onnx.load(walked.reading.folder / "worked-around.onnx")
    assert sorted(node.op_type for node in made.graph.node) == ["Abs", "Add"]


@pytest.mark.parametrize("flow", ["accuracy", "build-failure", "precision"])
def test_a_model_that_is_refused_whatever_is_cut_out_of_it_accuses_no_node(
    walk: Walk, models: Path, flow: str
) -> None:
    nodes = [
        helper.make_node(op, [a], [b], f"/{op}")
        for op, a, b in (("Relu", "x", "a"), ("Exp", "a", "y"))
    ]
    values = [helper.make_tensor_value_info(name, 1, ["n", 4]) for name in "xy"]
    path = models / "old.onnx"
    old = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(
        helper.make_model(old, opset_imports=[helper.make_opsetid("", 11)], ir_version=6), path
    )
    walked = walk(path, "--engine", "emulate:precision=bf16", "--flow", flow)
    assert (walked.ran.code, walked.answers()) == (6, [("reproduce", "refused-whole")])
    report = walked.reading.report()
    assert (report.end, report.culprits) == ("refused-whole", ())
    assert "each that was tried alone (/Relu, /Exp) is refused in the same words" in walked.ran.said
    assert "onnx.version_converter.convert_version(onnx.load(PATH), 13)" in walked.ran.said


def test_the_flow_precision_stops_at_once(walk: Walk, models: Path) -> None:
    model, inputs = dynamic_rank(models)
    walked = walk(model, "--inputs", inputs, "--engine", "openvino", "--flow", "precision")
    assert (walked.ran.code, walked.answers()) == (6, [("reproduce", "refused")])
    assert "--flow build-failure" in walked.ran.said


def test_a_step_alone_gives_no_verdict_on_what_does_not_run(narrowdown, models: Path) -> None:
    model, inputs = dynamic_rank(models)
    ran = narrowdown("step", "compare", model, "--inputs", inputs, "--engine", "openvino", "--json")
    assert ran.code == 4
    told = json.loads(ran.out)
    assert (told["verdict"], told["no_reference"]) == ("refused", False)
    assert "Reshape operation with dynamic rank" in ran.err


def test_what_nobody_knows_is_refused_and_no_part_of_it_is_looked_for(
    walk: Walk, models: Path
) -> None:
    """An operator that neither the engine nor the reference has: it was told as "the reference
    could not run it" alone."""
    nodes = [
        onnx.helper.make_node(op, [a], [b], f"/{op}")
        for op, a, b in (("Relu", "x", "a"), ("Frob", "a", "y"))
    ]
    values = [helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    path = models / "unknown.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    for engine, theirs in (
        ("openvino", "The reference onnxruntime could not run"),
        ("onnxruntime", "Nor does the reference"),
    ):
        walked = walk(path, "--engine", engine)
        assert (walked.ran.code, walked.answers()) == (4, [("reproduce", "refused")])
        report = walked.reading.report()
        assert (report.verdict, report.end) == ("refused", "refused")
        assert "Frob" in report.explanation.partition(theirs)[0]
        assert theirs in walked.ran.err


def test_parts_of_one_operator_tell_nothing_of_the_whole(walk: Walk, models: Path) -> None:
    """Each of its nodes is refused like it, and the operator may well be why."""
    nodes = [helper.make_node("Relu", [a], [b], f"/{a}{b}") for a, b in (("x", "a"), ("a", "y"))]
    values = [helper.make_tensor_value_info(name, 1, ["n", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        models / "relus.onnx",
    )
    walked = walk(
        models / "relus.onnx",
        "--engine",
        "fake:fault=invalid-model,at=build,ops=Relu",
        "--flow",
        "precision",
    )
    assert walked.answers() == [("reproduce", "refused")]


GATHERED = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,4] x, int64 n) => (float[1] y) {
  yes = Constant <value: tensor = bool {1}> ()
  none = SequenceEmpty <dtype = 1> ()
  [rounds] last, all = Loop (n, yes, x, none) <
    body = b (int64 i, bool c, float[1,4] v, seq(float[1,4]) s) => (bool c2, float[1,4] v2, seq(float[1,4]) s2) {
      c2 = Identity (c)
      v2 = Tanh (v)
      s2 = SequenceInsert (s, v2) }>
  joined = ConcatFromSequence <axis = 0> (all)
  [sum] y = ReduceSum <keepdims = 0> (joined)
}
"""


def test_what_hands_on_a_sequence_is_part_of_what_is_refused(walk: Walk, models: Path) -> None:
    """Sequences are nothing that the reference feeds."""
    onnx.save(
        onnx.parser.parse_model(GATHERED.replace("float[1] y", "float y")), models / "gathered.onnx"
    )
    np.savez(models / "gathered.npz", x=np.ones((1, 4), np.float32), n=np.int64(3))
    engine = "fake:fault=invalid-model,at=build,ops=Loop"
    walked = walk(models / "gathered.onnx", "--inputs", models / "gathered.npz", "--engine", engine)
    (culprit,) = walked.reading.report().culprits
    assert culprit.cause == "build-failure"
    assert culprit.ops == ("SequenceEmpty", "Loop")
