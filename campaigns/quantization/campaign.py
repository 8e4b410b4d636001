"""The fewest layers to leave in float, against the best that trying each alone and greedily finds:

    python campaigns/quantization/campaign.py FOLDER [NAME ...] [--quantizer modelopt --modelopt PYTHON]
        [--greedy SECONDS] [--out ROWS.jsonl]

For each model (``models.py``): static INT8 by ONNX Runtime's quantizer or by NVIDIA ModelOpt, the
step ``quantization`` with 16 input files, then its layers left out by that quantizer itself, and the
result by plain ONNX Runtime on the 16 and on 100 others. ``best`` is the greedy set by ONNX
Runtime's quantizer alone: each round every layer is tried, fewest failing samples first. No line of
the product's own search or comparison is used for what is counted.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.quantization.models import OWN, Array, Feed, write

NARROWDOWN = [sys.executable, "-m", "narrowdown"]
TOLERANCE = 0.1


class Reader:
    """What the quantizer calibrates on."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.left = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.left, None)


class Subject:
    """A float model, its 16 and its 100 samples, and what is right on each."""

    def __init__(self, at: Path) -> None:
        self.at, self.floats = at, at / "float.onnx"
        self.given = [dict(np.load(f)) for f in sorted(at.glob("calibration-*.npz"))]
        fresh = np.load(at / "fresh.npz")
        names, columns = fresh.files, [fresh[name] for name in fresh.files]
        self.fresh = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        plain = open_session(self.floats.read_bytes(), exact=True)
        self.wanted = [plain.run(None, feed) for feed in self.given]
        self.wanted_fresh = [plain.run(None, feed) for feed in self.fresh]

    def quantize(self, left_out: Sequence[str]) -> bytes:
        from onnxruntime.quantization import QuantType, quantize_static

        made = self.at / f"made-{os.getpid()}.onnx"
        with contextlib.redirect_stdout(io.StringIO()):
            quantize_static(
                str(self.floats), str(made), Reader(self.given), nodes_to_exclude=list(left_out),
                activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
            )  # fmt: skip
        model = made.read_bytes()
        made.unlink()
        return model

    def quantize_by_modelopt(self, left_out: Sequence[str], python: str) -> bytes:
        data, made = self.at / "joined.npz", self.at / "modelopt.onnx"
        np.savez(data, **{k: np.concatenate([f[k] for f in self.given]) for k in self.given[0]})
        words = [python, "-m", "modelopt.onnx.quantization", "--onnx_path", self.floats.name]
        words += ["--calibration_data_path", data.name, "--output_path", made.name]
        if left_out:
            words += ["--nodes_to_exclude", *(f"^{re.escape(name)}$" for name in left_out)]
        subprocess.run(words, cwd=self.at, check=True, capture_output=True)
        return made.read_bytes()

    def measure(self, model: bytes) -> Array:
        return measure_errors(model, self.given, self.wanted)

    def measure_fresh(self, model: bytes) -> Array:
        return measure_errors(model, self.fresh, self.wanted_fresh)

    def find_best(self, names: Sequence[str], seconds: float) -> tuple[list[str], bool]:
        """(The layers that the greedy search leaves out, whether all 16 pass with them.)"""

        def rate(left_out: Sequence[str]) -> tuple[int, float]:
            errors = self.measure(self.quantize(left_out))
            return int((errors > TOLERANCE).sum()), float(errors.max())

        left: list[str] = []
        end, now = time.monotonic() + seconds, rate([])
        while now[0] and time.monotonic() < end:
            now, name = min((rate([*left, n]), n) for n in names if n not in left)
            left.append(name)
        return left, not now[0]


def open_session(model: bytes, *, exact: bool = False) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if exact:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, ["CPUExecutionProvider"])


def measure_errors(model: bytes, feeds: Sequence[Feed], wanted: Sequence[list[Array]]) -> Array:
    """The relative L2 distance of the worst output, a sample each."""
    session, errors = open_session(model), []
    for feed, right in zip(feeds, wanted, strict=True):
        pairs = zip(session.run(None, feed), right, strict=True)
        errors.append(max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs))
    return np.array(errors)


def tell(errors: Array) -> dict[str, Any]:
    failing = int((errors > TOLERANCE).sum())
    return {"failing": failing, "of": len(errors), "worst": round(float(errors.max()), 4)}


def ask_step(at: Path, model: Path) -> dict[str, Any]:
    """The step's own object, and how many sets it asked about."""
    words = [*NARROWDOWN, "step", "quantization", model.name, "--json"]
    words += [
        "--reference",
        "onnxruntime:model=float.onnx",
        "--engine",
        "onnxruntime:optimization=all",
    ]
    words += [w for f in sorted(at.glob("calibration-*.npz")) for w in ("--inputs", f.name)]
    about = os.environ | {"NARROWDOWN_HOME": str(at / "home")}
    about.pop("PYTHONSAFEPATH", None)
    ran = subprocess.run(words, cwd=at, env=about, capture_output=True, text=True, check=False)
    if not ran.stdout:
        raise RuntimeError(ran.stderr[-1000:])
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def run_case(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    at = write(name, chosen.folder)
    subject, quantizer = Subject(at), chosen.quantizer

    def make(left_out: Sequence[str]) -> bytes:
        if quantizer == "modelopt":
            return subject.quantize_by_modelopt(left_out, chosen.modelopt)
        return subject.quantize(left_out)

    bare = make([])
    file = at / f"{quantizer}-int8.onnx"
    file.write_bytes(bare)
    found = ask_step(at, file)
    kept = found["leave_in_float"]
    made = make(kept)
    row: dict[str, Any] = {
        "case": name, "quantizer": quantizer, "outcome": found["outcome"], "layers": found["layers_n"],
        "left": len(kept), "names": kept, "builds": found["builds"], "seconds": round(found["seconds"]),
        "said": [found[k] for k in ("samples_ok", "samples_n", "unseen_ok", "unseen")],
        "bare": [tell(subject.measure(bare)), tell(subject.measure_fresh(bare))],
        "with": [tell(subject.measure(made)), tell(subject.measure_fresh(made))],
    }  # fmt: skip
    if chosen.greedy and quantizer == "onnxruntime":
        nodes = {n.name for n in onnx.load(subject.floats).graph.node}
        names = [r["layer"] for r in found["layers"] if r["layer"] in nodes]
        best, right = subject.find_best(names, chosen.greedy)
        fresh = tell(subject.measure_fresh(make(best)))
        row["best"] = {"left": len(best), "all_pass": right, "names": best, "fresh": fresh}
    return row


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("folder", type=Path)
    reader.add_argument("names", nargs="*", default=[*OWN, "ocr4_direction"])
    reader.add_argument("--quantizer", choices=("onnxruntime", "modelopt"), default="onnxruntime")
    reader.add_argument("--modelopt", default="python", help="a Python that has nvidia-modelopt")
    reader.add_argument("--greedy", type=float, default=0.0, help="seconds; 0: not searched")
    reader.add_argument("--out", type=Path)
    chosen = reader.parse_args()
    chosen.folder = chosen.folder.absolute()
    logging.getLogger().setLevel(logging.ERROR)
    for name in chosen.names:
        line = json.dumps(run_case(name, chosen))
        print(line, flush=True)
        if chosen.out:
            with chosen.out.open("a") as rows:
                print(line, file=rows)


if __name__ == "__main__":
    main()
