"""The GPU's memory, streams and facts, through NVIDIA's own Python bindings (cuda-bindings)."""

import ctypes
import functools
import os
from typing import Any

import msgspec
import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.faults import say_in_one_line

# After these the context, and so the process, can do nothing more: CUDA runtime's illegal address,
# launch failure, and the like.
_STICKY = frozenset({214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720})


class Device(msgspec.Struct, frozen=True):
    """The current GPU. ``capability`` such as ``9.0``; ``memory`` in bytes; ``driver``: CUDA
    version that the driver speaks."""

    name: str
    capability: str
    memory: int
    driver: str


def load_runtime() -> Any:
    """CUDA's runtime API. Raises ``ImportError``."""
    from cuda.bindings import runtime

    return runtime


@functools.cache
def device() -> tuple[Device | None, str]:
    """(the GPU that TensorRT would use, or None with the reason in a few words)."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "no NVIDIA driver is installed"
    try:
        api = load_runtime()
    except (ImportError, OSError, RuntimeError) as error:
        return (
            None,
            f"the package cuda-bindings cannot be used ({say_in_one_line(error)}); install it with: pip install cuda-bindings",
        )
    try:
        code, count = api.cudaGetDeviceCount()
    except RuntimeError as problem:  # no libcuda at all
        return None, say_in_one_line(problem)
    if int(code) or not count:
        return None, say_error(api, code) if int(code) else "no CUDA device"
    code, properties = api.cudaGetDeviceProperties(0)
    if int(code):
        return None, say_error(api, code)
    _, driver = api.cudaDriverGetVersion()
    name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
    return Device(
        name=name.rstrip("\0"),
        capability=f"{properties.major}.{properties.minor}",
        memory=int(properties.totalGlobalMem),
        driver=f"{driver // 1000}.{driver % 1000 // 10}",
    ), ""


def memory_room() -> tuple[int, int] | None:
    """(bytes free, bytes in all) on the GPU; None where it cannot be asked."""
    if device()[0] is None:
        return None
    code, free, whole = load_runtime().cudaMemGetInfo()
    return None if int(code) else (int(free), int(whole))


def is_rtx(gpu: Device) -> bool:
    """Whether TensorRT-RTX runs there: it supports RTX products from Turing on, no data-centre
    GPU."""
    return "RTX" in gpu.name.upper()


def say_error(api: Any, error: Any) -> str:
    """CUDA's own words for an error."""
    _, text = api.cudaGetErrorString(error)
    return (
        text.decode() if isinstance(text, bytes) else str(text)
    ).strip() or f"CUDA error {int(error)}"


class Stream:
    """A CUDA stream and the buffers of one engine on it. ``close`` frees all."""

    def __init__(self) -> None:
        """Raises ``EngineFault``."""
        self._api = load_runtime()
        self._buffers: dict[str, tuple[int, int]] = {}
        self.handle = int(self._ask("make a stream", self._api.cudaStreamCreate()))

    def put(self, name: str, value: Array) -> int:
        """Copy an array to the GPU; its address there. Raises ``EngineFault``."""
        data = np.ascontiguousarray(value)
        address = self.room(name, data.nbytes)
        if data.nbytes:
            kind = self._api.cudaMemcpyKind.cudaMemcpyHostToDevice
            # Pageable memory: the copy has left the array when the call returns.
            self._ask(
                "copy an input",
                self._api.cudaMemcpyAsync(
                    address, data.ctypes.data, data.nbytes, kind, self.handle
                ),
            )
        return address

    def room(self, name: str, size: int) -> int:
        """At least ``size`` bytes under this name; the address. Raises ``EngineFault``
        (out-of-memory)."""
        address, held = self._buffers.get(name, (0, -1))
        if held < size:
            if held >= 0:
                self._ask("free memory", self._api.cudaFree(address))
                del self._buffers[name]
            # An address is needed also where there is nothing to hold.
            address = int(self._ask(f"reserve {size:,} bytes", self._api.cudaMalloc(max(1, size))))
            self._buffers[name] = (address, size)
        return address

    def get(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """What lies under this name, as a new array, once the stream has come so far. Raises
        ``EngineFault``."""
        return self.copy(self._buffers[name][0], shape, dtype)

    def copy(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], on_host: bool = False
    ) -> Array:
        """What lies at an address, as a new array, once the stream has come so far. Raises
        ``EngineFault``."""
        value: Array = np.empty(shape, dtype)
        self.wait()
        if value.nbytes:
            kinds = self._api.cudaMemcpyKind
            kind = kinds.cudaMemcpyHostToHost if on_host else kinds.cudaMemcpyDeviceToHost
            self._ask(
                "copy a tensor",
                self._api.cudaMemcpy(value.ctypes.data, address, value.nbytes, kind),
            )
        return value

    def wait(self) -> None:
        """Until all is done. Raises ``EngineFault``."""
        self._ask("run the engine", self._api.cudaStreamSynchronize(self.handle))

    def close(self) -> None:
        for address, _ in self._buffers.values():
            self._api.cudaFree(address)
        self._buffers.clear()
        if self.handle:
            self._api.cudaStreamDestroy(self.handle)
            self.handle = 0

    def _ask(self, what: str, answer: tuple[Any, ...]) -> Any:
        error, *rest = answer
        code = int(error)
        if code == 2:  # out of memory
            self._api.cudaGetLastError()
            raise EngineFault("out-of-memory", f"The GPU has no memory to {what}.")
        if code in _STICKY:
            # No later call of this process can succeed. Its end is seen as a crash, which is what
            # happened on the GPU, and the next probe gets a fresh process.
            print(
                f"CUDA: {say_error(self._api, error)} (error {code}), asked to {what}.", flush=True
            )
            os.abort()
        if code:
            raise EngineFault("error", f"CUDA could not {what}: {say_error(self._api, error)}.")
        return rest[0] if rest else None
