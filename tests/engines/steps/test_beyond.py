"""Accused and curing agree in the end: whole routes of the shipped flow over planted culprits."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.findings import Case, Culprit, Findings, Unseen, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate
from narrowdown.engines.search.workaround_facts import holds_accused, list_facts
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.flow.rules import destination, recommend

from .conftest import walk
from .simulated import RULE, Simulated, graph

FLOW = load("accuracy").flow
CHAIN = [() if i == 0 else (i - 1,) for i in range(12)]
# The same with an operator of its own at each node: nodes of one operator become one culprit.
VARIED = msgspec.structs.replace(
    graph(CHAIN),
    nodes=tuple(msgspec.structs.replace(n, op=f"{n.op}{n.id}") for n in graph(CHAIN).nodes),
)


def follow(
    engine: Simulated, start: str = "layerwise", findings: Findings | None = None
) -> tuple[Findings, list[str]]:
    """The findings at the end of the flow as it recommends, from ``start`` on, and the nodes on the
    way."""
    findings, node, route = findings or engine.findings(), start, []
    while node in FLOW.nodes:
        route.append(node)
        assert route.count(node) <= FLOW.nodes[node].max_visits, route
        step = FLOW.nodes[node].step
        assert step is not None
        ctx = engine.context(findings=findings, visit=route.count(node), params=step.with_)
        done = walk(step.use, ctx, engine).finish
        findings, said = done.findings, msgspec.to_builtins(done.outcome)
        answer = recommend(FLOW.nodes[node], said).answer
        node = destination(FLOW.nodes[node].answers[answer], said)
    return findings, [*route, node]


def accused(findings: Findings) -> set[int]:
    return {n for c in findings.culprits for n in ranges.decode(c.case.node_ids)}


def test_a_culprit_that_the_first_one_hides_is_named_too() -> None:
    """What is made at 3 is lost in what is made at 8; right values put in after 8 would take it
    with them."""
    findings, route = follow(Simulated.single(graph(CHAIN), {3: 0.05, 8: 0.5}))
    assert accused(findings) == {3, 8}
    assert route.count("workaround") == 1, "known before anything was kept"
    assert findings.workaround is not None
    assert set(ranges.decode(findings.workaround.keep)) == {3, 8}
    assert not findings.workaround.outside
    assert route[-1] in ("worked-around", "works")


@pytest.mark.parametrize(
    "added", [{3: 0.05, 8: 0.5}, {1: 0.05, 11: 0.5}, {2: 0.05, 6: 0.2, 9: 0.5}]
)
def test_a_culprit_that_the_first_one_hides_is_named_on_engines_that_keep_no_nodes(
    added: dict[int, float],
) -> None:
    """ONNX Runtime, commands: what is accused is computed by the reference, from what the engine
    gives it."""
    engine = Simulated.single(VARIED, added, keeps=False)
    findings, route = follow(engine)
    assert accused(findings) == set(added)
    assert set(ranges.decode(findings.righted)) == set(added)
    assert not findings.patches
    assert route.count("minimal-case") == len(added)
    watched = [q for q in engine.asked if "'marks'" in q and "'nodes'" not in q]
    assert any("'righted'" in q for q in watched), "the next round looks at what is left"


@pytest.mark.parametrize("keeps", [False, True])
def test_nodes_of_one_operator_that_fail_alone_cost_no_round_each(keeps: bool) -> None:
    added = {2: 0.05, 6: 0.2, 9: 0.5}
    engine = Simulated.single(graph(CHAIN), added, keeps=keeps)
    findings, route = follow(engine)
    (culprit,) = findings.culprits
    assert ranges.decode(culprit.case.node_ids) == (9,)
    assert {*culprit.also} == {"n2", "n6"}
    assert set(ranges.decode(findings.keep if keeps else findings.righted)) == set(added)
    assert route.count("minimal-case") == 2


@pytest.mark.parametrize(
    ("added", "stubborn", "rounds"), [({7: 0.3, 8: 0.5}, {7}, 3), (dict.fromkeys(range(12), 0.3), set(), 8)],
    ids=["what widens a culprit is not cured", "each round widens it"],
)  # fmt: skip
def test_a_workaround_is_looked_for_where_rounds_go_on_and_no_culprit_is_new(
    added: dict[int, float], stubborn: set[int], rounds: int
) -> None:
    """A neighbour that fails of the same cause is counted with the culprit that it stands by."""
    engine = Simulated.single(VARIED, added, keeps=False, stubborn=frozenset(stubborn))
    findings, route = follow(engine)
    assert len(findings.culprits) == 1
    assert accused(findings) <= set(added)
    assert route.count("minimal-case") == rounds
    assert "workaround" in route


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 11), st.sampled_from((0.05, 0.2, 0.5, 1.0)), min_size=2, max_size=3
    ),
    st.integers(0, 2),
)
def test_nobody_innocent_is_accused_and_what_cures_is_accused_or_said_to_be_open(
    added: dict[int, float], first: int
) -> None:
    engine = Simulated.single(graph(CHAIN), added)
    findings, _ = follow(engine)
    assert accused(findings) <= set(added)
    cure = findings.workaround
    assert cure is not None
    if set(added) - accused(findings) and cure.outside:
        assert any(
            not f.firm and "among the nodes found so far" in f.text
            for f in list_facts(findings, cure)
        )


def test_what_cures_beyond_what_is_accused_is_told_with_what_the_accused_cure() -> None:
    engine = Simulated.single(graph(CHAIN), {1: 0.3, 9: 0.5})
    culprit = Culprit(Case(Candidate(), "real:0", ("n9",), "9"), "accumulation")
    found = msgspec.structs.replace(engine.findings(), culprits=(culprit,))
    done = walk("workaround", engine.context(findings=found), engine).finish
    assert done.outcome.holds
    assert done.outcome.outside == "n1"
    assert done.outcome.accused_ok == 0
    assert "With the found nodes alone in FP32 it is right on 0 of " in done.outcome.message
    assert not done.outcome.known


@pytest.mark.parametrize(
    ("nodes", "of", "named"),
    [(5, 12, True), (6, 12, True), (7, 12, False), (9, 12, False), (6, 10, False), (7, 16, True)],
)
def test_what_is_left_in_most_of_the_model_accuses_nobody(nodes: int, of: int, named: bool) -> None:
    """A tiny detector of speech in BF16: a second round found that 17 of its 24 nodes fail
    together, which names no part."""
    engine = Simulated.single(
        graph([() if i == 0 else (i - 1,) for i in range(of)]), {0: 0.1, 9: 0.5}
    )
    one = Culprit(Case(Candidate(), "real:0", ("n9",), "9"), "accumulation", keep="9")
    case = Case(
        Candidate(nodes=f"0-{nodes - 1}"), "real:0", tuple(f"n{i}" for i in range(nodes)), f"0-{nodes - 1}",
        own=0.1, effect=0.1,
    )  # fmt: skip
    found = msgspec.structs.replace(engine.findings(), culprits=(one,), keep="9", case=case)
    done = walk("confirm", engine.context(findings=found, visit=2), engine).finish
    assert done.outcome.confirmed
    assert (len(done.findings.culprits) == 2) == named
    assert done.findings.spread == (not named)
    assert (f"most of the model ({nodes} of {of})" in done.outcome.message) == (not named)
    first = msgspec.structs.replace(found, culprits=())
    alone = walk("confirm", engine.context(findings=first), engine).finish
    assert len(alone.findings.culprits) == 1, (
        "where nothing is known yet, it is the smallest that there is"
    )


def test_a_set_among_what_is_accused_is_made_better_at_once() -> None:
    """Nobody else is looked for then, though what is accused does not cure it alone."""
    engine = Simulated.single(graph(CHAIN), {8: 0.3, 9: 0.5}, rare={4: 0.5})
    culprit = Culprit(Case(Candidate(), "real:0", ("n9",), "9"), "accumulation")
    found = msgspec.structs.replace(engine.findings(), culprits=(culprit,))
    done = walk("workaround", engine.context(findings=found), engine).finish
    assert set(ranges.decode(done.findings.workaround.keep)) == {4, 8, 9}


def test_a_set_that_holds_replaces_what_was_verified_before() -> None:
    engine = Simulated.single(graph(CHAIN), {1: 0.3, 9: 0.5}, rare={5: 0.5})
    culprit = Culprit(Case(Candidate(), "real:0", ("n9",), "9"), "accumulation")
    known = msgspec.structs.replace(
        CURE, keep="7-9", keep_names=("n7", "n8", "n9"), unseen=Unseen(ok=8, n=8)
    )
    found = msgspec.structs.replace(engine.findings(), culprits=(culprit,), workaround=known)
    done = walk("workaround", engine.context(findings=found), engine).finish
    assert done.findings.workaround.keep == "1,5,9"
    assert done.outcome.outside == "n1, n5"


CURE = Workaround(
    kind="precision",
    engine="e",
    keep="2,5",
    keep_names=("n2", "n5"),
    samples_ok=2,
    samples_n=2,
    outside=("n5",),
)


@pytest.mark.parametrize(
    ("known", "found", "says", "firm"),
    [
        ({"accused_ok": 2, "accused_n": 2}, {}, "for a margin", True),
        (
            {"accused_ok": 1, "accused_n": 2},
            {},
            "something else is wrong there, too. With the found nodes alone 1 of 2",
            False,
        ),
        (
            {"accused_ok": 1, "accused_n": 2},
            {"spread": True},
            "no other node stands out",
            False,
        ),
        ({}, {}, "something else is wrong there, too", False),
    ],
)
def test_what_is_said_of_nodes_that_cure_beyond_what_is_accused(
    known: dict[str, Any], found: dict[str, Any], says: str, firm: bool
) -> None:
    facts = list_facts(Findings(criterion=RULE, **found), msgspec.structs.replace(CURE, **known))
    said = next(f for f in facts if "among the nodes found so far" in f.text)
    assert says in said.text
    assert said.firm == firm


def test_whether_all_that_is_accused_is_kept() -> None:
    """Of nodes that fail together only the one counts that the evidence is about."""

    def blamed(*nodes: int, at: str = "") -> Culprit:
        names = tuple(f"n{n}" for n in nodes)
        return Culprit(Case(Candidate(), "real:0", names, ranges.encode(nodes)), "overflow", at=at)

    for culprits, inside in (
        ((), None), ((blamed(2),), True), ((blamed(2), blamed(5)), True), ((blamed(2), blamed(4)), False),
        ((blamed(4, 5),), False), ((blamed(4, 5, at="n5"),), True), ((blamed(4, 5, at="n4"),), False),
    ):  # fmt: skip
        assert holds_accused(Findings(culprits=culprits), CURE) is inside
    off = Workaround(kind="optimizer", engine="e", switched_off=("Pad_Fusion",))
    assert holds_accused(Findings(culprits=(blamed(2),)), off) is None
    earlier = msgspec.structs.replace(
        blamed(2), case=msgspec.structs.replace(blamed(2).case, node_ids="")
    )
    assert holds_accused(Findings(culprits=(earlier,)), CURE) is None, (
        "a session that does not hold which nodes they are"
    )


def chain_of_rows(path: Path) -> Path:
    """Ten nodes in a row on a matrix; none of them forgets the size of what it reads."""
    ops = ["Abs", "Relu", "Abs", "Identity", "Relu", "Abs", "Relu", "Identity", "Abs", "Relu"]
    names = [f"/at{i}" for i in range(len(ops))]
    tensors = ["x", *(f"t{i}" for i in range(len(ops) - 1)), "y"]
    nodes = [
        onnx.helper.make_node(op, [a], [b], name=name)
        for op, name, a, b in zip(ops, names, tensors, tensors[1:], strict=False)
    ]
    shape = [2, 8]
    graph = onnx.helper.make_graph(
        nodes, "rows",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
    )  # fmt: skip
    onnx.save(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
        ),
        path,
    )
    return path


@pytest.mark.parametrize(
    ("late", "early"), [("/at7", "/at2"), ("/at9", "/at3")], ids=["a node between", "the last node"]
)
def test_two_planted_faults_on_a_real_engine_that_keeps_no_nodes(
    open_model: Any, tmp_path: Path, late: str, early: str
) -> None:
    """Right values put in after the later one, which is larger, would take what the earlier one
    made with them."""
    inputs = tmp_path / "x.npz"
    np.savez(inputs, x=np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32))
    fault = f"fake:fault=wrong,nodes={late},size=0.5,also={early}*0.05"
    session = open_model(chain_of_rows(tmp_path / "m.onnx"), fault, (inputs,))
    assert not session.context().can("keep")
    node, route = "reproduce", []
    while node in FLOW.nodes and len(route) < 20:
        route.append(node)
        step = FLOW.nodes[node].step
        done = session.step(step.use, **step.with_).finish
        said = msgspec.to_builtins(done.outcome)
        print(node, said.get("message"), done.findings.suspects)
        node = destination(FLOW.nodes[node].answers[recommend(FLOW.nodes[node], said).answer], said)
    assert {n for c in session.findings.culprits for n in c.case.nodes} == {early, late}, route
    assert session.findings.culprits[0].case.nodes == (late,), "the larger one first"
    assert not session.findings.patches


def test_what_no_precision_cures_is_fed_over_with_right_values() -> None:
    """Its nodes in FP32 are wrong as before, so that nothing but the reference's values takes its
    error out of the model."""
    chain = [() if i == 0 else (i - 1,) for i in range(12)]
    engine = Simulated.single(graph(chain), {7: 0.5}, stubborn=frozenset({7}))
    reduced = walk("reduce", engine.context(), engine).finish.findings
    done = walk("confirm", engine.context(findings=reduced), engine).finish
    assert done.findings.patches, "what it gives"
    assert not done.outcome.patched_fails
    assert done.outcome.patched_error == 0
