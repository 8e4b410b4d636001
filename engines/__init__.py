"""The machine room: everything that touches a model, a tensor or a native library. Knows nothing of ``wizard``."""

import os

# ONNX Runtime 1.31 on Linux tells its maker of each session (when and of what model), and keeps what it has not sent yet below
# ~/.cache. Whose model is looked at here has not agreed to that; who has sets the variable. It is read as the library loads.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
