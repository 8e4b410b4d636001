"""One session on one GPU and on two: a reduction, repeated builds, a precision search. Seconds,
builds a GPU, the speed-up, and whether both came to the same.

    python campaigns/gpu/two_gpus.py --out FOLDER [--seconds 600] [--most 180] [--only NAME ...]
    [--rehearse]

Writes ``two_gpus.jsonl`` (one object a run, then one a case) as it goes, and keeps each run's log
and session; whatever becomes of one run, the others take place. ``--rehearse``: no GPU and no
TensorRT; a stand-in for the driver lists two GPUs.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from narrowdown.engines.workers.gpus import Gpu, group_alike, list_gpus
from tests import fakes
from tests.engines.workers import driver  # a stand-in, for rehearsals
from tests.gpu import models  # as a script it has no package to import from

NARROWDOWN = [
    sys.executable,
    "-c",
    "import sys; from narrowdown.wizard.cli import main; sys.exit(main())",
]
_DONE = re.compile(r"^(\S+ \S+) .*GPU (\d+), worker \d+: (\w+) \S+ in ([\d.]+) s$", re.MULTILINE)


class Case:
    """``words``: the step and what belongs to it; ``told``: fields of its outcome that must be the
    same on one GPU and two."""

    def __init__(self, name: str, words: list[str], told: tuple[str, ...]) -> None:
        self.name, self.words, self.told = name, words, told


def cases(folder: Path, builds: int, *, rehearse: bool) -> list[Case]:
    norm, norm_in = models.layernorm(folder)
    far, far_in = models.cancelling(folder)
    convs, convs_in = models.convolutions(folder, 8, 32)
    broken = strong = "tensorrt:precision=fp16,typing=strong"
    right = "tensorrt"
    if rehearse:
        fakes.put_on_path()
        broken = "fake:fault=wrong,gpus=1,nodes=block1/Sub_centred+block1/Add_vareps"
        strong, right = "emulate:precision=fp16", "fake:fault=wrong,gpus=1,ops=Conv,rate=0.4"
    until = ["--until", str(builds)]
    return [
        Case("repeat", ["repeat", str(convs), "--engine", right, "--inputs", str(convs_in), *until], ("builds", "failures")),
        Case("reduce", ["reduce", str(norm), "--engine", broken, "--inputs", str(norm_in)], ("verdict", "nodes")),
        Case("precision", ["precision", str(far), "--engine", strong, "--inputs", str(far_in)], ("outcome", "keep_higher")),
    ]  # fmt: skip


def run(case: Case, folder: Path, gpus: list[Gpu], seconds: float) -> dict[str, Any]:
    """The step on these GPUs, a probe at a time on each; what its outcome, its journal and its log
    say."""
    folder.mkdir(parents=True)
    session = folder / "session"
    command = [
        *NARROWDOWN,
        "step",
        *case.words,
        "--json",
        "--jobs",
        str(len(gpus)),
        "--session",
        str(session),
    ]
    # A home of its own: what an earlier run has timed would be laid to the second GPU.
    allowed = {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.id for gpu in gpus),
        "XDG_STATE_HOME": str(folder / "home"),
    }
    began = time.monotonic()
    with (folder / "step.json").open("wb") as out, (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=os.environ | allowed,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            code = -9
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
    facts: dict[str, Any] = {"exit": code, "wall": round(time.monotonic() - began, 1)}
    said = (folder / "step.json").read_text()
    outcome = json.loads(said) if said.strip() else {}
    facts["found"] = {name: outcome.get(name) for name in case.told}
    facts["message"] = outcome.get("message", "")
    return {
        **facts,
        **_journalled(session / "journal.jsonl"),
        **_worked(session / "logs" / "runner.log"),
    }


def _journalled(journal: Path) -> dict[str, Any]:
    """``seconds``: from the first build that the step asked for to the last that was answered,
    worker starts included."""
    events = [
        json.loads(line)
        for line in journal.read_text(errors="replace").splitlines()
        if line.endswith("}")
    ]
    started = {
        e["key"]: e
        for e in events
        if e["kind"] == "probe.started" and e["probe"]["op"] == "measure"
    }
    finished = [e for e in events if e["kind"] == "probe.finished" and e["key"] in started]
    ends = Counter(str((e.get("measurement") or {}).get("status", "ok")) for e in finished)
    times = [_when(e["ts"]) for e in finished]
    first = min((_when(e["ts"]) for e in started.values()), default=0.0)
    warm = round((max(times) - min(times)) / (len(times) - 1), 3) if len(times) > 1 else None
    return {
        "seconds": round(max(times, default=first) - first, 2), "builds": len(finished), "ends": dict(ends),
        "warm_seconds_a_build": warm, "ahead": sum(bool(e.get("speculative")) for e in started.values()),
        "notes": [e["text"] for e in events if e["kind"] == "note.added"],
    }  # fmt: skip


def _when(stamp: Any) -> float:
    return (
        float(stamp)
        if isinstance(stamp, (int, float))
        else datetime.fromisoformat(str(stamp)).timestamp()
    )


def _worked(log: Path) -> dict[str, Any]:
    """Builds and busy seconds by GPU, as the pool has said (with one GPU it says nothing), and how
    long a build takes, all GPUs together, once each has answered its first, for which it loads its
    libraries."""
    found = _DONE.findall(log.read_text(errors="replace")) if log.exists() else []
    ends = [
        (f"GPU {gpu}", _clock(when), float(took))
        for when, gpu, what, took in found
        if what == "measure"
    ]
    if not ends:
        return {}
    builds = Counter(gpu for gpu, _, _ in ends)
    busy = {gpu: round(sum(took for g, _, took in ends if g == gpu), 1) for gpu in sorted(builds)}
    warm = max(min(at for g, at, _ in ends if g == gpu) for gpu in builds)
    after = sorted(at for _, at, _ in ends if at > warm)
    each = round((after[-1] - warm) / len(after), 3) if after else None
    return {"by_gpu": dict(sorted(builds.items())), "busy": busy, "warm_seconds_a_build": each}


def _clock(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp()


def compared(case: Case, one: dict[str, Any], both: dict[str, Any]) -> dict[str, Any]:
    found = [row.get("found") for row in (one, both)]
    times = [row.get("seconds") or 0.0 for row in (one, both)]
    return {
        "case": case.name,
        "seconds": times,
        "speed_up": round(times[0] / times[1], 2) if all(times) else None,
        "warm_seconds_a_build": [row.get("warm_seconds_a_build") for row in (one, both)],
        "same": found[0] == found[1] and bool(found[0]),
        "found": found,
        "by_gpu": both.get("by_gpu", {}),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="for all; what does not fit is left out"
    )
    parser.add_argument("--most", type=float, default=180.0, help="seconds of one run")
    parser.add_argument("--builds", type=int, default=16, help="of the repeated builds")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    began, out = time.monotonic(), given.out.absolute() / time.strftime("%H%M%S")
    out.mkdir(parents=True)
    if given.rehearse:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ["LD_LIBRARY_PATH"] = str(driver.build(out, [("NVIDIA H200", 9)] * 2))

    def tell(row: dict[str, Any]) -> None:
        line = json.dumps(row, default=str)
        with (given.out / "two_gpus.jsonl").open("a") as file:
            file.write(line + "\n")
        print(f"[{time.monotonic() - began:6.1f}]", line, flush=True)

    gpus = list(group_alike(list_gpus())[0])
    tell({"gpus": [gpu._asdict() for gpu in gpus], "cores": os.cpu_count()})
    if len(gpus) < 2:
        print("There are not two GPUs of one kind here.", file=sys.stderr)
        return 2
    wrong = 0
    chosen = [
        c
        for c in cases(out, given.builds, rehearse=given.rehearse)
        if not given.only or c.name in given.only
    ]
    if (
        chosen and not given.rehearse
    ):  # the libraries come from the disk once, and into nobody's figures
        warm = Case("warm", [*chosen[0].words[:-1], "1"], ())
        tell({"case": "warm", **_tried(warm, out / "warm", gpus[:1], given.most)})
    for case in chosen:
        rows = []
        for name, used in (("one", gpus[:1]), ("both", gpus[:2])):
            left = given.seconds - (time.monotonic() - began)
            row = (
                _tried(case, out / f"{case.name}-{name}", used, min(given.most, left))
                if left > 5
                else {"exit": "no time"}
            )
            rows.append(row)
            tell({"case": case.name, "gpus": len(used), **row})
        told = compared(case, rows[0], rows[1])
        wrong += not told["same"]
        tell(told)
    return int(wrong > 0)


def _tried(case: Case, folder: Path, gpus: list[Gpu], seconds: float) -> dict[str, Any]:
    try:
        return run(case, folder, gpus, seconds)
    except Exception as error:  # the next run may do better
        return {"exit": "failed", "error": f"{type(error).__name__}: {error}"[:500]}


if __name__ == "__main__":
    sys.exit(main())
