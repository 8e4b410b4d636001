"""dear: an engine that times kernels, as its builds say, in no more time than the emulation of BF16
takes, which it is.

The first build of a process takes 50 minutes, by the clock that builds are measured with, each
later one five, beside which the emulation is cheap however busy the machine is; so that what is
asked in place of a dear engine is asked here, and always. A package of its own: its folder is on
Python's path, as pip would have installed it (``dear-1.0.dist-info``).
"""

import time
from typing import Any

import onnxruntime as ort

from narrowdown.engines.backends import machine, make as make_engine
from narrowdown.engines.backends.base import BuildRequest, EngineInfo, list_capabilities
from narrowdown.engines.declaration import Declaration, Option
from narrowdown.engines.spec import EngineSpec

# Seconds of a build. With a hundredth of it a busy machine's emulation was too slow, and the
# session took another route.
FIRST, LATER = 3000.0, 300.0
_BEHIND = "emulate:precision=bf16"

DECLARATION = Declaration(
    "dear",
    "An engine whose builds are dear. For tests.",
    "dear",
    package="onnxruntime",
    install="pip install onnxruntime",
    options=(
        Option(
            "level",
            "int",
            2,
            "How hard it optimizes; each build takes as long.",
            least=0,
            most=2,
            twin="1",
        ),
    ),
)

_passed = 0.0  # seconds that went by in this process and took no time
_monotonic = time.monotonic


def _let_pass(seconds: float) -> None:
    """No clock but that of this process, a worker, goes on."""
    global _passed
    _passed += seconds
    time.monotonic = lambda: _monotonic() + _passed


class Engine:
    """The emulation of BF16, whose builds take long."""

    def __init__(self, info: EngineInfo) -> None:
        self.info = info
        self._behind = make_engine(_BEHIND)
        self._takes = FIRST

    def build(self, request: BuildRequest) -> Any:
        built = self._behind.build(request)
        _let_pass(self._takes)
        self._takes = LATER
        return built


def make(spec: EngineSpec) -> Engine:
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version="1.0",
        device=machine.cpu()[0],
        precision="bf16",
        storage="bfloat16",
        fingerprint=machine.fingerprint(spec.name, ort.__version__, {"spec": str(spec)}, "cpu"),
        capabilities=list_capabilities(
            keep="",
            rebuild="",
            optimizers="it has none to switch off.",
            tactics="it does not tell which kernels it chose.",
            threads="it runs on one thread.",
        ),
        options=DECLARATION.options,
        slots=2,
        gpus=1,
    )
    return Engine(info)
