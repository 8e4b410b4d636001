"""Healthy models and planted export faults from PyTorch to the verdict, each from one command.

    python campaigns/pytorch/campaign.py --torch-python PATH [--only NAME ...] [--out FILE.md]

A healthy model must end right, with no place named. Of a planted fault the module must be named.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
NARROWDOWN = Path(sys.executable).with_name("narrowdown")
HEALTHY = ("vit", "vit_large", "convnext", "decoder", "lstm")
# Name -> (the module at fault, what must be told of it, the nodes that the export has in place of what
# PyTorch computes there).
PLANTED = {
    "gelu-tanh": ("blocks.3.act", "approximate", "node_gelu_3"),
    "quick-gelu": ("blocks.1.act", "sigmoid", "node_mul node_sigmoid node_mul_1"),
    "align-corners": ("up", "align_corners", "node_upsample_bilinear2d"),
    "half-rope": ("rope", "constant", "node_mul_3"),
    "epsilon": ("layers.2.n1", "1e-06", "node_add_14"),
    "baked-constant": ("baked", "div", "node_div"),
    "train-mode": (
        "stem.1",
        "batch_norm",
        "node_ReduceMean_1 node_ReduceMean_2 node_Sub_3 node_Mul_4 node_ReduceMean_5 node__native_batch_norm_legit__0",
    ),
    "scale": ("layers.2", "0.25", "node_mul_27"),
    "translated-epsilon": ("blocks.2.n2", "epsilon", "node_layer_norm_5"),
    "translated-gelu": ("blocks.4.act", "approximate", "node_gelu_4"),
}


class Ran(NamedTuple):
    """One command: its exit code, what the first step told, the seconds that it took."""

    name: str
    code: int
    told: dict[str, Any]
    seconds: float


def run(name: str, python: str, home: Path) -> Ran:
    """``narrowdown run`` of a model, and the outcome of its first step."""
    source = HERE / "models.py"
    words = ["run", f"{source}:{'planted' if name in PLANTED else name}", "--torch-python", python]
    began = time.monotonic()
    done = subprocess.run(
        [
            str(NARROWDOWN),
            *words,
            "--engine",
            "onnxruntime:optimization=all",
            "--session",
            str(home / name),
        ],
        env={**os.environ, "NARROWDOWN_PLANTED": name, "XDG_STATE_HOME": str(home / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    (home / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    return Ran(name, done.returncode, outcome(home / name), seconds)


def outcome(session: Path) -> dict[str, Any]:
    """What the step ``export-check`` found; empty where it did not end."""
    journal = session / "journal.jsonl"
    if not journal.exists():
        return {}
    for line in journal.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event.get("kind") == "step.finished":
            return dict(event.get("outcome") or {})
    return {}


def rows(found: list[Ran]) -> Iterator[str]:
    """The table."""
    yield (
        "| model | exit code | verdict | outputs off by | module named | right | what differs is told "
        "| nodes, exactly these | seconds |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for ran in found:
        told, (module, word, wanted) = ran.told, PLANTED.get(ran.name, ("", "", ""))
        named = told.get("module", "")
        right = "yes" if named == module else "**no**"
        said = "-" if not word else "yes" if word in told.get("differs", "") else "**no**"
        exact = list(told.get("nodes") or ()) == wanted.split()
        nodes = f"{len(wanted.split())}, {'yes' if exact else '**no**'}" if wanted else "-"
        error = told.get("error")
        off = f"{error:.1e}" if error is not None else "-"
        yield (
            f"| {ran.name} | {ran.code} | {told.get('verdict', '-')} | {off} | {named or '-'} | {right} "
            f"| {said} | {nodes} | {ran.seconds:.0f} |"
        )


def make_home(made: argparse.ArgumentParser, named: str | None) -> Path:
    """A new folder for the sessions; an old one's would be counted as new."""
    if named and Path(named).exists():
        made.error(f"{named} is there already, and its sessions would be counted as new")
    home = Path(named or tempfile.mkdtemp(prefix="narrowdown-pytorch-"))
    home.mkdir(parents=True, exist_ok=True)
    return home


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--torch-python", default=os.environ.get("NARROWDOWN_TORCH_PYTHON", ""))
    made.add_argument("--only", action="append", choices=(*HEALTHY, *PLANTED))
    made.add_argument("--home", help="a folder that keeps the sessions")
    made.add_argument("--out", help="also write the table there")
    words = made.parse_args()
    home = make_home(made, words.home)
    found = []
    for name in words.only or (*HEALTHY, *PLANTED):
        found.append(run(name, words.torch_python, home))
        print(*list(rows(found[-1:]))[2:], flush=True)
    text = "\n".join(rows(found)) + "\n"
    if words.out:
        Path(words.out).write_text(text, encoding="utf-8")
    missed = [
        r.name for r in found if r.told.get("module", "") != PLANTED.get(r.name, ("", "", ""))[0]
    ]
    print(
        f"{len(found) - len(missed)} of {len(found)} as they must be{': not ' + ', '.join(missed) if missed else ''}"
    )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
