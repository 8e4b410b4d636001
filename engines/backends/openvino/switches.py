"""What can be switched off in OpenVINO's CPU device, by OpenVINO's own names.

Properties that the released wheel 2026.4.1 takes, each tried alone; it refuses names that it does
not know. SNIPPETS_MODE changes the compiled graph, LP_TRANSFORMS_MODE cures a wrong number.
DYNAMIC_QUANTIZATION_GROUP_SIZE moved the error of one model with int8 weights (minilm_int8, 2.7 %
to 0.0001 %; the processor was not noted). On a processor with AVX2 alone it changes nothing:
MatMuls with int8 weights, one scale a tensor, a column or 32 rows, have equal graphs and equal
bits. Nor do CPU_RUNTIME_CACHE_CAPACITY there, and CPU_DENORMALS_OPTIMIZATION and
EXECUTION_MODE_HINT, which are no switches here.
A build with debug capabilities also leaves out whole stages of its transformations, which an
environment variable names that it reads when the device is loaded.
"""

import contextlib
from collections.abc import Iterable, Mapping

from narrowdown.engines import processes
from narrowdown.engines.nearest import suggestion

# Property -> its value when off.
PROPERTIES: Mapping[str, str] = {
    "SNIPPETS_MODE": "DISABLE",  # joined element-wise nodes, softmaxes, attentions
    "LP_TRANSFORMS_MODE": "NO",  # Q/DQ models in int8
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",  # activations in int8 beside compressed weights; not with AVX2 alone
}
VARIABLE = "OV_CPU_DISABLE"
_STAGE = "transformations:"
STAGES = tuple(
    _STAGE + name for name in ("common", "preLpt", "lpt", "postLpt", "snippets", "specific")
)


def sort_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Sorted. Raises ``ValueError`` for a name that is none."""
    known = (*PROPERTIES, *STAGES)
    for name in names:
        if name not in known:
            raise ValueError(
                f"OpenVINO's CPU device has no switch '{name}'.{suggestion(name, known, ' ')}"
            )
    return tuple(sorted(names))


def list_properties(names: Iterable[str]) -> dict[str, str]:
    """The properties that say these names."""
    return {name: PROPERTIES[name] for name in names if name in PROPERTIES}


def say_stages(names: Iterable[str]) -> str:
    """What the variable says for these names; "" for none of its own."""
    stages = ",".join(name.removeprefix(_STAGE) for name in names if name in STAGES)
    return f"transformations={stages}" if stages else ""


def stages_off(names: Iterable[str]) -> contextlib.AbstractContextManager[None]:
    """A device that is loaded in here leaves these stages out."""
    said = say_stages(names)
    return processes.told_more(VARIABLE, said) if said else contextlib.nullcontext()
