"""Which compiler switch of TensorRT 10.x changes a wrong answer: table of knob x fault.

    python campaigns/gpu/knobs.py cases FOLDER [MODELS]     writes the cases (anywhere); MODELS: a folder with
                                                            wake_embedding.onnx and nudenet.onnx
                                                            (campaigns/field/models.py)
    python campaigns/gpu/knobs.py run FOLDER --out FILE [--seconds 500] [--only CASE ...]
                                                            asks, on a machine with a GPU

TensorRT 10.x reads ``-name=value`` options from the environment variable ``__LUNOWUD`` at each
build; their names stand as text in libnvinfer. A case has a process that builds one set after the
other with the timings of the builds before, so that a kernel is timed once; where a build takes the
process down, a new one goes on behind it. First the bare build, then whole families (all names
before one colon) off and on, then single names off, those of a family that changed the error first.
One JSON line a build: case, what was set, status, relative error of the worst output, NaN or Inf,
seconds of the build, and a digest of the layer information.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.gpu.build import Server, build, run as run_plan

BARE = ""
LONGEST = 300.0  # seconds of one build
WRITING = threading.Lock()


def write_cases(folder: Path, more: Path | None = None) -> None:
    """``NAME.onnx``, ``NAME_in.npz``, ``NAME_want.npz`` (ONNX Runtime, FP32, optimizers off) and
    ``cases.json``."""
    import onnx
    import onnxruntime

    from tests.gpu import models

    shared = Path(__file__).parents[3] / "shared"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "made"
    made.mkdir(exist_ok=True)
    four = [sys.executable, str(shared / "cases" / "make_tensorrt.py"), str(made)]
    subprocess.run(four, check=True, stdout=subprocess.DEVNULL)
    sources: dict[str, tuple[Path, Path, str]] = {
        f"{name}-{kind}": (made / f"{name}.onnx", made / f"{name}_in.npz", kind)
        for name, kind in (
            ("crf", "fp"), ("gru", "weak"), ("boxref", "strong"), ("boxref", "weak"), ("qdq", "int"),
        )
    }  # fmt: skip
    for make in (models.layernorm, models.cancelling):
        at = folder / make.__name__
        at.mkdir(exist_ok=True)
        model, inputs = make(at)
        sources |= {f"{make.__name__}-{k}": (model, inputs, k) for k in ("weak", "strong")}
    # The two patterns for which NVIDIA's TensorRT-Edge-LLM switches something off, at one row.
    for make in (write_gated, write_parallel):
        at = folder / make.__name__
        at.mkdir(exist_ok=True)
        model, inputs = make(at)
        sources |= {f"{make.__name__[6:]}-{k}": (model, inputs, k) for k in ("weak", "strong")}
    small = write_decoder(folder)
    sources |= {f"decoder-{k}": (*small, k) for k in ("weak1", "strong1")}
    for name, make, level in (("wake_embedding", feed_bands, 1), ("nudenet", feed_pictures, 0)):
        if more is not None and (model := more / f"{name}.onnx").is_file():
            inputs = folder / f"{name}_in.npz"
            np.savez(inputs, **{onnx.load(model).graph.input[0].name: make()})
            planted = models.plant_overflow(model, inputs, folder, reach=65600.0)
            sources |= {
                f"{name}-{k}{level}": (planted, inputs, f"{k}{level}") for k in ("weak", "strong")
            }
    sort = shared / "models" / "sort_tf_massive_m4.onnx"
    sources |= {
        f"sort-{k}": (sort, sort.with_name("sort_tf_massive_m4_in.npz"), k)
        for k in ("weak1", "strong1")
    }
    for path in sorted((shared / "models").glob("*.onnx")):
        inputs = path.with_name(f"{path.stem}_in.npz")
        if not path.stem.startswith("sort"):
            sources |= {f"{path.stem}-{k}": (path, inputs, k) for k in ("weak", "strong")}
    cases = {}
    for name, (model, inputs, kind) in sources.items():
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(model), options)
        feeds = dict(np.load(inputs))
        names = [o.name for o in session.get_outputs()]
        want = dict(zip(names, session.run(names, feeds), strict=True))
        source = onnx.load(model).SerializeToString()  # with the weights that lie beside it
        if kind.startswith("strong"):
            source = _convert_to_fp16(source)
        (folder / f"{name}.onnx").write_bytes(source)
        np.savez_compressed(folder / f"{name}_in.npz", **feeds)
        np.savez(folder / f"{name}_want.npz", **want)
        cases[name] = kind
    (folder / "cases.json").write_text(json.dumps(cases, indent=1))
    print(", ".join(cases))


def feed_bands() -> np.ndarray:
    """What the keyword spotter's front gives: float32, (1, 76, 32, 1)."""
    return np.random.default_rng(1).normal(8, 3, (1, 76, 32, 1)).astype(np.float32)


def feed_pictures() -> np.ndarray:
    """A soft picture between 0 and 1: float32, (1, 3, 320, 320)."""
    rough = np.random.default_rng(1).random((1, 3, 10, 10))
    return np.kron(rough, np.ones((32, 32))).astype(np.float32)


def write_decoder(folder: Path) -> tuple[Path, Path]:
    """The decoder of campaigns/benchmarks, narrow, of two layers; what the second squares is ten
    times larger than there, as a narrow one adds up less: more than FP16 holds."""
    import onnx

    from campaigns.benchmarks import decoder

    decoder.WIDTH, decoder.HEADS, decoder.INNER, decoder.WORDS = 256, 8, 704, 1000
    decoder.HEAD = decoder.WIDTH // decoder.HEADS
    at = folder / "decoder"
    at.mkdir(exist_ok=True)
    decoder.decoder(at / "decoder.onnx", 2, overflowing=1)
    model = onnx.load(at / "decoder.onnx", load_external_data=False)
    large = next(i for i in model.graph.initializer if i.name == "400")
    large.CopyFrom(onnx.numpy_helper.from_array(np.array(4000.0, np.float32), "400"))
    onnx.save(model, at / "decoder.onnx")
    return at / "decoder.onnx", decoder.generation(at / "in.npz", 2)


def write_gated(folder: Path, width: int = 256) -> tuple[Path, Path]:
    """A gated block, silu(x A) * (x B) C, three times: two products of one input side by side."""
    lines, names, value = [], [], "x"
    for i in range(3):
        names += [(f"a{i}", (width, 2 * width)), (f"b{i}", (width, 2 * width))]
        names += [(f"c{i}", (2 * width, width))]
        lines.append(
            f"p{i} = MatMul ({value}, a{i}) q{i} = MatMul ({value}, b{i}) s{i} = Sigmoid (p{i})"
            f" g{i} = Mul (p{i}, s{i}) h{i} = Mul (g{i}, q{i}) y{i} = MatMul (h{i}, c{i})"
        )
        value = f"y{i}"
    return _write(folder, width, lines, names, value)


def write_parallel(folder: Path, width: int = 256) -> tuple[Path, Path]:
    """Three products of one input side by side, added, three times."""
    lines, names, value = [], [], "x"
    for i in range(3):
        names += [(f"{k}{i}", (width, width)) for k in "abc"]
        lines.append(
            " ".join(f"{k}y{i} = MatMul ({value}, {k}{i})" for k in "abc")
            + f" s{i} = Add (ay{i}, by{i}) y{i} = Add (s{i}, cy{i})"
        )
        value = f"y{i}"
    return _write(folder, width, lines, names, value)


def _write(
    folder: Path, width: int, lines: list[str], names: list[tuple[str, tuple[int, int]]], last: str
) -> tuple[Path, Path]:
    import onnx

    rng = np.random.default_rng(7)
    body = " ".join(lines)
    text = f'<ir_version: 8, opset_import: ["":17]> g (float[1,{width}] x) => (float[1,{width}] {last}) {{{body}}}'
    model = onnx.parser.parse_model(text)
    for name, shape in names:
        weight = (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "in.npz", x=rng.normal(size=(1, width)).astype(np.float32))
    return folder / "model.onnx", folder / "in.npz"


def _convert_to_fp16(source: bytes) -> bytes:
    """The model with FP16 values inside and FP32 at its ends: what a strongly typed build obeys."""
    import onnx

    from narrowdown.engines.graph.typed import to_precision

    return bytes(to_precision(onnx.load_from_string(source), "fp16", ()).SerializeToString())


def read_switches(library: Path) -> list[str]:
    """The on/off names in the library's text, without those that only talk."""
    from narrowdown.engines.backends.tensorrt.switches import read_names

    return sorted(read_names(library)[0])


def serve(folder: Path, case: str, kind: str) -> None:
    """Build, run and compare what stands on standard input: one line of options, one of answer."""
    source = (folder / f"{case}.onnx").read_bytes()
    feeds = dict(np.load(folder / f"{case}_in.npz"))
    want = dict(np.load(folder / f"{case}_want.npz"))
    timings = b""
    for line in sys.stdin:
        os.environ.pop("__LUNOWUD", None)
        if options := line.strip():
            os.environ["__LUNOWUD"] = options
        built = build(source, feeds, kind, timings=timings)
        timings = built.timings
        if "Cuda Runtime" in str(built.said):
            sys.exit("The GPU's context is gone: all that this process would answer is a refusal.")
        answer: dict[str, Any] = {"status": "refused", "said": built.said[-2:]}
        if built.plan is not None:
            ran = run_plan(built.plan, feeds, times=12)
            answer = {"status": "ok", **compare(ran.pop("outputs"), want), **ran}
        print(json.dumps({**answer, "seconds": round(built.seconds, 1)}), flush=True)


def compare(outputs: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> dict[str, Any]:
    """``error``: the largest difference of the worst output by that output's largest value, of what
    is a number; ``bad``: whether NaN or Inf stands where the truth has a number."""
    error, bad = 0.0, False
    for name, value in outputs.items():
        got, right = value.astype(np.float64), want[name].astype(np.float64)
        bad |= bool((~np.isfinite(got) & np.isfinite(right)).any())
        both = np.isfinite(got) & np.isfinite(right)
        far = np.abs(got - right)[both].max(initial=0.0)
        error = max(error, float(far / max(np.abs(right[both]).max(initial=0.0), 1e-12)))
    return {"error": error, "bad": bad}


def list_sets(switches: list[str]) -> list[tuple[str, str, list[str]]]:
    """(label, options, names): the families off, then on, as they are worth asking."""
    families: dict[str, list[str]] = {}
    for name in switches:
        families.setdefault(name.partition(":")[0], []).append(name)
    return [
        (
            f"{family}{'*' * (len(names) > 1)}={value}",
            " ".join(f"-{n}={value}" for n in names),
            names,
        )
        for value in ("off", "on")
        for family, names in families.items()
    ]


def run_case(server: Server, case: str, switches: list[str], out: Path, deadline: float) -> None:
    """Ask until the time is over; appends to ``out``."""

    def put(label: str, options: str) -> dict[str, Any]:
        left = deadline - time.monotonic()
        if left <= 0:
            return {"status": "not asked"}
        answer = server.ask(options, min(left, LONGEST))
        with WRITING, out.open("a") as file:
            file.write(json.dumps({"case": case, "set": label, **answer}) + "\n")
        return answer

    bare = put(BARE, "")
    print(case, "bare", bare, flush=True)
    if bare["status"] != "ok":
        return
    put(BARE, "")
    first: list[str] = []
    later: list[str] = []
    for label, options, names in list_sets(switches):
        answer = put(label, options)
        changes = _differs(answer, bare)
        if changes:
            print(case, label, answer, flush=True)
        if len(names) > 1 and label.endswith("=off"):
            (first if changes or answer["status"] != "ok" else later).extend(names)
    for name in first + later:
        if _differs(answer := put(f"{name}=off", f"-{name}=off"), bare):
            print(case, name, answer, flush=True)
    put(BARE, "")


def run(folder: Path, out: Path, seconds: float, only: list[str]) -> None:
    """All cases side by side."""
    library = Path(os.environ.get("LD_LIBRARY_PATH", "").split(":")[0]) / "libnvinfer.so.10"
    switches = read_switches(library)
    kinds: dict[str, str] = json.loads((folder / "cases.json").read_text())
    cases = [c for c in kinds if not only or c in only]
    deadline = time.monotonic() + seconds
    print(f"{len(switches)} switches, cases {cases}", flush=True)
    logs = out.parent / "knobs-logs"
    logs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(cases)) as pool:
        for case in cases:
            words = [__file__, "serve", str(folder), case, kinds[case]]
            server = Server(words, logs / f"{case}.log")
            pool.submit(run_case, server, case, switches, out, deadline)


def _differs(answer: dict[str, Any], bare: dict[str, Any]) -> bool:
    """Whether the answer is another one than by chance: twice or half the error, or no NaN."""
    if answer["status"] != "ok":
        return False
    if answer["bad"] != bare["bad"]:
        return True
    return not bare["error"] / 2 <= answer["error"] <= bare["error"] * 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cases", "run", "serve", "names"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("more", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("knobs.jsonl"))
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--only", nargs="*", default=[])
    chosen = parser.parse_args()
    if chosen.what == "cases":
        write_cases(chosen.folder, *map(Path, chosen.more))
    elif chosen.what == "names":
        print("\n".join(read_switches(chosen.folder)))
    elif chosen.what == "serve":
        serve(chosen.folder, *chosen.more)
    else:
        run(chosen.folder, chosen.out, chosen.seconds, chosen.only)


if __name__ == "__main__":
    main()
