"""Every step by name."""

from typing import Any

import msgspec

from engines.steps import (
    compare,
    confirm,
    double_check,
    extract,
    inputs,
    layerwise,
    nondeterminism,
    precision,
    quantization,
    reduce,
    repeat,
    sanitize,
    tactics,
    workaround,
)
from engines.steps.base import StepSpec
from engines.steps.plans import PLANS
from engines.steps.surroundings import surrounded

STEPS: dict[str, StepSpec[Any]] = {
    module.SPEC.name: msgspec.structs.replace(surrounded(module.SPEC), plan=PLANS[module.SPEC.name])
    for module in (
        compare, sanitize, inputs, repeat, nondeterminism, tactics, layerwise, extract, reduce, double_check, confirm,
        workaround, precision, quantization,
    )
}  # fmt: skip
