"""A probe in a few words: what it tries, for every display."""

from engines.graph import ranges
from engines.probe import AnyProbe, Candidate, Check, Describe, Import, Inspect, LoadInputs, Measure, Sanitize
from wizard.report.words import count, elide


def tried(probe: AnyProbe | None) -> str:
    """What the probe tries, without the engine that it tries it on."""
    match probe:
        case Measure():
            return ", ".join([_part(probe.candidate), *_manner(probe)])
        case Check():
            return f"{_part(probe.candidate)}, by your checker"
        case Inspect():
            return f"looking at {elide(probe.engine, 60)}"
        case Import():
            return "reading the model"
        case Describe():
            return "values of the reference run" if probe.sample else "mapping the graph"
        case Sanitize():
            return "folding constants and cleaning up"
        case LoadInputs():
            return "loading the inputs"
        case _:
            return "a probe"


def size(probe: AnyProbe | None) -> int:
    """How many nodes it tries; 0 for the whole model, and for what tries no part of it."""
    part = probe.candidate.nodes if isinstance(probe, (Measure, Check)) else ranges.ALL
    return 0 if part == ranges.ALL else _many(part)


def _manner(probe: Measure) -> list[str]:
    """What is done to the part beside running it."""
    candidate, said = probe.candidate, []
    if candidate.edits:
        said.append(f"shrunk in {count(len(candidate.edits), 'place')}")
    if candidate.severed:
        said.append(f"{count(_many(candidate.severed), 'tensor')} patched")
    if probe.keep:
        said.append(f"keeping {_many(probe.keep)} in FP32")
    if probe.force or probe.forbid:
        said.append("tactics forced" if probe.force else "tactics kept out")
    if probe.marks:
        every = probe.marks == ranges.ALL
        said.append("watching every tensor" if every else f"watching {count(_many(probe.marks), 'tensor')}")
    if probe.runs > 1:
        said.append(f"{probe.runs} runs")
    if probe.attempt:
        said.append(f"again, {probe.attempt + 1}")
    return said


def _part(candidate: Candidate) -> str:
    if candidate.nodes == ranges.ALL:
        return "the whole model"
    return f"{'node' if _many(candidate.nodes) == 1 else 'nodes'} {elide(candidate.nodes, 40)}"


def _many(ids: str) -> int:
    try:
        return len(ranges.decode(ids))
    except ValueError:
        return 0
