"""layerwise where tensors that are watched hide the failure, or are not given out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.probe import Measure

from .conftest import tanh_chain

CURED = "fake:fault=wrong,nodes=layer2,marks=cure"
SEEN = "fake:fault=wrong,nodes=layer2,marks=keep"


def test_what_outputs_hide_stays_hidden(open_model: Callable[..., Any], tmp_path: Path) -> None:
    session = open_model(tanh_chain(tmp_path / "chain.onnx", 4), CURED)
    outcome = session.step("layerwise").finish.outcome
    assert outcome.observer == "improves"


def test_a_listener_that_is_told_nothing_is_no_way_to_watch(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    """Its run fails like the model, and shows no tensor: that is not to have watched."""
    session = open_model(tanh_chain(tmp_path / "chain.onnx", 4), SEEN)
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
