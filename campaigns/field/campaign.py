"""The field campaign: models of strangers, each on several engines, scored against a truth of the
campaign's own.

    python campaigns/field/campaign.py --out FOLDER [--models FOLDER] [--only NAME ...] [--engine SPEC
    ...] [--seconds 300]
        [--at-once 1]

One JSON line a case in ``FOLDER/results.jsonl``; a case that has one is not run again. Each case is
a process of its own with a folder of its own: ``run.log``, ``case.json``, ``report.json``. Whatever
becomes of one, the others go on.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
import numpy as np
import onnx
import psutil

from campaigns.field import interpret, models, scorecard
from campaigns.field.truth import Case
from campaigns.field.voices import OnnxRuntime, distance

ROOT = Path(__file__).parents[2]
NARROWDOWN = [
    sys.executable,
    "-c",
    "import sys; from narrowdown.wizard.cli import main; sys.exit(main())",
]
# The engines in the order of how much each case teaches.
ENGINES = (
    "emulate:precision=fp16", "onnxruntime:optimization=all", "openvino:precision=f32", "emulate:precision=bf16", "openvino",
    "int8", "reference:precision=fp16",
)  # fmt: skip
INT8 = "int8"  # stands for: ONNX Runtime's static quantizer made it, and the flow `quantization` is asked which layers cost most
STOP = 25.0  # seconds that a session gets to stop after its time is over


def prepare(folder: Path, model: models.Model) -> Path:
    """The model's samples on disk: ``<name>/given-0.npz ...``, ``held-0.npz ...``; they are only
    made where they are missing."""
    at = folder / model.name
    for kind, count, seed in (("given", model.given, 0), ("held", model.held, 1000)):
        for i in range(count):
            path = at / f"{kind}-{i}.npz"
            if not path.exists():
                at.mkdir(parents=True, exist_ok=True)
                np.savez(path, **model.make(seed + i, folder / model.file))
    return at


def quantized(folder: Path, model: models.Model) -> Path:
    """The model in Q/DQ form by ONNX Runtime's static quantizer, calibrated with the given
    samples."""
    path = folder / f"{model.name}-int8.onnx"
    if not path.exists():
        quantize(folder / model.file, path, samples(folder, model, "given"))
    return path


def quantize(
    source: Path,
    target: Path,
    calibration: Sequence[dict[str, np.ndarray]],
    exclude: Sequence[str] = (),
) -> None:
    """Static INT8, activations and weights with one scale a tensor: what the quantizer does unless
    it is told otherwise."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(calibration)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    # Written beside its end first: a campaign that is cut off leaves no half of a model.
    unready = target.with_suffix(f".{os.getpid()}")
    quantize_static(
        str(source), str(unready), Reader(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8, nodes_to_exclude=list(exclude),
    )  # fmt: skip
    unready.rename(target)


def samples(folder: Path, model: models.Model, kind: str) -> list[dict[str, np.ndarray]]:
    """The given or the held samples, as they lie on disk."""
    at = prepare(folder, model)
    count = model.given if kind == "given" else model.held
    return [dict(np.load(at / f"{kind}-{i}.npz")) for i in range(count)]


def run(
    out: Path, folder: Path, model: models.Model, engine: str, seconds: float
) -> dict[str, Any]:
    """One case from its files to its score. Its line."""
    case = out / f"{model.name}--{engine.replace(':', '-').replace('=', '-')}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    at = prepare(folder, model)
    path, flow, original = folder / model.file, [], None
    spec = engine
    if engine == INT8:
        original, path = path, quantized(folder, model)
        spec, flow = (
            "onnxruntime",
            ["--flow", "quantization", "--reference", f"onnxruntime:model={original}"],
        )
    inputs = [word for i in range(model.given) for word in ("--inputs", str(at / f"given-{i}.npz"))]
    command = [
        *NARROWDOWN,
        "run",
        str(path),
        "--engine",
        spec,
        *inputs,
        *flow,
        "--session",
        str(case / "session"),
        "--display",
        "plain",
        "--jobs",
        "1",
    ]
    said = ask(command, case, seconds)
    given, held = samples(folder, model, "given"), samples(folder, model, "held")
    began = time.monotonic()
    truth = Case(path, spec, original)
    whole = truth.whole(given)
    stored = (case / "session" / "models").glob("*.onnx")
    cleaned = [file for file in stored if file.read_bytes() != path.read_bytes()]
    truth.results = interpret.results([*cleaned, path])
    checks = verify(truth, said, given, held, case, original)
    grade, why = scorecard.score(whole, said, checks)
    line = {
        "model": model.name, "engine": engine, "wheel": model.wheel, "grade": grade, "why": why, "truth": whole, "said": said,
        "checks": checks, "truth_seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    (case / "case.json").write_text(json.dumps(line, indent=1, default=str))
    return line


def ask(command: Sequence[str], case: Path, seconds: float) -> dict[str, Any]:
    """Run the product; what it said: exit, verdict, end, culprits, workaround, probes; and its
    seconds and MiB at the most."""
    home = case / "home"
    home.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(home),
        "NARROWDOWN_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    began = time.monotonic()
    stopped, peak = False, 0.0
    with (case / "run.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        asked_to_stop = 0.0
        while process.poll() is None:
            time.sleep(0.25)
            peak = max(peak, _resident(process.pid))
            late = time.monotonic() - began - seconds
            if late > 0 and not stopped:
                stopped, asked_to_stop = True, time.monotonic()
                process.send_signal(signal.SIGINT)
            elif stopped and time.monotonic() - asked_to_stop > STOP:
                for one in _family(process.pid):
                    one.kill()
    spent = time.monotonic() - began
    text = (case / "run.log").read_text(errors="replace")
    report = _report(case, environment)
    return {
        "exit": process.returncode,
        "stopped": stopped,
        "seconds": round(spent, 1),
        "mib": round(peak),
        "traceback": "Traceback (most recent call last)" in text,
        "message": " ".join(text.split("\n")[-4:])[-300:] if process.returncode not in (0, 10) else "",
        **{k: report.get(k) for k in ("verdict", "end", "cause", "nodes", "error", "tolerance", "headline", "probes", "margin",
                                    "worst_sample",
                                    "explanation")},
        "culprits": [
            {k: c.get(k) for k in ("nodes", "cause", "sample", "own", "effect", "verified", "evidence", "also")}
            for c in report.get("culprits", [])
        ],
        "workaround": report.get("workaround"),
        "route": [[s["node"], s["answer"], s.get("seconds")] for s in report.get("route", [])],
    }  # fmt: skip


def verify(
    truth: Case, said: dict[str, Any], given: list[dict[str, np.ndarray]], held: list[dict[str, np.ndarray]], case: Path,
    original: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """What is found of each claim: of the culprits, on the samples they were found on; of the
    workaround, on unseen ones."""
    checks: dict[str, Any] = {"culprits": []}
    if truth.voice is None:
        checks["culprits"] = [
            {"nodes": c["nodes"], **truth.refusals(c["nodes"], given[0])} for c in said["culprits"]
        ]
        if said.get("end") == "refused-whole":
            checks["alike"] = truth.refusals([], given[0])
        return checks
    workaround = said.get("workaround")
    if said.get("verdict") in ("input-sensitive", "not-determined"):
        made_up = random_feeds(case / "session")
        checks["made_up"] = truth.whole(made_up) if made_up else None
    if original is not None:
        layers = list((workaround or {}).get("keep_higher") or ())
        if layers:
            checks["workaround"] = _excluded(truth, original, layers, given, held, case)
        return checks
    for culprit in said["culprits"]:
        found = truth.culprits(culprit["nodes"], _sample(culprit.get("sample") or "", given))
        if found["true"] is False:  # perhaps it is one on another sample
            others = (truth.culprits(culprit["nodes"], feeds) for feeds in given)
            found = next((f for f in others if f["true"]), found)
        checks["culprits"].append({"nodes": culprit["nodes"], **found})
    if workaround:
        file = workaround.get("file")
        if workaround.get("switched_off") and truth.engine.startswith("onnxruntime"):
            checks["workaround"] = truth.switched(workaround["switched_off"], held)
        elif workaround.get("keep_higher") and truth.engine.startswith(("emulate", "reference")):
            checks["workaround"] = truth.kept(workaround["keep_higher"], held)
        elif "precision=f32" in (workaround.get("engine") or "") and truth.engine.startswith(
            "openvino"
        ):
            checks["workaround"] = truth.in_fp32(held)
        elif file and Path(file).exists():
            checks["workaround"] = truth.file(Path(file), held)
        else:
            checks["workaround"] = {"ok": None, "why": f"kind {workaround.get('kind')}"}
    if said.get("verdict") in scorecard.FOUND and not said["culprits"]:
        # What is claimed is claimed of the sample that was searched on.
        searched = said.get("worst_sample") or ""
        checks["spread"] = truth.spread(
            _sample(searched, given) if searched else _worst(truth, given)
        )
    if said.get("verdict") == "fixed-by-sanitizing":
        cleaned = find_cleaned(case / "session" / "models")
        checks["sanitized"] = truth.file(cleaned, given) if cleaned else None
    return checks


def find_cleaned(models_of_session: Path) -> Path | None:
    """The cleaned model among those that a session stored: the one of the fewest nodes. The user's
    own is stored in other bytes than its file has."""
    stored = sorted(models_of_session.glob("*.onnx"))
    return min(
        stored, key=lambda p: len(onnx.load(p, load_external_data=False).graph.node), default=None
    )


def _excluded(
    truth: Case, original: Path, layers: list[str], given: list[dict[str, np.ndarray]], held: list[dict[str, np.ndarray]],
    case: Path,
) -> dict[str, Any]:  # fmt: skip
    """The layers left in float by the quantizer itself, as a user would do it; right on so many
    unseen samples."""
    from campaigns.field.truth import _held

    mixed = case / "mixed.onnx"
    quantize(original, mixed, given, layers)
    voice = OnnxRuntime(str(mixed))
    plain = truth.voice
    assert plain is not None
    right = [truth.reference.run(f) for f in held]
    errors = [distance(voice.run(f), r) for f, r in zip(held, right, strict=True)]
    without = [distance(plain.run(f), r) for f, r in zip(held, right, strict=True)]
    return {**_held(errors, truth.tolerance), "plain_ok": _held(without, truth.tolerance)["ok"]}


def _worst(truth: Case, given: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    assert truth.voice is not None
    voice = truth.voice
    return max(given, key=lambda feeds: distance(voice.run(feeds), truth.reference.run(feeds)))


def random_feeds(session: Path) -> list[dict[str, np.ndarray]]:
    """The samples that the session made up itself, as they lie in it."""
    feeds = []
    for index in (session / "inputs").glob("*/index.json"):
        for feed in json.loads(index.read_bytes())["feeds"]:
            if feed["info"]["id"].startswith("random"):
                feeds.append(
                    {
                        name: np.load(index.parent / kept["file"])
                        for name, kept in feed["arrays"].items()
                    }
                )
    return feeds


def _sample(name: str, given: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    kind, _, rest = name.partition(":")
    index = rest.split("/")[0]
    return (
        given[int(index)]
        if kind == "real" and index.isdigit() and int(index) < len(given)
        else given[0]
    )


def _report(case: Path, environment: dict[str, str]) -> dict[str, Any]:
    if not (case / "session").exists():
        return {}
    asked = subprocess.run(
        [*NARROWDOWN, "report", str(case / "session"), "--format", "json"],
        capture_output=True,
        env=environment,
        timeout=120,
    )
    (case / "report.json").write_bytes(asked.stdout)
    try:
        found: dict[str, Any] = json.loads(asked.stdout)
    except ValueError:
        return {}
    return found


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []


def _resident(pid: int) -> float:
    total = 0.0
    for process in _family(pid):
        try:
            total += process.memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            continue
    return total


def cases(only: Sequence[str], engines: Sequence[str]) -> list[tuple[models.Model, str]]:
    """Engine after engine, and the smallest models first."""
    wanted = [m for m in models.MODELS if not only or m.name in only]
    return [
        (model, engine)
        for engine in engines
        for model in wanted
        if (engine != INT8 or model.int8) and (not engine.startswith("reference") or model.typed)
    ]


def worst_first(
    wanted: Sequence[tuple[models.Model, str]], earlier: Sequence[dict[str, Any]]
) -> list[tuple[models.Model, str]]:
    """What was wrong in an earlier run, then what it could not tell, then partly, then what it did
    not reach; the rest after."""
    grades = {(r["model"], r["engine"]): r["grade"] for r in earlier}
    order = {"wrong": 0, "cannot tell": 1, "partly": 2, "": 3, "right": 4}
    return sorted(
        wanted, key=lambda case: order[grades.get((case[0].name, case[1]), "")] if earlier else 0
    )


def main() -> int:
    """Run what is missing. Exit 1 where a case is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--models", type=Path, help="where the models lie or are put; default: OUT/models"
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--engine", nargs="*", default=list(ENGINES))
    parser.add_argument(
        "--first", type=Path, help="an earlier run's results: what was not right there is run first"
    )
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument(
        "--until", type=float, default=0, help="start no case later than so many seconds from now"
    )
    parser.add_argument(
        "--one",
        nargs=2,
        metavar=("MODEL", "ENGINE"),
        help="one case, in this process; its line on stdout",
    )
    parser.add_argument(
        "--page",
        type=Path,
        help="put the tables of OUT/results.jsonl into this page, and run nothing",
    )
    chosen = parser.parse_args()
    folder = (chosen.models or chosen.out / "models").resolve()
    out = chosen.out.resolve()
    if chosen.page:
        kinds = {m.name: f"{m.kind}; {m.wheel}" for m in models.MODELS}
        scorecard.put(chosen.page, scorecard.page(read(out / "results.jsonl"), kinds))
        return 0
    if chosen.one:
        line = run(out, folder, models.BY_NAME[chosen.one[0]], chosen.one[1], chosen.seconds)
        print("\n" + json.dumps(line, default=str))
        return 0
    models.fetch(folder, chosen.only or None)
    wanted = worst_first(
        cases(chosen.only, chosen.engine), read(chosen.first) if chosen.first else []
    )
    return campaign(out, folder, wanted, chosen.seconds, chosen.at_once, chosen.until)


def campaign(
    out: Path,
    folder: Path,
    wanted: Sequence[tuple[models.Model, str]],
    seconds: float,
    at_once: int,
    until: float,
) -> int:
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    done = {(r["model"], r["engine"]) for r in read(results)}
    lock, began = threading.Lock(), time.monotonic()

    def one(model: models.Model, engine: str) -> None:
        if until and time.monotonic() - began > until:
            return
        try:
            line = _apart(out, folder, model, engine, seconds)
        except Exception:
            line = {
                "model": model.name, "engine": engine, "wheel": model.wheel, "grade": "cannot tell",
                "why": "the campaign itself failed: " + traceback.format_exc()[-400:], "truth": {"state": "unknown"},
                "said": {"seconds": 0, "exit": None}, "checks": {},
            }  # fmt: skip
        with lock, results.open("a") as file:
            file.write(json.dumps(line, default=str) + "\n")
            print(
                f"{time.strftime('%H:%M:%S')} {line['grade']:12} {model.name} {engine}: {line['why'][:150]}",
                flush=True,
            )

    # What is common to several cases is made beforehand, once.
    for model in {m.name: m for m, _ in wanted}.values():
        prepare(folder, model)
    with ThreadPoolExecutor(at_once) as pool:
        for model, engine in wanted:
            if (model.name, engine) not in done:
                pool.submit(one, model, engine)
    print(", ".join(f"{count} {grade}" for grade, count in scorecard.counts(read(results)).items()))
    return 1 if any(r["grade"] == "wrong" for r in read(results)) else 0


def _apart(
    out: Path, folder: Path, model: models.Model, engine: str, seconds: float
) -> dict[str, Any]:
    """A case in a process of its own: an engine that takes its process along ends one case."""
    command = [
        sys.executable,
        __file__,
        "--out",
        str(out),
        "--models",
        str(folder),
        "--seconds",
        str(seconds),
        "--one",
        model.name,
        engine,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=3 * seconds + 600)
    if ended.returncode != 0:
        raise RuntimeError(f"exit {ended.returncode}: {ended.stderr[-300:]}")
    line: dict[str, Any] = json.loads(ended.stdout.strip().split("\n")[-1])
    return line


def read(results: Path) -> list[dict[str, Any]]:
    """The lines so far; one that was cut off is left out."""
    rows = []
    for text in results.read_text().splitlines() if results.exists() else []:
        try:
            rows.append(json.loads(text))
        except ValueError:
            continue
    return rows


if __name__ == "__main__":
    sys.exit(main())
