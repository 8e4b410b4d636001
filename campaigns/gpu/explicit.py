"""Layers left in float for TensorRT's explicit quantization, by the lines that a session printed:

    python campaigns/gpu/explicit.py cases FOLDER [--modelopt PYTHON]   on any machine
    python campaigns/gpu/explicit.py run FOLDER --out OUT               with TensorRT and a GPU

``cases`` quantizes a CNN and a decoder as TensorRT takes it, and runs a session of the flow
``quantization`` on the stand-in of TensorRT. Then it runs the printed quantizer lines as printed
(ModelOpt's where a Python that has it is named). Each model lies in FOLDER/NAME/VARIANT beside the
printed TensorRT text, ``text.py``: ``int8`` as it was, ``in-float`` of the session, ``onnxruntime``
and ``modelopt`` of the quantizers' lines. ``run`` runs each text as printed, its engine on 100 fresh
inputs, and compares with the float model in ONNX Runtime: a line of ``OUT/explicit.jsonl`` each,
with the same of the same file in ONNX Runtime (``here``).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.gpu.build import run

ENGINE = "tensorrt:precision=model"
TOLERANCE = 0.1
Array = np.ndarray


def write_case(name: str, folder: Path, modelopt: str | None) -> dict[str, Any]:
    """The folders of one model; how many layers stay in float, and what each file gives here."""
    import onnx

    from campaigns.quantization import models
    from narrowdown.engines.backends.onnxruntime.quantizer import quantize
    from narrowdown.engines.backends.tensorrt.quantization import say_untaken

    at = models.write(name, folder)
    given = sorted(at.glob("calibration-*.npz"))
    floats = onnx.load(at / "float.onnx")
    scalars = {t.name for t in floats.graph.initializer if not t.dims}
    codes = quantize(
        floats,
        [dict(np.load(file)) for file in given],
        activation_type="QInt8",
        extra_options={"ActivationSymmetric": True, "QuantizeBias": False},
        nodes_to_exclude=[n.name for n in floats.graph.node if scalars.intersection(n.input)],
    )
    assert not say_untaken(codes)
    onnx.save(codes, at / "int8.onnx")
    session = hold_session(at, given)
    texts = read_texts((session / "case/workaround.md").read_text(encoding="utf-8"))
    wanted = run_here(at / "float.onnx", at)
    np.savez(at / "wanted.npz", wanted)
    made = {"int8": at / "int8.onnx", "in-float": session / "worked-around.onnx"}
    made["onnxruntime"] = quantize_as_printed(texts["onnxruntime.quantization"], at, sys.executable)
    if modelopt:
        tool = next(tool for tool in texts if "ModelOpt" in tool)
        made["modelopt"] = quantize_as_printed(texts[tool], at, modelopt)
    rows: dict[str, Any] = {"case": name}
    for variant, file in made.items():
        there = at / variant
        there.mkdir(exist_ok=True)
        shutil.copy(file, there / "worked-around.onnx")
        (there / "text.py").write_text(texts["TensorRT in Python"])
        rows[variant] = compare(run_here(file, at), wanted)
        (there / "here.json").write_text(json.dumps(rows[variant]))
    return rows


def hold_session(at: Path, given: list[Path]) -> Path:
    from tests.engines.backends.tensorrt import whole

    session = at / "session"
    if (session / "case/workaround.md").is_file():
        return session
    shutil.rmtree(session, ignore_errors=True)
    shutil.rmtree(at / "stand-in", ignore_errors=True)
    (at / "stand-in").mkdir()
    about = (
        os.environ
        | whole.install(at / "stand-in", "10.6.0")
        | {"NARROWDOWN_HOME": str(at / "home")}
    )
    words = [
        "run", "int8.onnx", "--flow", "quantization", "--engine", ENGINE, "--display", "plain",
        "--reference", "onnxruntime:model=float.onnx", "--session", "session",
        *(word for file in given for word in ("--inputs", file.name)),
    ]  # fmt: skip
    with (at / "session.log").open("w") as log:
        subprocess.run(
            [sys.executable, "-m", "narrowdown", *words], cwd=at, env=about, stdout=log,
            stderr=subprocess.STDOUT, check=True,
        )  # fmt: skip
    return session


def read_texts(page: str) -> dict[str, str]:
    """Tool -> its text, of a printed workaround.md."""
    return dict(re.findall(r"^## ([^\n]*)\n\n```\w+\n(.*?)```", page, re.MULTILINE | re.DOTALL))


def quantize_as_printed(text: str, at: Path, python: str) -> Path:
    """A quantizer's text in a folder with the float model and the calibration files that it names."""
    there = at / f"as-printed-{'python' if text.startswith('from') else 'shell'}"
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir()
    shutil.copy(at / "float.onnx", there)
    files = sorted(at.glob("calibration-*.npz"))
    if "calibration.npz" in text:
        arrays = [np.load(file) for file in files]
        joined = {k: np.concatenate([a[k] for a in arrays]) for k in arrays[0].files}
        np.savez(there / "calibration.npz", **joined)
        words = ["bash", "-c", text]
    else:
        for file in files:
            shutil.copy(file, there)
        words = [python, "-c", text]
    about = os.environ | {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(words, cwd=there, env=about, check=True, capture_output=True)
    return there / "model.onnx"


def run_here(model: Path, at: Path) -> Array:
    """The output on each fresh input by ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
    return np.stack([session.run(None, feed)[0] for feed in read_fresh(at)])


def read_fresh(at: Path) -> list[dict[str, Array]]:
    fresh = np.load(at / "fresh.npz")
    columns = {name: fresh[name] for name in fresh.files}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def compare(got: Array, wanted: Array) -> dict[str, Any]:
    """Relative L2 distances, a sample each; NaN and Inf fail."""
    far = (got - wanted).astype(np.float64).reshape(len(wanted), -1)
    size = np.linalg.norm(wanted.astype(np.float64).reshape(len(wanted), -1), axis=1)
    errors = np.nan_to_num(np.linalg.norm(far, axis=1) / size, nan=np.inf)
    told = {"median": float(np.median(errors)), "worst": float(errors.max())}
    return {"failing": int((errors > TOLERANCE).sum()), "of": len(errors)} | told


def build_as_printed(there: Path, out: Path) -> dict[str, Any]:
    """The printed text, run in a copy of its folder, then its engine."""
    row: dict[str, Any] = {"case": there.parent.name, "variant": there.name}
    work = out / f"{there.parent.name}-{there.name}"
    shutil.copytree(there, work, dirs_exist_ok=True)
    ran = subprocess.run(
        [sys.executable, "text.py"], cwd=work, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        return row | {"failed": (ran.stdout + ran.stderr)[-800:]}
    plan = (work / "model.engine").read_bytes()
    runs = [run(plan, feed) for feed in read_fresh(there.parent)]
    got = np.stack([next(iter(r["outputs"].values())) for r in runs])
    row |= compare(got, np.load(there.parent / "wanted.npz")["arr_0"])
    return row | {"layers": runs[0]["count"], "here": json.loads((work / "here.json").read_text())}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("what", choices=("cases", "run"))
    reader.add_argument("folder", type=Path)
    reader.add_argument("--out", type=Path, default=Path("explicit"))
    reader.add_argument("--modelopt")
    reader.add_argument("--only", nargs="*", default=["shapes", "decoder"])
    given = reader.parse_args()
    folder, out = given.folder.absolute(), given.out.absolute()
    if given.what == "cases":
        for name in given.only:
            print(json.dumps(write_case(name, folder, given.modelopt)), flush=True)
        return
    out.mkdir(parents=True, exist_ok=True)
    for text in sorted(folder.glob("*/*/text.py")):
        try:
            row = build_as_printed(text.parent, out)
        except Exception as error:  # whatever becomes of one, the others go on
            row = {"case": str(text.parent), "failed": f"{type(error).__name__}: {error}"}
        line = json.dumps(row)
        with (out / "explicit.jsonl").open("a") as rows:
            print(line, file=rows)
        print(line, flush=True)


if __name__ == "__main__":
    main()
