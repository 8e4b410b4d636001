"""Execution providers that come as a shared library of their own, and what a provider took of a
model.

ONNX Runtime loads such a library once for the whole process and keeps it: so do we, by its content
and name.
"""

from pathlib import Path
from typing import Any

import onnxruntime as ort

from narrowdown.engines.backends.base import EngineFault, EngineMissing
from narrowdown.engines.backends.onnxruntime.outside import plug_in_name
from narrowdown.engines.data import held

_registered: dict[str, tuple[str, list[Any]]] = {}  # name -> (digest of the library, its devices)


def find_device(library: str, name: str, wanted: str) -> Any:
    """The device of a plug-in that is to compute. ``name``: what it is registered as, "" for one
    made of the file's own; ``wanted``: ``cpu``, ``gpu``, ``npu``, what the library calls it, or its
    number, "" for the only one. Raises ``EngineMissing``, ``NotAgreed``."""
    if not Path(library).is_file():
        raise EngineMissing(
            f"There is no library of an execution provider '{library}'; give its path (provider_library=)."
        )
    if not hasattr(ort, "register_execution_provider_library") or not can_tell_share():
        raise EngineMissing(
            f"ONNX Runtime {ort.__version__} cannot load execution providers from a library and say what they took; "
            "install a newer onnxruntime."
        )
    name = name or plug_in_name(library)
    devices = _register(library, name)
    if not devices:
        raise EngineMissing(
            f"The library '{library}' loads, and finds no device on this machine that its provider '{name}' could compute on. "
            "Try it where its chip and driver are."
        )
    fitting = [
        d for i, d in enumerate(devices) if not wanted or wanted.lower() in (str(i), *_words(d))
    ]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(f"{i} ({describe(d)})" for i, d in enumerate(devices))
    why = (
        f"has no device '{wanted}'"
        if not fitting
        else f"has {len(fitting)} devices{f' {wanted!r}' if wanted else ''}"
    )
    raise EngineMissing(
        f"The provider '{name}' {why}; choose one by its number with provider_device=: {listed}."
    )


def describe(device: Any) -> str:
    """``GPU NVIDIA``: what kind of chip, and whose."""
    return f"{device.device.type.name} {device.device.vendor}".strip()


def can_tell_share() -> bool:
    """Whether this ONNX Runtime tells which nodes a provider took."""
    return hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")


def count_taken(session: Any) -> tuple[int, int]:
    """(Nodes that run elsewhere than on ONNX Runtime's own CPU kernels, nodes in all), of a session
    that recorded it. Raises ``EngineFault`` where nothing is taken: the CPU would be held against
    itself, and agree."""
    shares = [(s.ep_name, len(s.get_nodes())) for s in session.get_provider_graph_assignment_info()]
    taken, count = (
        sum(n for name, n in shares if name != "CPUExecutionProvider"),
        sum(n for _, n in shares),
    )
    if count and not taken:
        raise EngineFault(
            "refused",
            "The provider takes no node of this model: all would run on ONNX Runtime's own CPU kernels, which says "
            "nothing of the provider. Look at its options (provider_options=), or at which operators and types it supports.",
        )
    return taken, count


def _register(library: str, name: str) -> list[Any]:
    digest = held.digest(library)
    if name in _registered:
        before, devices = _registered[name]
        if before == digest:
            return devices
        raise EngineMissing(
            f"Another library is registered as '{name}' already; give this one a name with provider_name=."
        )
    known = list(ort.get_ep_devices())
    private = str(held.copy(library))
    try:
        ort.register_execution_provider_library(name, private)
    except Exception as error:
        said = " ".join(str(error).replace(private, library).split())[:400]
        raise EngineMissing(
            f"ONNX Runtime cannot load '{library}' as an execution provider: {said.removesuffix('.')}."
        ) from error
    devices = [d for d in ort.get_ep_devices() if d not in known]
    _registered[name] = digest, devices
    return devices


def _words(device: Any) -> set[str]:
    """What the device may be called, in small letters."""
    told = {**dict(device.device.metadata), **dict(device.ep_metadata)}
    return {device.device.type.name.lower(), *(value.lower() for value in told.values())}
