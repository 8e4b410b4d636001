"""Models and runs that the graph tests share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph import converted, external, load
from narrowdown.engines.graph.cut import Cut, cut, feeds_of, outputs_of
from narrowdown.engines.graph.ranges import decode
from narrowdown.engines.probe import Candidate
from narrowdown.engines.store import Store

WHOLE = Candidate()


def run(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], weights_dir: str = ""
) -> dict[str, np.ndarray]:
    """On ONNX Runtime as the reference runs it: one thread, no optimization, no prepacking."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_prepacking", "1")
    if weights_dir:
        converted.write_files(external.initializers_with_bodies(model.graph), weights_dir)
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", weights_dir
        )
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def relative(actual: np.ndarray, expected: np.ndarray) -> float:
    """Relative L2; infinite where the actual is not finite."""
    difference = actual.astype(np.float64) - expected.astype(np.float64)
    if not np.isfinite(difference).all():
        return float("inf")
    return float(np.linalg.norm(difference) / (np.linalg.norm(expected.astype(np.float64)) or 1.0))


@dataclass
class Subject:
    """A stored model with one feed and every tensor's value in the reference run."""

    store: Store
    model: load.StoredModel
    feeds: dict[str, np.ndarray]
    values: dict[int, np.ndarray]

    @property
    def index(self) -> Any:
        return self.model.index

    @property
    def types(self) -> dict[int, tuple[np.dtype, tuple[int, ...]]]:
        return {t: (v.dtype, v.shape) for t, v in self.values.items()}

    def cut(self, candidate: Candidate = WHOLE, marks: Sequence[int] = ()) -> Cut:
        """By the rules of the operations layer: shape-like tensors become constants unless the
        candidate says otherwise."""
        fed = feeds_of(self.index, candidate)
        baked = (
            self.index.shape_like if candidate.constants is None else decode(candidate.constants)
        )
        constants = {t: self.values[t] for t in fed if t in baked}
        return cut(
            self.model, candidate, constants, self.types, outputs_of(self.index, candidate), marks
        )

    def fed(self, made: Cut) -> dict[str, np.ndarray]:
        return {name: self.values[t] for name, t in made.feeds.items()}

    def run(self, made: Cut) -> dict[str, np.ndarray]:
        return run(made.model, self.fed(made), self.model.weights_dir)

    def check(self, candidate: Candidate) -> Cut:
        """The candidate, fed with captured values, gives the captured values, bit by bit."""
        made = self.cut(candidate)
        for name, value in self.run(made).items():
            expected = self.values[{**made.outputs, **made.marks}[name]]
            assert value.dtype == expected.dtype
            assert value.shape == expected.shape
            np.testing.assert_array_equal(value, expected, err_msg=f"{name} of {candidate}")
        return made

    def node(self, name: str) -> int:
        return next(n.id for n in self.index.nodes if n.name == name)


def subject(path: Path, store: Store, feeds: Mapping[str, np.ndarray]) -> Subject:
    model = load.load(store, load.import_model(path, store).digest)
    index = model.index
    marks = [t.id for t in index.tensors if t.kind == "node" and t.dtype != "sequence"]
    made = cut(model, WHOLE, {}, {}, index.outputs, marks)
    values = run(made.model, feeds, model.weights_dir)
    by_id = {index.by_name[name]: np.asarray(value) for name, value in feeds.items()}
    by_id.update({t: values[name] for name, t in {**made.outputs, **made.marks}.items()})
    return Subject(store, model, dict(feeds), by_id)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] = MappingProxyType({}),
    opset: int = 17,
    **frame: Any,
) -> onnx.ModelProto:
    """A model; ``inputs`` maps names to (element type, shape); an output has a declared type where
    written ``name:elem_type``."""
    declared = []
    for text in outputs:
        name, _, kind = text.partition(":")
        declared.append(
            helper.make_tensor_value_info(name, int(kind), None)
            if kind
            else onnx.ValueInfoProto(name=name)
        )
    made = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info(n, *what) for n, what in inputs.items()], declared,
        [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()],
    )  # fmt: skip
    return helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=frame.pop("ir_version", 8),
        **frame,
    )


def layer_norm(
    scale: float, rows: int = 8, width: int = 64
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """LayerNorm from primitives between two products; inner values grow with ``scale``, the
    function does not."""
    rng = np.random.default_rng(3)
    n = helper.make_node
    nodes = [
        n("MatMul", ["x", "w"], ["y"], "before"),
        n("ReduceMean", ["y"], ["mean"], "ln/mean", axes=[-1]),
        n("Sub", ["y", "mean"], ["centred"], "ln/sub"),
        n("Pow", ["centred", "two"], ["squares"], "ln/pow"),
        n("ReduceMean", ["squares"], ["variance"], "ln/variance", axes=[-1]),
        n("Add", ["variance", "eps"], ["safe"], "ln/add"),
        n("Sqrt", ["safe"], ["deviation"], "ln/sqrt"),
        n("Div", ["centred", "deviation"], ["normal"], "ln/div"),
        n("MatMul", ["normal", "v"], ["z"], "after"),
    ]
    weights = {
        "w": (rng.standard_normal((width, width)) * scale / 8).astype(np.float32),
        "v": (rng.standard_normal((width, width)) / 8).astype(np.float32),
        "two": np.float32(2), "eps": np.float32(1e-5),
    }  # fmt: skip
    model = graph(nodes, {"x": (TensorProto.FLOAT, ["n", width])}, [], weights)
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", width]))
    return model, {"x": rng.standard_normal((rows, width)).astype(np.float16).astype(np.float32)}


def file_bytes(path: Path) -> list[int]:
    """magika's input for one file: the first 1024 and the last 1024 bytes, padded with 256."""
    data = path.read_bytes()
    head, tail = list(data[:1024]), list(data[-1024:])
    return head + [256] * (1024 - len(head)) + [256] * (1024 - len(tail)) + tail
