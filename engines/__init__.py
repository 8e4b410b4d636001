"""The machine room: everything that touches a model, a tensor or a native library. Knows nothing of
``wizard``."""

import os
import sys

# ONNX Runtime 1.31 on Linux has a telemetry client: it writes an id of the machine and a data base
# of events below ~/.cache and holds the address of its maker's collector; whether it sends was not
# watched. Whose model is looked at here has not agreed to that; who has sets the variable. It is
# read as the library loads.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# OpenVINO's Python package sends an event to its maker as it is imported, and keeps an id below
# ~/intel; it can do without the package that does both.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
