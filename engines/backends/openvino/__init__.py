"""OpenVINO: what is known of it without loading it."""

from engines.declaration import QUANTIZATION, Declaration, Option

DECLARATION = Declaration(
    "openvino",
    "OpenVINO: a second real engine on the CPU.",
    "engines.backends.openvino.engine",
    package="openvino",
    install="pip install 'narrowdown[openvino]'",
    options=(
        Option(
            "precision", "str", "default", "Inference precision hint; default: OpenVINO's own choice for this device.",
            ("default", "f32", "f16", "bf16"),
        ),
        Option("device", "str", "CPU", "An OpenVINO device, such as CPU or GPU.0."),
        Option("threads", "int", 1, "Threads of the CPU device; 0: OpenVINO's own choice.", least=0, most=1024, plain="1"),
        *QUANTIZATION,
    ),
)  # fmt: skip
