"""CUDA's runtime API, as far as the backend calls it, on this machine's own memory
(``whole.install`` copies it as ``cuda/bindings/runtime.py``)."""

import ctypes
from types import SimpleNamespace

_held = {}


def cudaGetDeviceCount():  # noqa: N802
    return 0, 1


def cudaGetDeviceProperties(_number):  # noqa: N802
    return 0, SimpleNamespace(
        name=b"NVIDIA H100 80GB HBM3", major=9, minor=0, totalGlobalMem=80 << 30
    )


def cudaDriverGetVersion():  # noqa: N802
    return 0, 13000


def cudaMemGetInfo():  # noqa: N802
    return 0, 70 << 30, 80 << 30


def cudaGetErrorString(error):  # noqa: N802
    return 0, f"error {int(error)}".encode()


def cudaGetLastError():  # noqa: N802
    return (0,)


def cudaStreamCreate():  # noqa: N802
    return 0, 1


def cudaStreamSynchronize(_stream):  # noqa: N802
    return (0,)


def cudaStreamDestroy(_stream):  # noqa: N802
    return (0,)


def cudaMalloc(size):  # noqa: N802
    block = ctypes.create_string_buffer(size)
    address = ctypes.addressof(block)
    _held[address] = block
    return 0, address


def cudaFree(address):  # noqa: N802
    _held.pop(address, None)
    return (0,)


def cudaMemcpy(to, source, size, _kind):  # noqa: N802
    ctypes.memmove(to, source, size)
    return (0,)


def cudaMemcpyAsync(to, source, size, kind, _stream):  # noqa: N802
    return cudaMemcpy(to, source, size, kind)


cudaMemcpyKind = SimpleNamespace(  # noqa: N816
    cudaMemcpyHostToHost=0,
    cudaMemcpyHostToDevice=1,
    cudaMemcpyDeviceToHost=2,
    cudaMemcpyDeviceToDevice=3,
)
