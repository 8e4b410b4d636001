"""Optimizers and options as one space: which of them breaks the model, alone or only with
another."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from narrowdown.engines import options
from narrowdown.engines.backends import make
from narrowdown.engines.backends.onnxruntime import DECLARATION
from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.probe import Measurement
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.switches import list_switches
from narrowdown.engines.views import view_engine
from narrowdown.wizard.runner.speculation import Foresight

NAMES = ("DivMulFusion", "GeluFusionL1", "Pad_Fusion")
ENGINE = "onnxruntime:execution=parallel,optimization=all,threads=4"
DECLARED = [
    {"name": o.name, "default": o.default, "plain": o.plain} for o in DECLARATION.options
]  # fmt: skip
INFO = {
    "optimizers": NAMES,
    "options": DECLARED,
    "capabilities": {"optimizers": {"present": True, "reason": ""}},
}
CAN = list_switches(ENGINE, view_engine(INFO))
LOCKED = Signature(
    kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}, tolerance=0.01
)


def failing(answers: Any) -> Any:
    return msgspec.structs.replace(answers.READY, signature=LOCKED, sample="real:0")


def on(engine: str) -> set[str]:
    """What is on in a spec, told without the code under test."""
    spec = parse(engine)
    kept = {
        "threads=4": spec.get("threads") == "4",
        "execution=parallel": spec.get("execution") == "parallel",
    }
    off = spec.get("disabled_optimizers").split("+")
    return {name for name, there in kept.items() if there} | {
        name for name in NAMES if name not in off
    }


def test_what_can_be_switched() -> None:
    assert CAN.names == {*NAMES, "threads=4", "execution=parallel", "prepacking"}
    assert CAN.without(()) == ENGINE
    off = "disabled_optimizers=DivMulFusion+GeluFusionL1+Pad_Fusion,execution=sequential"
    assert (
        CAN.without(CAN.names) == f"onnxruntime:{off},optimization=all,prepacking=false,threads=1"
    )
    assert options.check(CAN.without(CAN.names)), "what is off is a spec that the engine takes"


def test_what_the_user_switched_off_is_no_switch_and_stays_off() -> None:
    can = list_switches(
        "onnxruntime:disabled_optimizers=GeluFusionL1,optimization=all,threads=1", view_engine(INFO)
    )
    assert can.names == {"DivMulFusion", "Pad_Fusion", "prepacking"}
    assert (
        parse(can.without({"DivMulFusion"})).get("disabled_optimizers")
        == "DivMulFusion+GeluFusionL1"
    )
    assert parse(can.without(())).get("disabled_optimizers") == "GeluFusionL1"


@given(st.sets(st.sampled_from(sorted(CAN.names))))
def test_what_is_not_switched_off_stays_on(chosen: set[str]) -> None:
    assert on(CAN.without(CAN.names - chosen)) == chosen - {"prepacking"}


def test_real_engines_say_their_switches() -> None:
    def of(spec: str) -> Any:
        return list_switches(spec, view_engine(msgspec.to_builtins(make(spec).info)))

    assert not of("onnxruntime").names, "a reference has nothing left to switch"
    assert {"prepacking=true", "Pad_Fusion"} <= of("onnxruntime:optimization=all").names
    assert of("onnxruntime:threads=2").names == {"threads=2"}
    assert not of("emulate").names


@pytest.mark.parametrize(
    ("guilty", "kind"),
    [
        ({"threads=4"}, "option"),
        ({"prepacking"}, "option"),
        ({"threads=4", "execution=parallel"}, "option"),
        ({"Pad_Fusion"}, "optimizer"),
        ({"Pad_Fusion", "threads=4"}, "optimizer"),
        ({"DivMulFusion", "GeluFusionL1", "execution=parallel"}, "optimizer"),
    ],
)
def test_alone_or_together(answers: Any, walk: Any, guilty: set[str], kind: str) -> None:
    def answer(probe: Any) -> Measurement:
        seen = on(probe.engine) | (
            {"prepacking"} if parse(probe.engine).get("prepacking") != "false" else set()
        )
        return answers.measured(("real:0", 0.5 if guilty <= seen else 0.0))

    done = walk("tactics", answers.context(failing(answers), engine=ENGINE, info=INFO), answer)
    outcome, found = done.finish.outcome, done.finish.findings
    assert (outcome.found, outcome.kind, set(outcome.suspects.split(", "))) == (True, kind, guilty)
    assert {*found.optimizers, *found.options} == guilty
    (off,) = done.finish.decisive["suspect-off"]
    assert not on(off.engine) & guilty


def test_options_are_searched_where_every_build_of_an_engine_that_chooses_kernels_fails(
    answers: Any, walk: Any
) -> None:
    info = {
        "options": [{"name": "optimization_level", "default": None, "plain": "0"}],
        "capabilities": {"tactics": answers.PRESENT, "optimizers": answers.ABSENT},
    }

    def answer(probe: Any) -> Measurement:
        return answers.measured(
            ("real:0", 0.0 if parse(probe.engine).get("optimization_level") == "0" else 0.5)
        )

    done = walk("tactics", answers.context(failing(answers), info=info), answer)
    assert done.finish.outcome.found
    assert done.finish.findings.options == ("optimization_level",)


COMPILER = [f"{family}:{name}" for family in ("peep", "kgen", "dce") for name in "abcdefgh"]
BUILDS_ONLY = {
    "optimizers": COMPILER,
    "apart": True,
    "capabilities": {
        "optimizers": {"present": True, "reason": ""},
        "run": {"present": False, "reason": "no GPU."},
    },
}


def test_where_nothing_runs_what_changes_the_build_is_listed_and_is_no_cure(
    answers: Any, walk: Any
) -> None:
    """Two change the engine, one kills the builder and one takes too long, each told once; the rest
    builds the same. The next build is known before this one's end."""

    def answer(probe: Any) -> Measurement:
        off = set(parse(probe.engine).get("disabled_optimizers").split("+"))
        if "kgen:b" in off:
            return Measurement(status="crash", signal=11)
        if "dce:a" in off:
            return Measurement(status="timeout")
        built = "other" if off & {"peep:c", "dce:h"} else "same"
        return Measurement(facts={"build": {"digest": built}}, build_seconds=2)

    ctx = answers.context(answers.READY, engine="tensorrt_rtx", info=BUILDS_ONLY)
    done = walk("tactics", ctx, answer)
    rows = {row["off"]: row["what"] for row in done.finish.tables["changes"]}
    assert len(rows) == len(done.finish.tables["changes"]) == 4
    assert rows["dce:h"] == rows["peep:c"] == "changes the build"
    assert len({rows["dce:h"], rows["kgen:b"], rows["dce:a"]}) == 3
    assert {probe.timeout for probe in done.probes if "disabled" in probe.engine} == {40}
    foresight, ahead = Foresight(lambda: STEPS["tactics"].run(ctx)), []
    told: list[Measurement | None] = [answer(done.probes[0])]
    for probe in done.probes[1:]:
        told.append(None)  # its note
        ahead += foresight.ahead(told, lambda _: None, 2)
        told.append(answer(probe))
    assert all(probe in ahead for probe in done.probes[4:])
    assert (done.finish.outcome.found, done.finish.findings.optimizers) == (False, ())
    assert len(done.probes) < len(COMPILER)
    few = walk("tactics", msgspec.structs.replace(ctx, params={"budget": 4}), answer)
    assert few.finish.outcome.stopped
    assert {row["off"] for row in few.finish.tables["changes"]} < rows.keys()
    assert len(few.probes) < len(done.probes)


def test_where_equal_builds_differ_nothing_is_said_to_change_them(answers: Any, walk: Any) -> None:
    def answer(probe: Any) -> Measurement:
        return Measurement(facts={"build": {"digest": f"{probe.attempt}"}})

    ctx = answers.context(answers.READY, engine="tensorrt_rtx", info=BUILDS_ONLY)
    done = walk("tactics", ctx, answer)
    assert done.finish.tables["changes"] == []
    assert [probe.attempt for probe in done.probes[-2:]] == [0, 1]
    assert not done.finish.outcome.found
