"""The four networks of issue 49 (after public threads), each in a whole session with no screen:

    python campaigns/gpu/threads.py cases FOLDER           writes the networks (anywhere)
    python campaigns/gpu/threads.py run FOLDER --out OUT [--seconds 540] [--only NAME ...] [--rehearse]

``run`` needs a GPU and TensorRT on Python's path. All sessions run side by side, as each of them
mostly waits for one build. A line of ``OUT/threads.jsonl`` as each ends: exit, seconds, B (the first
build of the whole model), builds, verdict, engine that was searched on, culprits, workaround, and
what the written model gives on inputs that no search had seen. ``OUT/NAME.log`` grows meanwhile; a
case that crashes or runs out of time costs no other.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CASES: dict[str, tuple[str, ...]] = {
    "gru": ("--engine", "tensorrt:precision=fp16"),  # one input of 4 rows: profile 4..4
    "crf": ("--engine", "tensorrt:precision=fp32"),
    "boxref": ("--engine", "tensorrt:precision=fp16,typing=strong"),
    "qdq": (
        "--engine",
        "tensorrt:precision=int8",
        "--reference",
        "onnxruntime:model=qdq_float.onnx",
    ),
}


def install(site: Path) -> None:
    """The entry points of this tree as pip would have left them."""
    about = site / "narrowdown-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: narrowdown\nVersion: 0\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = ""
    for group, points in project.get("entry-points", {}).items():
        text += f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items())
    (about / "entry_points.txt").write_text(text)


def run_case(name: str, folder: Path, out: Path, end: float) -> dict[str, Any]:
    """One session to its end, or to the end of the time; whatever is known of it by then."""
    session, home = out / f"{name}-session", out / f"{name}-home"
    words = [
        sys.executable, "-u", "-m", "narrowdown", "run", f"{name}.onnx", *CASES[name], "--inputs", f"{name}_in.npz",
        "--session", str(session), "--display", "plain",
    ]  # fmt: skip
    site = out / "site"
    install(site)
    paths = [str(site), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    about = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NARROWDOWN_HOME": str(home)}
    about.pop("PYTHONSAFEPATH", None)
    begun, row = time.monotonic(), {"case": name}
    with (out / f"{name}.log").open("w") as log:
        try:
            ran = subprocess.run(
                words, cwd=folder, env=about, stdout=log, stderr=subprocess.STDOUT,
                timeout=max(1.0, end - time.monotonic()), check=False,
            )  # fmt: skip
            row["exit"] = ran.returncode
        except subprocess.TimeoutExpired:
            row["exit"] = "out of time"
    row["seconds"] = round(time.monotonic() - begun, 1)
    row |= count_builds(session / "journal.jsonl")

    def ask(*words: str) -> Any:
        left = max(5.0, end - time.monotonic())
        made = subprocess.run(
            [sys.executable, "-m", "narrowdown", *words],
            cwd=folder, env=about, capture_output=True, text=True, timeout=left, check=False,
        )  # fmt: skip
        return json.loads(made.stdout)

    row["said"] = (out / f"{name}.log").read_text(errors="replace").splitlines()[-3:]
    try:
        told = ask("report", str(session), "--format", "json")
    except (ValueError, subprocess.TimeoutExpired) as error:
        return row | {"report": str(error)}
    cure = told.get("workaround") or {}
    row |= {
        "verdict": told.get("verdict"),
        "engine": told.get("engine"),
        "culprits": [
            {k: c.get(k) for k in ("nodes", "also", "cause", "evidence")} for c in told["culprits"]
        ],
        "workaround": {k: v for k, v in cure.items() if k != "apply"},
    }
    file = session / "worked-around.onnx"
    if not file.is_file():
        return row
    shutil.copy(file, folder / f"{name}-worked-around.onnx")
    # What keeps nodes in higher precision holds its types in the file.
    typed = "emulate:precision=typed" if "emulate" in told["engine"] else "tensorrt:precision=model"
    engine = typed if cure.get("kind") == "precision" else told["engine"]
    try:
        fresh = ask(
            "step", "compare", f"{name}-worked-around.onnx", "--engine", engine, "--reference",
            f"onnxruntime:model={name}.onnx", "--inputs", f"{name}_fresh.npz", "--json",
        )  # fmt: skip
    except (ValueError, subprocess.TimeoutExpired) as error:
        return row | {"fresh": str(error)}
    row["fresh"] = {
        k: fresh.get(k) for k in ("verdict", "error", "samples_n", "samples_failing", "message")
    }
    return row


def count_builds(journal: Path) -> dict[str, Any]:
    """How many measurements of the engine under test there were that built, and what the first of
    the whole model took."""
    builds, first = 0, None
    asked: dict[str, Any] = {}
    for line in journal.read_text().splitlines() if journal.is_file() else ():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("kind") == "probe.started":
            asked[event.get("key", "")] = event.get("probe") or {}
        elif event.get("kind") == "probe.finished":
            probe = asked.get(event.get("key", ""), {})
            took = (event.get("measurement") or {}).get("build_seconds") or 0.0
            if str(probe.get("engine", "")).startswith(CASES["gru"][1].partition(":")[0]):
                builds += 1
                first = first if first is not None else round(took, 2)
    return {"builds": builds, "B": first}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("cases", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("threads"))
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rehearse", action="store_true", help="with an emulation, on any machine")
    given = parser.parse_args()
    if given.rehearse:
        for name, words in CASES.items():
            CASES[name] = (words[0], "emulate:precision=fp16", *words[2:])
    if given.what == "cases":
        given.folder.mkdir(parents=True, exist_ok=True)
        script = ROOT.parent / "shared" / "cases" / "make_tensorrt.py"
        script = script if script.is_file() else ROOT / "shared" / "cases" / "make_tensorrt.py"
        return subprocess.run(
            [sys.executable, str(script), str(given.folder)], check=False
        ).returncode
    out, folder = given.out.absolute(), given.folder.absolute()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds

    def one(name: str) -> None:
        try:
            row = run_case(name, folder, out, end)
        except Exception as error:  # whatever becomes of one, the others go on
            row = {"case": name, "error": f"{type(error).__name__}: {error}"}
        with (out / "threads.jsonl").open("a") as rows:
            rows.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    with ThreadPoolExecutor(len(given.only)) as pool:
        list(pool.map(one, given.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
