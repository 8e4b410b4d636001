"""A report in sentences: what was found, what it rests on, and what to do with it. Pure, of the
report alone."""

from collections.abc import Sequence

from narrowdown.engines import causes
from narrowdown.engines.compare.say import say_part
from narrowdown.engines.known.lookalike import say_lookalike
from narrowdown.engines.probe import APART
from narrowdown.wizard.report.document import Culprit, Report, Stop, Weighed, Workaround
from narrowdown.wizard.words import count, elide, listing, margin, number, show_error, switch


def summary(report: Report) -> list[str]:
    """What was found, in a few lines of plain text: the headline, what it rests on, what to do with
    it."""
    w, metric = report.workaround, report.metric
    if not report.culprits and not report.spread:
        said = _last_word(report.route[-1]) if report.route and report.end else []
        first = [report.explanation] if said and report.explanation not in said[0] else []
        # Each in one line: whoever shows it breaks lines where it must.
        paragraphs = (" ".join(t.split()) for t in report.advice.split("\n\n") if t.strip())
        # Of a workaround without a culprit: on what it was tried, and the bound for others.
        told = [*first, *said, *(w.known[1:] if w else ()), *paragraphs]
    else:
        culprits = (_culprit(c, n, metric) for n, c in enumerate(report.culprits, 1))
        told = [
            *filter(None, [report.explanation]),
            *(line for lines in culprits for line in lines),
            *({report.spread} - {report.explanation, ""}),
            *map(say_lookalike, report.lookalikes),
            *(_workaround(w, metric) if w is not None else ()),
            *(say_weighed(row, report.scores, metric) for row in report.scores),
        ]
    return [report.headline, *(f"  {line}" for line in told)]


def _culprit(c: Culprit, position: int, metric: str) -> list[str]:
    own = "" if c.own is None else f"its own output {say_part(c.own, metric, c.own_places)}"
    effect = "" if c.effect is None else say_part(c.effect, metric, c.effect_places)
    facts = [
        c.cause,
        own,
        f"that makes your model's output {effect}" if effect else "",
        f"fails {c.verified or '?'}",
        "not shown to be the smallest" if not c.minimal and len(c.nodes) > 1 else "",
    ]
    shows = [c.evidence, say_source(c) if c.source or c.modules else ""]
    return [
        f"culprit {position}: {' + '.join(c.ops[:8])}  {', '.join(filter(None, facts))}",
        *(f"  {line}" for line in shows if line),
    ]


def _workaround(w: Workaround, metric: str) -> list[str]:
    names = [elide(name, 60) for name in w.keep_higher or w.switched_off]
    what = listing(names, 4) if names else w.engine
    if w.keep_higher:
        what = f"keep {count_kept(w, 'higher precision')}: {what}"
    elif w.switched_off:
        there = "" if w.kind in (*APART, "control-flow") else f"; the engine is {w.engine}"
        what = f"{switch(w.kind)} {what}{there}"
    place = name_place(w.source, w.modules)
    source = f"In your program: {place}, compute this in float32." if place else ""
    error = f"error {show_error(w.error, metric)} at most, {margin(w.margin)}"
    lines = (f"  {line}" for line in (source, error, *w.known) if line)
    return [f"workaround ({w.kind}): {what}", *lines]


def _last_word(last: Stop) -> list[str]:
    """What the end rests on: what was measured last, and whether that was listened to."""
    if last.answer == last.recommended:
        return [last.because or last.message]
    return [
        last.message,
        f"The answer to '{last.title}' was '{last.text}', against what was recommended.",
    ]


def say_weighed(row: Weighed, rows: Sequence[Weighed], metric: str) -> str:
    """One line of what was weighed: what it is, whether it passes, and its numbers as far as there
    are any."""
    state = "did not run" if row.why else "passes" if row.passes else "fails"
    facts = ["right by definition" if row.kind == "reference" else state]
    facts += (
        [f"error {show_error(row.error, metric)}"]
        if row.error is not None and row.kind != "reference"
        else []
    )
    facts += [f"score {number(row.score)}"] if any(r.score is not None for r in rows) else []
    facts += [f"{number(1000 * row.seconds)} ms a run"] if row.seconds is not None else []
    return f"{row.what}: {', '.join(facts)}"


def say_source(c: Culprit) -> str:
    """Where it stands in the program that was exported, and what may be done there."""
    cure = "; compute this in float32 there" if causes.find_cause(c.cause).unfit else ""
    return f"In your program it is {name_place(c.source, c.modules)}{cure}."


def name_place(source: tuple[str, ...], modules: tuple[str, ...]) -> str:
    """Lines of the exported program and the modules that they belong to; "" where the exporter
    told neither."""
    inside = f"in {listing(modules, 4)}" if modules else ""
    return " ".join(filter(None, (listing(source, 4) if source else "", inside)))


def say_effect(report: Report) -> str:
    """What the workaround changes on the samples that it was not made on, else on those that it
    was; "" where there is none."""
    w = report.workaround
    if w is None:
        return ""
    if w.unseen_n:
        wrong, of = (
            w.unseen_n - w.unseen_ok,
            f"{count(w.unseen_n, 'held-out sample')}",
        )
        return f"With the workaround {wrong} of {of} {_are(wrong)} wrong; without it {w.unseen_failing} {_are(w.unseen_failing)}."
    # Nodes are kept, and of no sample anybody can call right or wrong what is left: it cures what is
    # infinite.
    if w.kind == "precision" and not w.samples_n + w.unseen_n:
        return "No sample tells whether it is right with the workaround."
    wrong = w.samples_n - w.samples_ok
    return f"With the workaround {wrong} of {count(w.samples_n, 'sample')} {_are(wrong)} wrong; it was tried on no others."


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def name_nodes(first: Culprit) -> str:
    """The nodes of a case and its cause; the node that the evidence is about first, where it is one
    of several."""
    cause = first.cause.replace("-", " ")
    if first.at not in first.nodes or len(first.nodes) == 1:
        return f"{listing([elide(name, 60) for name in first.nodes], 4)} ({cause})"
    company = [elide(name, 60) for name in first.nodes if name != first.at]
    return f"{elide(first.at, 60)} ({cause}) together with {listing(company, 3)}"


def say_cure(workaround: Workaround | None) -> str:
    """The end of a headline: what cures it."""
    if workaround is None or not workaround.holds:
        return ""
    if workaround.keep_higher:
        cure = f"keeping {count_kept(workaround, 'higher precision')}"
    elif workaround.switched_off:
        cure = f"{switch(workaround.kind, doing=True)} {listing(workaround.switched_off)}"
    else:
        cure = f"running as {workaround.engine}"
    condition = f", while {workaround.condition}" if workaround.condition else ""
    return f"; {cure} makes {right(workaround)} right{condition}"


def count_kept(w: Workaround, precision: str = "FP32") -> str:
    """``3 nodes in FP32``, or ``3 layers in float`` of a quantized model."""
    thing, precision = ("layer", "float") if w.layers else ("node", precision)
    return f"{count(len(w.keep_higher), thing)} in {precision}"


def right(w: Workaround) -> str:
    """``8 of 8 tuning samples and 31 of 32 held-out samples``; the latter only where there were
    any."""
    if not w.unseen_n:
        return f"{w.samples_ok} of {count(w.samples_n, 'sample')}"
    if not w.samples_n:
        return f"{w.unseen_ok} of {count(w.unseen_n, 'held-out sample')}"
    tuned = f"{w.samples_ok} of {count(w.samples_n, 'tuning sample')}"
    return f"{tuned} and {w.unseen_ok} of {count(w.unseen_n, 'held-out sample')}"
