"""Five modules that FP16 breaks, from PyTorch to the line and to a module that works, each from one command.

    python campaigns/pytorch/engine_faults.py --torch-python PATH [--only NAME ...] [--home DIR] [--out FILE.md]

The module and the line of the first culprit must be those that ``low_precision.py`` marks. Then the text
for PyTorch in ``workaround.md`` is run as it is printed (the session has done so, too, and must tell that
all samples are right): it exports again, and ONNX's own evaluator, which
rounds as the file says, must give what eager PyTorch gave in FP32. The same text without its loop shows
what FP16 does to the whole module.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx.reference

from campaigns.pytorch.campaign import make_home

HERE = Path(__file__).parent
MODELS = HERE / "low_precision.py"
NARROWDOWN = Path(sys.executable).with_name("narrowdown")
# Name -> (the module at fault, the cause).
PLANTED = {
    "norm": ("last.0 (SquaredNorm)", "overflow"),
    "mask": ("mask (Mask)", "mask-constant"),
    "epsilon": ("layers.0.norm (UnitLength)", "epsilon-underflow"),
    "exponential": ("blocks.1.act (ByHandSoftplus)", "overflow"),
    "total": ("last (SumPool)", "overflow"),
}
ALLOWED = 0.01  # relative L2, of FP16


class Ran(NamedTuple):
    """What one command told, and how far the module is off in FP16 with the printed text, and without
    its loop."""

    name: str
    code: int
    module: str
    line: str
    cause: str
    tried: tuple[int, ...]
    kept: float
    plain: float
    seconds: float

    @property
    def right(self) -> bool:
        told = (self.code, self.module, self.cause, self.line)
        cures = self.kept <= ALLOWED and not self.plain <= ALLOWED
        cures = cures and len(set(self.tried)) == 1
        return cures and told == (0, *PLANTED[self.name], find_line(self.name))


def find_line(name: str) -> str:
    """The line that ends in ``# NAME``, as a report tells it."""
    lines = MODELS.read_text(encoding="utf-8").splitlines()
    return f"pytorch/{MODELS.name}:{[x.endswith(f'# {name}') for x in lines].index(True) + 1}"


def run(name: str, python: str, home: Path) -> Ran:
    """``narrowdown run``, and the printed text."""
    place, began = home / name, time.monotonic()
    words = ["run", f"{MODELS}:{name}", "--torch-python", python, "--session", str(place)]
    done = narrowdown(*words, "--engine", "emulate:precision=fp16")
    seconds = time.monotonic() - began
    (home / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    report = json.loads(narrowdown("report", str(place), "--format", "json").stdout)
    first = (report["culprits"] or [{"modules": [""], "source": [""], "cause": ""}])[0]
    recipes = (report["workaround"] or {}).get("apply", ())
    text = next((r["text"] for r in recipes if r["tool"].startswith("PyTorch")), "")
    kept, plain = (paste(each, python, place) for each in (text, without_loop(text)))
    known = " ".join((report["workaround"] or {}).get("known", ()))
    tried = re.search(r"exported again: right on (\d+) of (\d+) samples", known)
    samples = tuple(map(int, tried.groups())) if tried else ()
    told = first["modules"][0], first["source"][0], first["cause"], samples
    return Ran(name, done.returncode, *told, kept, plain, seconds)


def narrowdown(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(NARROWDOWN), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def without_loop(text: str) -> str:
    """The text with the whole module in FP16."""
    begin, loop, end = text.partition("for path in ")
    return begin + end[end.index("program = ") :] if loop else text


def paste(text: str, python: str, session: Path) -> float:
    """Run a text where the program lies; how far its export is off what PyTorch gave in FP32. NaN
    where PyTorch does not run it."""
    with tempfile.TemporaryDirectory() as folder:
        told = {**os.environ, "PYTHONPATH": str(HERE)}
        command = [python, "-c", text]
        done = subprocess.run(command, cwd=folder, env=told, check=False, capture_output=True)
        if done.returncode:
            return float("nan")
        model = onnx.load(Path(folder) / "float32-inside.onnx")
    feeds = dict(np.load(session / "export" / "inputs-0.npz"))
    golden = np.load(session / "export" / "golden-0.npz")
    names = [output.name for output in model.graph.output]
    with np.errstate(all="ignore"):
        got = onnx.reference.ReferenceEvaluator(model).run(names, feeds)
    errors = [
        np.linalg.norm(g - golden[n]) / np.linalg.norm(golden[n])
        for n, g in zip(names, got, strict=True)
    ]
    return float(np.nan_to_num(max(errors), nan=np.inf))


def row(ran: Ran) -> str:
    right = "yes" if ran.right else "**no**"
    tried = " of ".join(map(str, ran.tried))
    off = " | ".join("no export" if np.isnan(x) else f"{x:.1e}" for x in (ran.kept, ran.plain))
    return (
        f"| {ran.name} | {ran.code} | {ran.cause} | {ran.module} | {ran.line} | {right} "
        f"| {tried} | {off} | {ran.seconds:.0f} |"
    )


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--torch-python", default=os.environ.get("NARROWDOWN_TORCH_PYTHON", ""))
    made.add_argument("--only", action="append", choices=tuple(PLANTED))
    made.add_argument("--home", help="a folder that keeps the sessions")
    made.add_argument("--out", help="also write the table there")
    words = made.parse_args()
    home = make_home(made, words.home)
    head = "| module | exit code | cause | module named | line | right | session | off | without its loop | seconds |"
    print(head, f"|{'---|' * 10}", sep="\n", flush=True)
    found = []
    for name in words.only or PLANTED:
        found.append(run(name, words.torch_python, home))
        print(row(found[-1]), flush=True)
    if words.out:
        rows = "\n".join([head, f"|{'---|' * 10}", *map(row, found)])
        Path(words.out).write_text(f"{rows}\n", encoding="utf-8")
    return int(not all(ran.right for ran in found))


if __name__ == "__main__":
    sys.exit(main())
