"""What was never run on a GPU, each once, on small networks of threads.py:

    python campaigns/gpu/once.py CASES --out OUT [--seconds 540] [--only NAME ...]

One line of ``OUT/once.jsonl`` as each ends (exit, seconds, the last lines that it said);
``OUT/NAME.log`` grows meanwhile. ``two-profiles``: an engine that holds two, as ``plan=``.
``flaky``: that flow to its end. ``step-NAME``: one step alone. ``killed``: a session whose worker and
then whose own process die of SIGSEGV from outside, resumed. ``peer-NAME``: polygraphy debug reduce.
``full-N``: a session while another program holds all of the GPU's memory but N MiB (alone: nothing
else may run beside it).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.gpu.threads import ROOT, install

STRONG = "tensorrt:precision=fp16,typing=strong"
OURS = [sys.executable, "-u", "-m", "narrowdown"]
PEER = [sys.executable, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())"]
STEPS = (
    "compare", "layerwise", "extract", "reduce", "precision", "repeat", "confirm", "consistency",
    "nondeterminism", "rebuild", "tactics", "trigger", "workaround", "sanitize", "inputs", "known",
)  # fmt: skip
# What the peer draws must be as large as what fails.
RANGES = {
    "rotary": ["--val-range", "positions:[0,6000]"],
    "power": ["--val-range", "[-20000,20000]"],
    "gru": ["--val-range", "[-600,600]"],
}
SHAPES = {
    "rotary": ["tokens:[4,24,64]", "positions:[4,24]"],
    "power": ["re:[4,30,64]", "im:[4,30,64]"],
    "gru": ["spec:[20,4,64]"],
}
FREE = (200, 600, 1200)  # MiB; a context of CUDA alone takes some 500
HOLD = """import sys, time, torch
free, total = torch.cuda.mem_get_info()
kept = torch.empty(free - int(sys.argv[1]) * 2**20, dtype=torch.uint8, device="cuda")
print(torch.cuda.mem_get_info()[0] // 2**20, "MiB left", flush=True)
time.sleep(600)
"""
TWO = """import sys, numpy as np, tensorrt as trt
log = trt.Logger(trt.Logger.ERROR); builder = trt.Builder(log)
network = builder.create_network(0); parser = trt.OnnxParser(network, log)
assert parser.parse_from_file(sys.argv[1])
config = builder.create_builder_config(); config.set_flag(trt.BuilderFlag.FP16)
config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
for rows in ((1, 2, 2), (3, 4, 8)):
    profile = builder.create_optimization_profile()
    for i in range(network.num_inputs):
        t = network.get_input(i)
        profile.set_shape(t.name, *[tuple(r if d == -1 else d for d in t.shape) for r in rows])
    config.add_optimization_profile(profile)
open(sys.argv[2], "wb").write(builder.build_serialized_network(network, config))
"""


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("cases", type=Path)
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--seconds", type=float, default=540.0)
    reader.add_argument("--only", nargs="*", default=[])
    given = reader.parse_args()
    cases, out = given.cases.absolute(), given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    site = out / "site"
    install(site)
    paths = [str(site), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]

    def about(name: str) -> dict[str, str]:
        home = str(out / "homes" / name)
        return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NARROWDOWN_HOME": home}

    def ask(name: str, words: list[str], folder: Path = cases) -> dict[str, Any]:
        folder.mkdir(exist_ok=True)
        log = out / f"{name}.log"
        with log.open("a") as file:
            try:
                done = subprocess.run(
                    words, cwd=folder, env=about(name), stdout=file, stderr=subprocess.STDOUT,
                    timeout=max(1.0, end - time.monotonic()), check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                return {"exit": "out of time"}
        return {"exit": done, "said": log.read_text(errors="replace").splitlines()[-6:]}

    def given_words(model: str, engine: str = STRONG) -> list[str]:
        return [f"{model}.onnx", "--engine", engine, "--inputs", f"{model}_in.npz"]

    def two_profiles(name: str) -> dict[str, Any]:
        made = ask(name, [sys.executable, "-c", TWO, "power.onnx", str(out / "two.plan")])
        if made["exit"] != 0:
            return made
        plan = given_words("power", f"tensorrt:plan={out / 'two.plan'}")
        return ask(name, [*OURS, "run", *plan, "--display", "plain"])

    def flaky(name: str) -> dict[str, Any]:
        words = given_words("power", "tensorrt:precision=fp16")
        return ask(name, [*OURS, "run", *words, "--flow", "flaky", "--display", "plain"])

    def step(name: str) -> dict[str, Any]:
        return ask(name, [*OURS, "step", name.removeprefix("step-"), *given_words("power")])

    def killed(name: str) -> dict[str, Any]:
        session = out / "killed-session"
        words = [*OURS, "run", *given_words("rotary"), "--session", str(session), "--display", "plain"]  # fmt: skip
        hit = []
        with (out / f"{name}.log").open("a") as file:
            ours = subprocess.Popen(words, cwd=cases, env=about(name), stdout=file, stderr=file)
            for wait in (8, 8):
                time.sleep(wait)
                workers = children(ours.pid)
                hit.append(len(workers))
                for pid in workers[-1:]:
                    os.kill(pid, signal.SIGSEGV)
            time.sleep(10)
            ours.send_signal(signal.SIGSEGV)
            first = ours.wait()
        return {"first": first, "workers": hit, **ask(name, [*OURS, "resume", str(session), "--display", "plain"])}  # fmt: skip

    def full(name: str) -> dict[str, Any]:
        left = name.removeprefix("full-")
        holder = subprocess.Popen([sys.executable, "-c", HOLD, left], stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            held = holder.stdout.readline().decode().strip()
            words = [*OURS, "run", *given_words("power"), "--display", "plain"]
            return {"held": held, **ask(name, words)}
        finally:
            holder.kill()

    def peer(name: str) -> dict[str, Any]:
        model, made = name.removeprefix("peer-"), out / f"{name}.onnx"
        check = [
            *PEER,
            "run",
            "polygraphy_debug.onnx",
            "--trt",
            "--fp16",
            "--onnxrt",
            *RANGES[model],
        ]
        words = [*PEER, "debug", "reduce", str(cases / f"{model}.onnx"), "-o", str(made)]
        words += ["--mode=bisect", "--model-input-shapes", *SHAPES[model], "--check", *check]
        found = ask(name, words, folder=out / name)
        if made.is_file():
            import onnx

            found["nodes"] = len(onnx.load(made).graph.node)
        return found

    every: dict[str, Callable[[str], dict[str, Any]]] = {
        "two-profiles": two_profiles, "flaky": flaky, "killed": killed,
        **{f"peer-{m}": peer for m in ("rotary", "power", "gru")},
        **{f"step-{s}": step for s in STEPS},
        **{f"full-{left}": full for left in FREE},
    }  # fmt: skip

    def one(name: str) -> None:
        began = time.monotonic()
        try:
            row = every[name](name)
        except Exception as error:  # whatever becomes of one, the others go on
            row = {"error": f"{type(error).__name__}: {error}"}
        row = {"what": name, "seconds": round(time.monotonic() - began, 1), **row}
        with (out / "once.jsonl").open("a") as rows:
            rows.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, given.only or [name for name in every if every[name] is not full]))
    return 0


def children(pid: int) -> list[int]:
    """The processes below one, the eldest first."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(p) for p in below] + [c for p in below for c in children(int(p))]


if __name__ == "__main__":
    sys.exit(main())
