"""Whole sessions on an engine that does what TensorRT was seen to do (issue 49)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ..e2e.conftest import Narrowdown
from .conftest import installed

WEAK = Path(__file__).with_name("weak")


@pytest.fixture
def narrowdown(tmp_path: Path, with_path: Callable[..., Narrowdown]) -> Narrowdown:
    site = installed(
        tmp_path / "weak",
        "weak-engine",
        {"narrowdown.engines": {"weak": "narrowdown_weak:DECLARATION"}},
    )
    return with_path(site, WEAK)


def chain(path: Path, steps: int) -> None:
    """The sum over all paths of a chain: its score grows by about 40 a step, so that the exponents
    overflow from the third step on."""
    rng, make = np.random.default_rng(1), helper.make_node
    weights = {"moves": rng.standard_normal((1, 6, 6)) * 2}
    weights |= {f"at{t}": np.array(t) for t in range(steps)}
    weights |= {"one": np.array([1]), "two": np.array([2])}
    nodes = [make("Gather", ["x", "at0"], ["a0"], axis=1)]
    for t in range(1, steps):
        nodes += [
            make("Gather", ["x", f"at{t}"], [f"g{t}"], axis=1),
            make("Unsqueeze", [f"g{t}", "one"], [f"e{t}"]),
            make("Unsqueeze", [f"a{t - 1}", "two"], [f"u{t}"]),
            make("Add", [f"u{t}", "moves"], [f"m{t}"]),
            make("Add", [f"m{t}", f"e{t}"], [f"s{t}"]),
            make("ReduceLogSumExp", [f"s{t}"], [f"a{t}"], name=f"sum{t}", axes=[1], keepdims=0),
        ]
    nodes.append(make("ReduceMax", [f"a{steps - 1}"], ["y"], axes=[1], keepdims=0))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chain",
        [value("x", TensorProto.FLOAT, ["N", steps, 6])],
        [value("y", TensorProto.FLOAT, ["N"])],
        [
            numpy_helper.from_array(
                np.asarray(v, np.float32 if np.asarray(v).dtype.kind == "f" else np.int64), k
            )
            for k, v in weights.items()
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        str(path),
    )


def test_an_operator_that_an_engine_computes_wrongly_is_one_culprit_and_is_written_otherwise(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    """Two laps in place of one for each node; the flow itself finds the form that overflows
    nowhere, and holds it to samples that it was not made on."""
    chain(tmp_path / "chain.onnx", 7)
    x = 30 + 8 * np.random.default_rng(2).standard_normal((4, 7, 6))
    np.savez(tmp_path / "in.npz", x=x.astype(np.float32))
    ran = narrowdown(
        "run", tmp_path / "chain.onnx", "--engine", "weak:precision=fp32", "--inputs",
        tmp_path / "in.npz", "--session", tmp_path / "s", "--display", "none",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    told = narrowdown("report", tmp_path / "s", "--format", "json").json()
    (culprit,) = told["culprits"]
    assert len(culprit["nodes"]) == 1
    assert {*culprit["nodes"], *culprit["also"]} == {f"sum{t}" for t in range(2, 7)}
    cure = told["workaround"]
    assert (cure["kind"], cure["switched_off"]) == ("rewrite", ["stable-forms"])
    assert cure["samples_ok"] == cure["samples_n"] == 4
    assert cure["held_out_ok"] == cure["held_out_n"] > 0


def squares(path: Path, inputs: Path) -> None:
    """A square that overflows in FP16."""
    make, value = helper.make_node, helper.make_tensor_value_info
    nodes = [
        make("Mul", ["x", "x"], ["s"], name="square"),
        make("Add", ["s", "one"], ["a"], name="floor"),
        make("Log", ["a"], ["l"], name="log"),
        make("MatMul", ["l", "w"], ["y"], name="out"),
    ]
    rng = np.random.default_rng(3)
    weights = {"one": np.ones(1, np.float32), "w": rng.standard_normal((8, 4)).astype(np.float32)}
    graph = helper.make_graph(
        nodes,
        "squares",
        [value("x", TensorProto.FLOAT, ["N", 8])],
        [value("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, str(path))
    np.savez(inputs, x=(900 * rng.standard_normal((4, 8))).astype(np.float32))


@pytest.mark.parametrize(
    ("given", "code", "built", "node"),
    [
        ("weak:precision=fp16", 0, "profile=twice", "square"),
        ("weak:precision=fp16,profile=twice", 0, "profile=twice", "square"),
        ("weak:narrow=false,precision=fp16", 10, "typing=strong", ""),
    ],
)
def test_what_a_permission_hides_is_asked_of_a_wider_profile(
    narrowdown: Narrowdown, tmp_path: Path, given: str, code: int, built: str, node: str
) -> None:
    """Right with the rows that were fed, wrong with twice as many: the session goes on with that, and
    its case is the engine's that fails. Where it is right with those, too, the verdict says how the
    precision is made an order."""
    squares(tmp_path / "m.onnx", tmp_path / "in.npz")
    ran = narrowdown(
        "run", tmp_path / "m.onnx", "--engine", given, "--inputs", tmp_path / "in.npz",
        "--session", tmp_path / "s", "--display", "none",
    )  # fmt: skip
    assert ran.code == code, ran.err
    told = narrowdown("report", tmp_path / "s", "--format", "json").json()
    assert [c["nodes"] for c in told["culprits"]] == ([[node]] if node else [])
    assert built in (told["engine"] if node else narrowdown("show", tmp_path / "s").out)
    ran = narrowdown("replay", tmp_path / "s", "--dry")
    assert ran.code == 0, ran.out
