"""Figures of a session as Prometheus reads them."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "prometheus_client", reason="needs the Prometheus client: pip install '.[metrics]'"
)

from prometheus_client.parser import text_string_to_metric_families

from narrowdown.engines.probe import Inspect, Measurement
from narrowdown.wizard.monitoring import Metered
from narrowdown.wizard.plain import Display
from narrowdown.wizard.session.events import (
    ProbeFinished,
    ProbeStarted,
    SessionClosed,
    SessionOpened,
    StepFinished,
)


def figures(path: Path) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                labels = [v for k, v in sorted(sample.labels.items()) if k != "session"]
                assert sample.labels["session"] == "k7f3"
                found[(sample.name.removeprefix("narrowdown_"), *labels)] = sample.value
    return found


def test_what_happened_is_counted(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Seen(Display):
        def event(self, event: Any) -> None:
            seen.append(event)

    file = tmp_path / "narrowdown.prom"
    display = Metered(Seen(), file, "k7f3")
    events = [
        SessionOpened(id="k7f3"),
        ProbeStarted(key="a", run=1, probe=Inspect(engine="e")),
        ProbeStarted(key="b", run=1, probe=Inspect(engine="f"), speculative=True),
        ProbeFinished(key="a", run=1, measurement=Measurement(), seconds=1.5),
        ProbeFinished(key="b", run=1, measurement=Measurement(status="crash"), seconds=0.5),
        StepFinished(run=1, node="reduce", status="done"),
    ]
    for event in events:
        display.event(event)
    workers = (
        {"state": "busy", "host": "far", "memory": 5},
        {"state": "idle", "host": "far", "memory": 7},
        {"state": "busy"},
    )
    display.progress({"done": 3, "expected": 9, "best": 2, "workers": workers})
    display.close()
    assert seen == events
    assert figures(file) == {
        ("working",): 1,
        ("exit_code",): -1,
        ("probes_total", "inspect", "ok"): 1,
        ("probes_total", "inspect", "crash"): 1,
        ("probe_seconds_total", "inspect"): 2,
        ("speculative_probes_total",): 1,
        ("steps_total", "done", "reduce"): 1,
        ("step_probes_done",): 3,
        ("step_probes_expected",): 9,
        ("smallest_failing_nodes",): 2,
        ("busy_workers", "far"): 1,
        ("busy_workers", "local"): 1,
        ("worker_memory_bytes", "far"): 12,
        ("worker_memory_bytes", "local"): 0,
    }
    display.event(SessionClosed(exit_code=10))
    display.close()
    assert (figures(file)[("working",)], figures(file)[("exit_code",)]) == (0, 10)
