"""When a session first named a culprit, had a verified workaround, and confirmed a minimal case: in
seconds, and in units of B, the first build of the whole model. Read from its journal, while it is
written or afterwards."""

import json
from pathlib import Path
from typing import Any

# Step -> what in its outcome is a milestone. The first step to reach one counts.
NAMED = {
    "layerwise": lambda o: o.get("culprit"),
    "extract": lambda o: o.get("reproduced") and o.get("names"),
    "reduce": lambda o: o.get("verdict") == "reduced" and o.get("names"),
    "tactics": lambda o: o.get("found") and o.get("suspects"),
    "confirm": lambda o: o.get("confirmed") and o.get("names"),
}
CURED = {
    "repeat": lambda o: o.get("cured") and "what the reference foretells, in FP32",
    "workaround": lambda o: (
        o.get("holds") and (f"{o.get('keep')} nodes in FP32" if o.get("keep") else o.get("what"))
    ),
    "precision": lambda o: o.get("outcome") == "found" and f"{o.get('keep')} nodes in FP32",
}
CASE = {"confirm": lambda o: o.get("confirmed") and f"{o.get('nodes')} nodes: {o.get('names')}"}
MILESTONES = {"named": NAMED, "cured": CURED, "minimal": CASE}


class Story:
    """A session as far as its journal tells. ``told``: lines that are news since the last look."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._read = journal, 0
        self._begun, self._probes, self._steps = 0.0, dict[str, dict[str, Any]](), dict[int, str]()
        self.unit = 0.0  # B, seconds; 0 while it is not known
        self.reached: dict[str, tuple[float, str]] = {}
        self.steps: list[dict[str, Any]] = []
        self.builds: list[dict[str, Any]] = []

    def look(self) -> list[str]:
        """Read what was added, and say what is worth a line."""
        try:
            with self._journal.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        told = []
        for line in whole.splitlines():
            try:
                told += self._event(json.loads(line))
            except ValueError:
                continue
        return told

    def facts(self) -> dict[str, Any]:
        """The row of the case: B, each milestone in seconds and in B, seconds by step."""
        facts: dict[str, Any] = {"B": round(self.unit, 1), "builds": len(self.builds)}
        for name, (at, what) in self.reached.items():
            facts[f"{name}_seconds"], facts[name] = round(at, 1), what[:120]
            if self.unit:
                facts[f"{name}_B"] = round(at / self.unit, 2)
        facts["steps"] = " ".join(f"{s['step']} {s['seconds']:.0f}" for s in self.steps)
        return facts

    def _event(self, event: dict[str, Any]) -> list[str]:
        kind, at = event.get("kind"), float(event.get("ts", 0.0))
        self._begun = self._begun or at
        since = at - self._begun
        if kind == "step.started":
            self._steps[event["run"]] = event["step"]
        elif kind == "probe.started":
            self._probes[event["key"]] = event.get("probe") or {}
        elif kind == "probe.finished":
            return self._probe(event, since)
        elif kind == "step.finished":
            return self._step(event, since)
        return []

    def _probe(self, event: dict[str, Any], since: float) -> list[str]:
        probe, found = self._probes.get(event["key"], {}), event.get("measurement") or {}
        if probe.get("op") != "measure" or not str(probe.get("engine", "")).startswith("tensorrt"):
            return []
        step = self._steps.get(event["run"], "")
        row = {
            "at": round(since, 1), "step": step, "engine": probe["engine"], "seconds": round(event.get("seconds", 0.0), 2),
            "build": round(found.get("build_seconds", 0.0), 2), "nodes": found.get("nodes", 0),
            "status": found.get("status", "ok"), "attempt": probe.get("attempt", 0), "keep": bool(probe.get("keep")),
            "marks": bool(probe.get("marks")),
            "ahead": not event["run"], "samples": len(probe.get("samples", ())), "runs": probe.get("runs", 1),
            "edits": len((probe.get("candidate") or {}).get("edits", ())),
        }  # fmt: skip
        self.builds.append(row)
        # Where the whole is refused, a part of it is the first to be built.
        whole = (probe.get("candidate") or {}).get("nodes", "*") == "*"
        if not self.unit and row["build"] and event["run"] and whole and row["status"] == "ok":
            self.unit = row["build"]
            return [f"B = {self.unit:.1f} s ({step})"]
        return []

    def _step(self, event: dict[str, Any], since: float) -> list[str]:
        step, outcome = self._steps.get(event["run"], ""), event.get("outcome") or {}
        self.steps.append(
            {"step": step, "seconds": event.get("seconds", 0.0), "probes": event.get("probes", 0)}
        )
        told = [
            f"{self._at(since)} {step} took {event.get('seconds', 0.0):.1f} s: {str(outcome.get('message', ''))[:300]}"
        ]
        for name, rules in MILESTONES.items():
            what = rules[step](outcome) if step in rules else None
            if what and name not in self.reached:
                self.reached[name] = since, str(what)
                told.append(f"{self._at(since)} FIRST {name.upper()}: {str(what)[:200]}")
        return told

    def _at(self, since: float) -> str:
        return f"{since:.1f} s = {since / self.unit:.2f} B:" if self.unit else f"{since:.1f} s:"
