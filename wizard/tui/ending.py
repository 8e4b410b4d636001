"""What the last screen says, in sentences: what was found, what to do now, what there is to hand
on. Pure."""

import contextlib
import shlex
from collections.abc import Mapping
from pathlib import Path

from narrowdown.engines.findings import Workaround
from narrowdown.engines.probe import WRAPS
from narrowdown.wizard.bundle.check_script import can_check
from narrowdown.wizard.ladder.offer import offer_ladder
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.gather import Sources, gather
from narrowdown.wizard.report.hand_on import (
    APPLY,
    Deed,
    ask_known,
    list_known,
    name_addressee,
    say_first,
    say_when,
)
from narrowdown.wizard.report.summary import say_effect, say_inside, summary
from narrowdown.wizard.session.folder import name_for_command
from narrowdown.wizard.session.following import offer
from narrowdown.wizard.tui.scene import Scene, commands
from narrowdown.wizard.words import count, listing, switch

# What to do where the verdict alone says it.
TOLD: Mapping[str, str] = {
    "refused": (
        "Name an engine or a reference that takes the model, or give the library of its own operators: {edit} changes the set-up."
    ),
    "unresolved": "{rewind} goes back to any question, to answer it otherwise.",
    "input-sensitive": "Compare engines on real inputs. If real ones fail somewhere, start again with just those (--inputs).",
    "reference-suspect": "Start again with a reference that can be trusted (--reference), before blaming the engine.",
    "export-at-fault": (
        "Export the model again; then compare the new one with the same golden outputs (--reference)."
    ),
    "not-determined": (
        "Start again with another measure of what is wrong ({edit} keeps what still holds): --tolerance, --metric "
        "max_abs, or other --inputs."
    ),
}
REPORT, MIXED = "report.html", "worked-around.onnx"  # beside the case, in the session's folder


def shorten_path(path: Path) -> str:
    """A path as a shell takes it: quoted where it must be, from ``~`` on where it lies in one's
    home."""
    with contextlib.suppress(RuntimeError, ValueError):
        return f"~/{shlex.quote(str(path.relative_to(Path.home())))}"
    return shlex.quote(str(path))


def report(scene: Scene) -> Report:
    """What the report says, without its tables. Where steps have found nodes that the graph does
    not have, as a journal that somebody has changed may say, without the graph, too."""
    sight = scene.sight
    with contextlib.suppress(LookupError, ValueError):
        known = Sources(graph=lambda _: sight.graph)
        return gather(scene.state, scene.flow, scene.problem, known)
    return gather(scene.state, scene.flow, scene.problem, Sources())


def say_found(said: Report) -> list[str]:
    """The result: one sentence where something is named, else what the last measurement said."""
    if said.culprits or said.workaround or said.spread:
        return [f"{said.headline}."]
    return [
        line.strip()
        for line in summary(said)[1:]
        if line.startswith("  ") and line.strip() not in said.advice
    ]


def list_todo(scene: Scene, verdict: str, said: Report) -> list[Deed]:
    """What to do now, the first thing first; keys stand in braces, as ``Narrowdown.fill_in_keys``
    fills them in. ``said``: the scene's ``report``."""
    return [
        *_list_by_verdict(scene, verdict, said),
        *_list_handing_on(scene, said),
        *_list_going_on(scene, said),
        Deed(f"{shorten_path(scene.folder / REPORT)} tells all of it, to read or to send."),
    ]


def _list_by_verdict(scene: Scene, verdict: str, said: Report) -> list[Deed]:
    """What follows from how it ended."""
    if verdict in TOLD:
        return [Deed(TOLD[verdict])]
    if verdict == "worked-around" and (cure := scene.state.findings.workaround) is not None:
        return _list_cures(scene, cure, said)
    if verdict == "fixed-by-sanitizing":
        by_hand = next((c.text for c in commands(scene) if c.text), "")
        return [Deed("Use the cleaned model. This writes it:", by_hand)]
    if verdict == "not-reproduced":
        return _list_more_inputs(scene, name_for_command(scene.folder))
    return []


def _list_cures(scene: Scene, cure: Workaround, said: Report) -> list[Deed]:
    """How the workaround is put to use: the model that has it, or the engine's words for it."""
    here, made, told = scene.folder, [], said.workaround
    inside = say_inside(told) if told is not None else ""
    if MIXED in scene.files:
        kept = len(cure.keep_names)
        stay = "stays" if kept == 1 and not inside else "stay"
        which = f": {count(kept, 'node')} of it{inside}, named below, {stay} in higher precision."
        instead = f"Use this model in place of yours{which if kept else f'. {remedy(cure)}'}"
        made.append(Deed(instead, shorten_path(here / MIXED)))
    else:
        made.append(Deed(remedy(cure, inside)))
    if f"case/{APPLY}" in scene.files:
        made.append(say_first(told, shorten_path(here / "case" / APPLY)))
    elif MIXED not in scene.files and cure.keep_names:
        made.append(Deed("{copy} copies commands that do it with other tools."))
    return made


def _list_more_inputs(scene: Scene, name: str) -> list[Deed]:
    """Where nothing failed: what else may fail."""
    more = f"narrowdown edit {name} --inputs FILE.npz"
    elsewhere = (
        "Does it fail on another machine? Copy the session's folder there; this measures the same:"
    )
    made = [Deed(elsewhere, f"narrowdown replay {name}")]
    if not scene.problem.inputs:
        told = (
            "Only made-up inputs were tried, and yours may fail: press {edit} to use your own, or:"
        )
        return [Deed(told, more), *made]
    if not scene.problem.check:
        told = (
            "Do others of your samples fail? More runs of these do not tell. {edit} gives them, or:"
        )
        made.append(Deed(told, more))
    return made


def _list_handing_on(scene: Scene, said: Report) -> list[Deed]:
    """What to do with the case, where there is one."""
    if not scene.state.findings.culprits:
        return []
    case = scene.folder / "case"
    whose = name_addressee(scene.problem.engine, [c.cause for c in scene.state.findings.culprits])
    hand = f"send the case folder to {whose}, as a zip; issue.md in it is the text. This shows the fault:"
    made = [
        *list_known(said),
        Deed(
            say_when(said, hand),
            f"python {shorten_path(case / 'check.py')}"
            if can_check(scene.problem)
            else f"cat {shorten_path(case / 'commands.sh')}",
        ),
    ]
    if "case/traces.txt" in scene.files:
        made.append(
            Deed(
                "Before you send it: files of it still name a folder, a user or a host; traces.txt says which."
            )
        )
    mended = "After an engine update, check again with:"
    return [
        *made,
        Deed(mended, f"narrowdown replay {name_for_command(scene.folder)} --expect fixed"),
    ]


def _list_going_on(scene: Scene, said: Report) -> list[Deed]:
    """What can be asked after the end."""
    name, made = name_for_command(scene.folder), []
    if offer(scene.state, scene.problem):
        made.append(Deed(f"{ask_known(said)} Press {{after}}, or:", f"narrowdown after {name}"))
    if line := offer_ladder(scene.state, scene.problem, name):
        told = "Since when is it wrong, and is it fixed? This installs releases and says first how large they are:"
        made.append(Deed(told, line))
    return made


def effect(said: Report) -> str:
    """What it means for whoever uses the model: how wrong it is and on how many samples, and with
    the workaround. Of the whole model; what the small case does stands with it."""
    if not (said.culprits or said.workaround or said.spread):
        return ""
    return " ".join(filter(None, (said.explanation, say_effect(said))))


def say_case(scene: Scene) -> str:
    """Where the case lies."""
    files = sum(name.startswith("case/") for name in scene.files)
    if not files:
        return "The case folder is being written."
    place = shorten_path(scene.folder / "case")
    return f"{place}: {count(files, 'file')}. README.txt in it says what they are."


def remedy(cure: Workaround, inside: str = "") -> str:
    """A workaround as a thing to do; where an engine ends it, no full stop does, as one would copy
    that, too. ``inside``: what is kept beside the nodes that are counted, with a space in front."""
    if cure.keep_names:
        few = len(cure.keep_names)
        named = "it is" if few == 1 else "they are"
        return f"Keep {count(few, 'node')}{inside} in higher precision, the others as they are; {named} named below."
    if cure.kind == "control-flow":
        condition = f" It is right only while {cure.condition}." if cure.condition else ""
        return f"In it {listing(cure.switched_off)} {'is' if len(cure.switched_off) == 1 else 'are'} fixed to one way.{condition}"
    if cure.kind == "barrier":
        are = "is an output" if len(cure.switched_off) == 1 else "are outputs"
        return f"In it {listing(cure.switched_off)} {are}, too, so that the engine joins no layers there; ask only for yours."
    if cure.kind in WRAPS:
        return f"In it nodes that change nothing hand on {listing(cure.switched_off)}, so that the engine joins no layers there."
    if cure.switched_off:
        return f"{switch(cure.kind).capitalize()} {listing(cure.switched_off)}; the engine is then {cure.engine}"
    return f"Use the engine {cure.engine}"
