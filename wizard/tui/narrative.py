"""What happened, told as lines and entries: the probes of a step, what a rewind sets aside, the
words of a node. Pure."""

from collections.abc import Sequence

import msgspec

from narrowdown.engines import causes
from narrowdown.wizard.flow import terms
from narrowdown.wizard.flow.model import Flow, targets, title
from narrowdown.wizard.report.probe_words import WORDS
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui.board import Row
from narrowdown.wizard.tui.literal import Glyphs
from narrowdown.wizard.tui.scene import Scene, answer_text, chosen_freely, offered
from narrowdown.wizard.words import count, duration


class Entry(msgspec.Struct, frozen=True):
    """One line of a list. ``detail`` shows while it is highlighted; ``keep``: with its line
    ends."""

    id: str
    label: str
    more: str = ""
    detail: str = ""
    keep: bool = False


def log(scene: Scene) -> tuple[str, ...]:
    """The step's own log: each probe as a line, deaths of workers, then what the engines wrote.
    Never empty."""
    rows = [probe(row) for row in scene.hunt.rows]
    hidden = scene.hunt.finished - sum(row.state != "running" for row in scene.hunt.rows)
    lines = [f"({count(hidden, 'earlier probe')} not listed)"] if hidden > 0 else []
    lines += rows or [nothing(scene)]
    written = [line for line in scene.log if line.strip()]
    lines += (
        ["", "what the engine wrote (errors about parts are expected in a search):", *written]
        if written
        else ["", "the engine has written nothing"]
    )
    return tuple(lines)


def noted(scene: Scene) -> tuple[str, ...]:
    """What was noted here since the last answer, by a person or by the runner: files that went,
    builds that share a GPU."""
    since = max((visit.answered for visit in scene.state.route if visit.answer), default=0.0)
    return tuple(
        note.text
        for note in scene.state.notes
        if note.ts >= since and note.node in ("", scene.node)
    )


def nothing(scene: Scene) -> str:
    """Why no probe is listed."""
    visit = scene.visit
    if visit and visit.probes:
        if visit.status == "done" and visit.cached < visit.probes:
            return f"the {count(visit.probes, 'probe')} of this step ran before you came back to it, and are not listed again"
        return f"{count(visit.probes, 'probe')} asked, every answer known before: nothing had to run in this step"
    return "no probe has run in this step yet"


def probe(row: Row) -> str:
    """One probe in one line."""
    time = "" if row.state == "running" else f"  {duration(row.seconds)}"
    said = row.message if row.state == "unresolved" and row.message else row.detail
    return (
        f"probe {row.number:>3}  {row.what}: {WORDS[row.state]}{'  ' + said if said else ''}{time}"
    )


def probe_entries(scene: Scene) -> list[Entry]:
    """The probes of the step, the latest first."""
    return [
        Entry(
            row.key,
            f"{row.number:>3}  {WORDS[row.state]:<11}  {row.what}",
            row.detail,
            "\n".join(probe_facts(row)),
            keep=True,
        )
        for row in reversed(scene.hunt.rows)
    ]


def probe_facts(row: Row) -> list[str]:
    """What is known of one probe."""
    facts = [
        f"tried     {row.what}",
        f"verdict   {WORDS[row.state]}{'  ' + row.detail if row.detail else ''}",
    ]
    facts += [f"said      {row.message}"] if row.message else []
    if row.state != "running":
        parts = [
            f"{duration(row.build)} to build" if row.build else "",
            f"{duration(row.run)} to run" if row.run else "",
        ]
        known = ", ".join(filter(None, parts))
        facts.append(f"took      {duration(row.seconds)}{': ' + known if known else ''}")
    if row.log or row.state != "running":
        facts.append(f"log       {row.log or 'the engine wrote nothing'}")
    return facts


def rewinds(scene: Scene) -> list[Entry]:
    """The earlier questions, the latest first, each with what going back to it sets aside."""
    past = [(v, v.question.seq) for v in scene.state.route if v.answer and v.question]
    entries = [
        Entry(
            str(seq),
            f"{number}  {title(scene.flow, visit.node)}",
            answer_text(visit) + (" (your choice)" if chosen_freely(visit) else ""),
            say_set_aside(scene, visit),
            keep=True,
        )
        for number, (visit, seq) in enumerate(past, 1)
    ]
    return entries[::-1]


def say_set_aside(scene: Scene, to: Visit) -> str:
    """What going back to this question sets aside."""
    route = scene.state.route
    after = route[route.index(to) + 1 :]
    answers = [visit for visit in (to, *after) if visit.answer]
    probes, seconds = sum(visit.probes for visit in after), sum(visit.seconds for visit in after)
    lines = [f"Sets aside {count(len(answers), 'answer')}:"]
    lines += [f"  - {title(scene.flow, visit.node)}  {answer_text(visit)}" for visit in answers]
    lines += [f"  - the end: {title(scene.flow, scene.state.end)}"] if scene.state.end else []
    if after:
        lines.append(
            f"{count(probes, 'probe')} after it ({duration(seconds)}) stay known; only what could not tell is asked again."
        )
    else:
        lines.append("No probe ran after it.")
    return "\n".join(lines)


def places(scene: Scene, glyphs: Glyphs) -> tuple[list[Entry], int]:
    """The nodes of the flow and its ends, with what was answered on the way here, and the number
    of the one where the route is."""
    answers = {visit.node: answer_text(visit) for visit in scene.state.route if visit.answer}
    names = [*scene.flow.nodes, *scene.flow.ends]
    entries = []
    for name in names:
        here = name == scene.node
        mark = glyphs.here if here else glyphs.done if name in answers else " "
        more = "you are here" if here else answers.get(name, "")
        more = more or ("" if name in scene.flow.nodes else "an end")
        said = describe_place(scene.flow, name)
        entries.append(Entry(name, f"{mark} {title(scene.flow, name)}", more, said))
    return entries, names.index(scene.node) if scene.node in names else 0


def describe_place(flow: Flow, name: str) -> str:
    """What a node or an end is for, what it asks, and where each answer leads."""
    if name in flow.ends:
        return flow.ends[name].explain
    node = flow.nodes[name]
    leads = [
        f"- {answer.text}: {' or '.join(title(flow, target) for target in dict.fromkeys(targets(answer)))}"
        for answer in node.answers.values()
    ]
    return "\n\n".join(
        [node.explain.strip(), f"It asks: {node.ask}", "Its answers lead to:\n" + "\n".join(leads)]
    )


def words(scene: Scene) -> tuple[list[Entry], int]:
    """(cards, how many of them belong here): the node's words first, at an end those of the causes
    and of the last node, then all others."""
    node = scene.at or (
        scene.flow.nodes.get(scene.state.route[-1].node) if scene.state.route else None
    )
    named = (
        [causes.find_cause(c.cause).card for c in scene.state.findings.culprits]
        if scene.state.end
        else []
    )
    here = [name for name in dict.fromkeys(named) if name and terms.card(name)]
    here += [name for name in (node.terms if node else ()) if name not in here]
    names = [*here, *(name for name in terms.known() if name not in here)]
    return [_word(name) for name in names], len(here)


def define_words(scene: Scene) -> str:
    """The first sentences of the cards of this node's words, a paragraph each; "" where it has
    none."""
    found = (terms.card(name) for name in (scene.at.terms if scene.at else ()))
    return "\n\n".join(" ".join(card.body.split("\n\n")[0].split()) for card in found if card)


def _word(name: str) -> Entry:
    card = terms.card(name)
    if card is None:
        return Entry(name, name.replace("-", " "), "", f"There is no card for '{name}'.")
    return Entry(name, card.title, "", card.body)


def _with_missed(visit: Visit | None, said: str) -> str:
    """A reason, and below it what runs without a failure leave possible."""
    missed = str((visit.outcome or {}).get("missed") or "") if visit else ""
    return f"{said}\n\n{missed}" if missed else said


def why(scene: Scene) -> Sequence[tuple[str, str]]:
    """(heading, text): why the recommended answer is recommended, and what the node is for."""
    visit, node = scene.visit, scene.at
    sections: list[tuple[str, str]] = []
    if scene.state.end:
        for at in (v for v in scene.state.route if v.answer):
            said = next((o.because for o in offered(at) if o.id == at.answer), "")
            sections.append(
                (
                    f"{title(scene.flow, at.node)}  {answer_text(at)}",
                    _with_missed(at, said or "Your choice."),
                )
            )
    chosen = (
        next((o for o in visit.question.answers if o.recommended), None)
        if visit and visit.question
        else None
    )
    if chosen:
        told = chosen.because or "It is what the measurement says."
        sections.append((f"Recommended: {chosen.text}", _with_missed(visit, told)))
        sections.append(("Where it leads", title(scene.flow, chosen.goto)))
    if node:
        sections.append((node.title, node.explain))
    elif scene.node in scene.flow.ends:
        sections.insert(0, (scene.flow.ends[scene.node].title, scene.flow.ends[scene.node].explain))
    return sections or [("", "Nothing has been measured yet.")]
