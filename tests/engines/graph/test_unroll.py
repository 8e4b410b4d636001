"""If, Loop and Scan as plain nodes: the same bits on ONNX Runtime, whatever is in the bodies."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from narrowdown.engines.graph import functions, names, unroll

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
SHAPE = [2, 3]
node = helper.make_node


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))


def fully_opened(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> onnx.ModelProto:
    """Every body that can be opened, opened, by what ONNX Runtime says of how each ran."""
    while places := [
        i for i in unroll.nodes_with_bodies(model.graph) if not unroll.why_closed(model, i)
    ]:
        seen, watched = unroll.watch_nodes(model, places)
        given = {o.name for o in seen.graph.output}
        weights = {t.name: numpy_helper.to_array(t) for t in seen.graph.initializer}
        wanted = [w.name for w in watched] + [
            o for i in places for o in model.graph.node[i].output if o
        ]
        for name in dict.fromkeys(wanted):
            if name not in given and name not in feeds and name not in weights:
                seen.graph.output.add(name=name)
        values = {**weights, **feeds, **run(seen, feeds)}
        runs = {
            w.position: unroll.how_it_ran(seen.graph.node[w.position], values[w.name], w.axis)
            for w in watched
        }
        model = unroll.open_nodes(model, runs, values)
    return model


def hold_alike(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> onnx.ModelProto:
    opened = fully_opened(model, feeds)
    onnx.checker.check_model(opened, full_check=True)
    before, after = run(model, feeds), run(opened, feeds)
    for name, value in before.items():
        assert value.dtype == after[name].dtype
        assert value.shape == after[name].shape
        assert value.tobytes() == after[name].tobytes(), name
    return opened


# -- made up


class Maker:
    """Draws a graph: each value is float32 of ``SHAPE``. Names in bodies repeat from body to body,
    as exporters have them."""

    def __init__(self, draw: Any, opset: int) -> None:
        self.draw, self.opset, self.weights, self.made = draw, opset, 0, 0

    def name(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def values(self, count: int) -> list[str]:
        return [self.name("v") for _ in range(count)]

    def block(
        self, known: list[str], depth: int, body: bool
    ) -> tuple[list[onnx.NodeProto], list[str], list[Any]]:
        """(nodes, all values known after them, weights)."""
        nodes: list[onnx.NodeProto] = []
        weights = []
        known = list(known)
        for _ in range(self.draw(st.integers(1, 3))):
            kind = self.draw(
                st.sampled_from(
                    ["one", "two", "weight", "constant", *(["If", "Loop", "Scan"] if depth else [])]
                )
            )
            pick = lambda: self.draw(st.sampled_from(known))  # noqa: E731
            out = self.name("v")
            if kind == "one":
                nodes.append(
                    node(
                        self.draw(st.sampled_from(["Neg", "Tanh", "Abs", "Identity"])),
                        [pick()],
                        [out],
                    )
                )
            elif kind == "two":
                nodes.append(
                    node(
                        self.draw(st.sampled_from(["Add", "Sub", "Mul", "Max"])),
                        [pick(), pick()],
                        [out],
                    )
                )
            elif kind == "weight":
                value = np.full(SHAPE, self.draw(st.sampled_from([0.5, -1.25, 3.0])), np.float32)
                weights.append(numpy_helper.from_array(value, f"{out}w"))
                nodes.append(node("Mul", [pick(), f"{out}w"], [out]))
            elif kind == "constant" and body:
                value = numpy_helper.from_array(np.full(SHAPE, 0.75, np.float32))
                nodes.append(node("Constant", [], [out], value=value))
            elif kind == "If":
                nodes.append(self.choice(known, depth, out))
            elif kind == "Loop":
                nodes += self.loop(known, depth, out)
            elif kind == "Scan":
                nodes += self.scan(known, depth, out)
            else:
                continue
            known.append(out)
        return nodes, known, weights

    def graph(
        self, body: Any, inputs: list[Any], outputs: list[tuple[str, int, Any]]
    ) -> onnx.GraphProto:
        nodes, _, weights = body
        return helper.make_graph(
            nodes,
            "b",
            inputs,
            [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
            weights,
        )

    def choice(self, known: list[str], depth: int, out: str) -> onnx.NodeProto:
        def branch() -> onnx.GraphProto:
            body = self.block(known, depth - 1, body=True)
            made = [v for v in body[1] if v not in known]
            last = made[-1] if made else known[0]
            return self.graph(body, [], [(last, FLOAT, SHAPE)])

        condition = self.draw(st.sampled_from(["yes", "no", "given"]))
        return node("If", [condition], [out], then_branch=branch(), else_branch=branch())

    def loop(self, known: list[str], depth: int, out: str) -> list[onnx.NodeProto]:
        i, c, c2, s, t = (self.name(x) for x in ("i", "c", "d", "s", "t"))
        body = self.block([*known, s, t], depth - 1, body=True)
        nodes, values, _ = body
        inner = [v for v in values if v not in known]
        s2, t2, o = (self.draw(st.sampled_from(inner)) for _ in range(3))
        until = self.draw(st.booleans())
        if until:  # goes on while fewer than three
            nodes += [node("Less", [i, "three"], [c2])]
        else:
            nodes += [node("Identity", [c], [c2])]
        first = self.draw(st.sampled_from(["", "yes"]))
        rank = [] if until or first else self.draw(st.sampled_from([[], [1]]))
        inputs = [
            helper.make_tensor_value_info(i, INT64, []),
            helper.make_tensor_value_info(c, BOOL, rank),
            helper.make_tensor_value_info(s, FLOAT, SHAPE),
            helper.make_tensor_value_info(t, FLOAT, SHAPE),
        ]
        outputs = [(c2, BOOL, rank), (s2, FLOAT, SHAPE), (t2, FLOAT, SHAPE), (o, FLOAT, SHAPE)]
        times = self.draw(st.sampled_from(["none", "one", "five"]))
        first_axis = {} if self.opset >= 13 else {"axes": [0]}
        return [
            node(
                "Loop", [times, first, known[0], known[-1]], [f"{out}s", f"{out}t", f"{out}o"],
                body=self.graph(body, inputs, outputs),
            ),
            node("ReduceSum", [f"{out}o", *(["first"] if self.opset >= 13 else [])], [f"{out}r"], keepdims=0, **first_axis),
            node("Add", [f"{out}r", f"{out}s"], [f"{out}a"]),
            node("Add", [f"{out}a", f"{out}t"], [out]),
        ]  # fmt: skip

    def scan(self, known: list[str], depth: int, out: str) -> list[onnx.NodeProto]:
        s, r = self.name("s"), self.name("r")
        axis, ahead, behind, to = (self.draw(st.sampled_from([0, 1])) for _ in range(4))
        # the body works on rows: [3] along axis 0, [2] along axis 1; what is around it is read as
        # it is
        width = SHAPE[1 - axis]
        s2, o = self.name("v"), self.name("v")
        nodes = [
            node("Add", [s, r], [f"{s2}h"]),
            node(self.draw(st.sampled_from(["Tanh", "Neg"])), [f"{s2}h"], [s2]),
            node("Mul", [r, r], [o]),
        ]
        if self.draw(st.booleans()):
            nodes.append(node("ReduceMax", [known[-1]], [f"{o}k"], keepdims=0))
            nodes.append(node("Add", [o, f"{o}k"], [f"{o}l"]))
            o = f"{o}l"
        body = helper.make_graph(
            nodes, "b",
            [helper.make_tensor_value_info(n, FLOAT, [width]) for n in (s, r)],
            [helper.make_tensor_value_info(n, FLOAT, [width]) for n in (s2, o)],
        )  # fmt: skip
        made = node(
            "Scan", [f"zero{width}", known[-1]], [f"{out}s", f"{out}o"], body=body, num_scan_inputs=1, scan_input_axes=[axis],
            scan_input_directions=[ahead], scan_output_directions=[behind], scan_output_axes=[to],
        )  # fmt: skip
        turned = f"{out}o" if to == axis else f"{out}q"
        turn = [] if to == axis else [node("Transpose", [f"{out}o"], [turned], perm=[1, 0])]
        return [
            made,
            *turn,
            node("ReduceSum", [f"{out}s"], [f"{out}z"], keepdims=0),
            node("Add", [turned, f"{out}z"], [out]),
        ]


@st.composite
def models(draw: Any) -> onnx.ModelProto:
    opset = draw(st.sampled_from([11, 13, 17]))
    maker = Maker(draw, opset)
    nodes, values, weights = maker.block(["x"], 2, body=False)
    nodes.append(node("Neg", [values[-1]], ["y"]))
    fixed = {
        "yes": np.True_, "no": np.False_, "none": np.int64(0), "one": np.int64(1), "five": np.int64(5), "three": np.int64(3),
        "zero2": np.zeros(2, np.float32), "zero3": np.zeros(3, np.float32), "first": np.int64([0]),
    }  # fmt: skip
    weights += [numpy_helper.from_array(np.asarray(v), k) for k, v in fixed.items()]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, SHAPE),
        helper.make_tensor_value_info("given", BOOL, []),
    ]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, SHAPE)], weights
    )
    for n, name in zip(graph.node, names.unique_nodes(graph.node), strict=True):
        n.name = name
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(models(), st.booleans())
def test_any_bodies_give_the_same_bits(model: onnx.ModelProto, given_condition: bool) -> None:
    opened = hold_alike(model, {"x": X, "given": np.array(given_condition)})
    assert not unroll.nodes_with_bodies(opened.graph)
    # ReduceSum of nothing, a Scan's own: every name says where it stood
    assert len({n.name for n in opened.graph.node}) == len(opened.graph.node)


# -- ONNX's own


def of_onnx(operator: str) -> dict[str, tuple[onnx.ModelProto, dict[str, Any]]]:
    """The node tests that a module of onnx makes and that hold a body, by name, with what they are
    fed."""
    importlib.import_module(f"onnx.backend.test.case.node.{operator}")  # which makes them
    listed = importlib.import_module("onnx.backend.test.case.node")._NodeTestCases
    found = {}
    for case in listed:
        model = onnx.ModelProto()
        if case.model is None or not case.name.startswith(f"test_{operator[:4].rstrip('_')}"):
            continue
        model.CopyFrom(case.model)
        model.ir_version = min(model.ir_version, 10)  # what ONNX Runtime takes
        model.opset_import[0].version = min(model.opset_import[0].version, 22)
        functions.inline(model)
        feeds = dict(zip((i.name for i in model.graph.input), case.data_sets[0][0], strict=True))
        if unroll.nodes_with_bodies(model.graph) and all(
            isinstance(v, np.ndarray | np.generic) and v.dtype.isbuiltin == 1
            for v in feeds.values()
        ):
            found[case.name] = model, {k: np.asarray(v) for k, v in feeds.items()}
    return found


@pytest.mark.parametrize(
    ("operator", "least"), [("if_", 1), ("loop", 1), ("scan", 2), ("rangeop", 2)]
)
def test_models_of_onnx_itself_give_the_same_bits(operator: str, least: int) -> None:
    found = of_onnx(operator)
    held = 0
    for model, feeds in found.values():
        try:
            before = run(model, feeds)
        except (
            ort_errors.NotImplemented,
            ort_errors.Fail,
            ort_errors.InvalidGraph,
        ):  # newer than this ONNX Runtime
            continue
        if any(unroll.why_closed(model, i) for i in unroll.nodes_with_bodies(model.graph)):
            continue
        opened = fully_opened(model, feeds)
        assert not unroll.nodes_with_bodies(opened.graph)
        after = run(opened, feeds)
        for name, value in before.items():
            parts, others = (v if isinstance(v, list) else [v] for v in (value, after[name]))
            assert [p.tobytes() for p in parts] == [p.tobytes() for p in others]
        held += 1
    assert held >= least, list(found)


def test_a_scan_of_opset_8_stays() -> None:
    model, _ = of_onnx("scan")["test_scan_sum"]
    assert unroll.why_closed(model, 0) == "is a Scan of opset 8, which walks whole batches"
