"""The installed TensorRT or TensorRT-RTX: what it has, asked by attribute, and what it says while
it works.

Versions differ by what their bindings hold (docs/tensorrt.md has the table); the version number
alone decides nothing here.
"""

import contextlib
import ctypes
import functools
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from narrowdown.engines.backends.base import Capability, EngineMissing
from narrowdown.engines.data import held

TUNING = "Autotuning"  # in the lines of a verbose log that say which operation is tuned now


class Library:
    """One library, loaded once a process: its module, its log, and which of the newer and older
    abilities it has."""

    def __init__(self, name: str, trt: Any) -> None:
        self.name = name
        self.title = "TensorRT-RTX" if name == "tensorrt_rtx" else "TensorRT"
        self.trt = trt
        self.version = str(trt.__version__)
        self.rtx = name == "tensorrt_rtx"
        flags = trt.BuilderFlag
        self.weak = hasattr(flags, "FP16")
        # From 11 on, and in RTX, every network is strongly typed; the flag is gone or has no
        # effect.
        self.strong = (
            self.rtx
            or not self.weak
            or hasattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
        )
        self.constraints = hasattr(flags, "OBEY_PRECISION_CONSTRAINTS") and hasattr(
            trt.ILayer, "precision"
        )
        self.selector = hasattr(trt, "IAlgorithmSelector") and hasattr(
            trt.IBuilderConfig, "algorithm_selector"
        )
        # RTX has the names, but chooses its kernels on the user's machine: its cache stays empty
        # (seen with 1.7).
        self.editable_cache = (
            not self.rtx
            and hasattr(flags, "EDITABLE_TIMING_CACHE")
            and hasattr(trt, "TimingCacheKey")
        )
        # Whether inner tensors can be read through a listener, with no new outputs; and without
        # keeping layers from being fused.
        self.debug = hasattr(trt.INetworkDefinition, "mark_debug") and hasattr(
            trt, "IDebugListener"
        )
        self.unfused_debug = hasattr(
            trt.INetworkDefinition, "mark_unfused_tensors_as_debug_tensors"
        )
        self.debug_tensors = self._able(self.debug, "debug tensors (10.0 brought them)")
        self.unfused_tensors = self._able(
            self.unfused_debug, "unfused debug tensors (10.12 brought them)"
        )
        self.monitor = hasattr(trt, "IProgressMonitor") and hasattr(
            trt.IBuilderConfig, "progress_monitor"
        )
        # RTX may have the names, and lists nothing.
        self.routes = (
            not self.rtx
            and hasattr(trt.IBuilderConfig, "build_route")
            and hasattr(trt.IBuilderConfig, "all_build_routes")
        )
        self.log = Log(trt)
        with contextlib.suppress(AttributeError):
            trt.init_libnvinfer_plugins(self.log.logger, "")
        self._plugins: set[str] = set()

    @property
    def tactics(self) -> Capability:
        """Whether the choice of kernels can be recorded and forced."""
        if self.selector or self.editable_cache:
            return Capability(True)
        why = (
            "it chooses kernels on the user's GPU"
            if self.rtx
            else "it has neither algorithm selector nor editable timing cache"
        )
        return Capability(
            False, f"{self.title} {self.version} cannot show or force its choice of kernels: {why}."
        )

    @property
    def editable(self) -> Capability:
        """Whether kernels can be chosen through the timing cache."""
        if self.rtx:
            return Capability(
                False,
                f"{self.title} {self.version} keeps no timings: it chooses kernels on the user's GPU.",
            )
        return self._able(self.editable_cache, "editable timing cache (10.8 brought it)")

    def _able(self, present: bool, what: str) -> Capability:
        return Capability(present, "" if present else self.lacks(what))

    def has_flag(self, flag: str) -> bool:
        return hasattr(self.trt.BuilderFlag, flag)

    def lacks(self, what: str) -> str:
        return f"{self.title} {self.version} has no {what}."

    def plug(self, paths: Sequence[str]) -> None:
        """Load libraries of plugins, once each. Raises ``EngineMissing``."""
        for path in paths:
            if path in self._plugins:
                continue
            if not Path(path).is_file():
                raise EngineMissing(f"There is no library of plugins '{path}'; give its path.")
            try:
                ctypes.CDLL(str(held.copy(path)), ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise EngineMissing(
                    f"The library of plugins '{path}' does not load: {error}"
                ) from error
            self._plugins.add(path)


class Log:
    """What the library says: warnings and errors, the newest last."""

    def __init__(self, trt: Any) -> None:
        severity = trt.ILogger
        lines: list[tuple[int, str]] = []
        self._hearing: list[list[str]] = []
        hearing = self._hearing

        class Logger(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, level: Any, text: str) -> None:
                if level in (severity.INTERNAL_ERROR, severity.ERROR, severity.WARNING):
                    lines.append((0 if level != severity.WARNING else 1, " ".join(text.split())))
                elif hearing and ("0x" in text or TUNING in text):
                    hearing[-1].append(text)

        self.logger: Any = Logger()
        self._lines = lines

    def clear(self) -> None:
        self._lines.clear()

    @contextlib.contextmanager
    def listening(self) -> Iterator[list[str]]:
        """A list that fills with every line, however minor, that names a key or a kernel
        (``0x...``), or says that another operation is tuned now."""
        said: list[str] = []
        self._hearing.append(said)
        try:
            yield said
        finally:
            self._hearing.remove(said)

    def errors(self) -> list[str]:
        """Error lines since ``clear``, in order."""
        return [text for level, text in self._lines if level == 0]

    def warnings(self) -> list[str]:
        return [text for level, text in self._lines if level == 1]


@functools.cache
def load(name: str) -> Library:
    """The library, loaded. Raises ``ImportError`` or ``OSError`` where it cannot be."""
    return Library(name, importlib.import_module(name))
