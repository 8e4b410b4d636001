"""What a report says, in the order in which it is read: one list of sections, from which Markdown and
the page are written. A fact is said here and nowhere else; a table is drawn by its columns alone.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from narrowdown.engines.causes import find_cause
from narrowdown.engines.compare.say import say_part, say_percent, say_sample, wrong_by
from narrowdown.engines.compare.values import Values
from narrowdown.engines.known.lookalike import say_lookalike
from narrowdown.engines.probe import APART, HUGE
from narrowdown.wizard.report.document import Culprit, Depth, Report, Stop, groups, kind, others
from narrowdown.wizard.report.hand_on import APPLY, Deed, list_deeds
from narrowdown.wizard.report.pictures import curve, list_surroundings
from narrowdown.wizard.report.summary import count_kept, name_place, say_effect, say_source
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.words import (
    count,
    decibels,
    duration,
    listing,
    margin,
    number,
    show_error,
    switch,
)

MOST_ADDED = 10  # tensors in a table: of a fault in one place the first few
FEW = 12  # names that stand in a line; more are folded away
ROWS = 60  # of a table or a list, where there is little room: as many as a person looks through


class Name(str):
    """Of the model, a file or a folder: in the letters of a program, of a long one both ends."""


class Typed(str):
    """An engine or a command: whole, as it is to be typed."""


class Aside(str):
    """In the margin of a page; left out where there is none."""


class Names(msgspec.Struct, frozen=True):
    """Names beside one another. More than ``most`` are folded away behind a line, ``folded``; where
    nothing can be folded, the first of them stand behind it."""

    names: Sequence[str]
    most: int = 6
    folded: str = ""

    @property
    def line(self) -> str:
        """What they are folded behind; "" for a few."""
        return (self.folded or f"{len(self.names):,} names") if len(self.names) > self.most else ""


Piece: TypeAlias = str | Names
Cell: TypeAlias = Piece | tuple[Piece, ...]  # pieces with blanks between them


class Facts(msgspec.Struct, frozen=True):
    """Label and value, a line each."""

    rows: Sequence[tuple[str, Cell]]


class Table(msgspec.Struct, frozen=True):
    """``right``: columns of numbers. ``folded``: the line behind which it is folded away, and where
    nothing can be folded it is left out. ``of``: what a row is, one and many."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: frozenset[int] = frozenset()
    folded: str = ""
    of: tuple[str, str] = ("row", "rows")


class Says(msgspec.Struct, frozen=True):
    """A paragraph."""

    cell: Cell


class Bullets(msgspec.Struct, frozen=True):
    """A line each. ``of``: what a line is, one and many."""

    items: Sequence[Cell]
    of: tuple[str, str] = ("note", "notes")


class Deeds(msgspec.Struct, frozen=True):
    """What to do, numbered."""

    deeds: Sequence[Deed]


class Code(msgspec.Struct, frozen=True):
    """To paste."""

    text: str
    language: str = "sh"


Shown: TypeAlias = Sequence[Depth] | Vicinity | Values


class Picture(msgspec.Struct, frozen=True):
    """``of``: what it shows; ``plain``: what stands for it in letters."""

    of: Shown
    caption: Cell = ""
    plain: str = ""


Block: TypeAlias = Facts | Table | Says | Bullets | Deeds | Code | Picture


class Section(msgspec.Struct, frozen=True):
    """``title`` is empty for what stands at the head."""

    title: str
    blocks: tuple[Block, ...]
    level: int = 2


def list_sections(report: Report) -> list[Section]:
    found = [
        _section("", *_head(report)),
        _section("See it fail", *_by_hand(report)),
        _section("What to do now", Deeds(list_deeds(report))),
        *list_culprits(report),
        _section(
            "What it is not",
            Bullets([f"{out.what}. {out.measured}".rstrip() for out in report.ruled_out]),
        ),
        *tell_workaround(report),
        _section("What it costs, and what a workaround buys", _scores(report)),
        *_trigger(report),
        _section("Written otherwise", _rewrites(report)),
        *_loop(report),
        *_depth(report),
        *_layers(report),
        *(_section(f"{b.step}: {b.table}", Table(b.columns, b.rows)) for b in report.brought),
        _section("How we got here", _route(report.route)),
        _section("Notes", Bullets(report.notes)),
        _section("Environment", Facts([(key, Name(v)) for key, v in flat(report.environment)])),
    ]
    return [section for section in found if section.blocks]


def _section(title: str, *blocks: Block, level: int = 2) -> Section:
    """Of these blocks those that say something."""
    return Section(title, tuple(block for block in blocks if _is_said(block)), level)


def _is_said(block: Block) -> bool:
    match block:
        case Facts(said) | Says(said) | Bullets(said) | Deeds(said) | Table(_, said):
            return bool(said)
    return True


def _facts(*rows: tuple[str, Cell]) -> Facts:
    """Of these rows those that have a value."""
    return Facts([(label, value) for label, value in rows if value])


def _head(report: Report) -> list[Block]:
    failing = f"{report.samples_failing} of {report.samples}"
    nearest = f"on {say_sample(report.worst_sample)}, {margin(report.margin)}"
    near = report.margin is not None and report.worst_output
    left = f"{report.nodes_after} of {count(report.nodes_before, 'node')}"
    # Of a model that is refused, or that crashes the engine, no value was compared.
    compared = report.error or report.failing_outputs or report.verdict == "not-reproduced"
    counted = compared and (report.samples_failing or not report.culprits)
    goes_on = ("It goes on from session", Name(report.goes_on_from)) if report.goes_on_from else ""
    return [
        Says(" ".join(filter(None, (report.explanation, say_effect(report))))),
        Says(report.spread if report.spread != report.explanation else ""),
        *map(Says, map(say_lookalike, report.lookalikes)),
        Says(report.advice),
        Says(goes_on),
        _facts(
            ("verdict", report.verdict + ("" if report.end else " (the session has not ended)")),
            ("model", Name(report.model)),
            ("engine under test", (Typed(report.engine), version(report.environment, "engine"))),
            ("reference", (Typed(report.reference), version(report.environment, "reference"))),
            ("error", say_error(report) if compared else "not measured"),
            ("failing outputs", Names(report.failing_outputs) if compared else ""),
            ("samples failing", failing if counted else ""),
            ("nearest to failing", (Name(report.worst_output), nearest) if near else ""),
            ("cause", report.cause),
            ("smallest case", left if report.nodes_after else ""),
            ("time", f"{duration(report.seconds)}, {count(report.probes, 'probe')}"),
        ),
    ]


def say_error(report: Report) -> str:
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


def version(environment: dict[str, Any], role: str) -> str:
    """``(1.31.1 on AMD EPYC)``: what the engine or the reference was; empty where it was never
    asked."""
    info = environment.get(role) or {}
    said = " on ".join(str(part) for part in (info.get("version"), info.get("device")) if part)
    return f"({said})" if said else ""


def _by_hand(report: Report) -> list[Block]:
    """The commands of the first case."""
    if not report.commands:
        return []
    place = Name(report.culprits[0].dir if report.culprits else "case")
    told = ("In the folder", place, "of the bundle that comes with this report:")
    return [Says(told), Code("\n".join(report.commands))]


def list_culprits(report: Report) -> Iterator[Section]:
    """Each culprit; those that are like one before them in a table behind it."""
    told, total = report.culprits, len(report.culprits)
    for first, *like in groups(map(kind, told)):
        one = f"The {'minimal ' if told[first].minimal else ''}failing case"
        title = one if total == 1 else f"Culprit {first + 1} of {total}"
        alike = _tell_alike(report, like) if like else []
        yield _section(title, *_culprit(report, first), *alike)


def _tell_alike(report: Report, positions: Sequence[int]) -> list[Block]:
    """What those have of their own that fail in the same way."""
    rows = [
        (
            str(i + 1),
            Names(c.nodes, FEW),
            _say_part(c.effect, report.metric, c.effect_places),
            _say_part(c.own, report.metric, c.own_places),
            c.verified or "?",
            Name(say_sample(c.sample)),
            Names(c.inputs),
            Names(c.outputs),
            Name(c.dir),
            c.evidence,
        )
        for i, c in ((i, report.culprits[i]) for i in positions)
    ]
    header = (
        "culprit", "nodes", "your model's outputs", "its own output", "fails again", "sample", "inputs", "outputs", "folder",
        "shown by",
    )  # fmt: skip
    return [Says(f"{others(len(positions))}:"), Table(header, rows)]


def _culprit(report: Report, position: int) -> list[Block]:
    c, metric = report.culprits[position], report.metric
    smaller, higher = (
        c.made_smaller,
        (
            "It passes when fed exactly and fails when its inputs are rounded: it needs its inputs in higher precision."
        ),
    )
    drawn = Picture(
        c.around,
        "Around it, in the order of the model",
        "\n".join(line.plain.rstrip() for line in list_surroundings(c.around)),
    )
    return [
        _facts(
            ("nodes", Names(c.nodes, FEW, _say_share(c.nodes, report))),
            ("operators", " → ".join(c.ops) if len(c.ops) <= 12 else listing(c.ops, 12)),
            ("inputs", Names(c.inputs) if c.inputs else ""),
            ("outputs", Names(c.outputs) if c.outputs else ""),
            ("cause", f"{c.cause}: {find_cause(c.cause).plain}"),
            ("its own output", _say_part(c.own, metric, c.own_places)),
            (
                "in the case folder, made smaller",
                "" if smaller is None else wrong_by(smaller, metric),
            ),
            ("your model's output by that", _say_part(c.effect, metric, c.effect_places)),
            ("sample", Name(say_sample(c.sample))),
            ("runs in the layers", Names(c.ran_as, FEW) if c.ran_as else ""),
            ("fails again", c.verified or "?"),
            ("minimal", _say_minimal(c)),
            ("more of its kind", Names(c.also, FEW, _say_share(c.also, report)) if c.also else ""),
            ("folder", Name(c.dir)),
        ),
        Says(c.evidence),
        Says(say_source(c) if c.source or c.modules else ""),
        Says(higher if c.needs_higher_inputs else ""),
        *([drawn] if c.around.spots else []),
        *(block for v in c.values[:1] for block in _values(v)),
    ]


def _say_share(names: Sequence[str], report: Report) -> str:
    """``28 of 95 nodes``."""
    whole = f" of {report.nodes_before:,}" if report.nodes_before >= len(names) else ""
    return f"{len(names):,}{whole} nodes"


def _say_part(error: float | None, metric: str, places: tuple[int, int]) -> str:
    return "" if error is None else say_part(error, metric, places)


def _say_minimal(c: Culprit) -> str:
    if not c.minimal:
        return "not proven"
    return (
        "yes (single node)" if len(c.nodes) == 1 else "yes (without any one of its nodes it passes)"
    )


def _values(v: Values) -> list[Block]:
    """How the engine's values of an output differ from the reference's."""
    placed = has_place(v)
    where = f"(in the case folder {v.dtype} {list(v.shape)})" + (
        ":" if placed else f" {say_where(v)}."
    )
    wrong = " ".join(filter(None, (say_values_lost(v), say_values_apart(v))))
    tiles = (
        "Where it is wrong: the largest difference in each tile, over the largest right value, "
        "logarithmic"
    )
    return [
        Says(("Its output", Name(v.output), f"{where} {wrong}")),
        *([Picture(v, tiles)] if placed else []),
    ]


def tell_workaround(report: Report) -> list[Section]:
    """What it is, how it was checked, and how to apply it; nothing where there is none."""
    w = report.workaround
    if w is None:
        return []
    tried = f"{w.unseen_ok} of {count(w.unseen_n, 'sample')}" if w.unseen_n else "not tried"
    worst, allowed = (show_error(e, report.metric) for e in (w.error, report.tolerance))
    kept = _say_share(w.keep_higher, report)
    kept += f", worst {worst} of {allowed}" if None not in (w.error, report.tolerance) else ""
    most = f"{show_error(w.error, report.metric)} at most, {margin(w.margin)}"
    place = name_place(w.source, w.modules)
    facts = _facts(
        ("kind", w.kind),
        ("engine", Typed(w.engine)),
        ("tuning samples that pass", f"{w.samples_ok} of {count(w.samples_n, 'sample')}"),
        ("right on others", tried),
        ("error with it", most),
        ("keep in higher precision", Names(w.keep_higher, FEW, kept) if w.keep_higher else ""),
        ("in your program", f"{place}, compute this in float32" if place else ""),
        (switch(w.kind), Names(w.switched_off) if w.switched_off else ""),
        ("right only while", w.condition),
        ("cost", w.cost),
    )
    title = "The workaround" if w.holds else "The workaround does not hold on every sample"
    # Without a case there is no bundle, and no page of its own.
    shown = w.apply[:1] if report.culprits else w.apply
    more = ", ".join(dict.fromkeys(recipe.tool for recipe in w.apply[len(shown) :]))
    also = ("Also in", Name(APPLY), f"of the bundle: {more}.") if more else ""
    return [
        _section(title, facts, Bullets(w.known)),
        _section("Compared", _compare_cures(report), level=3),
        *(
            _section(f"Apply it: {r.tool}", Code(r.text, r.language), Says(also), level=3)
            for r in shown
        ),
    ]


def _compare_cures(report: Report) -> Table:
    """The model as it is beside each change that was verified: what it is right on, what it takes,
    and what of the model changes."""
    first, tuning = report.workaround, report.samples - report.samples_failing
    held_out = f"{first.held_out_n - first.unseen_failing} of {first.held_out_n}" if first else ""
    bare = f"{tuning} of {report.samples}"
    rows = [("as it is", bare, held_out, _error(report.error, report.metric), "", "nothing")]
    for w in report.cures:
        off = listing(w.switched_off, 2)
        rows.append(
            (
                count_kept(w) if w.keep_higher else f"{switch(w.kind)} {off}",
                f"{w.samples_ok} of {w.samples_n}",
                f"{w.held_out_ok} of {w.held_out_n}" if w.held_out_n else "not tried",
                _error(w.error, report.metric),
                w.cost or "not timed",
                "types of nodes"
                if w.keep_higher
                else "nodes"
                if w.kind in (*APART, "rewrite", "control-flow")
                else "nothing",
            )
        )
    header = (
        "change",
        "tuning samples",
        "held-out samples",
        "error at most",
        "cost",
        "in the model",
    )
    return Table(header, rows if len(rows) > 1 else [], frozenset())


def _scores(report: Report) -> Table:
    """What the fault and each workaround cost and buy."""
    rows = [
        (
            row.what + (" (recommended)" if row.chosen else ""),
            f"did not run: {row.why}" if row.why else "passes" if row.passes else "fails",
            _error(row.error, report.metric),
            number(row.score) if row.score is not None else "-",
            number(1000 * row.seconds) if row.seconds is not None else "-",
        )
        for row in report.scores
    ]
    header = ("what", "within the tolerance", "error on the session's samples", "score", "ms a run")
    return Table(header, rows, frozenset({2, 3, 4}))


def _error(error: float | None, metric: str) -> str:
    return show_error(error, metric) if error is not None else "-"


def _trigger(report: Report) -> list[Section]:
    """What triggers the failure: each thing that was changed alone and that matters."""
    found = report.trigger
    if found is None:
        return []
    factors = [
        [cell or "-" for cell in (f.factor, f.base, f.fires, f.passes, f.refused)]
        for f in found.factors
        if f.matters
    ]
    cases = [
        (c.changed or "the case itself", c.outcome, _error(c.error, report.metric), c.why)
        for c in found.cases
    ]
    alone = ("changed alone", "in the case", "fails with", "passes with", "refused with")
    tried = ("changed", "came out", "error", "why")
    every = f"All {len(cases)} variants that were built"
    return [
        _section(
            "What triggers it",
            Says(found.said),
            Table(alone, factors),
            Table(tried, cases, frozenset({2}), every),
        )
    ]


def _rewrites(report: Report) -> Table:
    """What was tried to cure it by other nodes."""
    rows = [
        (
            Name(r.rewrite),
            r.verdict,
            str(len(r.changed)),
            _error(r.exact, report.metric),
            _error(r.error, report.metric),
            r.why,
        )
        for r in report.rewrites
        if r.verdict != "nothing to do"
    ]
    header = ("rewrite", "came out", "nodes changed", "the reference moves by", "error", "why")
    return Table(header, rows, frozenset({2, 3, 4}))


def _depth(report: Report) -> list[Section]:
    """The error over the model, each round of it, and the nodes that add the most."""
    rounds, metric = report.rounds or ((report.depth,) if report.depth else ()), report.metric
    if not rounds:
        return []
    allowed = show_error(report.tolerance, metric) if metric == "rel_l2" else report.allowed
    said = (
        "Every watched tensor against the reference, from the first node to the last, on a logarithmic scale. "
        f"Allowed: {allowed or number(report.tolerance)}."
    )
    drawn = [
        Picture(
            points,
            _say_round(points, metric, n, len(rounds)),
            curve([p.error for p in points]),
        )
        for n, points in enumerate(rounds)
    ]
    added = sorted((p for p in rounds[0] if p.added), key=lambda p: -(p.added or 0.0))[:MOST_ADDED]
    rows = [
        (Name(p.name), p.op, _error(p.inherited, metric), _error(p.added, metric))
        for p in rounds[0]
        if p in added
    ]
    header = ("the most is added by", "operator", "arrives", "is added")
    most = Table(header, rows, frozenset({2, 3}))
    return [_section("Error by depth", Says(said), *drawn, most)]


def _loop(report: Report) -> list[Section]:
    """The error over the steps of a loop, and the steps that say the most."""
    rows, metric = report.loop, report.metric
    if not rows:
        return []
    drawn = curve([row.error for row in rows])
    worst, first = max(rows, key=lambda row: row.error), next((r for r in rows if r.over), rows[0])
    turned = next((r for r in rows if r.answer and r.answer.top1 > 0), first)
    shown = [
        (str(r.step), Name(r.output), _error(r.error, metric), _error(r.own, metric))
        + (
            (number(r.answer.kl), number(r.answer.perplexity), number(r.answer.margin))
            if r.answer
            else ("",) * 3
        )
        for r in rows
        if r in (rows[0], first, turned, worst, rows[-1])
    ]
    header = (
        "step",
        "worst output",
        "in the loop",
        "by itself",
        "KL",
        "perplexity",
        "margin of another token",
    )
    table = Table(header, shown, frozenset({0, 2, 3, 4, 5, 6}))
    return [
        _section(
            "Error by step",
            Says(f"{count(len(rows), 'step')}, on a logarithmic scale."),
            Code(drawn, "text"),
            table,
        )
    ]


def _say_round(points: Sequence[Depth], metric: str, number_: int, rounds: int) -> str:
    cured = ", with what was found before it given its right values" if number_ else ""
    which = f"Round {number_ + 1} of {rounds}{cured}: " if rounds > 1 else ""
    worst = max(points, key=lambda point: point.error)
    return (
        f"{which}{count(len(points), 'tensor')}: {show_error(points[0].error, metric)} at the first, "
        f"{show_error(points[-1].error, metric)} at the last, at most {show_error(worst.error, metric)} ({worst.name})"
    )


def _layers(report: Report) -> list[Section]:
    """The worst layers first."""
    if not report.layers:
        return []
    said = (
        "Effect: how wrong the model's outputs are with this layer quantized and no other; the largest stands first. A layer is "
        "what nodes_to_exclude takes out. SQNR: how much larger its own output is than the error in it, in decibels. 40 dB is "
        "an error of 1 %, 20 dB of 10 %. Alone: fed the float model's values. In the model: all quantized. Weights, inputs: "
        "what is lost in each. In float: the workaround leaves it unquantized."
    )
    header = (
        "layer", "operator", "effect", "SQNR alone", "in the model", "weights", "inputs", "codes", "scales", "in float",
    )  # fmt: skip
    rows = [
        (
            Name(row.layer), Name(row.op), show_error(row.effect, report.metric), decibels(row.sqnr_db),
            decibels(row.cumulative_db), decibels(row.weights_db), decibels(row.inputs_db), row.codes, row.scales,
            "yes" if row.left_in_float else "",
        )
        for row in report.layers
    ]  # fmt: skip
    table = Table(header, rows, frozenset(range(2, 7)), of=("layer", "layers"))
    return [_section("Layers by effect", Says(said), table)]


def _route(route: Sequence[Stop]) -> Table:
    rows = [
        (
            str(position),
            stop.title,
            (
                stop.text + ("" if stop.state in ("", "finished") else f" ({stop.state})"),
                Aside(stop.note),
            ),
            ("a person" if stop.by == "person" else stop.by)
            + ("" if stop.answer == stop.recommended else f" (recommended: {stop.recommended})"),
            duration(stop.seconds),
            str(stop.probes),
            " ".join(filter(None, (stop.message or stop.because, stop.missed))),
        )
        for position, stop in enumerate(route, 1)
    ]
    header = ("", "question", "answer", "by", "time", "probes", "measured")
    return Table(header, rows, frozenset({0, 4, 5}), of=("question", "questions"))


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested plain data as (dotted key, value) rows."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _total(v: Values) -> int:
    """Elements of the output."""
    return sum(v.actual) + v.actual_nonfinite


def _alike(v: Values) -> bool:
    """Whether the values that were kept are right: of what comes and goes, a run that passed."""
    return not any(map(any, v.grid))


def has_place(v: Values) -> bool:
    """Whether there is a place to point at: the engine has finite values, more than one tile is
    there, and both are not alike."""
    lost_everywhere = _total(v) == v.actual_nonfinite > 0 == v.expected_nonfinite
    return len(v.grid) * max(map(len, v.grid), default=0) > 1 and not (lost_everywhere or _alike(v))


def say_where(v: Values) -> str:
    """How an output is wrong that no picture shows: ``is wrong everywhere``; ``was right in the run
    that was kept``."""
    if _alike(v):
        return "was right in the run that was kept: the fault comes and goes"
    return "is wrong everywhere" if _total(v) > 1 else "is wrong"


def say_values_lost(v: Values) -> str:
    """What is not finite: ``On the engine all 16 values are infinite; in the reference all are
    finite.`` Empty where all is."""
    if not v.actual_nonfinite and not v.expected_nonfinite:
        return ""
    if v.actual_nonfinite == v.expected_nonfinite and not any(HUGE in row for row in v.grid):
        return f"In the reference and on the engine alike {_kinds(v.actual_nonfinite, v.actual_nan, _total(v), bool(v.kinds))}."
    here = _kinds(v.actual_nonfinite, v.actual_nan, _total(v), bool(v.kinds))
    there = _kinds(v.expected_nonfinite, v.expected_nan, _total(v), bool(v.kinds))
    return f"On the engine {here}; in the reference {there}."


def _kinds(lost: int, nan: int, of: int, told: bool) -> str:
    """``told`` False: a file of an earlier version does not say which of them are NaN."""
    if not lost:
        return "all are finite"
    parts = [(lost - nan, "infinite"), (nan, "NaN")] if told else [(lost, "not finite")]
    said = [(n, word) for n, word in parts if n]
    if len(said) == 1:
        n, word = said[0]
        many = (
            "its only value is"
            if of == 1
            else f"all {of:,} values are"
            if n == of
            else f"{n:,} of {of:,} values are"
        )
        return f"{many.replace(' are', ' is') if n == 1 < of else many} {word}"
    return f"{lost:,} of {of:,} values are not finite: {' and '.join(f'{n:,} {word}' for n, word in said)}"


def say_values_apart(v: Values) -> str:
    """How far the finite values of both lie apart, and where they lie; where the engine has none,
    where the right ones lie."""
    if sum(v.expected) == 0 and sum(v.actual) == 0:
        return ""
    bounds = (
        f"at {number(v.low)}" if v.low == v.high else f"from {number(v.low)} to {number(v.high)}"
    )
    if not sum(v.actual):
        return f"The right ones lie {bounds}."
    if not sum(v.expected):
        return f"Those that the engine has lie {bounds}."
    worst = max((x for row in v.grid for x in row if x < HUGE), default=0.0)
    off = f"wrong by up to {say_percent(worst)} of the largest right value" if worst else "right"
    if v.actual_nonfinite or v.expected_nonfinite:
        return f"What is finite lies {bounds} and is {off}."
    return f"Its value{'s lie' if _total(v) > 1 else ' lies'} {bounds}; the engine's {'are' if _total(v) > 1 else 'is'} {off}."
