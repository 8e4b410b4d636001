"""What ``?`` says of a screen's parts and of the cards. Keys stand in braces, as
``Narrowdown.fill_in_keys`` fills them in."""

from collections.abc import Mapping
from typing import NamedTuple

GRAPH = "Each row is a node; a line at the left leads from a node down to those that read it; the suspect is marked."
DEPTH = "Error by depth: one column a tensor, from the first node to the last; each row up is a fixed factor more."
TRIES = "✓ passes: right; ✗ fails: wrong in the way that is looked for; ? cannot tell: it crashed, or failed in another way."

# By the id of the panel.
PANELS: Mapping[str, str] = {
    "question": "What this step wants to know, and how it finds out. Press {terms} for the words in ‹brackets›.",
    "plan-panel": (
        "What {go} starts, and what it is expected to cost. A ‹probe› is one try: take the model or a part of it, build "
        "it, run it, compare. Press {auto} to have it go on by itself until a step takes long or an answer is in doubt. "
        "Press {skip} to leave this step out: then you answer from what you know."
    ),
    "doing-panel": "What is being tried just now, how many tries are done, and what may be left. "
    "Press {stop} to stop after this try.",
    "model-panel": (
        "Every node of the model from left to right, coloured by the smallest part that it was tried in. The line below it is "
        "the smallest part that still fails: the fault is in there. Then, in words, what the last tries have shown."
    ),
    "probes-panel": f"The tries, the newest first: what was tried, how it came out, how long it took. {TRIES} "
    "Press {probes} to list them all, and to see what the engine wrote during one.",
    "log-panel": "The last lines that the engines wrote. Press {log} for all of them.",
    "why": "Why the answer that stands as recommended is the one that the numbers support.",
    "measured-panel": (
        "What the step found. An error of 0 is exact, and 'allowed' is the most that still counts as right. ? stands for what "
        f"was not measured. {DEPTH} Press {{pictures}} for all pictures."
    ),
    "noted-panel": "Notes of this step, yours and the session's own; the report has all of them.",
    "around": GRAPH,
    "words-panel": "What the words of this step mean, in a sentence each. Press {terms} for all of them, and all others.",
    "answers-panel": (
        "Arrows or digits choose. Press {answer} to answer and to run the next step. 'recommended' is what the measurement "
        "supports; the arrow says where an answer leads. 'more answers' has those that the measurement rules out, each with the "
        "reason. You may choose any: it is noted as yours. Press {rewind} to come back to it."
    ),
    "verdict-panel": "How the search ended, in a sentence, and what that means.",
    "todo-panel": "What you can do now, the first thing first; what is to be typed stands below it.",
    "culprits-panel": (
        "Each part that fails: its nodes, how often and how far off it is, the largest part of it that passes, the cause and the "
        "numbers that show it. Press {terms} for the causes."
    ),
    "decided-panel": "The measurement that ended the search, as no part of the model is at fault.",
    "way-panel": "Steps that had no answer, and why.",
    "where-panel": GRAPH,
    "cure-panel": "What makes the model right here, on how many samples that was checked, and what it costs.",
    "route-panel": "Every question with the answer that was taken.",
    "files-panel": "The folder to share: whoever gets it needs only the engine, not this program.",
}


class CardWords(NamedTuple):
    """Of a card with a list: its title, what its keys do, and what it shows."""

    title: str
    hint: str
    about: str


CHOOSE = CardWords(
    "",
    "arrows choose, [Enter] takes, {close} closes",
    "Arrows choose a line. Press [Enter] to take it, {close} to close the card and change nothing.",
)
PICK = CardWords(
    "",
    "type to narrow, arrows choose, [Enter] takes, {close} closes",
    "What fits into the field. Typing leaves those that hold what was typed; arrows choose, [Enter] takes the line.",
)
TERMS = CardWords(
    "Words used here",
    "arrows choose, [PgUp] [PgDn] scroll, {close} closes",
    "Words explained: what it is, why it matters here, where to read on. Arrows choose a word. Press {scroll_up} "
    "and {scroll_down} to scroll what is said of it.",
)
MAP = CardWords(
    "Map",
    "arrows choose, [PgUp] [PgDn] scroll, {close} closes",
    "Every step of the flow, then its ends, in the order of the flow. A tick marks the answers given; the detail says "
    "what a step is for and where each of its answers leads.",
)
COMMANDS = CardWords(
    "Same, by hand",
    "arrows choose a tool, {copy} copies it, {close} closes",
    "The same step done by other tools, to see it without this program or to put it into a script. Press {copy} or "
    "[Enter] to copy the highlighted one: to the clipboard and into last-command.txt in the folder of the "
    "session.",
)
REWIND = CardWords(
    "Rewind",
    "arrows choose, [Enter] goes back, {close} closes",
    "The questions that you have answered, the latest first. Going back to one sets aside what was answered "
    "from there on; what was measured stays known, so the way back is quick. The other answers of that "
    "question lead to other branches.",
)
PROBES = CardWords(
    "Probes of this step",
    "arrows choose, [Enter] shows its log, {close} closes",
    "The tries of this step, the latest first: what was tried, how it came out, how far off it was. Press "
    "[Enter] to see what the engine wrote during one.",
)
WHY = "Why the recommended answer is recommended, then what this step is for; at an end, the reason for every answer."
PICTURES = (
    f"Around the suspect. {GRAPH} {DEPTH} The model: every node from left to right, coloured by the smallest part that "
    "it was tried in."
)
DETAILS = "The message as it was written, to read and to copy."
