"""``narrowdown engines``: what each engine is here, what it can do, and why one is missing."""

import argparse
import textwrap
from typing import Any

import msgspec

from wizard.cli.exits import FOUND, MISSING, Refusal


def engines(arguments: argparse.Namespace) -> int:
    """The survey, made in a process of its own: it imports the native libraries."""
    from wizard.machine import MachineProblem, ask

    try:
        text = ask("engines.backends")
        found: list[dict[str, Any]] = msgspec.json.decode(text)
    except (MachineProblem, ValueError) as problem:
        raise Refusal(MISSING, f"The engines could not be asked: {problem}") from None
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return FOUND
    print("\n\n".join(card(engine) for engine in found))
    return FOUND


def card(engine: dict[str, Any]) -> str:
    """One engine as text."""
    name = engine["name"]
    if not engine.get("present"):
        return f"{name}: not here. {engine.get('reason', '')}"
    lines = [f"{name} {engine.get('version', '')} on {engine.get('device', '?')}"]
    able = engine.get("capabilities") or {}
    yes = [key for key, value in able.items() if value.get("present")]
    lines.append(f"  can      {', '.join(yes) or 'nothing'}")
    for key, value in able.items():
        if not value.get("present"):
            lines.append(
                textwrap.fill(
                    f"{key}: {value.get('reason', '')}", 100, initial_indent="  cannot   ", subsequent_indent=" " * 11
                )
            )
    lines += [
        textwrap.fill(str(note), 100, initial_indent="  note     ", subsequent_indent=" " * 11)
        for note in engine.get("notes", ())
    ]
    for option in engine.get("options", ()):
        choices = (
            f" ({'|'.join(map(str, option['choices']))})"
            if option.get("choices")
            else f" ({option.get('type', 'str')})"
        )
        default = option.get("default")
        shown = "" if default in (None, "", [], ()) else f", default {default}"
        head = f"  {option['name']}{choices}{shown}: {option.get('help', '')}"
        lines.append(textwrap.fill(head, 100, subsequent_indent=" " * 6))
    return "\n".join(lines)
