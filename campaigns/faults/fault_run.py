"""The fault campaign: sessions of many scenes are killed in every manner, side by side, until
enough moments have gone by.

    python campaigns/faults/fault_run.py --kills 1000 --jobs 12 --minutes 8 --out FOLDER
    python campaigns/faults/fault_run.py --table FOLDER/moments.jsonl ...

Writes one line a session into ``moments.jsonl`` as it goes and the tables into ``table.md``;
sessions that did not end as they should are kept beside them. Needs Linux, and no more than the
program itself needs. ``campaign.py`` says what is done to them.
"""

import argparse
import collections
import itertools
import json
import os
import platform
import random
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # as a script it has no package to import from

from campaigns.faults import campaign as faults
from narrowdown.wizard.demo import MODELS
from tests.e2e import tiny

EXPORTS = 10  # kills of one task of exports
KEPT = 5  # sessions that did not end as they should
# Through every step of the flow but nondeterminism, whatever is measured.
ANSWERS = """
reproduce: "yes"
sanitize: "yes"
real-inputs: "no"
intermittent: "yes"
tactics: "no"
layerwise: "yes"
extract: "no"
reduce: ["no", "yes"]
double-check: linear
minimal-case: workaround
workaround: "yes"
"""
# The same where builds are dear: a fault that comes and goes would have every one of them made
# twice.
DEAR_ANSWERS = """
reproduce: "yes"
sanitize: "yes"
intermittent: "no"
layerwise: "yes"
extract: "no"
reduce: "yes"
minimal-case: workaround
workaround: "yes"
"""


def scenes(folder: Path) -> dict[str, faults.Scene]:
    """The commands; their models and inputs are written below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    model, inputs, answers = tiny.norm(folder), folder / "norm.npz", folder / "answers.yaml"
    tiny.feeds(inputs, x=np.abs(tiny.weights(2, 64, seed=9)) * 100)
    answers.write_text(ANSWERS)
    half = (str(model), "--engine", "emulate:precision=fp16", "--inputs", str(inputs))
    shapes = (
        str(MODELS / "shapes_cnn.onnx"),
        "--inputs",
        str(MODELS / "shapes_cnn_in.npz"),
        "--tolerance",
        "1e-3",
    )
    checker = folder / "checker.py"
    checker.write_text(
        "import sys, onnx\nops = {n.op_type for n in onnx.load(sys.argv[1]).graph.node}\nsys.exit('Sqrt' in ops)\n"
    )
    slots = ("--jobs", "2")  # not by the machine: two probes at a time, everywhere
    told = ("--answers", str(answers), *slots)
    # An engine whose builds are dear, so that an emulation is asked: for a look at every layer, and
    # for a draft of what to keep.
    rounded, single = folder / "one-row.npz", folder / "dear.yaml"
    single.write_text(DEAR_ANSWERS)
    through = ("--answers", str(single), *slots)
    dear = ("--engine", "dear", "--tolerance", "1e-3")
    culprit, drifting = tiny.drift(folder, 8, culprit=4), tiny.drift(folder, 8)
    tiny.feeds(rounded, x=np.load(drifting[1])["x"][:1])
    near = (
        str(drifting[0]),
        "--engine",
        "emulate:precision=bf16",
        "--inputs",
        str(rounded),
        "--tolerance",
        "0.015",
    )
    found = [
        faults.Scene("whole flow", ("run", *half, *told), told),
        faults.Scene("nondeterminism", ("step", "nondeterminism", *half, *slots), slots),
        faults.Scene("precision", ("step", "precision", *half, *slots), slots),
        faults.Scene("tactics", ("step", "tactics", *shapes, *slots), slots),
        faults.Scene("reduce", ("step", "reduce", *shapes, *slots), slots),
        faults.Scene(
            "a checker",
            (
                "step",
                "reduce",
                str(model),
                "--check",
                f"{sys.executable} {checker} {{model}}",
                *slots,
            ),
            slots,
        ),
        faults.Scene(
            "dear builds",
            ("run", str(culprit[0]), "--inputs", str(culprit[1]), *dear, *through),
            through,
        ),
        faults.Scene(
            "a draft",
            (
                "run",
                str(drifting[0]),
                "--inputs",
                str(drifting[1]),
                *dear,
                "--flow",
                "precision",
                *slots,
            ),
            slots,
        ),
        faults.Scene("samples made near", ("step", "compare", *near, *slots), slots),
    ]
    return {scene.name: scene for scene in found}


def surroundings(home: Path) -> dict[str, str]:
    """An environment whose sessions and trust live below ``home``, and in which the engine ``dear``
    is installed."""
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).with_name("dear")), os.environ.get("PYTHONPATH", "")])
    )
    return {
        **os.environ, "NARROWDOWN_HOME": str(home / "sessions"), "XDG_STATE_HOME": str(home / "state"), "PYTHONPATH": path,
    }  # fmt: skip


def plan(names: list[str], manners: list[str], seed: int) -> Iterator[tuple[str, str]]:
    """(scene, manner), without end: each manner in every scene and as often in the whole flow as in
    all steps together. What is no SIGKILL comes every other round."""
    chance = random.Random(seed)
    for number in itertools.count():
        several = [name for name in names if name != "whole flow"]
        order = several + ["whole flow"] * max(1, len(several)) * ("whole flow" in names)
        pairs = [
            (s, m)
            for s in order
            for m in manners
            if m != "disk" and (m not in faults.OTHERS or number % 2 == 0)
        ]
        chance.shuffle(pairs)
        yield from pairs


def undisturbed(
    folder: Path, scene: faults.Scene, product: Path = faults.ROOT
) -> tuple[str, faults.Straight]:
    """The session of the scene that nothing happens to."""
    campaign = faults.Campaign(folder, surroundings(folder), product=product)
    return scene.name, campaign.straight(scene)


def session(
    folder: Path,
    number: int,
    scene: faults.Scene,
    manner: str,
    straight: faults.Straight,
    seed: int,
    deadline: float,
    product: Path,
) -> dict[str, Any]:
    """One session, killed until it comes to its end; what it went through. Its folder stays only if
    something was wrong."""
    home = folder / f"{number:04d}"
    campaign = faults.Campaign(
        home, surroundings(home), f"{seed}.{number}", {scene.name: straight}, product
    )
    tally, began = faults.Tally(scene.name, manner), time.monotonic()
    further = faults.moments(manner, campaign.random, straight.seconds)
    try:
        campaign.disturbed(scene, manner, faults.until(deadline, further), tally=tally)
    except (
        Exception
    ) as error:  # what the campaign itself meets is a result of this session, not the end of all
        tally.wrong.append(f"{type(error).__name__}: {error}"[:2000])
    return _ended(home, number, tally, began)


def disk(
    folder: Path,
    number: int,
    scene: faults.Scene,
    straight: faults.Straight,
    seed: int,
    size: int,
    product: Path,
) -> dict[str, Any]:
    """One session on a disk that is too small and grows."""
    home = folder / f"{number:04d}"
    campaign = faults.Campaign(
        home, surroundings(home), f"{seed}.{number}", {scene.name: straight}, product
    )
    tally, began = faults.Tally(scene.name, "disk"), time.monotonic()
    try:
        campaign.filled(scene, size, tally)
    except Exception as error:  # as above
        tally.wrong.append(f"{type(error).__name__}: {error}"[:2000])
    return _ended(home, number, tally, began)


def exports(folder: Path, number: int, source: Path, seed: int, product: Path) -> dict[str, Any]:
    """Some interrupted exports of the session ``source``."""
    home = folder / f"{number:04d}"
    tally, began = faults.Tally("export", "tree"), time.monotonic()
    campaign = faults.Campaign(home, surroundings(home), f"{seed}.{number}", product=product)
    copy = Path(shutil.copytree(source, home / "source"))
    try:
        faults.interrupted_exports(campaign, copy, EXPORTS, tally)
    except Exception as error:  # as above
        tally.wrong.append(f"{type(error).__name__}: {error}"[:2000])
    return _ended(home, number, tally, began)


def _ended(home: Path, number: int, tally: faults.Tally, began: float) -> dict[str, Any]:
    if not tally.wrong:
        shutil.rmtree(home, ignore_errors=True)
    return {"number": number, "took": round(time.monotonic() - began, 1), **vars(tally)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kill sessions at many moments; each must end as if nothing had happened."
    )
    environment = os.environ.get
    parser.add_argument("--kills", type=int, default=int(environment("NARROWDOWN_FAULTS", "1000")))
    parser.add_argument("--seed", type=int, default=int(environment("NARROWDOWN_FAULT_SEED", "0")))
    parser.add_argument(
        "--scenes",
        default=environment("NARROWDOWN_FAULT_SCENES", ""),
        help="by comma; default: all",
    )
    parser.add_argument(
        "--manners",
        default=environment("NARROWDOWN_FAULT_MANNERS", ""),
        help="by comma; default: all",
    )
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="sessions at a time"
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="after these no session is killed again"
    )
    parser.add_argument("--out", type=Path, help="a folder for the results; default: a new one")
    parser.add_argument(
        "--table",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="only print the tables of these results",
    )
    told = parser.parse_args()
    if told.table:
        print(
            tables(
                json.loads(line) for path in told.table for line in path.read_text().splitlines()
            )
        )
        return 0
    out = told.out or Path(tempfile.mkdtemp(prefix="faults-"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        records = run(told, Path(folder), out)
    text = tables(records)
    (out / "table.md").write_text(text + "\n")
    print(f"\n{text}\n\nIn full: {out / 'moments.jsonl'}", flush=True)
    return 1 if any(record.get("wrong") for record in records) else 0


def run(told: argparse.Namespace, folder: Path, out: Path) -> list[dict[str, Any]]:
    """The whole campaign below ``folder``; one record a session."""
    began = time.monotonic()
    deadline = began + told.minutes * 60 if told.minutes else float("inf")
    every = scenes(folder / "scenes")
    names = [name for name in every if not told.scenes or name in told.scenes.split(",")]
    manners = [
        m
        for m in (*faults.KILLS, *faults.OTHERS)
        if not told.manners or m in told.manners.split(",")
    ]
    records: list[dict[str, Any]] = [
        {
            "seed": told.seed, "jobs": told.jobs, "processors": os.cpu_count(), "python": platform.python_version(),
            "onnxruntime": metadata.version("onnxruntime"), "onnx": metadata.version("onnx"),
        }
    ]  # fmt: skip
    if not names or not manners:
        raise SystemExit(
            f"The scenes are {', '.join(every)}; the manners {', '.join((*faults.KILLS, *faults.OTHERS))}."
        )
    with ProcessPoolExecutor(told.jobs) as pool, (out / "moments.jsonl").open("a") as lines:
        print(json.dumps(records[0]), file=lines, flush=True)
        product = faults.copied(faults.ROOT, folder / "product")
        chosen = [every[name] for name in names]
        straight = dict(
            pool.map(undisturbed, itertools.repeat(folder), chosen, itertools.repeat(product))
        )
        numbers, pairs = itertools.count(1), plan(names, manners, told.seed)
        busy: set[Future[dict[str, Any]]] = set()
        if "whole flow" in names and "tree" in manners:
            source = folder / faults.straight_folder("whole flow")
            busy |= {
                pool.submit(exports, folder, next(numbers), source, told.seed, product)
                for _ in range(told.kills // 20 // EXPORTS)
            }
        if "disk" in manners:
            disks = min(faults.SIZES, max(1, told.kills // 20))
            several = itertools.cycle(
                dict.fromkeys((*names, *(("whole flow",) * ("whole flow" in names))))
            )
            for nth in range(disks):
                name, size = next(several), 1 + nth * faults.SIZES // disks
                busy.add(
                    pool.submit(
                        disk,
                        folder,
                        next(numbers),
                        every[name],
                        straight[name],
                        told.seed,
                        size,
                        product,
                    )
                )
        kept = kills = 0
        killing = set(manners) - {"disk"}
        while True:
            while (
                killing
                and len(busy) < told.jobs
                and kills < told.kills
                and time.monotonic() < deadline
            ):
                name, manner = next(pairs)
                busy.add(
                    pool.submit(
                        session,
                        folder,
                        next(numbers),
                        every[name],
                        manner,
                        straight[name],
                        told.seed,
                        deadline,
                        product,
                    )
                )
            if not busy:
                return records
            done, busy = wait(busy, return_when=FIRST_COMPLETED)
            for record in (future.result() for future in done):
                records.append(record)
                print(json.dumps(record), file=lines, flush=True)
                kills += record["kills"] * (record["manner"] in faults.KILLS)
                seconds = time.monotonic() - began
                print(
                    f"{seconds:4.0f} s  {kills:4d}  {record['scene']}, {record['manner']}",
                    *record["wrong"],
                    flush=True,
                )
                if record["wrong"] and kept < KEPT:
                    kept += 1
                    with tarfile.open(out / f"wrong-{record['number']}.tar.gz", "w:gz") as archive:
                        archive.add(folder / f"{record['number']:04d}", f"{record['number']:04d}")


def tables(records: Iterable[dict[str, Any]]) -> str:
    """Three tables in Markdown: kills by scene and manner, moments by step, and what was wrong."""
    kills: collections.Counter[tuple[str, str]] = collections.Counter()
    steps: collections.Counter[str] = collections.Counter()
    sums: collections.Counter[str] = collections.Counter()
    lost: collections.Counter[str] = collections.Counter()  # sessions
    disks: list[int] = []  # KiB
    skipped = ""
    wrong: list[str] = []
    heads = []
    for record in records:
        if "scene" not in record:
            heads.append(", ".join(f"{key} {value}" for key, value in record.items()))
            continue
        kills[record["scene"], record["manner"]] += record["kills"]
        steps.update(record["steps"])
        for name in ("sessions", "torn", "took"):
            sums[name] += record[name]
        lost[record["manner"]] += record["lost"]
        disks += [record["kib"]] * (record["manner"] == "disk" and not record["skipped"])
        skipped = skipped or record["skipped"]
        wrong += record["wrong"]
    manners = [
        m for m in (*faults.KILLS, *faults.OTHERS) if any(manner == m for _, manner in kills)
    ]
    rows = [["scene", *manners], ["---"] * (1 + len(manners))]
    for scene in dict.fromkeys(scene for scene, _ in kills):
        rows.append([scene, *(str(kills[scene, m] or "") for m in manners)])
    rows.append(
        ["all", *(str(sum(n for (_, manner), n in kills.items() if manner == m)) for m in manners)]
    )
    if any(lost.values()):
        rows.append(["*sessions that lost a probe*", *(str(lost[m] or "") for m in manners)])
    by_signal = sum(n for (_, manner), n in kills.items() if manner in faults.KILLS)
    said = (
        f"{by_signal} moments of SIGKILL and {sum(kills.values()) - by_signal} others in {sums['sessions']} sessions, "
        f"{sums['torn']} torn lines set aside, {lost.total()} sessions that lost a probe and came to what follows from it, "
        f"{len(wrong)} wrong; {sums['took'] / 3600:.1f} hours of sessions."
    )
    if disks:
        said += f" {len(disks)} disks, of {min(disks)} to {max(disks)} KiB at first, were full {_times(kills)} times."
    if skipped:
        said += f" Left out: {skipped}."
    by_step = [
        ["at work", "moments"],
        ["---", "---"],
        *([step, str(n)] for step, n in steps.most_common()),
    ]
    return "\n\n".join(
        [*heads, said, _markdown(rows), _markdown(by_step), *(f"- {text}" for text in wrong)]
    )


def plainly(text: str) -> str:
    """The first line of what was wrong, without the session's name, for a table."""
    line = re.sub(r"^[^:]*-[0-9a-f]{6}[^:]*: ", "", text.splitlines()[0])
    line = re.sub(r"/\\S+/", ".../", re.sub(r"\\b[0-9a-f]{8,}\\b", "...", line))
    return line[:117] + "..." if len(line) > 120 else line.rstrip(":")


def _times(kills: collections.Counter[tuple[str, str]]) -> int:
    return sum(n for (_, manner), n in kills.items() if manner == "disk")


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
