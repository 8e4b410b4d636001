"""Tree ensembles: their numbers stay the bytes of the file in a loaded model, and are in their place wherever it is handed on."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

from engines.backends import make
from engines.backends.base import BuildRequest
from engines.backends.builds import build, weigh_built
from engines.graph import bulk, load
from engines.graph.cut import cut
from engines.graph.model_problem import ModelProblem
from engines.probe import Candidate
from engines.store.content import Store
from engines.workers.artifact_files import put_model
from engines.workers.stating import state_model

FEED = {"a": np.random.default_rng(3).normal(0, 1, (5, 4)).astype(np.float32)}


def forest(trees: int, depth: int = 9) -> ModelProto:
    """Exp of a sum of ``trees`` full trees."""
    drawn = np.random.default_rng(trees)
    each, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    tree, node = np.repeat(np.arange(trees), each), np.tile(np.arange(each), trees)
    leaf = node >= inner
    numbers = {
        "nodes_treeids": tree, "nodes_nodeids": node, "nodes_featureids": np.where(leaf, 0, drawn.integers(0, 4, len(node))),
        "nodes_truenodeids": np.where(leaf, 0, 2 * node + 1), "nodes_falsenodeids": np.where(leaf, 0, 2 * node + 2),
        "target_treeids": tree[leaf], "target_nodeids": node[leaf], "target_ids": np.zeros(leaf.sum(), int),
        "nodes_values": drawn.normal(0, 1, len(node)), "target_weights": drawn.normal(0, 1e-3, leaf.sum()),
    }  # fmt: skip
    modes = ["LEAF" if end else "BRANCH_LEQ" for end in leaf]
    made = helper.make_node(
        "TreeEnsembleRegressor", ["a"], ["y"], "trees", domain=bulk.DOMAIN, n_targets=1, post_transform="NONE",
        nodes_modes=modes, **{name: values.tolist() for name, values in numbers.items()},
    )  # fmt: skip
    a, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w]) for n, w in (("a", 4), ("z", 1)))
    graph = helper.make_graph([made, helper.make_node("Exp", ["y"], ["z"], "post")], "g", [a], [z])
    sets = [helper.make_opsetid("", 13), helper.make_opsetid(bulk.DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


@pytest.fixture(scope="module")
def large() -> ModelProto:
    return forest(160)


def ran(model: ModelProto) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, FEED)[0])


def alike(one: ModelProto, other: ModelProto) -> bool:
    """Whether they are the same but for the order of attributes."""

    def sort(model: ModelProto) -> bytes:
        copy = ModelProto()
        copy.CopyFrom(model)
        for node in copy.graph.node:
            listed = sorted(node.attribute, key=lambda a: a.name)
            held = [AttributeProto.FromString(a.SerializeToString()) for a in listed]
            del node.attribute[:]
            node.attribute.extend(held)
        return bytes(copy.SerializeToString(deterministic=True))

    return sort(one) == sort(other)


def test_what_is_put_away_comes_back(large: ModelProto) -> None:
    parsed = bulk.parse(large.SerializeToString())
    kept = {a.name for a in parsed.graph.node[0].attribute}
    assert {"n_targets", "post_transform"} <= kept
    assert "nodes_modes" not in kept
    assert "nodes_values" not in kept
    assert bulk.size_away(parsed.graph.node[0]) > 2 << 20
    assert alike(ModelProto.FromString(bulk.serialize(parsed)), large)
    assert alike(bulk.put_back(parsed), large)
    assert bulk.without(parsed).ByteSize() < 1 << 20
    assert [n.op_type for n in bulk.without(parsed).graph.node] == ["TreeEnsembleRegressor", "Exp"]
    copy = ModelProto()
    copy.CopyFrom(parsed)
    assert alike(bulk.put_back(copy), large)


def test_a_small_one_stays_as_it_is() -> None:
    small = forest(2, 3)
    parsed = bulk.parse(small.SerializeToString())
    assert parsed == small
    assert bulk.put_back(parsed) is parsed
    assert bulk.serialize(parsed) == small.SerializeToString()


def test_a_field_of_somebody_else_is_not_taken_for_ours(large: ModelProto) -> None:
    """As a file may be written that hides a graph from who looks for what was compiled elsewhere."""
    hidden = AttributeProto(name="body", type=AttributeProto.GRAPH)
    hidden.g.node.add(op_type="EPContext")
    hidden.g.doc_string = "x" * bulk.LEAST
    content = hidden.SerializeToString()
    size = bytearray()
    left = len(content)
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    size.append(left)
    node = onnx.NodeProto.FromString(
        large.graph.node[0].SerializeToString() + bytes([15 << 3 | 2]) + bytes(size) + content
    )
    model = ModelProto()
    model.CopyFrom(large)
    model.graph.node[0].CopyFrom(node)
    parsed = bulk.parse(model.SerializeToString())
    assert b"EPContext" not in bulk.serialize(parsed)
    assert alike(ModelProto.FromString(bulk.serialize(parsed)), large)
    del model.graph.node[0].attribute[:]
    model.graph.node[0].DiscardUnknownFields()
    model.graph.node[0].attribute.append(hidden)
    assert bulk.parse(model.SerializeToString()).graph.node[0].attribute[0].g.node[0].op_type == "EPContext"


def test_everything_that_a_session_hands_on_has_all_of_it(large: ModelProto, tmp_path: Path) -> None:
    onnx.save(large, tmp_path / "m.onnx")
    store = Store(tmp_path / "s")
    stored = load.load(store, load.import_model(tmp_path / "m.onnx", store).digest)
    assert bulk.size_away(stored.proto.graph.node[0])
    assert alike(onnx.load(stored.path), large)
    right = ran(large)
    part = cut(stored, Candidate(), {}, {}, stored.index.outputs)
    for name in ("onnxruntime", "reference", "emulate:precision=fp16"):
        built = build(make(name), BuildRequest(part.model, stored.weights_dir, feed_shapes={"a": (5, 4)}))
        found = built.run(FEED)["z"]
        assert np.allclose(found, right, rtol=1e-2), name
        built.close()
    artifact = put_model(store, "model.onnx", part.model, stored.weights_dir)["model.onnx"]
    assert np.array_equal(ran(onnx.load(store.path(artifact))), right)
    again = ModelProto()
    again.CopyFrom(stored.proto)
    assert alike(onnx.load(store.model_path(load.save(store, again))), large)
    assert weigh_built(part.model) > 8 * (tmp_path / "m.onnx").stat().st_size
    with pytest.raises(ModelProblem, match="holds more numbers than can be stated"):
        state_model(part.model, stored.weights_dir, FEED)


def test_what_follows_from_other_numbers_is_something_else(tmp_path: Path) -> None:
    """What was put away belongs to what a value follows from: captured values are shared by that."""
    lineages = []
    for scale in (1.0, 2.0):
        model = forest(160)
        for a in model.graph.node[0].attribute:
            if a.name == "target_weights":
                a.floats[0] = scale
        onnx.save(model, tmp_path / "m.onnx")
        store = Store(tmp_path / "s")
        lineages.append(load.load(store, load.import_model(tmp_path / "m.onnx", store).digest).lineage)
    assert lineages[0][-1] != lineages[1][-1]


LOADING = """
import sys
from pathlib import Path
from engines.graph import load
from engines.graph.cut import cut
from engines.probe import Candidate
from engines.store import memory
from engines.store.content import Store
before = memory.own()
model = load.load(Store(Path(sys.argv[1])), sys.argv[2])
kept = [cut(model, Candidate(), {}, {}, model.index.outputs) for _ in range(3)]
model.lineage
print(memory.own() - before)
"""


def test_a_loaded_one_and_its_copies_take_a_few_times_the_file(large: ModelProto, tmp_path: Path) -> None:
    """One with three copies for engines: 6.6 times the file here; with everything parsed it was 15.6."""
    onnx.save(large, tmp_path / "m.onnx")
    store = Store(tmp_path / "s")
    digest = load.import_model(tmp_path / "m.onnx", store).digest
    root = Path(load.__file__).parents[2]
    told = subprocess.run(
        [sys.executable, "-c", LOADING, store.root, digest], capture_output=True, text=True, check=True, cwd=root
    )
    assert int(told.stdout) < 10 * (tmp_path / "m.onnx").stat().st_size
