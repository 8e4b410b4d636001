"""``narrowdown engines``: what each engine is here, what it can do, and what brings those that are
missing."""

import argparse
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from narrowdown.wizard import Exit

_WIDTH = 100
# Capabilities as they are listed -> what they mean.
MEANINGS: Mapping[str, str] = {
    "build": "make an engine of a model",
    "run": "run that engine on inputs",
    "mark": "show the values of inner tensors",
    "keep": "keep single nodes in FP32 where the rest is in a lower precision",
    "precision-hint": "compute the whole model in another precision on a hint",
    "casts": "follow casts in the model",
    "optimizers": "switch single optimizers off",
    "tactics": "tell which kernel it chose for each layer, and be made to choose another",
    "rebuild": "choose otherwise when the same model is built again",
    "threads": "compute on as many threads as it is told",
    "latency": "take as long for a run as a real engine would",
    "strongly-typed": "compute in exactly the types that the model has",
    "weakly-typed": "take a precision as a flag and choose for each layer (FP16, BF16, INT8, FP8)",
    "layers": "tell which nodes it joined into one layer",
    "debug-tensors": "hand inner tensors to a listener (observe=debug)",
    "unfused-debug-tensors": "do so with its layers joined as ever (observe=unfused)",
    "editable-timing-cache": "be made to choose kernels through its timing cache (tactics=cache)",
}


def engines(arguments: argparse.Namespace) -> int:
    """The survey; what loads native libraries is a process of its own."""
    from narrowdown.wizard.machine_room import survey_engines
    from narrowdown.wizard.words import write_json

    found = survey_engines()
    sys.stdout.write(write_json(found) if arguments.json else f"{survey(found)}\n")
    return Exit.FOUND


def survey(found: Sequence[Mapping[str, Any]]) -> str:
    """All engines as text: those that are here, then the others with what is missing, then what the
    words mean."""
    here = [engine for engine in found if engine.get("present")]
    others = [engine for engine in found if not engine.get("present")]
    parts = [card(engine) for engine in here]
    if others:
        parts.append("\n".join(["Not here", *(card(engine) for engine in others)]))
    used = {key for engine in here for key in engine.get("capabilities") or {}}
    meant = [_row(key, text, 22) for key, text in MEANINGS.items() if key in used]
    return "\n\n".join([*parts, "\n".join(["What the words mean", *meant])] if meant else parts)


def card(engine: Mapping[str, Any]) -> str:
    """One engine as text."""
    name = engine["name"]
    if not engine.get("present"):
        return _row(name, str(engine.get("reason", "")), 13)
    brought = f" (brought by {engine['source']})" if engine.get("source") else ""
    lines = [f"{name} {engine.get('version', '')} on {engine.get('device', '?')}{brought}"]
    able = engine.get("capabilities") or {}
    lines.append(
        _row(
            "can",
            ", ".join(key for key, value in able.items() if value.get("present")) or "nothing",
        )
    )
    lacking: dict[str, list[str]] = {}
    for key, value in able.items():
        if not value.get("present"):
            lacking.setdefault(str(value.get("reason", "")), []).append(key)
    lines += [_row("cannot", f"{', '.join(keys)}: {reason}") for reason, keys in lacking.items()]
    lines += [_row("note", str(note)) for note in engine.get("notes", ())]
    for option in engine.get("options", ()):
        choices = (
            f" ({'|'.join(map(str, option['choices']))})"
            if option.get("choices")
            else f" ({option.get('type', 'str')})"
        )
        default = option.get("default")
        shown = "" if default in (None, "", [], ()) else f", default {default}"
        head = f"  {option['name']}{choices}{shown}: {option.get('help', '')}"
        lines.append(textwrap.fill(head, _WIDTH, subsequent_indent=" " * 6))
    return "\n".join(lines)


def _row(head: str, text: str, width: int = 8) -> str:
    """``text`` beside its head, in lines that begin below its first one."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=f"  {head:<{width}} ",
        subsequent_indent=" " * (width + 3),
        break_on_hyphens=False,
    )
