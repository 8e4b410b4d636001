"""Real models with real failures that show on any machine, without a GPU."""

import importlib.util
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from narrowdown.engines import installed
from narrowdown.engines.known.entry import release
from narrowdown.engines.spec import parse
from narrowdown.engines.store import digest_file
from narrowdown.wizard import Missing
from narrowdown.wizard.machine_room import ask
from narrowdown.wizard.problem import USUAL_ENGINE, Problem


class Demo(msgspec.Struct, frozen=True):
    """``about``: what a newcomer is told first. ``model``, ``inputs``, ``original`` (the float one
    of a quantized model): a shipped file, or a function that writes one into a folder. ``mended``:
    the first release of ONNX Runtime in which it fails no more."""

    about: str
    engine: str
    model: Callable[[Path], Path]
    inputs: Callable[[Path], Path]
    flow: str = "accuracy"
    original: Callable[[Path], Path] | None = None
    mended: str = ""


MODELS = Path(__file__).with_name("models")  # README.md there says what fails, and why


def _shipped(name: str) -> Callable[..., Path]:
    return lambda *_folder: MODELS / name


def _magika(_folder: Path) -> Path:
    spec = importlib.util.find_spec("magika")
    model = (
        Path(spec.origin).parent / "models/standard_v3_3/model.onnx"
        if spec and spec.origin
        else None
    )
    if model is None or not model.is_file():
        raise Missing(
            "The demo needs the package magika, which brings the model: "
            + installed.command("pip install magika")
        )
    return model


def _magika_inputs(folder: Path) -> Path:
    target = folder / "magika-inputs.npz"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_name("magika-inputs.part.npz")
        ask("narrowdown.engines.demos.magika_inputs", str(part))
        part.replace(target)
    return target


def _made(name: str) -> Callable[[Path], Path]:
    """The float or the INT8 form of the network with channels scaled apart; made together, once."""

    def make(folder: Path) -> Path:
        floats, quantized = folder / "shapes-apart-float.onnx", folder / "shapes-apart-int8.onnx"
        if not (floats.exists() and quantized.exists()):
            folder.mkdir(parents=True, exist_ok=True)
            parts = [path.with_suffix(".part") for path in (floats, quantized)]
            shipped = [str(_shipped(file)()) for file in ("shapes_cnn.onnx", "shapes_cnn_in.npz")]
            ask("narrowdown.engines.demos.scaled_apart", *shipped, *map(str, parts))
            for part, path in zip(parts, (floats, quantized), strict=True):
                part.replace(path)
        return folder / name

    return make


DEMOS: dict[str, Demo] = {
    "shapes": Demo(
        about="A small network that names drawn shapes is a little wrong as soon as ONNX Runtime optimizes it. Which optimizer?",
        engine=f"{USUAL_ENGINE}:optimization=all",
        model=_shipped("shapes_cnn.onnx"),
        inputs=_shipped("shapes_cnn_in.npz"),
        mended="1.32",
    ),
    "magika": Demo(
        about="magika names the type of a file from its bytes. In FP16 it names most of this machine's files wrongly. Why?",
        engine="emulate:precision=fp16",
        model=_magika,
        inputs=_magika_inputs,
    ),
    "sort": Demo(
        about="A transformer that sorts digits answers nothing right in FP16, although every value stays finite at the end.",
        engine="emulate:precision=fp16",
        model=_shipped("sort_tf_massive_m4.onnx"),
        inputs=_shipped("sort_tf_massive_m4_in.npz"),
    ),
    "quantized": Demo(
        about="A network that names drawn shapes was quantized to INT8 and is wrong about most. Which layers must stay in float?",
        engine=f"{USUAL_ENGINE}:optimization=all",
        model=_made("shapes-apart-int8.onnx"),
        inputs=_shipped("shapes_cnn_in.npz"),
        flow="quantization",
        original=_made("shapes-apart-float.onnx"),
    ),
    "pillars": Demo(
        about="A point cloud model gives another answer now and then, on the same input, when two threads work on it.",
        engine=f"{USUAL_ENGINE}:optimization=all,threads=2",
        model=_shipped("pillars_add.onnx"),
        inputs=_shipped("pillars_add_in.npz"),
    ),
}


def _refuse_mended(demo: Demo) -> None:
    """Raises Missing where the installed ONNX Runtime gets this demo right, so that nothing
    could be shown."""
    try:
        here = version("onnxruntime")
    except PackageNotFoundError:  # under another name, such as onnxruntime-gpu: it is tried
        return
    if demo.mended and release(here) >= release(demo.mended):
        older = installed.command(f"pip install 'onnxruntime<{demo.mended}'")
        raise Missing(
            f"ONNX Runtime {here} is installed, and {demo.mended} fixed what this demo shows. "
            f"'narrowdown demo sort' fails with every release; for this one install an older release: {older}"
        )


def problem(name: str, folder: Path) -> Problem:
    """The PROBLEM of a demo; ``folder`` receives inputs that are made on this machine.

    Raises Missing, KeyError for an unknown name.
    """
    demo = DEMOS[name]
    _refuse_mended(demo)
    model, inputs = demo.model(folder), demo.inputs(folder)
    files, reference = [model, inputs], Problem(model="").reference
    if demo.original is not None:
        files.append(demo.original(folder).resolve())
        reference = str(parse(reference).with_option("model", str(files[-1])))
    return Problem(
        model=str(model),
        engine=demo.engine,
        reference=reference,
        inputs=(str(inputs),),
        flow=demo.flow,
        digests={str(path): digest_file(path) for path in files},
    )
