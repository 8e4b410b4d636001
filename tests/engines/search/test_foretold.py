"""Where the reference foretells a fault that was found at one node."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import helper

from narrowdown.engines.asking import Answer, Described, Question, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.graph import GraphIndex, Node, Tensor, ranges
from narrowdown.engines.probe import (
    Candidate,
    Describe,
    Measure,
    Measurement,
    SampleResult,
    Score,
)
from narrowdown.engines.search.remedy import foretell_places
from narrowdown.engines.search.workaround_facts import list_facts


def norms(
    tiny: Any, folder: Path, gains: list[float], sums: int = 0, loud: int = 0
) -> tuple[Path, Path]:
    """(model, inputs) of one layer norm a gain, side by side; from a gain of 300 on the square
    overflows in FP16, at 30 it does not. The first ``sums`` of them sum the squares in place of
    their mean. ``loud``: a Tanh of a million beside them."""
    node = helper.make_node
    nodes, constants = [], {"two": np.float32(2), "tiny": np.float32(1e-5), "one": np.array([1])}
    for k, gain in enumerate(gains):
        constants[f"gain{k}"] = np.float32(gain)
        nodes += [
            node("Mul", ["x", f"gain{k}"], [f"loud{k}"]),
            node("Pow", [f"loud{k}", "two"], [f"square{k}"], name=f"/n{k}/Pow"),
            _reduce(k, summed=k < sums),
            node("Sqrt", [f"mean{k}"], [f"root{k}"], name=f"/n{k}/Sqrt"),
            node("Div", [f"loud{k}", f"root{k}"], [f"unit{k}"], name=f"/n{k}/Div"),
        ]
    if loud:
        constants |= {
            "million": np.float32(1e6),
            "hundred": np.float32(100),
            "hundreds": np.float32(400),
        }
        nodes += [
            node("Mul", ["hundred", "hundreds"], ["steady"], name="/loud/Steady"),
            node("Mul", ["x", "million"], ["loudest"], name="/loud/Mul"),
            node("Max", ["loudest", "steady"], ["louder"]),
            node("Tanh", ["louder"], [f"unit{len(gains)}"]),
        ]
    parts = len(gains) + loud
    nodes.append(node("Concat", [f"unit{k}" for k in range(parts)], ["y"], axis=1))
    model = tiny.save(folder / "norms.onnx", nodes, {"x": [2, 8]}, {"y": [2, 8 * parts]}, constants)
    x = np.random.default_rng(0).uniform(0.8, 1.2, (2, 8)).astype(np.float32)
    return model, tiny.feeds(folder / "norms.npz", x=x)


def _reduce(k: int, *, summed: bool) -> Any:
    if summed:
        return helper.make_node(
            "ReduceSum", [f"square{k}", "one"], [f"mean{k}"], name=f"/n{k}/ReduceSum", keepdims=1
        )
    return helper.make_node(
        "ReduceMean", [f"square{k}"], [f"mean{k}"], name=f"/n{k}/ReduceMean", axes=[1], keepdims=1
    )


@pytest.fixture
def opened(open_model: Any, tiny: Any, tmp_path: Path) -> Any:
    """``opened(gains)``: such a model on an FP16 emulation, its first norm found and cut out."""

    def opened(gains: list[float], **how: int) -> Any:
        model, inputs = norms(tiny, tmp_path, gains, **how)
        s = open_model(model, "emulate:precision=fp16", (inputs,))
        for name in ("compare", "layerwise", "extract"):
            s.step(name)
        return s

    return opened


def test_one_overflow_foretells_the_others(opened: Any) -> None:
    """Three of four norms reach beyond 65,504; confirming the first names all three, each with a
    case and files."""
    s = opened([300, 30, 400, 500])
    done = s.step("confirm")
    outcome, found = done.finish.outcome, done.finish.findings
    assert (outcome.culprits, outcome.alike, outcome.patched_fails) == (3, 2, False)
    assert sorted(c.case.nodes for c in found.culprits) == [
        ("/n0/Pow",),
        ("/n2/Pow",),
        ("/n3/Pow",),
    ]
    assert [(c.cause, c.case.verified, c.also) for c in found.culprits] == [
        ("overflow", "5/5", ())
    ] * 3
    assert [c.dir for c in found.culprits] == ["case", "case/culprit-2", "case/culprit-3"]
    assert len({c.evidence for c in found.culprits}) == 3, "each says how far it goes itself"
    # What reads the square has to be kept with it: it is as far beyond.
    kept = {n for c in found.culprits for n in ranges.decode(c.keep)}
    names = [
        node.name
        for node in s.ask(next(p for p in done.probes if isinstance(p, Describe))).index.nodes
    ]
    assert {names[n] for n in kept} >= {
        f"/n{k}/{op}" for k in (0, 2, 3) for op in ("Pow", "ReduceMean")
    }
    assert not {names[n] for n in kept} & {"/n1/Pow", "/n1/ReduceMean"}
    files = [row["files"] for row in done.finish.tables["bundle"] if row["role"] == "alike"]
    assert len(files) == 2
    assert all("model.onnx" in f for f in files)
    cured = s.step("workaround").finish.outcome
    assert (cured.holds, cured.kind, cured.minimal) == (True, "precision", True)


def test_what_stays_in_fp16_near_its_end_is_told(opened: Any) -> None:
    """The squares of the second norm reach 24,000, those of the third 1,300: data twice as large
    breaks the second, too."""
    s = opened([300, 130, 30])
    s.step("confirm")
    done = s.step("workaround")
    cure = done.finish.findings.workaround
    assert done.finish.outcome.holds
    assert {each.node for each in cure.close} == {"/n1/Pow", "/n1/ReduceMean"}
    assert all(15_000 < each.reached < 25_000 for each in cure.close)
    said = [
        fact
        for fact in list_facts(done.finish.findings, cure)
        if fact.text.startswith("Larger data may break it")
    ]
    assert [fact.firm for fact in said] == [True]
    assert "/n1/Pow" in said[0].text
    assert "/n2/Pow" not in said[0].text


def test_what_a_culprit_reads_is_told_before_what_is_larger(opened: Any) -> None:
    """The first norm sums squares of 20,000 and fails there; those of the second reach 28,000, and
    nothing sums them."""
    s = opened([120, 140], sums=1)
    s.step("confirm")
    cure = s.step("workaround").finish.findings.workaround
    assert [each.node for each in cure.close] == ["/n0/Pow", "/n1/Pow", "/n1/ReduceMean"]


def test_what_is_kept_or_harmless_beyond_the_end_is_not_told(opened: Any) -> None:
    """The second norm's square is kept, at 57,000; what a Tanh makes 1 of reaches a million, and is
    right as infinity; what is 40,000 whatever is fed stays so."""
    s = opened([150, 200], sums=1, loud=1)
    s.step("confirm")
    cure = s.step("workaround").finish.findings.workaround
    assert {"/n1/Pow", "/loud/Mul"}.intersection(cure.keep_names) == {"/n1/Pow"}
    assert [each.node for each in cure.close] == ["/n0/Pow"]


def test_a_node_that_is_right_alone_is_kept_along_and_no_culprit(opened: Any) -> None:
    """TensorRT, weakly typed, computes a single Pow in FP32 and the same Pow among others in
    FP16."""
    s = opened([300, 400])
    real = s.ask
    names: list[str] = []

    def kind(probe: Any) -> Any:
        m = real(probe)
        if isinstance(m, Described):
            names[:] = [node.name for node in m.index.nodes]
        alone = isinstance(probe, Measure) and probe.candidate.nodes.isdigit()
        single = s.findings.case.node_ids if s.findings.case else ""
        if not alone or probe.candidate.nodes == single or m.status != "ok":
            return m
        right = [
            msgspec.structs.replace(r, outputs=_right(r.outputs), effect=_right(r.effect))
            for r in m.results
        ]
        return msgspec.structs.replace(m, results=tuple(right), runs=())

    s.ask = kind
    done = s.step("confirm")
    outcome, found = done.finish.outcome, done.finish.findings
    (culprit,) = found.culprits
    assert (outcome.alike, outcome.patched_fails) == (0, False), (
        "with both in FP32 the model passes"
    )
    assert len(culprit.also) == 1
    assert culprit.also[0] not in culprit.case.nodes
    assert culprit.also[0] in {names[n] for n in ranges.decode(culprit.keep)}
    assert "with no case of their own" in outcome.message
    assert "with no case of their own" in culprit.evidence


def _right(scores: tuple[Score, ...]) -> tuple[Score, ...]:
    return tuple(
        msgspec.structs.replace(
            s, max_abs=0.0, max_rel=0.0, rel_max=0.0, rel_l2=0.0, new_nonfinite=0, equal=True
        )
        for s in scores
    )


def test_no_more_culprits_than_asked_for_have_a_case(opened: Any) -> None:
    s = opened([300, 400, 500])
    found = s.step("confirm", most_culprits=2).finish.findings
    assert len(found.culprits) == 2
    assert len(found.culprits[0].also) == 1
    assert s.step("workaround").finish.outcome.holds


def test_a_reference_that_does_not_answer_foretells_nothing(opened: Any) -> None:
    s = opened([300, 400])
    real = s.ask

    def dumb(probe: Any) -> Any:
        reads = isinstance(probe, Measure) and probe.engine == probe.reference and probe.marks
        return (
            Measurement(status="reference-failed", message="It did not run.")
            if reads
            else real(probe)
        )

    s.ask = dumb
    outcome = s.step("confirm").finish.outcome
    assert (outcome.alike, outcome.culprits, outcome.patched_fails) == (0, 1, True)


def test_a_search_for_precision_alone_begins_where_the_reference_says(
    open_model: Any, tiny: Any, tmp_path: Path
) -> None:
    """No step has accused anybody: the first set that is tried is what the storage type cannot
    hold, and it is enough."""
    model, inputs = norms(tiny, tmp_path, [300, 30, 400, 500])
    s = open_model(model, "emulate:precision=fp16", (inputs,))
    done = s.step("precision")
    assert done.finish.outcome.outcome == "found"
    index = s.ask(next(p for p in done.probes if isinstance(p, Describe))).index
    names = {node.id: node.name for node in index.nodes}
    tried = [
        {names[n] for n in ranges.decode(p.keep)}
        for p in done.probes
        if isinstance(p, Measure) and p.keep
    ]
    first = next(t for t in tried if len(t) < len(names))
    assert first == {f"/n{k}/{op}" for k in (0, 2, 3) for op in ("Pow", "ReduceMean", "Sqrt")}
    assert {f"/n{k}/Pow" for k in (0, 2, 3)} <= set(done.finish.outcome.names.split(", ")) <= first


def test_the_nodes_behind_a_culprit_of_several_nodes_are_kept_too(opened: Any) -> None:
    """Two overflows in one case: what reads the second has to be kept as well, though only the
    first is named."""
    s = opened([300, 400])
    case = s.findings.case
    index = s.ask(
        Describe(
            model=s.findings.model,
            sample=s.findings.sample,
            inputs=s.findings.inputs,
            reference=s.reference,
        )
    ).index
    both = [n.id for n in index.nodes if n.op == "Pow"]
    wider = msgspec.structs.replace(
        case,
        node_ids=ranges.encode(both),
        nodes=tuple(index.nodes[n].name for n in both),
        candidate=Candidate(nodes=ranges.encode(both)),
    )
    s.findings = msgspec.structs.replace(s.findings, case=wider)
    done = s.step("confirm")
    (culprit,) = done.finish.findings.culprits
    kept = {index.nodes[n].name for n in ranges.decode(culprit.keep)}
    assert {f"/n{k}/{op}" for k in (0, 1) for op in ("Pow", "ReduceMean", "Sqrt")} <= kept
    assert not done.finish.outcome.patched_fails


def test_how_long_a_run_takes_is_told(open_model: Any, tiny: Any, tmp_path: Path) -> None:
    """Of an engine whose times mean something."""
    model, inputs = norms(tiny, tmp_path, [300, 30])
    s = open_model(model, "emulate:precision=fp16", (inputs,))
    s.info = s.info | {
        "capabilities": s.info["capabilities"] | {"latency": {"present": True, "reason": ""}}
    }
    done = s.step("precision")
    assert done.finish.findings.workaround.cost.startswith(
        "3 of 11 nodes in FP32; a run takes about "
    )


@pytest.mark.parametrize(("below", "asked"), [(3.9, [0]), (4.1, [])], ids=["near", "not near"])
def test_what_comes_within_a_quarter_of_the_largest_value_is_run_on_all_samples(
    below: float, asked: list[int]
) -> None:
    """The sample that the search works on stays within FP16, the other goes beyond: it is run where
    the first came near."""
    nodes = tuple(Node(i, f"n{i}", "Mul", "", (i,), (i + 1,)) for i in range(3))
    tensors = tuple(Tensor(i, f"t{i}", "float32", "node", i - 1, (4,), 16) for i in range(4))
    ran: list[tuple[tuple[str, ...], tuple[int, ...]]] = []

    def put(question: Question) -> Sub[Answer]:
        assert question.reference
        assert question.fed is not None
        ran.append((question.fed.samples, question.watch))
        tops = {"t1": 65_504 / below * (1 if len(ran) == 1 else 9), "t2": 10.0, "t3": 10.0}
        marks = tuple(Score(name, absmax=top) for name, top in tops.items())
        return Answer("passes", measured=Measurement(results=(SampleResult("", marks=marks),)))
        yield

    feeds = ("real:0", "real:1")
    index = GraphIndex("m", nodes, tensors, (0,), (3,))
    oracle = Oracle(index, put, (0, 1, 2), storage="float16", sample="real:0", feeds=feeds)
    with pytest.raises(StopIteration) as ended:
        next(foretell_places(oracle))
    places = ended.value.value
    assert ran[0] == (("real:0",), (1, 2, 3))
    assert [p.node for p in places] == asked
    assert [samples for samples, _ in ran[1:]][:1] == [("real:0", "real:1")] * len(asked)
    assert [marks for _, marks in ran[1:]] == [(1, 2)] * len(asked), "with who reads it, in one run"
