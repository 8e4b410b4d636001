"""Q/DQ pairs: found whatever their form; all bypassed the model is the float one, none bypassed it
is itself."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.data import originals
from narrowdown.engines.demos.scaled_apart import quantize
from narrowdown.engines.graph import ModelProblem, load
from narrowdown.engines.graph.bypass import leave_float, make_float_twin
from narrowdown.engines.graph.codes import find_codes
from narrowdown.engines.graph.cut import Cut, cut
from narrowdown.engines.graph.quantized import (
    ASKING,
    HANDING_ON,
    can_stay_float,
    count_operators,
    find_layers,
    find_leavable_layers,
    find_left,
    find_pair_source,
    find_settings,
    is_quantized,
    list_left_out,
    nodes_on_codes,
)
from narrowdown.engines.probe import Candidate
from narrowdown.engines.store import Store
from narrowdown.wizard.demo import MODELS

from .quantizer import WIDTH, Quantizer, float_model
from .subjects import run

n = helper.make_node
X = {"x": (np.random.default_rng(5).standard_normal((3, WIDTH)) * 2).astype(np.float32)}
OPS = st.lists(st.sampled_from(["MatMul", "Gemm", "Relu", "Add"]), min_size=1, max_size=6)


def stored(folder: Path, model: onnx.ModelProto, name: str) -> tuple[Store, load.StoredModel, Path]:
    store, path = Store(folder / "s"), folder / f"{name}.onnx"
    onnx.save(model, path)
    return store, load.load(store, load.import_model(path, store).digest), path


def entire(model: load.StoredModel) -> Cut:
    return cut(model, Candidate(), {}, {}, model.index.outputs)


def outputs(part: Cut, model: load.StoredModel) -> np.ndarray:
    return run(part.model, X, model.weights_dir)["y"]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("q")


@given(ops=OPS, data=st.data())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_all_bypassed_is_the_float_model_and_none_is_the_model_itself(
    tmp_path_factory, ops, data
) -> None:
    folder = tmp_path_factory.mktemp("q")
    floats = float_model(ops)
    quantized = Quantizer(floats, lambda answers: data.draw(st.sampled_from(answers))).run()
    onnx.checker.check_model(quantized, full_check=True)
    store, model, _ = stored(folder, quantized, "int")
    onnx.save(floats, folder / "float.onnx")
    spec = f"onnxruntime:model={folder / 'float.onnx'}"
    part, weights = entire(model), originals.find_float_weights(store, model, spec)
    expected = run(floats, X)["y"]
    assert np.array_equal(outputs(make_float_twin(part, weights), model), expected)
    found = find_layers(model.index)
    assert all(can_stay_float(model.index, layer) for layer in found)
    bare = leave_float(part, find_left(model.index, {layer.node for layer in found}), weights)
    assert np.array_equal(outputs(bare, model), expected)
    onnx.checker.check_model(inside(bare.model, model), full_check=True)
    left = {node.op_type for node in bare.model.graph.node}
    assert not left & {"QuantizeLinear", "DequantizeLinear"}
    assert leave_float(part, (), weights) is part
    by_codes = originals.find_float_weights(store, model, "onnxruntime:quantization=bypass")
    assert np.array_equal(
        outputs(make_float_twin(part, by_codes), model), outputs(make_float_twin(part, {}), model)
    ), "as the engine dequantizes"
    kept = {layer.node for layer in found if data.draw(st.booleans())}
    mixed = leave_float(part, find_left(model.index, kept), weights)
    onnx.checker.check_model(inside(mixed.model, model), full_check=True)
    assert [model.node_protos[i].name for i in mixed.node_ids] == [
        x.name for x in mixed.model.graph.node
    ]


def inside(model: onnx.ModelProto, stored: load.StoredModel) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.external_data_helper.load_external_data_for_model(copy, stored.weights_dir)
    return copy


def test_without_the_original_weights_are_what_their_codes_are_worth(folder: Path) -> None:
    floats = float_model(["MatMul", "MatMul"])
    store, model, _ = stored(folder, Quantizer(floats, lambda answers: answers[0]).run(), "int")
    del store
    got = outputs(make_float_twin(entire(model), {}), model)
    expected = X["x"]
    for name in ("w0", "w1"):
        value = next(numpy_helper.to_array(t) for t in floats.graph.initializer if t.name == name)
        expected = expected @ (
            np.rint(value / 0.05).clip(-127, 127).astype(np.float32) * np.float32(0.05)
        )
    assert got == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_shared_pair_is_gone_once_all_its_readers_are_in_float(folder: Path) -> None:
    """Two readers of one pair, as ``nodes_to_exclude`` takes it out: with both of them."""
    weights = {"w": np.eye(WIDTH, dtype=np.float32), "v": np.ones((WIDTH, WIDTH), np.float32)}
    nodes = [n("MatMul", ["x", "w"], ["a"], "one"), n("MatMul", ["x", "v"], ["y"], "other")]
    ends = [helper.make_tensor_value_info(k, TensorProto.FLOAT, [3, WIDTH]) for k in "xay"]
    floats = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(v, k) for k, v in weights.items()]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    _, held, _ = stored(folder, quantize(floats, X), "shared")
    layers = {held.index.nodes[layer.node].name: layer for layer in find_layers(held.index)}
    assert set(layers) == {"one", "other"}
    for names, gone in (({"one"}, 2), ({"other"}, 2), ({"one", "other"}, 5)):
        left = find_left(held.index, {layers[name].node for name in names})
        assert len(left) == gone, "weights and output; x once both are left out"


FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "symmetric": {"extra_options": {"ActivationSymmetric": True}},
    "per channel": {"per_channel": True},
    "for TensorRT": {
        "activation_type": "QInt8", "extra_options": {
            "OpTypesToExcludeOutputQuantization": [*ASKING, *HANDING_ON], "ActivationSymmetric": True,
            "AddQDQPairToWeight": True, "QuantizeBias": False,
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_layers_in_float_are_what_nodes_to_exclude_takes_out(folder: Path, form: str) -> None:
    """The same nodes left out by the quantizer, and bypassed in what it makes of all: the same
    tensors are quantized."""
    with np.load(MODELS / "shapes_cnn_in.npz") as archive:
        feeds = {name: archive[name][:2] for name in archive.files}
    floats = onnx.load(MODELS / "shapes_cnn.onnx")
    _, held, _ = stored(folder, quantize(floats, feeds, **FORMS[form]), "int")
    names = {held.index.nodes[layer.node].name: layer.node for layer in find_layers(held.index)}
    random = np.random.default_rng(4)
    for many in (len(names), 1, 2, 8):
        left = sorted(random.choice(sorted(names), many, replace=False))
        bypassed = leave_float(
            entire(held), find_left(held.index, {names[x] for x in left}),
            originals.find_float_weights(Store(folder / "s"), held, "onnxruntime:quantization=bypass"),
        )  # fmt: skip
        again = quantize(floats, feeds, nodes_to_exclude=left, **FORMS[form])
        assert list_quantized(bypassed.model) == list_quantized(again), left
    # The last of these once more, by nothing but what is read from its pairs.
    known = stored(folder, again, "again")[1].index
    anew = quantize(floats, feeds, nodes_to_exclude=list_left_out(known), **find_settings(known))
    values = {"image", *(t for node in floats.graph.node for t in node.output)}
    assert list_quantized(anew) & values == list_quantized(again) & values
    zeros = [
        {t.name for t in m.graph.initializer if "zero" in t.name and numpy_helper.to_array(t).any()}
        for m in (anew, again)
    ]
    assert zeros[0] == zeros[1]


def test_symmetric_codes_are_told_where_nothing_has_a_bias(folder: Path) -> None:
    symmetric = {"extra_options": {"ActivationSymmetric": True}}
    made = quantize(float_model(["MatMul"]), X, activation_type="QInt8", **symmetric)
    found = find_settings(stored(folder, made, "int")[1].index)
    assert found == found | symmetric


def list_quantized(model: onnx.ModelProto) -> set[str]:
    """The tensors that have a pair, and the stored codes of weights."""
    nodes = [node for node in model.graph.node if node.op_type.endswith("eLinear")]
    made = {node.output[0] for node in nodes}
    pairs = {node.input[0] for node in nodes if node.op_type == "QuantizeLinear"}
    return pairs | {node.input[0] for node in nodes} - made


def test_the_quantizer_quantizes_what_is_listed() -> None:
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    assert {*QDQRegistry, *QLinearOpsRegistry} == ASKING | HANDING_ON


def test_weights_are_not_looked_up_at_an_activation_that_was_dropped(folder: Path) -> None:
    """The quantizer gives the tensor of a Clip to the Add before it: what is added is not the
    Clip's least value."""
    rng = np.random.default_rng(2)
    held = {"w": rng.standard_normal((WIDTH, WIDTH)), "three": 3, "low": 0, "high": 6}
    nodes = [
        n("MatMul", ["x", "w"], ["a"], "/a"),
        n("Add", ["a", "three"], ["b"], "/b"),
        n("Clip", ["b", "low", "high"], ["y"], "/y"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, WIDTH]) for name in "xy"]
    weights = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in held.items()]
    floats = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    onnx.save(floats, folder / "float.onnx")
    store, model, _ = stored(folder, quantize(floats, X), "int")
    spec = f"onnxruntime:model={folder / 'float.onnx'}"
    found = originals.find_float_weights(store, model, spec)
    assert 3.0 in [float(numpy_helper.to_array(t)) for t in found.values() if not t.dims]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "biased", "zeros"), [(16, 0, 0), (40, 1, 1), (40, 0, 1), (40, 1, 0)])
def test_weights_that_are_packed_in_an_operator_are_what_their_codes_are_worth(
    folder: Path, bits: int, k: int, biased: int, zeros: int
) -> None:
    """Codes, and nothing else is rounded: held against the float model with an FP32 tolerance, "the
    engine is at fault" was said. Written out number by number here."""
    rng, size, blocks = np.random.default_rng(k), 16, -(-k // 16)
    codes = rng.integers(0, 1 << bits, (3, blocks * size))
    middles = rng.integers(0, 1 << bits, (3, blocks + blocks % 2)) if zeros else None
    weights = {
        "w": _pack(codes, bits).reshape(3, blocks, -1),
        "s": rng.random(3 * blocks).astype(np.float32),
    }
    if middles is not None:
        weights["z"] = _pack(middles[:, :blocks] if bits == 8 else middles, bits).reshape(-1)
    if biased:
        weights["b"] = rng.random(3).astype(np.float32)
    reads = ["x", "w", "s", "z" * zeros, "", "b" * biased]
    node = n("MatMulNBits", reads, ["y"], domain="com.microsoft", K=k, N=3, bits=bits, block_size=size)  # fmt: skip
    ends = [helper.make_tensor_value_info(e, 1, [2, d]) for e, d in (("x", k), ("y", 3))]
    graph = helper.make_graph(
        [node], "g", ends[:1], ends[1:], [numpy_helper.from_array(v, m) for m, v in weights.items()]
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    packed = helper.make_model(graph, opset_imports=domains, ir_version=9)
    store, model, _ = stored(folder, packed, "packed")
    assert find_codes(model) == ("int8", "")
    x = {"x": rng.random((2, k)).astype(np.float32)}
    right = np.zeros((2, 3)) + (weights["b"] if biased else 0)
    for row in range(3):
        for i in range(k):
            zero = 1 << (bits - 1) if middles is None else middles[row, i // size]
            scale = float(weights["s"][row * blocks + i // size])
            right[:, row] += x["x"][:, i] * ((codes[row, i] - zero) * scale)
    twin = originals.restore_floats(store, model, entire(model), "onnxruntime:quantization=bypass")
    assert [made.domain for made in twin.model.graph.node] == [""] * (1 + biased)
    assert np.allclose(run(twin.model, x, model.weights_dir)["y"], right, rtol=1e-5)


def _pack(codes: np.ndarray, bits: int) -> np.ndarray:
    return (codes if bits == 8 else codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)


def test_codes_from_outside_and_from_operators_cannot_be_left_in_float(folder: Path) -> None:
    """Fed codes, codes that a Transpose turned, and ConvInteger: each is said, none is guessed."""
    graph = helper.make_graph(
        [
            n("DequantizeLinear", ["fed", "s"], ["d"]), n("Relu", ["d"], ["a"], name="fed-codes"),
            n("QuantizeLinear", ["x", "s"], ["q"]), n("Transpose", ["q"], ["t"], perm=[0, 1]),
            n("DequantizeLinear", ["t", "s"], ["e"]), n("Add", ["a", "e"], ["y"], name="turned-codes"),
            n("MatMulInteger", ["fed", "w"], ["i"], name="integers"),
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, WIDTH]),
              helper.make_tensor_value_info("fed", TensorProto.UINT8, [3, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, WIDTH]),
         helper.make_tensor_value_info("i", TensorProto.INT32, [3, 2])],
        [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.ones((WIDTH, 2), np.uint8), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    _, held, _ = stored(folder, model, "opaque")
    index = held.index
    assert is_quantized(index)
    assert [index.nodes[layer.node].name for layer in find_layers(index)] == [
        "fed-codes",
        "turned-codes",
    ]
    assert find_leavable_layers(index) == ()
    assert count_operators(index.nodes, nodes_on_codes(index)) == "1 MatMulInteger"
    assert find_pair_source(index, 0) == -1
    part = entire(held)
    assert [x.op_type for x in make_float_twin(part, {}).model.graph.node].count(
        "DequantizeLinear"
    ) == 2


def test_pairs_that_change_the_float_type_are_bypassed_with_a_cast(folder: Path) -> None:
    graph = helper.make_graph(
        [
            n("QuantizeLinear", ["x", "s", "z"], ["q"]), n("DequantizeLinear", ["q", "h", "z"], ["d"]),
            n("Relu", ["d"], ["a"]), n("Cast", ["a"], ["y"], to=TensorProto.FLOAT),
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, WIDTH])],
        [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.float16(0.5), "h"),
         numpy_helper.from_array(np.int8(0), "z")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    _, held, _ = stored(folder, model, "half")
    bare = make_float_twin(entire(held), {})
    assert [node.op_type for node in bare.model.graph.node] == ["Cast", "Relu", "Cast"]
    assert outputs(bare, held) == pytest.approx(np.maximum(X["x"], 0), rel=1e-3)


# -- the float original of a quantized model


def test_weights_are_found_by_place_by_name_and_by_value(folder: Path) -> None:
    floats = float_model(["Gemm", "MatMul"])
    store, model, _ = stored(folder, Quantizer(floats, lambda answers: answers[0]).run(), "int")
    want = {t.name: numpy_helper.to_array(t) for t in floats.graph.initializer}

    def found(changed: onnx.ModelProto) -> dict[str, np.ndarray]:
        path = folder / f"{len(list(folder.iterdir()))}.onnx"
        onnx.save(changed, path)
        got = originals.find_float_weights(store, model, f"onnxruntime:model={path}")
        return {
            name.rpartition("_w")[0]: numpy_helper.to_array(inline(t, store))
            for name, t in got.items()
        }

    for name, value in found(floats).items():
        assert np.array_equal(value, want[name])
    renamed = onnx.ModelProto()
    renamed.CopyFrom(floats)
    new = {"t0": "inner", "w0": "first", "w1": "second", "b0": "bias"}
    for node in renamed.graph.node:
        for field in (node.input, node.output):
            field[:] = [new.get(name, name) for name in field]
    for tensor in renamed.graph.initializer:
        tensor.name = new[tensor.name]
    got = found(renamed)
    assert set(got) == {"w0", "b0", "w1"}, "nothing but the values tells them apart"
    assert all(np.array_equal(got[name], want[name]) for name in got)
    other = float_model(["Gemm", "MatMul"], seed=9)
    held, got = {t.name: numpy_helper.to_array(t) for t in other.graph.initializer}, found(other)
    assert np.array_equal(got["w0"], held["w0"]), "its place says so, whatever it is worth"
    assert got["w1"] == pytest.approx(np.rint(want["w1"] / 0.05).clip(-127, 127) * 0.05), (
        "no origin: what its codes are worth"
    )


def inline(tensor: TensorProto, store: Store) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    if copy.external_data:
        onnx.external_data_helper.load_external_data_for_tensor(copy, str(store.models))
    return copy


@pytest.mark.parametrize(
    ("quantized", "spec", "said"),
    [
        (
            False,
            "onnxruntime:quantization=bypass",
            "no QuantizeLinear/DequantizeLinear pairs.*leave quantization=bypass out",
        ),
        (
            True,
            "onnxruntime:model={other}",
            "not the original of this model: only one of them has the input 'ids'",
        ),
        (True, "onnxruntime:model=/nowhere/f.onnx", "cannot be read"),
    ],
)
def test_what_is_no_original_is_said(folder: Path, quantized: bool, spec: str, said: str) -> None:
    floats = float_model(["Gemm", "MatMul"])
    onnx.save(floats, folder / "float.onnx")
    other = MODELS / "sort_tf_massive_m4.onnx"
    held = Quantizer(floats, lambda answers: answers[0]).run() if quantized else floats
    store, model, _ = stored(folder, held, "int")
    with pytest.raises(ModelProblem, match=said):
        originals.restore_floats(
            store, model, entire(model), spec.format(float=folder / "float.onnx", other=other)
        )


def test_a_spec_that_asks_for_nothing_changes_nothing(folder: Path) -> None:
    store, model, _ = stored(
        folder, Quantizer(float_model(["Gemm"]), lambda answers: answers[0]).run(), "int"
    )
    part = entire(model)
    assert originals.restore_floats(store, model, part, "onnxruntime:optimization=all") is part


@pytest.mark.parametrize("op", ["Relu", "Clip"])
def test_an_activation_that_the_quantizer_folded_into_a_pair_is_there_in_the_float_twin(
    folder: Path, op: str
) -> None:
    """ONNX Runtime's own quantizer drops it: bypassed as it stood, the pair would hand negative
    values on."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    rng = np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((WIDTH, WIDTH)),
        "v": rng.standard_normal((WIDTH, WIDTH)),
        "low": 0,
        "high": 6,
    }
    nodes = [
        n("MatMul", ["x", "w"], ["a"], "/a"),
        n(op, ["a"] if op == "Relu" else ["a", "low", "high"], ["b"], "/b"),
        n("MatMul", ["b", "v"], ["y"], "/y"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, WIDTH]) for name in "xy"]
    held = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in weights.items()]
    float_one = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], held if op == "Clip" else held[:2]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    onnx.save(float_one, folder / "float.onnx")
    x = {"x": X["x"] * 3}

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([x])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    quantize_static(folder / "float.onnx", folder / "q.onnx", Reader())
    quantized = onnx.load(folder / "q.onnx")
    assert op not in {node.op_type for node in quantized.graph.node}, "it is folded into the pair"
    _, model, _ = stored(folder, quantized, "again")
    right = run(float_one, x, "")["y"]
    bypassed = run(make_float_twin(entire(model), {}).model, x, model.weights_dir)["y"]
    layer = next(node.id for node in model.index.nodes if node.name.startswith("/y"))
    gone = find_left(model.index, {layer})
    left = run(leave_float(entire(model), gone, {}).model, x, model.weights_dir)["y"]
    # Weights are what their codes are worth, and the other layer is still quantized; without the
    # activation it is off by half.
    for one, allowed in ((bypassed, 0.05), (left, 0.1)):
        assert np.linalg.norm(one - right) < allowed * np.linalg.norm(right)
