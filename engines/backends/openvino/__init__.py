"""OpenVINO: what is known of it without loading it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from narrowdown.engines.backends.openvino import switches
from narrowdown.engines.declaration import (
    QUANTIZATION,
    WORD,
    ByHand,
    CheckPart,
    Cure,
    Declaration,
    Found,
    Option,
    Recipe,
    Tracker,
)
from narrowdown.engines.options import tell_apart

_SOURCE = Path(__file__).with_name("check.py.txt")


def check_part(found: Found) -> CheckPart:
    """The device and its configuration, as the session had them."""
    settings = {
        "device": name_device(found.chosen["device"]),
        "config": _unite(_tell(found.chosen).values()),
    }
    if stages := switches.say_stages(found.chosen["disabled_optimizers"]):
        settings["disable"] = stages
    return CheckPart(_SOURCE.read_text(encoding="utf-8"), settings)


def apply(found: Found, cure: Cure) -> list[Recipe]:
    """The model compiled as it is right. What it was compiled with here beside that, and nobody
    asked for, is a comment. A stage of the transformations is named in the environment."""
    told = _tell(found.chosen)
    why = tell_apart(found, cure, _tell, {"threads": 0})
    config = _unite(told[option] for option, reason in why.items() if reason != "measured")
    beside = _unite(told[option] for option, reason in why.items() if reason == "measured")
    stages = switches.say_stages(found.chosen["disabled_optimizers"])
    text = ["import os", f"os.environ[{switches.VARIABLE!a}] = {stages!a}"] if stages else []
    text += ["import openvino", ""]
    text += [f"# measured with this, which is not the fix: {beside!a}"] if beside else []
    model, device = cure.file or "model.onnx", name_device(found.chosen["device"])
    said = ", ".join(f"{each!a}" for each in (model, device, config))
    text += [f"compiled = openvino.Core().compile_model({said})"]
    cpp = [f'setenv("{switches.VARIABLE}", "{stages}", 1);  // of <cstdlib>'] if stages else []
    quoted = [json.dumps(each) for each in (model, device)]
    pairs = ", ".join(
        f"{{{json.dumps(key)}, {json.dumps(value)}}}" for key, value in config.items()
    )
    cpp += [f"auto compiled = ov::Core().compile_model({', '.join(quoted)}, {{{pairs}}});"]
    return [
        Recipe("OpenVINO in Python", "python", "\n".join(text)),
        Recipe("OpenVINO in C++", "cpp", "\n".join(cpp)),
    ]


def _tell(chosen: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Option -> properties that say its value."""
    precision, threads = chosen["precision"], chosen["threads"]
    return {
        "precision": {"INFERENCE_PRECISION_HINT": precision} if precision != "default" else {},
        "threads": {"INFERENCE_NUM_THREADS": str(threads)} if threads else {},
        "disabled_optimizers": switches.list_properties(chosen["disabled_optimizers"]),
    }


def _unite(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {key: value for part in parts for key, value in part.items()}


def name_device(asked: str) -> str:
    """The device as OpenVINO takes it: ``HETERO:GPU,CPU`` of ``hetero:gpu+cpu``, as a comma ends an
    option."""
    return asked.upper().replace("+", ",")


DECLARATION = Declaration(
    "openvino",
    "OpenVINO: a second real engine on the CPU.",
    "narrowdown.engines.backends.openvino.engine",
    package="openvino",
    install="pip install openvino",
    options=(
        Option(
            "precision", "str", "default", "Inference precision hint; default: OpenVINO's own choice for this device.",
            ("default", "f32", "f16", "bf16"),
        ),
        Option("device", "str", "CPU", "An OpenVINO device, such as CPU, GPU.0, NPU, AUTO or HETERO:GPU+CPU.", harmless=WORD),
        Option("threads", "int", 1, "Threads of the CPU device; 0: OpenVINO's own choice.", least=0, most=1024, plain="1"),
        Option(
            "disabled_optimizers", "list", (), "What of the CPU device to switch off, joined with +, such as LP_TRANSFORMS_MODE.",
            harmless=WORD,
        ),
        *QUANTIZATION,
    ),
    lists={"disabled_optimizers": switches.sort_names},
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
