"""Figures of a session for a monitoring system: a file in Prometheus' text format, replaced whole
whenever something has changed.

Off unless asked for; needs the extra ``metrics``. It is made by whoever watches, from the journal
and the runner's snapshot: the runner knows nothing of it.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, write_to_textfile

from narrowdown.wizard.plain import Display
from narrowdown.wizard.session.events import (
    AnyEvent,
    ProbeFinished,
    ProbeStarted,
    SessionClosed,
    SessionOpened,
    StepFinished,
    WorkerDied,
)

_EVERY = 1.0  # seconds between two writes, at least


class Metered(Display):
    """A display that passes everything on to another and keeps the file. Names and labels are
    public: dashboards use them."""

    def __init__(self, display: Display, path: Path, session: str) -> None:
        self._display, self._path, self._written = display, path, 0.0
        self._ops: dict[str, str] = {}
        self._registry = registry = CollectorRegistry()
        self._always = {"session": session}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"narrowdown_{name}", text, ("session", *labels), registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"narrowdown_{name}", text, ("session", *labels), registry=registry)

        self._probes = counter("probes", "Probes that have been answered.", "op", "status")
        self._seconds = counter(
            "probe_seconds", "Seconds from the start of a probe to its answer.", "op"
        )
        self._ahead = counter(
            "speculative_probes", "Probes that were started before a step had asked for them."
        )
        self._deaths = counter(
            "worker_deaths", "Worker processes that ended while they worked, or were ended for it."
        )
        self._steps = counter("steps", "Steps that have ended.", "step", "status")
        self._working = gauge("working", "1 while a runner works on the session.")
        self._done = gauge("step_probes_done", "Probes that the running step has been answered.")
        self._expected = gauge(
            "step_probes_expected",
            "Probes that the running step is expected to ask in all; -1 unknown.",
        )
        self._best = gauge(
            "smallest_failing_nodes", "Nodes of the smallest part that fails so far; -1 unknown."
        )
        self._busy = gauge("busy_workers", "Workers that answer a probe now.", "host")
        self._memory = gauge("worker_memory_bytes", "Memory of the workers' own.", "host")
        self._exit = gauge("exit_code", "How the session was closed last; -1 while it is open.")

    def event(self, event: AnyEvent) -> None:
        self._display.event(event)
        match event:
            case SessionOpened():
                self._working.labels(**self._always).set(1)
                self._exit.labels(**self._always).set(-1)
            case SessionClosed():
                self._working.labels(**self._always).set(0)
                self._exit.labels(**self._always).set(event.exit_code)
            case ProbeStarted():
                self._ops[event.key] = (
                    str(event.probe.__struct_config__.tag) if event.probe else "unknown"
                )
                if event.speculative:
                    self._ahead.labels(**self._always).inc()
            case ProbeFinished():
                op = self._ops.pop(event.key, "unknown")
                status = event.measurement.status if event.measurement is not None else "ok"
                self._probes.labels(**self._always, op=op, status=status).inc()
                self._seconds.labels(**self._always, op=op).inc(max(0.0, event.seconds))
            case StepFinished():
                self._steps.labels(**self._always, step=event.node, status=event.status).inc()
            case WorkerDied():
                self._deaths.labels(**self._always).inc()
        self._write()

    def progress(self, snapshot: Mapping[str, Any] | None) -> None:
        self._display.progress(snapshot)
        if snapshot is None:
            return
        for gauge, name in (
            (self._done, "done"),
            (self._expected, "expected"),
            (self._best, "best"),
        ):
            gauge.labels(**self._always).set(float(snapshot.get(name, -1)))
        hosts: dict[str, list[Mapping[str, Any]]] = {}
        for worker in snapshot.get("workers") or ():
            hosts.setdefault(str(worker.get("host") or "local"), []).append(worker)
        for host, workers in hosts.items():
            self._busy.labels(**self._always, host=host).set(
                sum(w.get("state") == "busy" for w in workers)
            )
            self._memory.labels(**self._always, host=host).set(
                sum(int(w.get("memory") or 0) for w in workers)
            )
        self._write()

    def close(self) -> None:
        self._display.close()
        self._write(at_once=True)

    def _write(self, *, at_once: bool = False) -> None:
        if at_once or time.monotonic() - self._written >= _EVERY:
            self._written = time.monotonic()
            write_to_textfile(str(self._path), self._registry)
