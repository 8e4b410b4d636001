"""layerwise and reduce on what models are made of: each is taken apart, or left whole with a
sentence that says so."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph import ranges

Open = Callable[..., Any]
FP16 = "emulate:precision=fp16"
node = helper.make_node
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
X = np.linspace(1, 300, 32, dtype=np.float32).reshape(2, 16)


def loud(source: str = "x", target: str = "y") -> list[onnx.NodeProto]:
    """Nodes that overflow in FP16 at the Mul, and whose output shows it."""
    return [
        node("Mul", [source, source], ["squares"], name="culprit"),
        node("Sqrt", ["squares"], ["length"], name="root"),
        node("Neg", ["length"], [target], name="last"),
    ]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
    opsets: Sequence[tuple[str, int]] = (("", 17),),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    def infos(declared: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in declared.items()
        ]

    graph = helper.make_graph(
        list(nodes), "g", infos(inputs or {"x": (FLOAT, [2, 16])}), infos(outputs or {"y": (FLOAT, [2, 16])}),
        [numpy_helper.from_array(np.asarray(w), n) for n, w in (weights or {}).items()],
    )  # fmt: skip
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(d, v) for d, v in opsets],
        ir_version=8,
        functions=list(functions),
    )


def body(
    name: str, nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]
) -> onnx.GraphProto:
    def infos(declared: Sequence[Any]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, kind, shape) for n, kind, shape in declared]

    return helper.make_graph(list(nodes), name, infos(inputs), infos(outputs))


ROW = [2, 16]


def branch() -> onnx.ModelProto:
    then = body(
        "then",
        [node("Mul", ["x", "x"], ["inner"]), node("Sqrt", ["inner"], ["t"])],
        [],
        [("t", FLOAT, ROW)],
    )
    other = body("other", [node("Identity", ["x"], ["e"])], [], [("e", FLOAT, ROW)])
    return model(
        [
            node("Abs", ["x"], ["size"], name="size"),
            node("If", ["yes"], ["chosen"], name="culprit", then_branch=then, else_branch=other),
            node("Add", ["chosen", "size"], ["y"], name="last"),
        ],
        weights={"yes": np.bool_(True)},
    )


def loop() -> onnx.ModelProto:
    inner = body(
        "round",
        [
            node("Identity", ["go"], ["on"]),
            node("Mul", ["state", "state"], ["power"]),
            node("Sqrt", ["power"], ["next"]),
        ],
        [("i", INT64, []), ("go", TensorProto.BOOL, []), ("state", FLOAT, ROW)],
        [("on", TensorProto.BOOL, []), ("next", FLOAT, ROW)],
    )
    return model(
        [
            node("Abs", ["x"], ["size"], name="size"),
            node("Loop", ["times", "", "size"], ["after"], name="culprit", body=inner),
            node("Neg", ["after"], ["y"], name="last"),
        ],
        weights={"times": np.int64(2)},
    )


def scan() -> onnx.ModelProto:
    inner = body(
        "step",
        [
            node("Add", ["sum", "row"], ["sum_out"]),
            node("Mul", ["row", "row"], ["power"]),
            node("Sqrt", ["power"], ["out"]),
        ],
        [("sum", FLOAT, [16]), ("row", FLOAT, [16])],
        [("sum_out", FLOAT, [16]), ("out", FLOAT, [16])],
    )
    return model(
        [
            node(
                "Scan",
                ["zero", "x"],
                ["total", "scanned"],
                name="culprit",
                body=inner,
                num_scan_inputs=1,
            ),
            node("Add", ["scanned", "total"], ["y"], name="last"),
        ],
        weights={"zero": np.zeros(16, np.float32)},
    )


def several_outputs() -> onnx.ModelProto:
    return model(
        [
            node("Split", ["x"], ["left", "right"], name="split", axis=1),
            node("Mul", ["left", "left"], ["squares"], name="quiet"),
            node("Mul", ["right", "right"], ["louder"], name="culprit"),
            node("Sqrt", ["louder"], ["z"], name="last"),
            node("Sigmoid", ["squares"], ["y"], name="first"),
        ],
        outputs={"y": (FLOAT, [2, 8]), "z": (FLOAT, [2, 8])},
    )


def shared_weight() -> onnx.ModelProto:
    return model(
        [
            node("Mul", ["x", "w"], ["a"], name="before"),
            node("Mul", ["a", "w"], ["b"], name="culprit"),
            node("Div", ["b", "w"], ["y"], name="last"),
        ],
        weights={"w": np.float32([20])},
    )


def odd_names() -> onnx.ModelProto:
    nodes = loud()
    for n, name in zip(nodes, ("same", "same", ""), strict=True):
        n.name = name
    return model(nodes)


def omitted_input() -> onnx.ModelProto:
    return model(
        [
            node("Clip", ["x", "", "top"], ["kept"], name="clip"),
            *loud("kept"),
        ],
        weights={"top": np.float32(1000)},
    )


def sequence() -> onnx.ModelProto:
    return model(
        [
            node("Mul", ["x", "x"], ["squares"], name="culprit"),
            node("SequenceConstruct", ["squares", "x"], ["both"], name="pack"),
            node("SequenceAt", ["both", "first"], ["again"], name="unpack"),
            node("Sqrt", ["again"], ["y"], name="last"),
        ],
        weights={"first": np.int64(0)},
    )


def scalar() -> onnx.ModelProto:
    return model(
        [
            node("ReduceMax", ["x"], ["top"], name="top", keepdims=0),
            node("Mul", ["top", "top"], ["square"], name="culprit"),
            node("Sqrt", ["square"], ["y"], name="last"),
        ],
        outputs={"y": (FLOAT, [])},
    )


def nothing() -> onnx.ModelProto:
    return model(
        [
            node("Slice", ["x", "zero", "zero", "axis"], ["none"], name="none"),
            node("Concat", ["none", "x"], ["same"], name="join", axis=1),
            *loud("same"),
        ],
        weights={"zero": np.int64([0]), "axis": np.int64([1])},
    )


def strings() -> onnx.ModelProto:
    return model(
        [
            node("Gather", ["words", "order"], ["turned"], name="turn"),
            node("Equal", ["turned", "wanted"], ["is"], name="compare"),
            node("Where", ["is", "high", "low"], ["factor"], name="choose"),
            node("Mul", ["x", "factor"], ["loud"], name="culprit"),
            node("Div", ["loud", "factor"], ["y"], name="last"),
        ],
        inputs={"x": (FLOAT, ROW), "words": (STRING, [16])},
        weights={
            "order": np.arange(15, -1, -1),
            "wanted": np.array(["A"], object),
            "high": np.float32(5000),
            "low": np.float32(1),
        },
        opsets=(("", 19),),
    )


def symbolic() -> onnx.ModelProto:
    return model(
        [
            node("Shape", ["x"], ["shape"], name="shape"),
            node("Gather", ["shape", "first"], ["rows"], name="rows"),
            node("Concat", ["rows", "rest"], ["target"], name="target", axis=0),
            node("Reshape", ["x", "target"], ["folded"], name="fold"),
            node("Mul", ["folded", "folded"], ["squares"], name="culprit"),
            node("Sqrt", ["squares"], ["length"], name="root"),
            node("Reshape", ["length", "shape"], ["y"], name="unfold"),
        ],
        inputs={"x": (FLOAT, ["n", "m"])},
        outputs={"y": (FLOAT, ["n", "m"])},
        weights={"first": np.int64([0]), "rest": np.int64([4, -1])},
    )


def quantized() -> onnx.ModelProto:
    return model(
        [
            node("QuantizeLinear", ["x", "scale", "zero"], ["codes"], name="q"),
            node("DequantizeLinear", ["codes", "scale", "zero"], ["back"], name="dq"),
            *loud("back"),
        ],
        weights={"scale": np.float32(2), "zero": np.uint8(0)},
    )


def local_function() -> onnx.ModelProto:
    made = helper.make_function(
        "mine", "Loud", ["a"], ["b"], [node("Mul", ["a", "a"], ["p"]), node("Sqrt", ["p"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    return model(
        [
            node("Abs", ["x"], ["size"], name="size"),
            node("Loud", ["size"], ["length"], name="custom", domain="mine"),
            node("Mul", ["length", "length"], ["squares"], name="culprit"),
            node("Sqrt", ["squares"], ["y"], name="last"),
        ],
        opsets=(("", 17), ("mine", 1)),
        functions=[made],
    )


def other_domain() -> onnx.ModelProto:
    """The culprit itself is an operator that ONNX does not know."""
    return model(
        [
            node("Abs", ["x"], ["size"], name="size"),
            node(
                "FusedMatMul",
                ["size", "size"],
                ["squares"],
                name="culprit",
                domain="com.microsoft",
                transB=1,
            ),
            node("Sqrt", ["squares"], ["y"], name="last"),
        ],
        outputs={"y": (FLOAT, [2, 2])},
        opsets=(("", 17), ("com.microsoft", 1)),
    )


def optional() -> onnx.ModelProto:
    return model(
        [
            node("Mul", ["x", "x"], ["squares"], name="culprit"),
            node("Optional", ["squares"], ["maybe"], name="wrap"),
            node("OptionalGetElement", ["maybe"], ["again"], name="unwrap"),
            node("Sqrt", ["again"], ["y"], name="last"),
        ],
    )


# name -> (model, the node left by reduce, layerwise's skipped tensors)
STRUCTURES: dict[str, tuple[Callable[[], onnx.ModelProto], str, int]] = {
    "If": (branch, "culprit/then_branch/Mul_0", 0),
    "Loop": (loop, "culprit/body/iteration_0/Mul_1", 0),
    "Scan": (scan, "culprit/body/iteration_1/Mul_1", 0),
    "several outputs": (several_outputs, "culprit", 0),
    "a shared weight": (shared_weight, "culprit", 0),
    "unnamed and repeated names": (odd_names, "Mul:squares", 0),
    "an omitted input": (omitted_input, "culprit", 0),
    "a sequence": (sequence, "culprit", 1),
    "a scalar": (scalar, "culprit", 0),
    "no elements": (nothing, "culprit", 0),
    "strings": (strings, "culprit", 1),
    "symbolic shapes": (symbolic, "culprit", 0),
    "Q/DQ": (quantized, "culprit", 0),
    "a local function of a custom domain": (local_function, "custom/Mul_0", 0),
    "an operator of another domain": (other_domain, "culprit", 0),
    "an optional value": (optional, "culprit", 1),
}


@pytest.mark.parametrize("what", STRUCTURES)
def test_every_structure_is_watched_and_reduced(
    open_model: Open, tmp_path: Path, what: str
) -> None:
    build, culprit, skipped = STRUCTURES[what]
    path, made = tmp_path / "m.onnx", build()
    onnx.save(made, path)
    words = {"words": np.array(["A", "b"] * 8)} if what == "strings" else {}
    np.savez(tmp_path / "in.npz", x=X, **words)
    s = open_model(path, FP16, (tmp_path / "in.npz",))
    assert s.step("compare").finish.outcome.verdict == "fails"
    watched = s.step("layerwise").finish.outcome
    assert (watched.observer, watched.culprit, watched.skipped) == (
        "reproduces",
        culprit,
        skipped,
    ), watched.message
    extracted = s.step("extract").finish.outcome
    assert extracted.names == culprit, extracted.message
    reduced = s.step("reduce").finish.outcome
    assert (reduced.names, reduced.minimal, reduced.verified) == (culprit, True, "3/3"), (
        reduced.message
    )
    assert "left whole" not in watched.message
    assert "left whole" not in reduced.message
    assert (f"{skipped} tensors hold no numbers" in watched.message) == bool(skipped)


def test_weights_that_lie_outside_stay_there(open_model: Open, tmp_path: Path) -> None:
    """A part of a model with external data points at the same file; nothing is copied for a
    probe."""
    rng = np.random.default_rng(0)
    big = rng.standard_normal((16, 4096)).astype(np.float32)
    made = model(
        [
            node("MatMul", ["x", "w"], ["wide"], name="before"),
            node("Mul", ["wide", "wide"], ["squares"], name="culprit"),
            node("Sqrt", ["squares"], ["length"], name="root"),
            node("MatMul", ["length", "v"], ["y"], name="last"),
        ],
        weights={"w": big, "v": np.ascontiguousarray(big.T)},
    )
    path = tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=True, location="m.data", size_threshold=1024)
    np.savez(tmp_path / "in.npz", x=X)
    s = open_model(path, FP16, (tmp_path / "in.npz",))
    assert s.step("compare").finish.outcome.verdict == "fails"
    before = {p.name for p in (tmp_path / "session").rglob("*.bin")}
    assert s.step("layerwise").finish.outcome.culprit == "culprit"
    reduced = s.step("reduce").finish.outcome
    assert (reduced.names, reduced.minimal) == ("culprit", True)
    added = {p.name for p in (tmp_path / "session").rglob("*.bin")} - before
    assert added == set()


@pytest.mark.slow
def test_a_model_of_more_than_two_gigabytes(open_model: Open, tmp_path: Path) -> None:
    """Its weights lie outside, as a message cannot hold them; a search writes no second copy of
    them, and the case is small."""
    rows, columns = 9_000_000, 60
    table = tmp_path / "table.bin"
    with table.open("wb") as file:  # zeros take no space on the disk
        file.truncate(4 * rows * columns)
    assert table.stat().st_size > 2**31
    made = model(
        [
            node("Gather", ["table", "ids"], ["found"], name="look_up"),
            node("Add", ["found", "x"], ["moved"], name="move"),
            *loud("moved"),
        ],
        inputs={"x": (FLOAT, [2, columns]), "ids": (INT64, [2])},
        outputs={"y": (FLOAT, [2, columns])},
    )
    weight = made.graph.initializer.add(name="table", data_type=FLOAT, dims=[rows, columns])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (
        ("location", "table.bin"),
        ("offset", "0"),
        ("length", str(4 * rows * columns)),
    ):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    x = np.linspace(1, 300, 2 * columns, dtype=np.float32).reshape(2, columns)
    np.savez(tmp_path / "in.npz", x=x, ids=np.int64([0, rows - 1]))
    s = open_model(path, FP16, (tmp_path / "in.npz",))
    assert s.step("compare").finish.outcome.verdict == "fails"
    before = {p.name for p in (tmp_path / "session").rglob("*.bin")}
    assert s.step("layerwise").finish.outcome.culprit == "culprit"
    reduced = s.step("reduce").finish
    assert (reduced.outcome.names, reduced.outcome.minimal, reduced.outcome.verified) == (
        "culprit",
        True,
        "3/3",
    )
    assert {p.name for p in (tmp_path / "session").rglob("*.bin")} == before
    assert len(s.store.get(reduced.tables["bundle"][0]["files"]["model.onnx"])) < 10_000


def test_what_the_engine_refuses_is_told_though_the_reference_cannot_run_it_either(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    """FP4 weights, which ONNX Runtime does not compute, for an engine that only builds here: its
    words are the thing to tell."""
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["f"], "dq", axis=0, block_size=16),
        onnx.helper.make_node("MatMul", ["x", "f"], ["y"], "product"),
    ]
    weights = [
        onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT4E2M1, [16, 16], [1.0] * 256),
        onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [1, 16], [1.0] * 16),
    ]
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 16]) for n in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=11
    )
    onnx.save(made, tmp_path / "fp4.onnx")
    s = open_model(tmp_path / "fp4.onnx", "fake:fault=invalid-model,at=build,ops=MatMul")
    s.info = {
        **s.info,
        "capabilities": {**s.info["capabilities"], "run": {"present": False, "reason": "no GPU"}},
    }
    said = s.step("compare").finish.outcome
    assert (said.verdict, said.failure) == ("refused", "build")
    assert "was told to end with invalid-model" in said.message


def open_layer_of_codes(open_model: Open, folder: Path) -> Any:
    """A layer that overflows in FP16, its weights stored as codes, between two others."""
    nodes = [
        node("DequantizeLinear", ["codes", "scale"], ["weights"], name="read"),
        node("Neg", ["x"], ["turned"], name="first"),
        node("MatMul", ["turned", "weights"], ["sums"], name="culprit"),
        node("Mul", ["sums", "small"], ["y"], name="last"),
    ]
    weights = {
        "codes": np.full((16, 16), 100, np.int8),
        "scale": np.float32(1.5),
        "small": np.float32(1e-5),
    }
    onnx.save(model(nodes, weights=weights), folder / "codes.onnx")
    np.savez(folder / "x.npz", x=X)
    return open_model(folder / "codes.onnx", FP16, inputs=[folder / "x.npz"])


def test_weights_stored_as_codes_stay_weights_of_the_layer_that_is_cut_out(
    open_model: Open, tmp_path: Path
) -> None:
    """Fed with them, an engine computes the layer otherwise, and what was rounded on the way in
    looks like its fault."""
    s = open_layer_of_codes(open_model, tmp_path)
    for name in ("compare", "sanitize", "layerwise"):
        s.step(name)
    cut = s.step("extract").finish
    assert (cut.outcome.names, cut.findings.case.inputs) == ("culprit", ("turned",))
    stored = onnx.load_from_string(s.store.get(cut.tables["bundle"][0]["files"]["model.onnx"]))
    assert ([i.name for i in stored.graph.input], stored.graph.initializer[0].name) == (
        ["turned"],
        "weights",
    )


def test_no_search_cuts_a_layer_off_from_weights_that_are_stored_as_codes(
    open_model: Open, tmp_path: Path
) -> None:
    """From its first cut on: pulsevad_int8 on OpenVINO takes 56 probes in place of 72, and nothing
    else any more."""
    s = open_layer_of_codes(open_model, tmp_path)
    s.step("compare")
    done = s.step("reduce")
    assert done.finish.outcome.names == "culprit"
    cuts = [
        (ranges.decode(c.nodes), c.constants)
        for p in done.probes
        if (c := getattr(p, "candidate", None)) and c.nodes != "*"
    ]
    off = [fixed for nodes, fixed in cuts if 2 in nodes and 0 not in nodes]
    assert off
    assert all(off)
