"""What the last screen says, in sentences: what was found, what to do now, what there is to hand
on. Pure."""

import contextlib
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from narrowdown.wizard.bundle.check_script import can_check
from narrowdown.wizard.ladder.offer import offer_ladder
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.gather import Sources, gather
from narrowdown.wizard.report.hand_on import Deed, ask_known, list_deeds
from narrowdown.wizard.report.summary import say_effect, summary
from narrowdown.wizard.session.folder import name_for_command
from narrowdown.wizard.tui.scene import Scene, commands
from narrowdown.wizard.words import count

# What to do where the verdict alone says it.
TOLD: Mapping[str, str] = {
    "refused": (
        "Name an engine or a reference that takes the model, or give the library of its own operators. "
        "Press {edit} to change the set-up."
    ),
    "unresolved": "Press {rewind} to go back to any question and answer it otherwise.",
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
    try:
        known = Sources(graph=lambda _: sight.graph)
        said = gather(scene.state, scene.flow, scene.problem, known)
    except (LookupError, ValueError):
        said = gather(scene.state, scene.flow, scene.problem, Sources())
    follows = f"narrowdown after {name_for_command(scene.folder)}" if said.next else ""
    cure = said.workaround
    if cure is not None and MIXED in scene.files:
        cure = msgspec.structs.replace(cure, file=MIXED)
    return msgspec.structs.replace(said, workaround=cure, next=follows)


def say_found(said: Report) -> list[str]:
    """The result: one sentence where something is named, else what the last measurement said; what
    was asked after another session first."""
    if said.goes_on_from and said.route:
        return [said.route[-1].message, f"{said.headline}."]
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
    name, made = name_for_command(scene.folder), _list_by_verdict(scene, verdict)
    plain = msgspec.structs.replace(said, next="")  # here a key asks what follows
    made += list_deeds(plain, shorten_path(scene.folder), checkable=can_check(scene.problem))
    if said.next:
        made.append(
            Deed(f"{ask_known(said)} Press {{after}} to choose a question. All of them:", said.next)
        )
    if "case/traces.txt" in scene.files:
        told = "files of the case still name a folder, a user or a host; traces.txt says which."
        made.append(Deed(f"Before you send it: {told}"))
    if said.culprits:
        again = "After an engine update, check again with:"
        made.append(Deed(again, f"narrowdown replay {name} --expect fixed"))
    if line := offer_ladder(scene.state, scene.problem, name):
        told = "Since when is it wrong, and is it fixed? This installs releases and says first how large they are:"
        made.append(Deed(told, line))
    whole = shorten_path(scene.folder / REPORT)
    return [*made, Deed(f"{whole} tells all of it, to read or to send.")]


def _list_by_verdict(scene: Scene, verdict: str) -> list[Deed]:
    """What follows from how it ended."""
    if verdict in TOLD:
        return [Deed(TOLD[verdict])]
    if verdict == "fixed-by-sanitizing":
        by_hand = next((c.text for c in commands(scene) if c.text), "")
        return [Deed("Use the cleaned model. This writes it:", by_hand)]
    if verdict == "not-reproduced":
        return _list_more_inputs(scene, name_for_command(scene.folder))
    return []


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
        told = "Do others of your samples fail? More runs of these do not tell. Press {edit} to give them, or:"
        made.append(Deed(told, more))
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
        return "There is no case folder."
    place = shorten_path(scene.folder / "case")
    return f"{place}: {count(files, 'file')}. README.txt in it says what they are."
