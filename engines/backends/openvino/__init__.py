"""OpenVINO: what is known of it without loading it."""

from pathlib import Path

from engines.declaration import QUANTIZATION, ByHand, CheckPart, Cure, Declaration, Found, Option, Recipe, Tracker

_SOURCE = Path(__file__).with_name("check.py.txt")


def check_part(found: Found) -> CheckPart:
    """The device and its configuration, as the session had them."""
    chosen = found.chosen
    config: dict[str, str] = {}
    if chosen["precision"] != "default":
        config["INFERENCE_PRECISION_HINT"] = chosen["precision"]
    if chosen["threads"]:
        config["INFERENCE_NUM_THREADS"] = str(chosen["threads"])
    device = chosen["device"].upper().replace("+", ",")
    return CheckPart(_SOURCE.read_text(encoding="utf-8"), {"device": device, "config": config})


def apply(found: Found, cure: Cure) -> list[Recipe]:
    """The model compiled as it is right."""
    settings = check_part(found).settings
    model = cure.file or "model.onnx"
    text = f"""import openvino

compiled = openvino.Core().compile_model({model!a}, {settings["device"]!a}, {settings["config"]!a})"""
    return [Recipe("OpenVINO in Python", "python", text)]


DECLARATION = Declaration(
    "openvino",
    "OpenVINO: a second real engine on the CPU.",
    "engines.backends.openvino.engine",
    package="openvino",
    install="pip install openvino",
    options=(
        Option(
            "precision", "str", "default", "Inference precision hint; default: OpenVINO's own choice for this device.",
            ("default", "f32", "f16", "bf16"),
        ),
        Option("device", "str", "CPU", "An OpenVINO device, such as CPU, GPU.0, NPU, AUTO or HETERO:GPU+CPU."),
        Option("threads", "int", 1, "Threads of the CPU device; 0: OpenVINO's own choice.", least=0, most=1024, plain="1"),
        *QUANTIZATION,
    ),
    weighs=330 << 20,
    formats={".xml": "openvino:precision=f32"},
    title="OpenVINO",
    tracker=Tracker(
        "https://github.com/openvinotoolkit/openvino/issues/new",
        (
            ("OpenVINO Version", "version"), ("Operating System", "system"), ("Device used for inference", "device"),
            ("Framework", "onnx"), ("Model used", "model"), ("### Issue description", "description"),
            ("### Expected", "expected"), ("### Actual", "actual"), ("### Step-by-step reproduction", "steps"),
            ("Options", "options"),
        ),
    ),
    check_part=check_part,
    by_hand=ByHand(apply=apply),
)  # fmt: skip
