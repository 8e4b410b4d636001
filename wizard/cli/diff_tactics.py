"""``narrowdown diff-tactics``: which tactics did only the failing builds choose? Replay files
alone, no engine."""

import argparse
import sys
from pathlib import Path

import msgspec

from narrowdown.engines.data.tactic_replay import (
    Replay,
    Suspect,
    describe_algorithm,
    gather_replays,
    rank_suspects,
)
from narrowdown.wizard import BadUsage, Exit
from narrowdown.wizard.problem_options import refuse_strange
from narrowdown.wizard.words import visible, write_json


def diff_tactics(arguments: argparse.Namespace) -> int:
    """Print the suspects. Exit 0 where there are any, 6 where the files do not tell."""
    good = replays(arguments.good, arguments.dir, "good")
    bad = replays(arguments.bad, arguments.dir, "bad")
    found = rank_suspects(good, bad)
    code = Exit.FOUND if found else Exit.UNRESOLVED
    if arguments.json:
        told = {
            "good": len(good),
            "bad": len(bad),
            "suspects": [msgspec.to_builtins(s) for s in found],
        }
        sys.stdout.write(write_json(told))
        return code
    print(f"Loaded {len(good)} good tactic replays.")
    print(f"Loaded {len(bad)} bad tactic replays.")
    nothing = (
        "Could not determine potentially bad tactics. More replay files of either kind may tell."
    )
    print("Found potentially bad tactics:" if found else nothing)
    for line in listing(found, len(good), len(bad)):
        print(visible(line))
    return code


def listing(found: list[Suspect], good: int, bad: int) -> list[str]:
    """Layer by layer, the most telling first."""
    layers: dict[str, list[Suspect]] = {}
    for suspect in found:
        layers.setdefault(suspect.layer, []).append(suspect)
    lines: list[str] = []
    for layer, chosen in layers.items():
        lines += [
            f"Layer: {layer}",
            f"    Algorithms: {[describe_algorithm(s.choice) for s in chosen]}",
        ]
        lines += [
            f"    in {s.bad} of {bad} bad and 0 of {good} good builds: by chance {s.chance:.2g}"
            for s in chosen
        ]
    return lines


def replays(place: str | None, folder: str, kind: str) -> list[Replay]:
    """The replays of one kind; a folder in which none were sorted so far holds none. Raises Refusal
    (exit 2) where the place is not there."""
    path = Path(place) if place else Path(folder) / kind
    refuse_strange(path)
    other = Path(folder) / ("bad" if kind == "good" else "good")
    if not place and not path.exists() and other.exists():
        return []
    if not path.exists():
        raise BadUsage(
            f"There is no '{path}' with {kind} tactic replays; name the place with --dir or --{kind}."
        )
    return [replay for _, replay in gather_replays(path)]
