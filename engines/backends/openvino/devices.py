"""OpenVINO's devices: which are here, and those that stand for others (AUTO, MULTI, HETERO,
BATCH)."""

from collections.abc import Sequence
from typing import Any

from narrowdown.engines.backends.base import EngineMissing

# They choose among devices, share work out or gather it; the devices follow a colon. AUTO alone
# chooses among all.
VIRTUAL = ("AUTO", "MULTI", "HETERO", "BATCH")
# What a device takes beside OpenVINO itself.
_NEEDS = {
    "GPU": "It takes an Intel GPU and its OpenCL driver (libOpenCL.so.1, intel-opencl-icd).",
    "NPU": "It takes an Intel NPU and its driver (libze_loader.so.1).",
}
_WIDTHS = {"f32": 32, "bf16": 16, "f16": 16}


def name_device(asked: str, here: Sequence[str]) -> str:
    """The device as OpenVINO takes it: ``HETERO:GPU,CPU`` of ``hetero:gpu+cpu``, as a comma ends an
    option. ``here``: the devices that OpenVINO has found. Raises ``EngineMissing`` with a sentence
    for one that is not among them."""
    head, colon, rest = asked.upper().partition(":")
    parts = rest.split("+") if colon else [] if head in VIRTUAL else [head]
    if head not in VIRTUAL and colon:
        raise EngineMissing(
            f"OpenVINO's device '{asked}': only {', '.join(VIRTUAL)} take devices after a colon."
        )
    if head in VIRTUAL and head != "AUTO" and not parts:
        raise EngineMissing(
            f"OpenVINO's {head} takes devices: device={head}:{'+'.join(here) or 'CPU'}."
        )
    for part in parts:
        base, _, number = part.partition(".")
        # The only one of its kind goes without a number, and is number 0; without one the first of
        # several is meant.
        known = (
            part in here or (base in here and number == "0") or (not number and f"{base}.0" in here)
        )
        if not known:
            raise _missing(part, here)
    return f"{head}:{','.join(parts)}" if head in VIRTUAL and parts else head


def read_hint(compiled: Any, *, virtual: bool) -> str:
    """The type that a compiled model computes in, by OpenVINO's name; of several devices the
    shortest."""
    if not virtual:
        return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    told = compiled.get_property("DEVICE_PROPERTIES").values()
    hints = [
        str(each["INFERENCE_PRECISION_HINT"].get_type_name())
        for each in told
        if "INFERENCE_PRECISION_HINT" in each
    ]
    return min(hints, key=lambda hint: _WIDTHS.get(hint, 32), default="f32")


def _missing(part: str, here: Sequence[str]) -> EngineMissing:
    has = ", ".join(here) or "none"
    needs = _NEEDS.get(part.partition(".")[0], "")
    return EngineMissing(
        f"OpenVINO has no device '{part}' here; it has {has}.{f' {needs}' if needs else ''}"
    )
