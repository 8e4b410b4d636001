"""rewrite, over worlds that a fake oracle makes up: what it claims was measured, and it ends where
it is told to."""

import random
from typing import Any

import msgspec
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.asking import Described, Note, StepContext
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings, Workaround
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.graph.rewrite_list import list_rewrites
from narrowdown.engines.probe import (
    Describe,
    LoadInputs,
    Measure,
    Measurement,
    SampleInfo,
    SampleResult,
    Score,
)
from narrowdown.engines.steps.base import Finish
from narrowdown.engines.steps.rewrite import SPEC, RewriteOutcome, RewriteRow
from narrowdown.engines.views import Capability, EngineInfo

TOLERANCE = 0.01
RIGHT, NEAR, WRONG = 1e-4, 2e-4, 0.5  # ``NEAR``: where it is right on a made sample


class Told(msgspec.Struct, frozen=True):
    """What the world holds of one rewrite: whether it finds something, moves the reference, cures
    in each of two builds, and holds on samples made near."""

    finds: bool = True
    exact: bool = True
    cures: tuple[bool, bool] = (True, True)
    holds: bool = True
    status: str = "ok"


class World(msgspec.Struct, frozen=True):
    rewrites: dict[str, Told]


def index() -> GraphIndex:
    """A node of each operator that some rewrite asks for; what they compute is of no matter."""
    ops = dict.fromkeys(op for r in list_rewrites(EVERY, "float16") for op in r.ops)
    nodes = [helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], name=op) for i, op in enumerate(ops)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("t0", TensorProto.FLOAT, [1])],
        [value(f"t{len(nodes)}", TensorProto.FLOAT, [1])],
    )
    return build_index(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "m")


EVERY = (
    "Transpose", "Identity", "Cast", "Pad", "ReduceL1", "ReduceLogSumExp", "Sqrt", "Add", "AveragePool", "Softmax", "Exp", "Pow",
    "MatMul", "If", "LayerNormalization", "Attention",
)  # fmt: skip
NAMES = tuple(r.name for r in list_rewrites(EVERY, "float16"))
GRAPH = index()


def walk(
    world: World, budget: int = 0, before: Workaround | None = None
) -> tuple[Finish[RewriteOutcome], list[Measure]]:
    """The step's end in this world, and what it asked of the engine. ``before``: the workaround
    that is known."""
    findings = Findings(
        model="m",
        inputs="i",
        sample="real:0",
        samples=(SampleInfo("real:0", "real"),),
        criterion=Criterion(tolerance=TOLERANCE),
        signature=Signature("accuracy", "real:0", ("y",), {"y": WRONG}),
        opened=True,
        workaround=before,
    )
    view = EngineInfo(storage="float16", capabilities={"latency": Capability(False)})
    ctx = StepContext("engine", "judge", findings, {"budget": budget}, engine_info=view)
    step = SPEC.run(ctx)
    asked: list[Measure] = []
    answer: Measurement | Described | None = None
    while True:
        try:
            probe: Any = step.send(answer)
        except StopIteration as end:
            return end.value, asked
        match probe:
            case Note():
                answer = None
            case Describe():
                answer = Described(GRAPH, Measurement())
            case LoadInputs():
                answer = Measurement(
                    facts={"inputs": "near", "samples": [{"id": "near:0", "source": "made"}]}
                )
            case Measure():
                asked.append(probe)
                answer = measure(world, probe)
            case _:
                raise AssertionError(probe)


def measure(world: World, probe: Measure) -> Measurement:
    if not probe.rewrite:
        return measured(probe, wrong=probe.engine != "judge")
    told = world.rewrites[probe.rewrite]
    facts = {"rewritten": ["node"] if told.finds else []}
    if probe.engine == "judge":
        return measured(probe, wrong=not told.exact, facts=facts)
    if told.status != "ok":
        return Measurement(status="build-failed", message="The engine refuses it.")
    right = told.holds if probe.inputs == "near" else told.cures[probe.attempt]
    m = measured(probe, wrong=not right, facts=facts)
    return msgspec.structs.replace(
        m, artifacts={"engine.onnx": probe.rewrite} if probe.save else {}
    )


def measured(probe: Measure, *, wrong: bool, facts: dict[str, Any] | None = None) -> Measurement:
    score = Score("y", rel_l2=WRONG if wrong else NEAR if probe.inputs == "near" else RIGHT)
    return Measurement(
        results=tuple(SampleResult(s, (score,)) for s in probe.samples), facts=facts or {}
    )


def expected(told: Told) -> str:
    """The verdict on one rewrite, from what is promised of it (docs/after.md), not from how the
    step does it."""
    if not told.finds:
        return "nothing to do"
    if not told.exact:
        return "inexact"
    if told.status != "ok":
        return "not run"
    return "cures" if all(told.cures) and told.holds else "fails"


def made_up(chance: random.Random) -> World:
    def yes(share: float = 0.5) -> bool:
        return chance.random() < share

    return World(
        {
            n: Told(yes(), yes(0.8), (yes(), yes()), yes(), "ok" if yes(0.9) else "refused")
            for n in NAMES
        }
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_it_says_of_each_was_measured(seed: int) -> None:
    world = made_up(random.Random(seed))
    finish, asked = walk(world)
    rows = {row.rewrite: row for row in finish.tables["rewrites"] if isinstance(row, RewriteRow)}
    assert {name: row.verdict for name, row in rows.items()} == {
        n: expected(t) for n, t in world.rewrites.items()
    }
    cures = [n for n, row in rows.items() if row.verdict == "cures"]
    outcome = finish.outcome
    assert outcome.verdict == ("cures" if cures else "none")
    assert outcome.rewrite in cures or not cures
    workaround = finish.findings.workaround
    assert (workaround is not None and workaround.holds) == bool(cures)
    assert workaround is None or workaround.error == finish.outcome.error == NEAR, (
        "the worst of all that was tried"
    )
    for (
        name
    ) in cures:  # two builds of it, one on the reference, one elsewhere: nothing is claimed unasked
        mine = [p for p in asked if p.rewrite == name]
        assert {(p.engine, p.inputs, p.attempt) for p in mine} >= {
            ("judge", "i", 0), ("engine", "i", 0), ("engine", "i", 1), ("engine", "near", 0),
        }  # fmt: skip


@pytest.mark.parametrize("budget", [1, 2, len(NAMES) - 1])
def test_it_ends_where_its_budget_does(budget: int) -> None:
    finish, asked = walk(World({n: Told(finds=False) for n in NAMES}), budget)
    assert len(finish.tables["rewrites"]) == budget
    assert {p.rewrite for p in asked} == {"", *NAMES[:budget]}
    assert finish.outcome.left == len(NAMES) - budget
    assert f"{len(NAMES) - budget} more were not tried" in finish.outcome.message


@pytest.mark.parametrize(("ok", "role"), [(2, "rewrite"), (1, "workaround")])
def test_a_rewrite_beside_a_workaround_that_holds_is_not_handed_over_in_its_place(
    ok: int, role: str
) -> None:
    known = Workaround("precision", "engine", keep="0", samples_ok=ok, samples_n=2, error=RIGHT)
    finish, _ = walk(World({n: Told() for n in NAMES}), before=known)
    assert finish.outcome.verdict == "cures"
    (saved,) = finish.tables["bundle"]
    assert (saved.role, saved.files) == (role, {"engine.onnx": finish.outcome.rewrite})
    assert (finish.findings.workaround == known) == (role == "rewrite")
