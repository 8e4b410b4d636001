"""The report as Markdown: for an issue tracker, a terminal, a reader without a browser."""

import re
from collections.abc import Sequence

from engines.compare.values import Values
from wizard.report.document import Culprit, Report
from wizard.report.picture import curve
from wizard.report.words import count, decibels, duration, listing, margin, number, switch, visible


def to_markdown(report: Report) -> str:
    """Verdict first, then culprits, workaround, route, environment, commands."""
    parts = [f"# {literal(report.headline)}", summary(report)]
    parts += [culprit(c, i, len(report.culprits)) for i, c in enumerate(report.culprits, 1)]
    if report.ruled_out:
        parts.append(ruled_out(report))
    if report.workaround:
        parts.append(workaround(report))
    parts.append(depth(report))
    if report.layers:
        parts.append(layers(report))
    if report.route:
        parts.append(route(report))
    if report.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {literal(note)}" for note in report.notes))
    if report.commands:
        parts.append("## The same by hand\n\n" + fenced("\n".join(report.commands), "sh"))
    parts.append(environment(report))
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(report: Report) -> str:
    nearest = f"{code(report.worst_output)} on {code(report.worst_sample)}, {margin(report.margin)}"
    rows = [
        ("verdict", report.verdict + ("" if report.end else " (the session has not ended)")),
        ("model", code(report.model)),
        ("engine under test", code(report.engine)),
        ("reference", code(report.reference)),
        ("error, allowed", f"{report.metric} {number(report.error)}, {number(report.tolerance)}"),
        ("failing outputs", listing([code(name) for name in report.failing_outputs])),
        ("samples failing", f"{report.samples_failing} of {report.samples}"),
        *([("nearest to failing", nearest)] if report.margin is not None and report.worst_output else []),
        *([("cause", literal(report.cause) or "?")] if report.cause else []),
        *([("size", f"{report.nodes_after} of {count(report.nodes_before, 'node')}")] if report.nodes_after else []),
        ("time", f"{duration(report.seconds)}, {count(report.probes, 'probe')}"),
    ]
    text = table(("", ""), rows)
    said = [literal(line) for line in (report.explanation, report.spread, report.advice) if line]
    return "\n\n".join([text, *said])


def culprit(c: Culprit, position: int, total: int) -> str:
    title = "## The minimal failing case" if total == 1 else f"## Culprit {position} of {total}"
    rows = [
        ("nodes", listing([code(name) for name in c.nodes], 12)),
        ("operators", " → ".join(c.ops) if len(c.ops) <= 12 else listing(c.ops, 12)),
        ("inputs", listing([code(name) for name in c.inputs])),
        ("outputs", listing([code(name) for name in c.outputs])),
        ("cause", literal(c.cause)),
        ("its own error", number(c.own)),
        ("effect on the model's outputs", number(c.effect)),
        ("sample", code(c.sample)),
        ("fails again", c.verified or "?"),
        ("1-minimal", "yes: without any one of its nodes it passes" if c.minimal else "not proven"),
        ("folder", code(c.dir)),
    ]
    text = f"{title}\n\n{table(('', ''), rows)}"
    facts = [literal(c.evidence)] if c.evidence else []
    if c.needs_higher_inputs:
        facts.append(
            "It passes when fed exactly and fails when its inputs are rounded: it needs its inputs in higher precision."
        )
    facts += [around(c)] if c.around.spots else []
    facts += [values(v) for v in c.values[:1]]
    return "\n\n".join([text, *facts])


def around(c: Culprit) -> str:
    """The neighbourhood, one node a line; the suspects carry a mark."""
    lines = [
        f"- {'**suspect** ' if spot.suspect else ''}{literal(spot.op)} {code(spot.name)}"
        + (f" makes {code('; '.join(spot.makes))}" if spot.makes else "")
        + (f" ({literal(spot.note)})" if spot.note else "")
        for spot in c.around.spots
    ]
    place = f"{count(c.around.before, 'node')} before it, {count(c.around.after, 'node')} behind it."
    return "\n".join([f"Around it, in the order of the model; {place}", "", *lines])


def values(v: Values) -> str:
    """How the engine's values of an output differ from the reference's."""
    worst = number(max(map(max, v.grid)))
    return (
        f"Its output {code(v.output)}, {v.dtype} {list(v.shape)}: from {number(v.low)} to {number(v.high)} where it is finite, "
        f"off by at most {worst} of the largest right value; not finite are {v.actual_nonfinite} values on the engine and "
        f"{v.expected_nonfinite} in the reference."
    )


def ruled_out(report: Report) -> str:
    lines = [f"- {o.what}." + (f" {literal(o.measured)}" if o.measured else "") for o in report.ruled_out]
    return "\n".join(["## What it is not", "", *lines])


def workaround(report: Report) -> str:
    w = report.workaround
    if w is None:
        return ""
    rows = [
        ("kind", w.kind),
        ("engine", code(w.engine)),
        ("holds", f"{w.samples_ok} of {count(w.samples_n, 'sample')}"),
        ("error, margin", f"{number(w.error)}, {margin(w.margin)}"),
    ]
    if w.keep_higher:
        rows.append(("keep in higher precision", listing([code(name) for name in w.keep_higher], 40)))
    if w.switched_off:
        rows.append((switch(w.kind), listing([code(name) for name in w.switched_off])))
    if w.cost:
        rows.append(("cost", literal(w.cost)))
    rows.append(("smallest set", "yes" if w.minimal else "not proven"))
    title = "## The workaround" if w.holds else "## The workaround does not hold on every sample"
    return "\n\n".join([f"{title}\n\n{table(('', ''), rows)}", *([literal(w.tried)] if w.tried else [])])


def depth(report: Report) -> str:
    """The curve of the error over the model, as a line of text."""
    drawn = curve([point.error for point in report.depth])
    if not drawn:
        return ""
    first, last = report.depth[0].error, report.depth[-1].error
    worst = max(report.depth, key=lambda point: point.error)
    said = (
        f"{count(len(report.depth), 'tensor')}, first node to last, logarithmic: {number(first)} at the first, {number(last)} at "
        f"the last, at most {number(worst.error)} ({code(worst.name)}); allowed {number(report.tolerance)}."
    )
    return f"## Error by depth\n\n{fenced(drawn, 'text')}\n\n{said}"


def layers(report: Report) -> str:
    """All layers: who reads this far looks for theirs."""
    header = (
        "layer", "operator", "SQNR alone", "in the model", "weights", "inputs", "effect", "codes", "scales", "in float",
    )  # fmt: skip
    rows = [
        (
            code(row.layer), code(row.op), decibels(row.sqnr_db), decibels(row.cumulative_db), decibels(row.weights_db),
            decibels(row.inputs_db), number(row.effect), row.codes, row.scales, "yes" if row.left_in_float else "",
        )
        for row in report.layers
    ]  # fmt: skip
    return f"## Layers by SQNR\n\n{table(header, rows)}"


def route(report: Report) -> str:
    rows = [
        (
            str(position),
            literal(stop.title),
            literal(stop.text) + ("" if stop.state in ("", "finished") else f" ({stop.state})"),
            {"person": "a person", "recommended": "recommended", "script": "script"}.get(stop.by, stop.by)
            + ("" if stop.answer == stop.recommended else f" (recommended: {stop.recommended})"),
            duration(stop.seconds),
            str(stop.probes),
            literal(stop.message or stop.because),
        )
        for position, stop in enumerate(report.route, 1)
    ]
    header = ("", "question", "answer", "by", "time", "probes", "measured")
    return f"## How we got here\n\n{table(header, rows)}"


def environment(report: Report) -> str:
    rows = [(literal(str(key)), code(str(value))) for key, value in flat(report.environment)]
    return f"## Environment\n\n{table(('', ''), rows)}" if rows else ""


def flat(values: "dict[str, object]", prefix: str = "") -> "list[tuple[str, object]]":
    """Nested plain data as (dotted key, value) rows."""
    rows: list[tuple[str, object]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", value))
    return rows


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(cell.replace(chr(10), ' ') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def literal(text: str) -> str:
    """Text of a model or a log that Markdown must not read as markup."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", visible(re.sub(r"\s+", " ", text).strip()))


def code(text: str) -> str:
    """Inline code that holds any text: a longer fence than any run of backticks inside, bars escaped for tables."""
    text = visible(re.sub(r"\s+", " ", text)) or "(no name)"
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{visible(text, keep=chr(10))}\n{fence}"
