"""Routes that an engine decides: what hides when it is watched, what comes and goes, what nobody
makes alone, many culprits."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from narrowdown.engines.installed import importable
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.session.events import ProbeFinished, StepFinished, StepStarted
from narrowdown.wizard.session.journal import NAME, read

from . import tiny
from .conftest import check

needs_openvino = pytest.mark.skipif(not importable("openvino"), reason="openvino is not installed")


def openvino(precision: str) -> Any:
    """What OpenVINO is here at this precision."""
    from narrowdown.engines.backends import make

    return make(f"openvino:precision={precision}").info


# -- marking improves it


def test_a_fault_that_watching_cures_goes_on_to_reduce(walk: Callable, models: Path) -> None:
    model, inputs = tiny.parts(models, 3)
    walked = walk(
        model, "--engine", "fake:fault=wrong,nodes=/scaled1+/gate1,marks=cure", "--inputs", inputs
    )
    assert walked.ran.code == 0, walked.ran.out + walked.ran.err
    answers = walked.answers()
    assert answers[answers.index(("layerwise", "no")) + 1] == ("reduce", "yes")
    report = walked.reading.report()
    assert report.verdict == "minimal-case"
    assert (report.nodes, report.cause) == (("/scaled1", "/gate1"), "fusion")
    assert "With its inner tensors watched" in walked.ran.out


@pytest.mark.slow
def test_a_twin_is_searched_beside_the_first_build_where_that_takes_long(
    walk: Callable, models: Path
) -> None:
    """The first build of a process takes 25 s, as TensorRT's do: by its end the search has been
    asked of the twin."""
    model, inputs = tiny.parts(models, 3)
    engine = "fake:fault=wrong,nodes=/scaled1+/gate1,building=25"
    walked = walk(model, "--engine", engine, "--inputs", inputs, "--jobs", "2")
    assert walked.ran.code == 0, walked.ran.out + walked.ran.err
    assert walked.reading.report().nodes == ("/scaled1", "/gate1")
    steps, ends, ahead, twice = {}, {}, [], []
    for event in read(walked.folder / NAME):
        match event:
            case StepStarted():
                steps[event.run] = event.step
            case StepFinished():
                ends[event.node] = event
            case ProbeFinished():
                twice.append(event.key)
                ahead += [event.key] if not event.run and steps[max(steps)] == "compare" else []
    assert len(ahead) > 8, "the model, the layers and the parts, all beside the first build"
    assert len(twice) == len(set(twice))
    assert ends["layerwise"].cached >= ends["layerwise"].probes - 1, (
        "next to nothing is left to ask"
    )


@needs_openvino
def test_openvino_says_what_it_computed_in_everywhere(narrowdown: Callable, tmp_path: Path) -> None:
    """On the screen, in the list of engines and in every report: why the BF16 failure cannot be
    shown on such a CPU."""
    info = openvino("default")
    if not info.notes:
        assert info.precision == "bf16"
        pytest.skip("this CPU has BF16: there is nothing to explain")
    (note,) = info.notes
    assert info.precision == "fp32"
    for part in ("OpenVINO computed in FP32", "no BF16 instructions", "cannot be shown here"):
        assert part in note
    session = tmp_path / "s"
    ran = narrowdown(
        "run",
        tiny.faultless(tmp_path),
        "--engine",
        "openvino",
        "--session",
        session,
        "--display",
        "plain",
    )
    assert ran.code == 10, ran.out + ran.err
    assert note in ran.said
    assert note in narrowdown("report", session, "--format", "md").out.replace("\\", "")
    for form in ("html", "json"):
        assert note in narrowdown("report", session, "--format", form).out, form
    listed = " ".join(narrowdown("engines").out.split())
    assert " ".join(note.split()) in listed


@pytest.mark.slow
@pytest.mark.timeout(1800)
@needs_openvino
@pytest.mark.parametrize("precision", ["bf16", "default"])
def test_magika_on_openvino_in_bf16(
    narrowdown: Callable, magika: Any, tmp_path: Path, precision: str
) -> None:
    """Watching improves it; the case is of LayerNorm_0, with or without a Conv, by the files that
    magika is asked about; casts do not cure it, the hint does. ``default`` is the engine as it
    comes, on a CPU with BF16; ``bf16`` runs wherever OpenVINO can do it, with or without
    instructions."""
    info = openvino(precision)
    if info.precision != "bf16":
        pytest.skip(" ".join(info.notes) or f"OpenVINO computes in {info.precision} here")
    model, inputs = magika
    session = tmp_path / "s"
    engine = "openvino" if precision == "default" else f"openvino:precision={precision}"
    ran = narrowdown(
        "run",
        model,
        "--engine",
        engine,
        "--inputs",
        inputs,
        "--session",
        session,
        "--display",
        "plain",
    )
    assert ran.code == 0, ran.out[-3000:] + ran.err
    report = narrowdown("report", session, "--format", "json").json()
    first = next(i for i, stop in enumerate(report["route"]) if stop["node"] == "layerwise")
    assert [(s["node"], s["answer"]) for s in report["route"][first : first + 2]] == [
        ("layerwise", "no"),
        ("reduce", "yes"),
    ]
    assert report["verdict"] == "worked-around"
    assert sum("LayerNorm_0" in node for node in report["nodes"]) > 5
    assert "Sub" in {n.op_type for n in onnx.load(session / "case" / "model.onnx").graph.node}
    work = report["workaround"]
    assert (work["kind"], work["switched_off"]) == ("option", ["precision=f32"])
    assert work["samples_ok"] == work["samples_n"] > 20
    assert check(session / "case").returncode == 1


# -- it comes and goes


@pytest.mark.slow
def test_a_steady_engine_says_how_rare_a_fault_may_still_be(
    narrowdown: Callable, tmp_path: Path
) -> None:
    """The same race cannot happen on one thread."""
    session = tmp_path / "s"
    words = [
        "--engine",
        "onnxruntime:optimization=all,threads=1",
        "--inputs",
        MODELS / "pillars_add_in.npz",
    ]
    ran = narrowdown(
        "run", MODELS / "pillars_add.onnx", *words, "--session", session, "--display", "plain"
    )
    assert ran.code == 10, ran.out + ran.err
    said = re.search(r"([\d,]+) runs, no failure\.", ran.out)
    assert said is not None, ran.out
    assert "fewer than" not in ran.out, "a detail"
    report = narrowdown("report", session, "--format", "md").out
    missed = re.search(r"A fault in fewer than 1 of ([\d,]+) runs would not have shown", report)
    assert missed is not None, report
    looks, rare = int(said[1].replace(",", "")), int(missed[1].replace(",", ""))
    assert looks >= 20
    assert (1 - 1 / rare) ** looks < 0.06, "it would have shown, with 95 % confidence"
    for form in ("md", "html", "json"):
        assert missed[0] in narrowdown("report", session, "--format", form).out, form


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_race_is_found_on_two_threads(narrowdown: Callable, tmp_path: Path) -> None:
    """ScatterND adds duplicates in no order with two threads: a few runs in a hundred are wrong. A
    look that shows nothing is repeated, up to a bound."""
    words = [
        "--engine",
        "onnxruntime:optimization=all,threads=2",
        "--inputs",
        MODELS / "pillars_add_in.npz",
    ]
    report: dict[str, Any] = {}
    ran, session = None, tmp_path
    for attempt in range(6):
        session = tmp_path / f"s{attempt}"
        ran = narrowdown(
            "run",
            MODELS / "pillars_add.onnx",
            *words,
            "--session",
            session,
            "--display",
            "plain",
        )
        report = narrowdown("report", session, "--format", "json").json()
        if ran.code == 10:
            assert re.search(r"[\d,]+ runs, no failure\.", ran.out), ran.out[-3000:]
        if report["verdict"] == "worked-around":
            break
    assert ran is not None
    assert ran.code == 0, ran.out[-3000:]
    route = {stop["node"]: stop for stop in report["route"]}
    assert route["intermittent"]["answer"] == "same-engine"
    assert re.search(r"\b\d+ of \d+ runs", route["intermittent"]["message"])
    assert re.search(r"in \d+ of \d+ runs", ran.out), "k of n is printed"
    assert route["nondeterminism"]["answer"] == "yes"
    assert "ScatterND" in route["nondeterminism"]["message"]
    assert any("ScatterND" in node for node in report["nodes"]), report["nodes"]
    assert (report["cause"], report["workaround"]["switched_off"]) == (
        "nondeterminism",
        ["threads=1"],
    )
    assert report["workaround"]["samples_ok"] == report["workaround"]["samples_n"] == 1
    assert (session / "case" / "check.py").exists()


# -- nobody makes it alone


@pytest.mark.slow
def test_a_spread_failure_is_said_as_such_with_its_curve(
    walk: Callable, narrowdown: Callable, models: Path
) -> None:
    model, inputs = tiny.drift(models)
    walked = walk(model, "--engine", "emulate:precision=bf16", "--inputs", inputs)
    out = walked.ran.out
    # Half of the nodes in FP32 cure the given samples and, with the room that is aimed at, others
    # near them.
    assert walked.ran.code == 0, out + walked.ran.err
    assert [node for node, _ in walked.answers()][-2:] == ["layerwise", "workaround"]
    assert re.search(r"4 of 4 tuning samples and 32 of 32 held-out samples pass", out)
    assert "spread over many layers, and no single node makes most of it" in out
    curve = re.search(r"error by depth: ([▁-█]{60})", out)
    assert curve is not None
    assert curve[1][0] == "▁"
    assert curve[1][-1] == "█"
    report = walked.reading.report()
    assert (report.verdict, report.cause, report.culprits, report.nodes) == (
        "worked-around",
        "accumulation",
        (),
        (),
    )
    assert "spread over many layers" in report.headline
    assert len(report.depth) > 100
    page, text, data = (
        narrowdown("report", walked.folder, "--format", f).out for f in ("html", "md", "json")
    )
    for form in (page, text, data):
        assert "spread over many layers, and no single node makes most of it" in form
    assert "<svg" in page
    assert curve[1] in text
    assert not (walked.folder / "case").exists(), "no case is made up"


# -- several culprits


def culprits_hold(report: dict[str, Any], folder: Path) -> None:
    """Each culprit has a case of its own that shows its fault, a cause, its own error and what of
    it reaches the outputs."""
    for number, culprit in enumerate(report["culprits"], 1):
        assert culprit["dir"] == ("case" if number == 1 else f"case/culprit-{number}")
        assert culprit["nodes"]
        assert culprit["nodes_after"] == len(culprit["nodes"])
        assert culprit["cause"] != "unknown"
        assert culprit["own"] > report["tolerance"]
        assert culprit["effect"] > report["tolerance"]
        assert culprit["sample"].startswith("real:0")
        assert culprit["verified"] == "5/5"
        assert check(folder / culprit["dir"]).returncode == 1, culprit["dir"]
    assert len({tuple(c["nodes"]) for c in report["culprits"]}) == len(report["culprits"])


@pytest.mark.slow
def test_two_culprits_each_with_its_own_case(
    walk: Callable, narrowdown: Callable, models: Path
) -> None:
    model, inputs = tiny.parts(models, 2)
    walked = walk(model, "--engine", "emulate", "--inputs", inputs)
    assert walked.ran.code == 0, walked.ran.out + walked.ran.err
    report = narrowdown("report", walked.folder, "--format", "json").json()
    assert sorted(c["nodes"] for c in report["culprits"]) == [["/square0"], ["/square1"]]
    # The second is foretold by the reference once the first is known, and needs no round of its
    # own.
    assert [stop["answer"] for stop in report["route"] if stop["node"] == "minimal-case"] == [
        "workaround"
    ]
    (confirmed,) = walked.visits("minimal-case")
    assert (confirmed.outcome["alike"], confirmed.outcome["culprits"]) == (1, 2)
    culprits_hold(report, walked.folder)
    assert report["workaround"]["samples_ok"] == report["workaround"]["samples_n"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_seven_culprits_in_a_transformer(narrowdown: Callable, sort: Any, tmp_path: Path) -> None:
    model, inputs = sort
    session = tmp_path / "s"
    ran = narrowdown("run", model, "--engine", "emulate", "--inputs", inputs, "--session", session)
    assert ran.code == 0, ran.out[-3000:] + ran.err
    report = narrowdown("report", session, "--format", "json").json()
    assert len(report["culprits"]) == 7
    assert all(
        c["nodes"][0].endswith("/Pow") and c["cause"] == "overflow" for c in report["culprits"]
    )
    culprits_hold(report, session)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_more_than_eight_culprits_have_a_case(narrowdown: Callable, tmp_path: Path) -> None:
    model, inputs = tiny.parts(tmp_path, 10)
    session = tmp_path / "s"
    ran = narrowdown(
        "run",
        model,
        "--engine",
        "emulate",
        "--inputs",
        inputs,
        "--session",
        session,
        "--display",
        "plain",
    )
    assert ran.code == 0, ran.out[-3000:] + ran.err
    report = narrowdown("report", session, "--format", "json").json()
    assert len(report["culprits"]) == 8
    culprits_hold(report, session)
    assert [stop["answer"] for stop in report["route"] if stop["node"] == "minimal-case"] == [
        "workaround"
    ]
    assert len(report["culprits"][0]["also"]) == 2, (
        "two more are foretold, and have no case of their own"
    )
    assert (
        "The reference goes as far at 2 more nodes of that kind, kept in FP32 together with this one, with no case of their own"
        in ran.said
    )
    assert report["verdict"] == "worked-around", (
        "what is kept in FP32 covers the two that have no case, too"
    )
    assert {f"/square{k}" for k in range(10)} <= set(report["workaround"]["keep_higher"])
