"""layerwise where made outputs hide the failure or cannot be built, and the engine has a listener:
that is tried next."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.probe import Measure, Measurement


def chain(path: Path, length: int = 4) -> Path:
    nodes = [
        helper.make_node("Tanh", [f"t{i}"], [f"t{i + 1}"], name=f"layer{i}") for i in range(length)
    ]
    ends = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, [2, 3]) for i in (0, length)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


CURED = "fake:fault=wrong,nodes=layer2,marks=cure"
SEEN = "fake:fault=wrong,nodes=layer2,marks=keep"


def listening(session: Any, outputs: str) -> Any:
    """The fake engine with a listener. ``outputs``: what becomes of tensors that are made outputs
    (cured | build-failed)."""
    asked, info = session.ask, session.info
    able = {**info["capabilities"], "debug-tensors": {"present": True}}
    session.info = {**info, "capabilities": able}
    ways: list[str] = []

    def ask(probe: Any) -> Any:
        if isinstance(probe, Measure) and probe.marks:
            ways.append("debug" if "observe=debug" in probe.engine else "outputs")
            if ways[-1] == "outputs" and outputs == "build-failed":
                return Measurement(
                    status="build-failed",
                    message="Could not find any implementation for node layer2.",
                )
            engine = SEEN if ways[-1] == "debug" else CURED
            return asked(msgspec.structs.replace(probe, engine=engine))
        return asked(probe)

    session.ask = ask
    return ways


@pytest.mark.parametrize("outputs", ["cured", "build-failed"])
def test_what_outputs_hide_a_listener_sees(
    open_model: Callable[..., Any], tmp_path: Path, outputs: str
) -> None:
    session = open_model(chain(tmp_path / "chain.onnx"), CURED)
    ways = listening(session, outputs)
    done = session.step("layerwise").finish
    assert ways == ["outputs", "debug"]  # the whole batch by the listener, before it is taken apart
    assert done.outcome.observer == "reproduces"
    assert done.outcome.culprit == "layer2"
    assert (
        "by a listener (observe=debug): made outputs, they hid the failure or could not be built"
        in done.outcome.message
    )


def test_without_a_listener_the_failure_stays_hidden(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    session = open_model(chain(tmp_path / "chain.onnx"), CURED)
    outcome = session.step("layerwise").finish.outcome
    assert outcome.observer == "improves"


def test_a_listener_that_is_told_nothing_is_no_way_to_watch(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    """Its run fails like the model, and shows no tensor: that is not to have watched."""
    session = open_model(chain(tmp_path / "chain.onnx"), SEEN)
    asked = session.ask

    def deaf(probe: Any) -> Any:
        m = asked(probe)
        if not isinstance(probe, Measure) or not probe.marks:
            return m
        return msgspec.structs.replace(
            m, results=tuple(msgspec.structs.replace(r, marks=()) for r in m.results)
        )

    session.ask = deaf
    outcome = session.step("layerwise").finish.outcome
    assert outcome.observer == "cannot-run"
    assert "gives out none of the tensors" in outcome.message
    assert outcome.skipped == 3


def test_a_listener_that_kills_the_worker_is_given_up(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    """Where nobody asked for it, it may die once."""
    session = open_model(chain(tmp_path / "chain.onnx", 12), CURED)
    listening(session, "build-failed")
    asked, died = session.ask, []

    def deadly(probe: Any) -> Any:
        if isinstance(probe, Measure) and "observe=debug" in probe.engine:
            if probe.marks:
                died.append(probe)
                return Measurement(
                    status="crash",
                    message="The worker process died of signal 6 (SIGABRT) while building.",
                )
            probe = msgspec.structs.replace(probe, engine=CURED)
        return asked(probe)

    session.ask = deadly
    outcome = session.step("layerwise").finish.outcome
    assert outcome.observer == "cannot-run"
    assert len(died) == 1
    assert outcome.skipped == 11
