"""A loop on real engines: each step on what the engine gave in the one before, against a walk that
is written here."""

import json
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.compare.loops import draw_curve, read_steps
from narrowdown.engines.data import packed
from narrowdown.engines.data.samples import load_feed
from narrowdown.engines.probe import Import, LoadInputs, Measure, SampleInfo
from narrowdown.engines.store import Store
from narrowdown.engines.store.sound import faults
from narrowdown.engines.workers.operations import execute_probe

BF16 = "emulate:precision=bf16"
STEPS = 40
rng = np.random.default_rng(0)
FRAMES = np.abs(rng.normal(size=(STEPS, 1, 8))).astype(np.float32)
FIRST = np.full((1, 8), 0.05, np.float32)


def smoother(path):
    """state = 0.02 x + 0.98 state: BF16 holds no increment of 2 % of what is nearly reached."""
    weights = {"s": 0.02, "d": 0.98, "e": 1e-3}
    nodes = [
        helper.make_node("Mul", ["x", "s"], ["sx"]),
        helper.make_node("Mul", ["state", "d"], ["ds"]),
        helper.make_node("Add", ["sx", "ds"], ["state_out"]),
        helper.make_node("Add", ["state_out", "e"], ["me"]),
        helper.make_node("Div", ["x", "me"], ["y"]),
    ]

    def info(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8])

    graph = helper.make_graph(
        nodes,
        "g",
        [info("x"), info("state")],
        [info("y"), info("state_out")],
        [numpy_helper.from_array(np.float32(v), n) for n, v in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def truth(rounded):
    """(y, state_out) of each step, computed here."""

    def fit(value):
        return value.astype(ml_dtypes.bfloat16).astype(np.float32) if rounded else value

    s, d, e = (fit(np.float32(v)) for v in (0.02, 0.98, 1e-3))
    state, found = FIRST, []
    for x in FRAMES:
        state = fit(fit(x * s) + fit(state * d))
        found.append((fit(x / fit(state + e)), state))
    return found


class Looped:
    def __init__(self, root, model, inputs, **loop):
        self.store = Store(root)
        taken = execute_probe(Import(path=str(model), digest=""), self.store, lambda _: None)
        self.model = taken.facts["model"]
        self.load = LoadInputs(
            model=self.model, sources=inputs, source_digests=("",) * len(inputs), reference="onnxruntime", **loop
        )  # fmt: skip
        self.made = self.run(self.load)
        self.samples = [msgspec.convert(s, SampleInfo) for s in self.made.facts["samples"]]

    def run(self, probe):
        m = execute_probe(probe, self.store, lambda _: None)
        assert m.status == "ok", m.message
        return m

    def measure(self, engine=BF16, sample="real:0", **how):
        probe = Measure(
            model=self.model, inputs=self.made.facts["inputs"], samples=(sample,), engine=engine, reference="onnxruntime"
        )  # fmt: skip
        return self.run(msgspec.structs.replace(probe, **how))


@pytest.fixture(scope="module")
def looped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    np.savez(folder / "in.npz", x=FRAMES, state=FIRST)
    model = smoother(folder / "m.onnx")
    return Looped(folder / "s", model, (str(folder / "in.npz"),), carry=("state_out:state",))


def errors(m, name="state_out"):
    rows = read_steps(m, "real:0")
    return [next(s.rel_l2 for s in r.outputs if s.name == name) for r in rows]


def test_the_free_loop_is_the_walk_that_numpy_takes(looped) -> None:
    m = looped.measure(curve=True)
    right, wrong = truth(rounded=False), truth(rounded=True)
    for at, name in enumerate(("y", "state_out")):
        off = [
            np.linalg.norm(w[at] - r[at]) / np.linalg.norm(r[at])
            for w, r in zip(wrong, right, strict=True)
        ]
        assert np.allclose(errors(m, name), off, rtol=1e-3, atol=1e-6)
        whole = next(s for s in m.results[0].outputs if s.name == name)
        assert whole.rel_l2 == pytest.approx(max(off), rel=1e-3)
    assert [r.sample for r in m.results] == ["real:0"]


def test_fed_the_references_state_no_step_is_as_wrong(looped) -> None:
    free, own = errors(looped.measure(curve=True)), errors(looped.measure(held=("*",), curve=True))
    assert max(own) < 0.01 < max(free)
    alone = looped.measure(sample="real:0/step30")
    state = next(s for s in alone.results[0].outputs if s.name == "state_out")
    assert state.rel_l2 == pytest.approx(own[30], rel=1e-6)
    assert errors(looped.measure(held=("state",), curve=True)) == own


def test_nodes_are_kept_in_every_step(looped) -> None:
    assert max(errors(looped.measure(keep="1-2", curve=True))) < 0.002
    assert max(errors(looped.measure(keep="3-4", curve=True))) > 0.01


def test_values_of_a_sequence_that_are_not_those_written_are_noticed(looped) -> None:
    """Those of the reference as well as those of the inputs."""
    folder = looped.store.inputs / looped.made.facts["inputs"]
    arrays = json.loads((folder / "index.json").read_bytes())["feeds"][0]["arrays"]
    for name in ("state", "state_out"):
        path = folder / arrays[name]["file"]
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert [Path(p).name for p in faults(looped.store).kept] == [path.name]
        path.write_bytes(whole)
    assert not faults(looped.store).kept


def test_steps_that_do_not_fit_into_memory_are_refused(looped, monkeypatch) -> None:
    monkeypatch.setattr(packed, "most_bytes", lambda: 3000)
    told = execute_probe(looped.load, looped.store, lambda _: None)
    assert told.status != "ok"
    assert "--steps" in told.message


def test_sequences_near_the_given_ones_have_states_of_their_own(looped) -> None:
    load = msgspec.structs.replace(
        looped.load, sources=(), source_digests=(), base=looped.made.facts["inputs"], near=3
    )
    made = looped.run(load)
    assert [s["id"] for s in made.facts["samples"]] == ["near:0", "near:1", "near:2"]
    assert {s["steps"] for s in made.facts["samples"]} == {STEPS}
    m = looped.measure(sample="near:1", inputs=made.facts["inputs"], curve=True)
    assert len(m.facts["curve"]["near:1"]) == STEPS
    assert m.results[0].outputs != looped.measure().results[0].outputs


def test_made_up_sequences_are_drawn_where_none_is_given(tmp_path) -> None:
    made = Looped(
        tmp_path / "s", smoother(tmp_path / "m.onnx"), (), carry=("state_out:state",), steps=5
    )
    assert [(s.id, s.steps) for s in made.samples] == [("random:0", 5)]
    assert "state" not in " ".join(made.made.facts["guesses"])
    m = made.measure(engine="onnxruntime", sample="random:0", curve=True)
    assert all(s.equal for s in m.results[0].outputs)


# -- a decoder


def decoder(path):
    """One layer of attention without a softmax, whose cache grows; the scores prefer another token
    at each place."""
    weights = {"emb": rng.normal(size=(16, 8)), "pos": rng.normal(size=(64, 8)), "lm": rng.normal(size=(8, 16))}  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["emb", "ids"], ["e"]),
        helper.make_node("Gather", ["pos", "position_ids"], ["p"]),
        helper.make_node("Add", ["e", "p"], ["x"]),
        helper.make_node("Concat", ["past_kv", "x"], ["present_kv"], axis=1),
        helper.make_node("ReduceMean", ["present_kv"], ["m"], axes=[1], keepdims=1),
        helper.make_node("Add", ["x", "m"], ["h"]),
        helper.make_node("MatMul", ["h", "lm"], ["logits"]),
    ]

    def info(name, kind, *dims):
        return helper.make_tensor_value_info(name, kind, list(dims))

    graph = helper.make_graph(
        nodes,
        "g",
        [
            info("ids", TensorProto.INT64, "batch", "seq"),
            info("position_ids", TensorProto.INT64, "batch", "seq"),
            info("past_kv", TensorProto.FLOAT, "batch", "past_len", 8),
        ],
        [
            info("logits", TensorProto.FLOAT, "batch", "seq", 16),
            info("present_kv", TensorProto.FLOAT, "batch", "total", 8),
        ],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def test_the_tokens_of_a_growing_cache_are_those_that_a_plain_loop_chooses(tmp_path) -> None:
    np.savez(tmp_path / "in.npz", ids=np.array([[3, 1, 4]], np.int64))
    model = decoder(tmp_path / "m.onnx")
    made = Looped(
        tmp_path / "s", model, (str(tmp_path / "in.npz"),),
        carry=("present_kv:past_kv",), carry_token=("logits:ids=argmax",), steps=12,
    )  # fmt: skip
    assert made.samples[0].shapes["past_kv"] == (1, 3 + 10, 8)
    session = ort.InferenceSession(str(model))
    ids, past, chosen = np.array([[3, 1, 4]]), np.zeros((1, 0, 8), np.float32), []
    for _ in range(12):
        at = np.arange(past.shape[1], past.shape[1] + ids.shape[1])[None]
        logits, past = session.run(None, {"ids": ids, "position_ids": at, "past_kv": past})
        ids = logits[:, -1].argmax(-1)[:, None]
        chosen.append(int(ids[0, 0]))
    inputs = made.made.facts["inputs"]
    fed = [load_feed(made.store, inputs, f"real:0/step{k}") for k in range(1, 12)]
    assert [int(f["ids"][0, 0]) for f in fed] == chosen[:-1]
    assert [f["position_ids"].tolist() for f in fed] == [[[3 + k]] for k in range(11)]
    m = made.measure(curve=True)
    rows = draw_curve(read_steps(m, "real:0"), (), made.samples[0], Criterion(tolerance=0.05))
    assert all(row.answer and row.answer.kl < 1e-2 and row.answer.perplexity for row in rows)


def test_a_cache_that_nobody_gives_is_empty(tmp_path) -> None:
    np.savez(tmp_path / "in.npz", ids=np.array([[3, 1, 4]], np.int64))
    made = Looped(tmp_path / "s", decoder(tmp_path / "m.onnx"), (str(tmp_path / "in.npz"),))
    for sample in ("real:0", "random:0"):
        fed = load_feed(made.store, made.made.facts["inputs"], sample)
        assert fed["past_kv"].shape == (1, 0, 8)
        assert fed["position_ids"].tolist() == [[0, 1, 2]]
