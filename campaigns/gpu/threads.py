"""Seven networks after public threads (four of ../shared, three of networks.py), each in a whole
session with no screen:

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
from collections.abc import Callable
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
    "rotary": ("--engine", "tensorrt:precision=fp16,typing=strong"),
    "padded": ("--engine", "tensorrt:precision=fp16"),
    "power": ("--engine", "tensorrt:precision=fp16,typing=strong"),
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
    new = ["run", f"{name}.onnx", *CASES[name], "--inputs", f"{name}_in.npz", "--session"]
    what = ["resume", "--auto"] if session.exists() else new
    words = [sys.executable, "-u", "-m", "narrowdown", *what, str(session), "--display", "plain"]
    site = out / "site"
    install(site)
    paths = [str(site), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    about = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NARROWDOWN_HOME": str(home)}
    about.pop("PYTHONSAFEPATH", None)
    begun, row = time.monotonic(), {"case": name}
    with (out / f"{name}.log").open("a") as log:
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
    row["without"] = ask_compare(ask, name, told["engine"])
    recipes = [r for r in cure.get("apply") or () if r["language"] == "python"]
    for recipe in (r for r in recipes if r["tool"].startswith("TensorRT")):
        row["pasted"] = paste(recipe["text"], name, folder, session, about)
    return row


def ask_compare(ask: Callable[..., Any], name: str, engine: str) -> Any:
    """What the failing build gives on the fresh inputs, by the product's own comparison."""
    reference = [*CASES[name][2:]] or ["--reference", f"onnxruntime:model={name}.onnx"]
    try:
        fresh = ask(
            "step", "compare", f"{name}.onnx", "--engine", engine, *reference,
            "--inputs", f"{name}_fresh.npz", "--json",
        )  # fmt: skip
    except (ValueError, subprocess.TimeoutExpired) as error:
        return str(error)
    return {k: fresh.get(k) for k in ("verdict", "error", "samples_n", "samples_failing")}


def paste(
    text: str, name: str, folder: Path, session: Path, environment: dict[str, str]
) -> dict[str, Any]:
    """The printed text in a folder of its own, with nothing added but the profile that its own
    comment asks for; its engine run on the fresh inputs, row by row against ONNX Runtime in FP32."""
    there = folder / f"{name}-pasted"
    there.mkdir(exist_ok=True)
    shutil.copy(folder / f"{name}.onnx", there / "model.onnx")
    for file in ("worked-around.onnx", "keep_fp32.py"):
        for found in sorted(session.rglob(file))[:1]:
            shutil.copy(found, there / file)
    shutil.copy(folder / f"{name}_fresh.npz", there / "fresh.npz")
    reference = CASES[name][3].partition("model=")[2] if CASES[name][2:] else f"{name}.onnx"
    profile = "import paste_profile; paste_profile.add(builder, network, config)\n"
    lines = text.splitlines(keepends=True)
    at = 1 + next(i for i, line in enumerate(lines) if line.startswith("config ="))
    (there / "build.py").write_text("".join([*lines[:at], profile, *lines[at:]]))
    (there / "paste_profile.py").write_text(PROFILE)
    (there / "run.py").write_text(RUN)
    for script, *words in (("build.py",), ("run.py", str(folder / reference))):
        done = subprocess.run(
            [sys.executable, script, *words], cwd=there, capture_output=True, text=True, check=False,
            timeout=300, env={**environment, "PYTHONPATH": f"{there}:{environment['PYTHONPATH']}"},
        )  # fmt: skip
        if done.returncode:
            return {"failed": script, "said": (done.stdout + done.stderr)[-600:]}
    return {"text": text, **json.loads(done.stdout.splitlines()[-1])}


PROFILE = """import numpy as np
from campaigns.gpu.build import add_profile

def add(builder, network, config):
    add_profile(builder, network, config, dict(np.load("fresh.npz")), most=1)
"""
RUN = """import json, sys
import numpy as np, onnxruntime
from campaigns.gpu.build import run

feeds = dict(np.load("fresh.npz"))
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(sys.argv[1], options)
want = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
ran = run(open("model.engine", "rb").read(), feeds)
errors = {}
for name, got in ran["outputs"].items():
    if want[name].dtype.kind != "f":
        errors[name] = float((got != want[name]).mean())
        continue
    a, b = got.astype(np.float64).reshape(-1), want[name].astype(np.float64).reshape(-1)
    far = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-12)
    errors[name] = float(far) if np.isfinite(far) else None
print(json.dumps({"errors": errors, "layers": ran["count"]}))
"""


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
        ours = Path(__file__).with_name("networks.py")
        return sum(
            subprocess.run([sys.executable, str(path), str(given.folder)], check=False).returncode
            for path in (script, ours)
        )
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
