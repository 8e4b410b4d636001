"""The emulation stage by stage: the bits of the whole model, whatever is kept, and no stage twice
for one question."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines import backends
from narrowdown.engines.backends.base import BuildRequest
from narrowdown.engines.backends.emulate import engine as emulate_engine
from narrowdown.engines.backends.emulate import staged
from narrowdown.engines.backends.emulate.staged import Staged
from narrowdown.engines.backends.onnxruntime import engine
from narrowdown.engines.backends.onnxruntime.engine import Session
from narrowdown.engines.graph.stages import split

FLOAT, WIDTH = TensorProto.FLOAT, 6


def tangled(seed: int, nodes: int = 70) -> onnx.ModelProto:
    """Blocks that fan out and join, shapes computed on the way, weights that several nodes read, a
    body that reads from outside, an output in the middle."""
    draw = random.Random(seed)
    rng = np.random.default_rng(seed)
    weights = [
        numpy_helper.from_array(
            rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / np.float32(2), f"w{i}"
        )
        for i in range(4)
    ]
    made, floats = [helper.make_node("Shape", ["x"], ["size"], name="size")], ["x"]
    while len(made) < nodes:
        name, recent = f"t{len(made)}", floats[-3:]
        # Held within one, so that what rounding changes is seen at the end.
        bound = made[-1].op_type not in ("Tanh", "Reshape", "If")
        kinds = ("Add", "MatMul", "Reshape", "If")
        kind = "Tanh" if bound else draw.choice(kinds)
        if kind == "If":
            branches = [
                helper.make_graph(
                    [helper.make_node(op, [recent[-1]], [f"{name}_{op}"])], op, [],
                    [helper.make_tensor_value_info(f"{name}_{op}", FLOAT, None)],
                )
                for op in ("Sin", "Cos")
            ]  # fmt: skip
            made.append(
                helper.make_node(
                    "If", ["yes"], [name], name, then_branch=branches[0], else_branch=branches[1]
                )
            )
        else:
            reads = {
                "Tanh": recent[-1:], "Reshape": [recent[-1], "size"], "MatMul": [recent[-1], f"w{draw.randrange(4)}"],
            }.get(kind, [recent[-1], draw.choice(floats)])  # fmt: skip
            made.append(helper.make_node(kind, reads, [name], name))
        floats.append(name)
        if draw.random() < 0.3:  # a narrow place
            floats = floats[-1:]
    outputs = [made[nodes // 2].output[0], made[-1].output[0]]
    graph = helper.make_graph(
        made, "tangled", [helper.make_tensor_value_info("x", FLOAT, [3, WIDTH])],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [*weights, numpy_helper.from_array(np.array(True), "yes")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    staged.forget()


def build(model: onnx.ModelProto, keep: frozenset[int], precision: str = "fp16", attempt: int = 0):  # type: ignore[no-untyped-def]
    request = BuildRequest(model, "", keep=keep, attempt=attempt, feed_shapes={"x": (3, WIDTH)})
    return backends.make(f"emulate:precision={precision}").build(request)


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return list(one) == list(two) and all(
        one[n].dtype == two[n].dtype
        and one[n].shape == two[n].shape
        and one[n].tobytes() == two[n].tobytes()
        for n in one
    )


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("seed", range(3, 9))
def test_bits_are_those_of_the_whole_model(seed: int, precision: str) -> None:
    model, draw = tangled(seed), random.Random(seed)
    assert len(split(model)) > 2
    feeds = [
        {"x": np.random.default_rng(s).standard_normal((3, WIDTH)).astype(np.float32)}
        for s in range(2)
    ]
    keep = frozenset(draw.sample(range(70), 40))
    for _ in range(6):
        now, whole = build(model, keep, precision), build(model, keep, precision, attempt=1)
        ended = whole.run(feeds[0])[whole.model.graph.output[1].name]
        assert np.isfinite(ended).all()
        assert len(np.unique(ended)) > 1
        assert isinstance(now, Staged)
        assert isinstance(whole, Session)  # a fresh build takes nothing from another
        for feed in (*feeds, feeds[0]):
            assert same(now.run(feed), whole.run(feed))
        assert same(
            now.run(feeds[1], [now.model.graph.output[1].name]),
            whole.run(feeds[1], [whole.model.graph.output[1].name]),
        )
        assert now.model == whole.model
        keep ^= {draw.randrange(70), draw.randrange(70)}


def test_everything_kept_gives_the_bits_of_the_engine_that_it_names() -> None:
    model, feed = (
        tangled(5),
        {"x": np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)},
    )
    for precision in ("fp16", "bf16"):
        named = backends.make(f"emulate:precision={precision}").info.kept_whole
        literal = backends.make(named).build(BuildRequest(model, "", feed_shapes={"x": (3, WIDTH)}))
        assert same(build(model, frozenset(range(70)), precision).run(feed), literal.run(feed))
    assert backends.make("emulate:precision=typed").info.kept_whole == ""


def test_what_a_search_starts_from_hands_on_and_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a run takes long. What is measured of the model as it is owes nothing to a set that was
    asked about before."""
    model, ran = tangled(1), []
    stages = split(model)
    feed = {"x": np.ones((3, WIDTH), np.float32)}
    assert isinstance(build(model, frozenset()), Session)  # it takes no time
    monkeypatch.setattr(emulate_engine, "_SMALL", 0)
    whole = build(model, frozenset(), attempt=1)
    assert isinstance(whole, Session)
    known = Session.pass_on
    monkeypatch.setattr(
        Session,
        "pass_on",
        lambda self, values, **how: ran.append(self) or known(self, values, **how),
    )
    for _ in range(2):
        ran.clear()
        plain = build(model, frozenset())
        assert isinstance(plain, Staged)
        assert same(plain.run(feed), whole.run(feed))
        assert len(ran) == len(stages)
    ran.clear()
    build(model, frozenset({stages[-1].first})).run(feed)
    assert len(ran) == 1


def test_of_a_model_that_nothing_is_rounded_in_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emulate_engine, "_SMALL", 0)
    chain = [
        helper.make_node("Neg", [f"t{i}" if i else "x"], [f"t{i + 1}"], f"n{i}") for i in range(70)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.INT32, [3, WIDTH]) for name in ("x", "t70")
    ]
    model = helper.make_model(
        helper.make_graph(chain, "whole numbers", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=9,
    )  # fmt: skip
    assert build(model, frozenset()).facts["untouched"]
    assert not build(tangled(1), frozenset()).facts


def test_what_passes_is_not_copied() -> None:
    model = tangled(4)
    for keep in (frozenset({69}), frozenset(range(70))):
        held = build(model, keep)
        assert isinstance(held, Staged)
        copies = [
            node
            for made in held._built
            for node in made.model.graph.node
            if node.op_type == "Identity"
        ]
        makers = [maker for stage in held._stages for maker in stage.makers]
        assert copies == []
        assert len(makers) > 2


def test_a_stage_that_nobody_reads_is_run_for_nothing() -> None:
    """As a quantized model without its pairs has it: in front, what its weights were worth, which
    nothing reads any more."""
    model = tangled(3)
    for i in reversed(range(24)):
        model.graph.node.insert(
            0, helper.make_node("Identity", ["x"], [f"unread{i}"], f"unread{i}")
        )
    assert not split(model)[0].model.graph.output
    keep = frozenset(range(40))
    feed = {"x": np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)}
    made = build(model, keep)
    assert isinstance(made, Staged)
    assert same(made.run(feed), build(model, keep, attempt=1).run(feed))


def test_what_a_node_changes_alone_is_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ran = tangled(1), []
    stages = split(model)
    known = Session.pass_on
    monkeypatch.setattr(
        Session,
        "pass_on",
        lambda self, values, **how: ran.append(self) or known(self, values, **how),
    )
    feed = {"x": np.ones((3, WIDTH), np.float32)}
    everything = frozenset(range(70))
    first = build(model, everything)
    first.run(feed)
    assert len(ran) == len(stages)
    ran.clear()
    build(model, everything - {stages[-1].first}).run(feed)
    assert len(ran) == 1
    ran.clear()
    build(model, everything - {stages[-1].first}).run({"x": feed["x"] + 1})
    assert len(ran) == len(stages)  # another question
    ran.clear()
    first.run(feed)
    assert len(ran) == len(stages)  # a run again is a run


@pytest.mark.parametrize("large", [False, True])
def test_what_comes_out_as_before_is_not_computed_on(
    monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """A node that only hands on what is rounded already gives the same, kept or not. What is large
    is not read to see that."""
    model, ran = tangled(1), []
    stages = split(model)
    known = Session.pass_on
    monkeypatch.setattr(
        Session,
        "pass_on",
        lambda self, values, **how: ran.append(self) or known(self, values, **how),
    )
    monkeypatch.setattr(staged, "_HASHED", 1e18)
    if large:
        monkeypatch.setattr(staged, "VALUE", 0)
    feed = {"x": np.ones((3, WIDTH), np.float32)}
    inside = {
        n.output[0]: i
        for i, n in enumerate(model.graph.node)
        if n.op_type == "Reshape" and n.input[0] != "x"
    }
    passing = {name for stage in stages for name in stage.passing}
    at = min(i for name, i in inside.items() if name not in passing)
    assert at < stages[-1].first
    keep = frozenset({69})
    one = build(model, keep).run(feed)
    ran.clear()
    two = build(model, keep | {at}).run(feed)
    own = next(i for i, stage in enumerate(stages) if stage.first <= at < stage.last)
    assert len(ran) == (len(stages) - own if large else 2)  # its own stage and, as ever, the last
    assert same(one, two)


@pytest.mark.parametrize(
    "limits", [{}, {"VALUE": 1, "LIGHT": 1}, {"_HASHED": 1e-9}, {"HELD": 0}, {"_NAMES": 1}]
)
def test_whatever_is_kept_of_it_the_bits_are_those_of_the_whole_model(
    limits: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where two feeds differ in what only a late stage reads, and where a stage before it
    gives the same for both."""
    for name, value in limits.items():
        monkeypatch.setattr(engine if name == "HELD" else staged, name, value)
    model, draw = tangled(4), random.Random(4)
    nodes, middle = model.graph.node, split(model)[2].first + 1
    late_reader = next(n for n in nodes[middle:] if n.op_type == "Tanh")
    model.graph.input.append(helper.make_tensor_value_info("late", FLOAT, [3, WIDTH]))
    nodes.insert(
        list(nodes).index(late_reader),
        helper.make_node("Add", [late_reader.input[0], "late"], ["mixed"], "mixed"),
    )
    late_reader.input[0] = "mixed"
    reading = [
        i for i, s in enumerate(split(model)) if any("late" in n.input for n in s.model.graph.node)
    ]
    assert 0 < reading[0] < len(split(model)) - 1
    rng = np.random.default_rng(4)
    x, late = (rng.standard_normal((3, WIDTH)).astype(np.float32) for _ in range(2))
    feeds = [{"x": a, "late": b} for a in (x, x + 1) for b in (late, late + 1)]
    keep = frozenset(draw.sample(range(71), 40))
    for _ in range(8):
        now, whole = build(model, keep), build(model, keep, attempt=1)
        for feed in (*feeds, feeds[0]):
            assert same(now.run(feed), whole.run(feed))
        keep ^= {draw.randrange(71), draw.randrange(71)}


@pytest.mark.parametrize(("bytes_", "back"), [(0, True), (1 << 60, False)])
def test_memory_of_a_run_goes_back_where_the_process_holds_much(
    bytes_: int, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    known = Session.pass_on
    monkeypatch.setattr(
        Session,
        "pass_on",
        lambda self, values, **how: told.append(how) or known(self, values, **how),
    )
    monkeypatch.setattr(engine, "HELD", bytes_)
    build(tangled(2), frozenset({1})).run({"x": np.ones((3, WIDTH), np.float32)})
    assert {how["give_back"] for how in told} == {back}


GROWN = """
import sys
import numpy as np
from onnx import TensorProto, helper
from narrowdown.engines.backends.onnxruntime import engine
from narrowdown.engines.store import memory

engine.HELD = int(sys.argv[1])

def run(elements):
    chain = [helper.make_node("Neg", [f"t{i}" if i else "x"], [f"t{i + 1}"]) for i in range(4)]
    graph = helper.make_graph(
        [*chain, helper.make_node("ReduceMax", ["t4"], ["y"])], "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [elements])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    wide = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feed = {"x": np.ones(elements, np.float32)}
    engine.Session(wide, "", engine.Settings(), sharing=True).run(feed)

run(1 << 10)  # the arena's first block is never given back
before = memory.own()
run(1 << 22)
print(memory.own() - before)
"""


@pytest.mark.parametrize(("bytes_", "back"), [(0, True), (1 << 60, False)])
def test_what_a_run_held_is_the_systems_again(bytes_: int, back: bool) -> None:
    """In a process of its own: where others share the arena a block that they hold a part of
    stays."""
    done = subprocess.run(
        [sys.executable, "-c", GROWN, str(bytes_)], capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) < 12 << 20) is back


def test_what_weighs_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, feed = tangled(2), {"x": np.ones((3, WIDTH), np.float32)}
    monkeypatch.setattr(staged, "VALUE", 1)
    monkeypatch.setattr(staged, "LIGHT", 1)
    build(model, frozenset(range(70))).run(feed)
    assert staged.held() == 0
    monkeypatch.undo()
    monkeypatch.setattr(staged, "LIGHT", 0)
    build(model, frozenset(range(70))).run(feed)
    held = staged.held()
    assert held > 0
    monkeypatch.setattr(staged, "PASSED", held // 2)
    build(model, frozenset(range(60))).run({"x": feed["x"] + 1})
    assert 0 < staged.held() <= held // 2


def test_nothing_that_is_kept_lies_in_memory_of_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What goes from here is freed: a value that passed two stages is there twice."""
    put, lies = staged._Shelf.put, {}
    monkeypatch.setattr(
        staged._Shelf,
        "put",
        lambda self, asked, *rest: (
            put(self, asked, *rest)
            or lies.update({(asked, name): v.data_ptr() for name, v in self.get(asked).items()})
        ),
    )
    model, feed = tangled(1), {"x": np.ones((3, WIDTH), np.float32)}
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info(model.graph.node[3].output[0], FLOAT, None)
    )
    given = [build(model, keep).run(feed) for keep in (frozenset({69}), frozenset({68}))]
    lies |= {
        (at, name): array.ctypes.data
        for at, arrays in enumerate(given)
        for name, array in arrays.items()
    }
    assert len(lies) > 8
    assert len(set(lies.values())) == len(lies)


def test_light_values_stay_where_heavy_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    model, feed = tangled(2), {"x": np.ones((3, WIDTH), np.float32)}
    sizes = []
    put = staged._Shelf.put
    monkeypatch.setattr(
        staged._Shelf,
        "put",
        lambda self, asked, values, size, room: (
            sizes.append((size, room)) or put(self, asked, values, size, room)
        ),
    )
    monkeypatch.setattr(staged, "LIGHT", 100)
    build(model, frozenset(range(70))).run(feed)
    assert {room for size, room in sizes if size <= 100} == {staged.PASSED // 8}
    assert {room for size, room in sizes if size > 100} == {staged.PASSED}


def test_a_model_that_cannot_be_divided_is_one_stage(tmp_path: Path) -> None:
    chain = tangled(0)
    chain.graph.output.append(chain.graph.input[0])
    assert len(split(chain)) == 1
    keep = frozenset({1, 5})
    feed = {"x": np.ones((3, WIDTH), np.float32)}
    now = build(chain, keep)
    assert isinstance(now, Session)
    assert same(now.run(feed), build(chain, keep, attempt=1).run(feed))


def test_nodes_that_are_each_fed_from_outside_are_one_stage() -> None:
    """Naming all that is fed would take longer than what passes between stages is worth."""
    apart = tangled(3)
    assert staged.divide(apart)
    extra = range(len(apart.graph.node) + 1)
    fed = [helper.make_tensor_value_info(f"fed{i}", TensorProto.FLOAT, [1]) for i in extra]
    apart.graph.input.extend(fed)
    assert staged.divide(apart) is None
