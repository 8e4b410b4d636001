"""Loops through the product, and beside each what is true of it.

    python campaigns/loops/campaign.py --out FOLDER [--only NAME ...] [--precision fp16 ...] [--kill [N]]

Right is a session that fails where the loop does, names its first step and its first token, blames
a planted node and no other model's, and whose cure the truth finds to hold, on sequences that the
session has not seen as well. ``--kill``: each session is killed once it has N (30) answers, and resumed.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.faults.campaign import MARK, kill_tree
from campaigns.field.truth import CLEAR
from campaigns.field.voices import TOLERANCE
from campaigns.loops import truth
from campaigns.loops.models import LOOPS, Feed, Loop

NARROWDOWN = Path(sys.executable).with_name("narrowdown")
HEALTHY = "fp32"  # ONNX Runtime with its optimizers, held against itself without them
MIDDLE = 30  # probes that a session has answered when it is killed, where nobody says


class Ran(NamedTuple):
    """One session. ``first``, ``token``: steps. ``holds`` of so many ``unseen`` sequences."""

    name: str
    code: int
    seconds: float
    told: dict[str, Any]
    report: dict[str, Any]
    true: truth.Compared | None
    holds: tuple[int, int] = (0, 0)
    wrong: tuple[str, ...] = ()


def run(loop: Loop, precision: str, folder: Path, kill: int, budget: str) -> Ran:
    path = folder / f"{loop.name}.onnx"
    sequences = loop.make(path)
    given = []
    for number, feed in enumerate(sequences[: loop.given]):
        given.append(folder / f"{loop.name}-{number}.npz")
        np.savez(given[-1], **feed)
    name = f"{loop.name}-{precision}"
    session = folder / f"session-{name}"
    engine = f"emulate:precision={precision}"
    words = [
        "run",
        str(path),
        "--engine",
        "onnxruntime:optimization=all" if precision == HEALTHY else engine,
    ]
    words += [word for file in given for word in ("--inputs", str(file))]
    words += [word for pattern in loop.carry for word in ("--carry", pattern)]
    words += ["--carry-token", loop.token] if loop.token else []
    words += ["--steps", str(loop.steps), "--session", str(session), "--display", "none"]
    words += ["--budget", budget]
    began = time.monotonic()
    if kill:
        begin_and_kill(words, session, kill)
        words = ["resume", str(session), "--display", "none", "--budget", budget]
    done = subprocess.run([str(NARROWDOWN), *words], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    (folder / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    return judge(
        loop, precision, path, sequences, Ran(name, done.returncode, seconds, *read(session), None)
    )


def begin_and_kill(words: Sequence[str], session: Path, answers: int) -> None:
    mark = secrets.token_hex(8)
    env = {**os.environ, MARK: mark}
    process = subprocess.Popen(
        [str(NARROWDOWN), *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    journal = session / "journal.jsonl"
    while process.poll() is None:
        if journal.exists() and journal.read_text().count('"probe.finished"') >= answers:
            break
        time.sleep(0.05)
    kill_tree(mark)
    process.wait()


def read(session: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the first step told, and the report."""
    words = ["report", str(session), "--format", "json", "-o", "-"]
    said = subprocess.run([str(NARROWDOWN), *words], capture_output=True, text=True, check=True)
    for line in (session / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event.get("kind") == "step.finished":
            return event["outcome"], json.loads(said.stdout)
    return {}, json.loads(said.stdout)


def judge(loop: Loop, precision: str, path: Path, sequences: Sequence[Feed], ran: Ran) -> Ran:
    """The session with what is wrong of it."""
    told, report, wrong = ran.told, ran.report, []
    if precision == HEALTHY:
        return ran._replace(wrong=() if ran.code == 10 else (f"exit code {ran.code}",))
    tolerance = TOLERANCE[precision]
    found = [truth.compare(loop, path, feed, precision) for feed in sequences[: loop.given]]
    true = next((each for each in found if each.first(tolerance) is not None), found[0])
    fails = true.first(tolerance) is not None
    if fails != (ran.code == 0):
        wrong.append(f"exit code {ran.code}, and the loop {'fails' if fails else 'is right'}")
    for what, mine in (("first_step", true.first(tolerance)), ("token_step", true.token)):
        if told.get(what) != mine:
            wrong.append(f"{what} {told.get(what)}, truly {mine}")
    blamed = {node for culprit in report["culprits"] for node in culprit["nodes"]}
    if loop.planted and max(true.own) > tolerance and not blamed & loop.planted:
        wrong.append(f"{', '.join(sorted(blamed)) or 'nobody'} blamed")
    holds = (0, 0)
    if cure := report["workaround"]:
        unseen = sequences[loop.given :]
        held = [
            truth.compare(loop, path, feed, precision, cure["keep_higher"]).first(CLEAR * tolerance)
            is None
            for feed in unseen
        ]
        holds = (sum(held), len(held))
        if cure["held_out_ok"] == cure["held_out_n"] and not all(held):
            wrong.append(f"the cure holds on {sum(held)} of {len(held)}")
    return ran._replace(true=true, holds=holds, wrong=tuple(wrong))


def draw_row(ran: Ran, precision: str) -> str:
    told, cure, true = ran.told, ran.report["workaround"], ran.true
    blamed = [node for culprit in ran.report["culprits"] for node in culprit["nodes"]]
    kept, held = "-", "-"
    if cure:
        kept = str(len(cure["keep_higher"]))
        held = f"{cure['held_out_ok']}/{cure['held_out_n']}; {ran.holds[0]}/{ran.holds[1]}"
    first = true.first(TOLERANCE[precision]) if true else None
    off = f"{max(true.free):.2%}" if true else "-"
    cells = (
        ran.name, ran.code, told.get("verdict"), f"{told.get('first_step')} ({first})",
        f"{told.get('token_step')} ({true.token if true else None})", off,
        ", ".join(name.rpartition("/")[2] or name for name in blamed[:3]) or "-", kept, held,
        f"{ran.seconds:.0f}", "; ".join(ran.wrong) or "yes",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| loop | exit code | verdict | first step (truly) | first token (truly) | truly off by, at most | blamed "
    "| kept in FP32 | held-out sequences; unseen ones | seconds | right |\n" + "|---" * 11 + "|"
)


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", required=True, help="a folder for models, sessions and the table")
    made.add_argument("--only", action="append", help="the name of a loop")
    made.add_argument("--precision", action="append", help="fp16, bf16 or fp32")
    made.add_argument("--kill", type=int, nargs="?", const=MIDDLE, default=0)
    made.add_argument("--budget", default="10m", help="of each session")
    words = made.parse_args()
    folder = Path(words.out)
    folder.mkdir(parents=True, exist_ok=True)
    rows, wrong = [HEAD], 0
    print(HEAD)
    for loop in LOOPS:
        for precision in loop.precisions:
            asked = not words.only or loop.name in words.only
            if not asked or (words.precision and precision not in words.precision):
                continue
            ran = run(loop, precision, folder, words.kill, words.budget)
            rows.append(draw_row(ran, precision))
            wrong += bool(ran.wrong)
            print(rows[-1], flush=True)
    (folder / "loops.md").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
