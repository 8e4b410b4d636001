"""The report as Markdown: for an issue tracker, a terminal, a reader without a browser."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from narrowdown.engines.compare.say import say_part, say_sample, wrong_by
from narrowdown.engines.compare.values import Values
from narrowdown.engines.search.lookalike import say_lookalike
from narrowdown.wizard.report.culprit_groups import groups, kind, others
from narrowdown.wizard.report.document import Culprit, Report, Workaround, readable
from narrowdown.wizard.report.hand_on import APPLY, list_deeds
from narrowdown.wizard.report.lost import say_values_apart, say_values_lost
from narrowdown.wizard.report.picture import curve, tally
from narrowdown.wizard.report.summary import name_inside, say_effect, say_source
from narrowdown.wizard.words import (  # fmt: skip
    LONGEST,
    NAME,
    TEXT,
    WORD,
    count,
    decibels,
    duration,
    elide,
    listing,
    margin,
    number,
    show_error,
    switch,
    visible,
)

MOST = 60_000  # characters: GitHub takes 65,536 in an issue, and its owner has a sentence to add
LAYERS, ROWS = 40, 60  # of a table that may be as long as the model, of any other


def to_markdown(report: Report) -> str:
    """Verdict first, how to see it fail, what to do now, then culprits, workaround, route,
    environment. Never longer than an issue may be: what does not fit is named."""
    report = readable(report)
    head = f"# {literal(report.headline)}\n\n{summary(report)}"
    order = [
        head, by_hand(report), deeds(report), *write_culprits(report.culprits, report.metric), ruled_out(report),
        workaround(report), weighed(report), trigger(report), rewrites(report), depth(report), search(report), layers(report),
        brought(report), route(report), notes(report), environment(report),
    ]  # fmt: skip
    room, kept = MOST - 500, set()
    for i in (0, 1, 2, len(order) - 1, *range(3, len(order) - 1)):  # the most wanted first
        if len(order[i]) + 2 <= room:
            room -= len(order[i]) + 2
            kept.add(i)
    parts = [part for i, part in enumerate(order) if part and i in kept]
    if titles := [
        part.partition("\n")[0].lstrip("# ") for i, part in enumerate(order) if i not in kept
    ]:
        parts.append(
            f"Too long for an issue, and only in report.html and report.json: {elide(listing(titles), 300)}."
        )
    return "\n\n".join(parts) + "\n"


def summary(report: Report) -> str:
    nearest = f"{code(report.worst_output)} on {code(say_sample(report.worst_sample))}, {margin(report.margin)}"
    rows = [
        ("verdict", report.verdict + ("" if report.end else " (the session has not ended)")),
        ("model", code(report.model)),
        (
            "engine under test",
            f"{code(report.engine, LONGEST)} {literal(version(report.environment, 'engine'))}".strip(),
        ),
        (
            "reference",
            f"{code(report.reference, LONGEST)} {literal(version(report.environment, 'reference'))}".strip(),
        ),
        ("error", error(report)),
        *(
            [
                ("failing outputs", listing([code(name) for name in report.failing_outputs])),
                ("samples failing", f"{report.samples_failing} of {report.samples}"),
            ]
            if report.error is not None
            else []
        ),
        *(
            [("nearest to failing", nearest)]
            if report.margin is not None and report.worst_output
            else []
        ),
        *([("cause", literal(report.cause) or "?")] if report.cause else []),
        *(
            [("smallest case", f"{report.nodes_after} of {count(report.nodes_before, 'node')}")]
            if report.nodes_after
            else []
        ),
        ("time", f"{duration(report.seconds)}, {count(report.probes, 'probe')}"),
    ]
    text = table(("", ""), rows)
    bugs = map(say_lookalike, report.lookalikes)
    told = (
        report.explanation,
        say_effect(report),
        report.spread,
        *bugs,
        report.advice,
        report.names.legend,
    )
    said = [literal(line) for line in told if line]
    said += [f"It goes on from session {code(report.goes_on_from)}."] if report.goes_on_from else []
    return "\n\n".join([text, *said])


def deeds(report: Report) -> str:
    """What to do now, numbered, what to paste below it."""
    told = [
        f"**{n}.** {literal(deed.text)}" + (f"\n\n{fenced(deed.typed, '')}" if deed.typed else "")
        for n, deed in enumerate(list_deeds(report), 1)
    ]
    return "\n\n".join(["## What to do now", *told]) if told else ""


def error(report: Report) -> str:
    """``wrong by 2.37 % where 0.01 % is allowed``; by another metric than a share ``max_abs 0.02
    where 0.01 is allowed``."""
    if report.error is None or report.tolerance is None:
        return "not measured"
    if report.metric == "elementwise":
        return f"an element is wrong by {number(report.error)} times what is allowed ({report.allowed})"
    if report.error_places[0]:
        return f"{say_part(report.error, report.metric, report.error_places)}, and none may be"
    if report.metric == "rel_l2":
        return f"{wrong_by(report.error, report.metric)} where {show_error(report.tolerance, report.metric)} is allowed"
    return f"{report.metric} {number(report.error)} where {number(report.tolerance)} is allowed"


def version(environment: "dict[str, Any]", role: str) -> str:
    """``(1.31.1 on AMD EPYC)``: what the engine or the reference was; empty where it was never
    asked."""
    info = environment.get(role) or {}
    device = info.get("device")
    said = " on ".join(str(part) for part in (info.get("version"), device) if part)
    return f"({said})" if said else ""


def by_hand(report: Report) -> str:
    """The commands of the first case."""
    if not report.commands:
        return ""
    place = code(report.culprits[0].dir) if report.culprits else "`case`"
    said = f"In the folder {place} of the bundle that comes with this report:"
    return f"## See it fail\n\n{said}\n\n{fenced(chr(10).join(report.commands), 'sh')}"


def write_culprits(culprits: Sequence[Culprit], metric: str) -> Iterator[str]:
    """Each culprit; those that are like one before them as a table."""
    for first, *like in groups(map(kind, culprits)):
        yield culprit(culprits[first], first + 1, len(culprits), metric)
        if like:
            yield write_alike_culprits(
                [(position + 1, culprits[position]) for position in like], metric
            )


def write_alike_culprits(culprits: Sequence[tuple[int, Culprit]], metric: str) -> str:
    """Culprits that fail in the same way as one before them, a line each: what is their own."""
    header = (
        "", "nodes", "inputs", "outputs", "by itself", "your model by it", "sample", "fails again", "minimal",
        "folder", "shown by",
    )  # fmt: skip
    rows = [
        (
            str(position), listing([code(name) for name in c.nodes], 12), listing([code(name) for name in c.inputs]),
            listing([code(name) for name in c.outputs]), say_part(c.own, metric, c.own_places), show_error(c.effect, metric),
            code(say_sample(c.sample)), c.verified or "?",
            "yes" if c.minimal else "not proven", code(c.dir),
            " ".join([*filter(None, [literal(c.evidence)]), *map(values, c.values[:1])]),
        )
        for position, c in culprits
    ]  # fmt: skip
    said = f"The cause is {literal(culprits[0][1].cause)} here, too. What lies around each is drawn in report.html."
    these = f"{'Culprit' if len(rows) == 1 else 'Culprits'} {listing([str(position) for position, _ in culprits], 8)}"
    return f"### {these}: {others(len(rows))}\n\n{said}\n\n{table(header, rows)}"


def _say_minimal(c: Culprit) -> str:
    if not c.minimal:
        return "not proven"
    return (
        "yes (single node)" if len(c.nodes) == 1 else "yes (without any one of its nodes it passes)"
    )


def culprit(c: Culprit, position: int, total: int, metric: str) -> str:
    title = (
        f"## The {'minimal ' if c.minimal else ''}failing case"
        if total == 1
        else f"## Culprit {position} of {total}"
    )
    rows = [
        ("nodes", listing([code(name) for name in c.nodes], 12)),
        ("operators", literal(" → ".join(c.ops) if len(c.ops) <= 12 else listing(c.ops, 12))),
        ("inputs", listing([code(name) for name in c.inputs])),
        ("outputs", listing([code(name) for name in c.outputs])),
        ("cause", literal(c.cause)),
        ("cut out, by itself", say_part(c.own, metric, c.own_places)),
        *(
            [("in the case folder, made smaller", wrong_by(c.made_smaller, metric))]
            if c.made_smaller is not None
            else []
        ),
        ("your model's outputs, by it", say_part(c.effect, metric, c.effect_places)),
        ("sample", code(say_sample(c.sample))),
        ("fails again", c.verified or "?"),
        ("minimal", _say_minimal(c)),
        *([("kept with it", listing([code(name) for name in c.also], 40))] if c.also else []),
        ("folder", code(c.dir)),
    ]
    text = f"{title}\n\n{table(('', ''), rows)}"
    facts = [literal(c.evidence)] if c.evidence else []
    facts += [literal(say_source(c))] if c.source else []
    if c.needs_higher_inputs:
        facts.append(
            "It passes when fed exactly and fails when its inputs are rounded: it needs its inputs in higher precision."
        )
    facts += [write_surroundings(c)] if c.around.spots else []
    facts += [values(v) for v in c.values[:1]]
    return "\n\n".join([text, *facts])


def write_surroundings(c: Culprit) -> str:
    """The neighbourhood, one node a line; the suspects carry a mark."""
    lines = [
        f"- {'**suspect** ' if spot.suspect else ''}{literal(spot.op)} {code(spot.name)}"
        + (f" makes {code('; '.join(spot.makes))}" if spot.makes else "")
        + (f" ({literal(spot.note)})" if spot.note else "")
        for spot in c.around.spots
    ]
    place = (
        f"{count(c.around.before, 'node')} before it, {count(c.around.after, 'node')} behind it."
    )
    return "\n".join([f"Around it, in the order of the model; {place}", "", *lines])


def values(v: Values) -> str:
    """How the engine's values of an output differ from the reference's."""
    about = f"Its output {code(v.output)}, in the case folder {v.dtype} {list(v.shape)}:"
    wrong = [literal(said) for said in (say_values_lost(v), say_values_apart(v)) if said]
    return " ".join([about, *wrong])


def search(report: Report) -> str:
    """How many probes of each search failed and passed."""
    lines = [
        f"- {literal(s.step)}: {count(len(s.looks), 'probe')}, {tally(s)}"
        for s in report.searches[:ROWS]
    ]
    more = say_further(len(report.searches) - len(lines), "search", "searches")
    return "\n".join(["## The search", "", *lines]) + more if lines else ""


def notes(report: Report) -> str:
    lines = [f"- {literal(note)}" for note in report.notes[:ROWS]]
    more = say_further(len(report.notes) - len(lines), "note")
    return "\n".join(["## Notes", "", *lines]) + more if lines else ""


def say_further(n: int, one: str, many: str = "") -> str:
    """A paragraph that says how many are left out here; empty for none."""
    return (
        f"\n\n{count(n, f'further {one}', f'further {many}' if many else '')} in report.json."
        if n > 0
        else ""
    )


def ruled_out(report: Report) -> str:
    lines = [
        f"- {o.what}." + (f" {literal(o.measured)}" if o.measured else "") for o in report.ruled_out
    ]
    return "\n".join(["## What it is not", "", *lines]) if lines else ""


def workaround(report: Report) -> str:
    w = report.workaround
    if w is None:
        return ""
    rows = [
        ("kind", w.kind),
        ("engine", code(w.engine, LONGEST)),
        ("tuning samples that pass", f"{w.samples_ok} of {count(w.samples_n, 'sample')}"),
        (
            "right on others",
            f"{w.unseen_ok} of {count(w.unseen_n, 'sample')}" if w.unseen_n else "not tried",
        ),
        ("error with it", f"{show_error(w.error, report.metric)} at most, {margin(w.margin)}"),
    ]
    if w.keep_higher:
        rows.append(
            (
                "keep in higher precision",
                listing([code(name) for name in w.keep_higher], 40) + literal(name_inside(w)),
            )
        )
    if w.source:
        rows.append(("in your program", literal(f"{listing(w.source)}, compute this in float32")))
    if w.switched_off:
        rows.append((switch(w.kind), listing([code(name) for name in w.switched_off])))
    if w.condition:
        rows.append(("right only while", literal(w.condition)))
    if w.cost:
        rows.append(("cost", literal(w.cost)))
    title = "## The workaround" if w.holds else "## The workaround does not hold on every sample"
    known = "\n".join(f"- {literal(fact)}" for fact in w.known)
    parts = [
        f"{title}\n\n{table(('', ''), rows)}",
        known,
        literal(w.tried),
        *sets(w, report.metric),
        *recipes(w),
    ]
    return "\n\n".join(part for part in parts if part)


def weighed(report: Report) -> str:
    """What the fault and each workaround cost and buy."""
    rows = [
        (
            literal(r.what) + (" (recommended)" if r.chosen else ""),
            "did not run" if r.why else "passes" if r.passes else "fails",
            show_error(r.error, report.metric) if r.error is not None else "-",
            number(r.score) if r.score is not None else "-",
            number(1000 * r.seconds) if r.seconds is not None else "-",
        )
        for r in report.scores
    ]
    header = ("", "within the tolerance", "error on the session's samples", "score", "ms a run")
    return f"## What it costs, and what a cure buys\n\n{table(header, rows)}" if rows else ""


def trigger(report: Report) -> str:
    """What triggers the failure: each thing that was changed alone and that matters."""
    found = report.trigger
    if found is None:
        return ""
    rows = [
        tuple(literal(cell) or "-" for cell in (f.factor, f.base, f.fires, f.passes, f.refused))
        for f in found.factors
        if f.matters
    ]
    header = ("changed alone", "in the case", "fails with", "passes with", "refused with")
    return f"## What triggers it\n\n{literal(found.said)}" + (
        f"\n\n{table(header, rows)}" if rows else ""
    )


def rewrites(report: Report) -> str:
    """What was tried to cure it by other nodes."""
    tried = [r for r in report.rewrites if r.verdict != "nothing to do"]
    rows = [
        (
            code(r.rewrite), r.verdict, str(len(r.changed)),
            show_error(r.exact, report.metric) if r.exact is not None else "-",
            show_error(r.error, report.metric) if r.error is not None else "-", literal(r.why),
        )
        for r in tried
    ]  # fmt: skip
    header = ("rewrite", "", "nodes changed", "the reference moves by", "error", "")
    return f"## Written otherwise\n\n{table(header, rows)}" if rows else ""


def brought(report: Report) -> str:
    """The tables of steps that other packages bring, as they are."""
    parts = []
    for left in report.brought:
        rows = [tuple(literal(cell) or "-" for cell in row) for row in left.rows[:ROWS]]
        more = say_further(len(left.rows) - len(rows), "row")
        title = f"## {literal(left.step)}: {literal(left.table)}"
        parts.append(f"{title}\n\n{table([literal(c) for c in left.columns], rows)}{more}")
    return "\n\n".join(parts)


def recipes(w: Workaround) -> list[str]:
    """How it is applied, in the words of the first tool, and where the others' are."""
    told = [f"### Apply it: {literal(r.tool)}\n\n{fenced(r.text, r.language)}" for r in w.apply[:1]]
    others = ", ".join(dict.fromkeys(literal(r.tool) for r in w.apply[1:]))
    return [*told, f"Also in `{APPLY}` of the bundle: {others}."] if others else told


def how_to_apply(w: Workaround) -> str:
    """Every recipe, as a page of its own."""
    stay = "stays" if len(w.keep_higher) == 1 else "stay"
    nodes = f" {count(len(w.keep_higher), 'node')} {stay} in FP32." if w.keep_higher else ""
    only = f" It is right only while {literal(w.condition)}." if w.condition else ""
    found = f"Found on {code(w.engine, LONGEST)}.{nodes} `model.onnx` stands for your model.{only}"
    head = f"# How to apply the workaround\n\n{found}"
    return (
        "\n\n".join(
            [head, *(f"## {literal(r.tool)}\n\n{fenced(r.text, r.language)}" for r in w.apply)]
        )
        + "\n"
    )


def sets(w: Workaround, metric: str) -> list[str]:
    """The sets that were tried, fewest nodes first, as a table; none where there is nothing to
    choose between."""
    if len(w.curve) < 2:
        return []
    chosen = " (recommended)" if w.holds else " (this one)"
    rows = [
        (
            f"{p.nodes}{chosen if p.chosen else ' (the curve bends here)' if p.knee else ''}",
            show_error(p.error, metric),
            f"{number(1000 * p.seconds)} ms" if p.seconds else "-",
        )
        for p in w.curve
    ]
    return [table(("nodes in FP32", "error on tuning samples", "all samples run in"), rows)]


def depth(report: Report) -> str:
    """The curve of the error over the model, as a line of text."""
    drawn = curve([point.error for point in report.depth])
    if not drawn:
        return ""
    first, last = report.depth[0].error, report.depth[-1].error
    worst = max(report.depth, key=lambda point: point.error)
    metric = report.metric
    said = (
        f"{count(len(report.depth), 'tensor')}, first node to last, logarithmic: {show_error(first, metric)} at the first, "
        f"{show_error(last, metric)} at the last, at most {show_error(worst.error, metric)} ({code(worst.name)}); "
        f"allowed {show_error(report.tolerance, report.metric)}."
    )
    grown = sorted((p for p in report.depth if p.added), key=lambda p: -(p.added or 0.0))[:3]
    adds = [
        f"{code(p.name)} ({literal(p.op)}) adds {show_error(p.added, metric)} to the {show_error(p.inherited, metric)} that "
        "arrive"
        for p in grown
    ]
    more = f" Most is added by these: {'; '.join(adds)}." if adds else ""
    return f"## Error by depth\n\n{fenced(drawn, 'text')}\n\n{said}{more}"


def layers(report: Report) -> str:
    """The worst layers, and how many more there are."""
    if not report.layers:
        return ""
    header = (
        "layer", "operator", "SQNR alone", "in the model", "weights", "inputs", "effect", "codes", "scales", "in float",
    )  # fmt: skip
    rows = [
        (
            code(row.layer), code(row.op), decibels(row.sqnr_db), decibels(row.cumulative_db), decibels(row.weights_db),
            decibels(row.inputs_db), show_error(row.effect, report.metric), row.codes, row.scales,
            "yes" if row.left_in_float else "",
        )
        for row in report.layers[:LAYERS]
    ]  # fmt: skip
    return f"## Layers by SQNR\n\n{table(header, rows)}{say_further(len(report.layers) - len(rows), 'layer')}"


def route(report: Report) -> str:
    if not report.route:
        return ""
    rows = [
        (
            str(position),
            literal(stop.title),
            literal(stop.text) + ("" if stop.state in ("", "finished") else f" ({stop.state})"),
            {"person": "a person", "recommended": "recommended", "script": "script"}.get(
                stop.by, stop.by
            )
            + ("" if stop.answer == stop.recommended else f" (recommended: {stop.recommended})"),
            duration(stop.seconds),
            str(stop.probes),
            literal(" ".join(filter(None, (stop.message or stop.because, stop.missed)))),
        )
        for position, stop in enumerate(report.route[:ROWS], 1)
    ]
    header = ("", "question", "answer", "by", "time", "probes", "measured")
    return f"## How we got here\n\n{table(header, rows)}{say_further(len(report.route) - len(rows), 'question')}"


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
    """Text of a model or a log that Markdown must not read as markup, nor at the beginning of a
    line as a list or an underline; of a long word both ends."""
    shown = visible(elide(re.sub(r"\s+", " ", text).strip(), TEXT), longest=WORD)
    shown = re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", shown)
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", shown)


def code(text: str, longest: int = NAME) -> str:
    """Inline code that holds any text: a longer fence than any run of backticks inside, bars
    escaped for tables."""
    text = visible(elide(re.sub(r"\s+", " ", text), longest)) or "(no name)"
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{visible(text, keep=chr(10))}\n{fence}"
