"""The parts of the last screen: the culprits with their numbers, the workaround, the way here, the
files to hand on."""

from collections.abc import Sequence

from textual.content import Content

from narrowdown.engines import causes
from narrowdown.engines.compare.say import say_part
from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.workaround_facts import list_facts
from narrowdown.wizard.flow.model import Flow, title
from narrowdown.wizard.report.culprit_groups import groups, kind, others
from narrowdown.wizard.report.hand_on import Deed
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui.ending import remedy
from narrowdown.wizard.tui.glyphs import Glyphs
from narrowdown.wizard.tui.literal import elide, fit, literal
from narrowdown.wizard.tui.scene import answer_text, chosen_freely
from narrowdown.wizard.tui.widgets.lines import Lines, pairs, row, wrap
from narrowdown.wizard.words import count, duration, listing, margin, say_operators, show_error


class Culprits(Lines[Findings]):
    """Each culprit: its nodes, how it fails, when it passes, and what that suggests; of those that
    are like one before them, what is their own."""

    _told = Findings()

    def lines(self, width: int) -> list[Content]:
        return culprits(self._told, width, self.glyphs)


def culprits(findings: Findings, width: int, glyphs: Glyphs) -> list[Content]:
    """All culprits, each kind once in full."""
    found = findings.culprits
    metric = findings.criterion.metric if findings.criterion else "error"
    rows: list[Content] = []
    for first, *like in groups(map(kind, found)):
        if rows:
            rows.append(Content())
        if len(found) > 1:
            rows.append(row([(f"Culprit {first + 1}", "bold $fails")]))
        rows += pairs(culprit_rows(found[first], metric, width, glyphs), width)
        if like:
            rows += [Content(), row([(f"{others(len(like))}:", "bold $fails")])]
            rows += pairs(
                [
                    (f"culprit {i + 1}", say_alike_culprit(found[i], metric, width, glyphs))
                    for i in like
                ],
                width,
            )
    return rows


def list_case_nodes(case: Case, width: int, glyphs: Glyphs) -> str:
    """The names of its nodes, the first six of many."""
    names = [
        elide(name or "(no name)", max(12, width - 24), glyphs.ellipsis) for name in case.nodes[:6]
    ]
    return ", ".join(names) + (f" and {len(case.nodes) - 6} more" if len(case.nodes) > 6 else "")


def say_alike_culprit(culprit: Culprit, metric: str, width: int, glyphs: Glyphs) -> str:
    """What one that is like another has of its own."""
    case = culprit.case
    told = bool(culprit.evidence) and all(name in culprit.evidence for name in case.nodes)
    said = (
        culprit.evidence
        if told
        else f"{list_case_nodes(case, width, glyphs)}. {culprit.evidence}".rstrip()
    )
    own = "" if case.own is None else say_part(case.own, metric, case.own_places)
    moved = say_part(case.effect, metric, case.effect_places).removeprefix("wrong ")
    effect = "" if case.effect is None else f"; your model {moved}"
    fails = f"fails {case.verified.replace('/', ' of ')}" if case.verified else ""
    numbers = (", ".join(filter(None, (fails, own))) + effect).removeprefix("; ")
    passing = f" It passes {passes(case, glyphs)}." if case.good is not None else ""
    also = f" Kept with it: {listing(culprit.also)}." if culprit.also else ""
    return f"{said} {numbers[:1].upper()}{numbers[1:]}{'.' if numbers else ''}{passing}{also}"


def culprit_rows(
    culprit: Culprit, metric: str, width: int, glyphs: Glyphs
) -> list[tuple[str, str]]:
    """One culprit as label and value."""
    case = culprit.case
    ops = say_operators(case.ops, f" {glyphs.arrow} ")
    # Of the fresh looks, where any were taken.
    often = f"{case.verified.replace('/', ' of ')} times" if case.verified else ""
    own = (
        "" if case.own is None else f"by itself it is {say_part(case.own, metric, case.own_places)}"
    )
    effect = (
        ""
        if case.effect is None
        else f"your model's outputs are {say_part(case.effect, metric, case.effect_places)} by it"
    )
    rows = [
        (f"{len(case.nodes)} nodes" if len(case.nodes) != 1 else "1 node", ops or "?"),
        ("named", list_case_nodes(case, width, glyphs)),
        ("fails", "; ".join(filter(None, (often, own, effect))) or "?"),
        (
            "cause",
            ": ".join(
                filter(
                    None, (culprit.cause.replace("-", " "), causes.find_cause(culprit.cause).plain)
                )
            ),
        ),
        *([("shown by", culprit.evidence)] if culprit.evidence else []),
    ]
    if case.good is not None:
        rows.insert(3, ("passes", passes(case, glyphs)))
    if not case.minimal and len(case.nodes) > 1:
        rows.insert(1, ("smallest", "not shown: a smaller part of it may fail, too"))
    if culprit.also:
        rows.append(("kept with it", listing(culprit.also)))
    if case.needs_higher_inputs:
        rows.append(("note", "it needs its inputs in higher precision: fed exactly, it passes"))
    return rows


def passes(case: Case, glyphs: Glyphs) -> str:
    """The largest part that passes, by its operators where these are known."""
    nodes = case.good.nodes if case.good else ""
    try:
        ops = dict(zip(ranges.decode(case.node_ids), case.ops, strict=True))
        named = [ops[node] for node in ranges.decode(nodes)]
    except (KeyError, ValueError):
        return f"as {'node' if nodes.isdigit() else 'nodes'} {nodes} alone" if nodes else "?"
    return f"as {say_operators(named, f' {glyphs.arrow} ')} alone" if named else "?"


class Cure(Lines[tuple[Findings, str]]):
    """The workaround: what to do, whether it holds, what it costs. Told what is kept beside the
    nodes that it names, too."""

    _told = (Findings(), "")

    def lines(self, width: int) -> list[Content]:
        findings, inside = self._told
        cure = findings.workaround
        if cure is None:
            return []
        names = f"{listing(cure.keep_names, 40)}{inside}"
        metric = findings.criterion.metric if findings.criterion else ""
        rows = (
            [(f"{len(cure.keep_names)} in FP32", names)]
            if cure.keep_names
            else [("what to do", remedy(cure))]
        )
        rows.append(("holds on", f"{cure.samples_ok} of {cure.samples_n} tuning samples"))
        if cure.unseen is not None and cure.unseen.n:
            rows.append(("and on", f"{cure.unseen.ok} of {cure.unseen.n} held-out samples"))
        rows.append(("error", f"{show_error(cure.error, metric)} at most, {margin(cure.margin)}"))
        rows += [
            ("known" if position == 0 else "", fact.text)
            for position, fact in enumerate(list_facts(findings, cure))
        ]
        rows += [("it costs", cure.cost)] if cure.cost else []
        return pairs(rows, width)


class Todos(Lines[Sequence[Deed]]):
    """What to do now, numbered, with what to type below it."""

    _told: Sequence[Deed] = ()

    def lines(self, width: int) -> list[Content]:
        rows: list[Content] = []
        for position, todo in enumerate(self._told, 1):
            rows += pairs([(str(position), todo.text)], width)
            typed = literal(todo.typed).wrap(max(1, width - 3)) if todo.typed else []
            rows += [row([("   ", ""), (line.plain, "bold")]) for line in typed]
        return rows


class Journey(Lines[tuple[Flow, tuple[Visit, ...]] | None]):
    """How you got here: one line a visit."""

    _told = None

    def lines(self, width: int) -> list[Content]:
        if self._told is None:
            return []
        flow, route = self._told
        rows, mark = [], self.glyphs.ellipsis
        for index, visit in enumerate(route, 1):
            head = f"{index:>2}  "
            tail = f"  {duration(visit.seconds):>10}  {count(visit.probes, 'probe'):>10}"
            by = (
                "by script"
                if visit.by == "script"
                else "your choice"
                if chosen_freely(visit)
                else "recommended"
            )
            by = "" if not visit.answer else by
            name, answer = title(flow, visit.node), answer_text(visit)
            room = max(10, width - len(head) - len(tail))
            if width < 90:
                rows.append(row([(head, "$quiet"), (fit(name, room, mark), ""), (tail, "$quiet")]))
                rows.append(
                    row(
                        [
                            ("    ", ""),
                            (elide(answer, width - 20, mark), "bold"),
                            (f"  {by}", "$quiet"),
                        ]
                    )
                )
                continue
            room -= 13
            rows.append(
                row([
                    (head, "$quiet"),
                    (fit(name, room // 2 - 1, mark) + " ", ""),
                    (fit(answer, room - room // 2, mark), "bold"),
                    (f"  {by:<11}", "$quiet"),
                    (tail, "$quiet"),
                ])
            )  # fmt: skip
        return rows


class Files(Lines[tuple[str, Sequence[tuple[str, str]]]]):
    """What to hand on, with the folder named once: the folder, and of each file its name and what
    it is for."""

    _told = ("", ())

    def lines(self, width: int) -> list[Content]:
        folder, files = self._told
        if not files:
            return wrap("The case folder is being written.", width, "$quiet")
        return [
            row([(elide(f"{folder}/", width, self.glyphs.ellipsis), "bold")]),
            *pairs(files, width),
        ]
