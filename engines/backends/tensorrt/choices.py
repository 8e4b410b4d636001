"""Which kernel (tactic) a build chose for each layer, and builds whose choice is made for them: by
the algorithm selector, which TensorRT 8 to 10 has. ``timings`` is the way of later versions.

A choice is written as ``engines.data.tactic_replay`` writes it: implementation, tactic, and for
each input and output dtype, strides, vectorized dimension and components per element. So two builds
compare as text, and a replay file that Polygraphy reads can be made from it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.data.tactic_replay import canonical_algorithm


def write_algorithm(context: Any, algorithm: Any) -> str:
    """An algorithm of TensorRT's selector as text."""

    def tensor(index: int) -> dict[str, Any]:
        info = algorithm.get_algorithm_io_info(index)
        return {
            "dtype": f"DataType.{info.dtype.name}",
            "strides": list(info.strides),
            "vectorized_dim": info.vectorized_dim,
            "components_per_element": info.components_per_element,
        }

    variant = algorithm.algorithm_variant
    inputs, outputs = context.num_inputs, context.num_outputs
    return canonical_algorithm(
        {
            "implementation": variant.implementation,
            "tactic": variant.tactic,
            "inputs": [tensor(i) for i in range(inputs)],
            "outputs": [tensor(i) for i in range(inputs, inputs + outputs)],
        }
    )


def allowed_positions(offered: Sequence[str], wanted: str, forbidden: Sequence[str]) -> list[int]:
    """Positions of the offered choices that may be taken: the wanted one alone where it is offered,
    else all that are not forbidden. Empty where nothing is left."""
    if wanted:
        return [i for i, text in enumerate(offered) if text == wanted]
    return [i for i, text in enumerate(offered) if text not in forbidden]


class Chooser:
    """Records the choices of one build; forces those of ``force`` and keeps those of ``forbid``
    from being taken.

    ``choices`` by layer afterwards; ``refused``: layers whose forced choice was not offered, or
    that had nothing left. There the build chose freely.
    """

    def __init__(
        self, found: Library, force: Mapping[str, str], forbid: Mapping[str, Sequence[str]]
    ) -> None:
        self.choices: dict[str, str] = {}
        self.refused: list[str] = []
        self.selector = _make_selector(found, self._select, self._report)
        self._force, self._forbid = force, forbid

    def _select(self, context: Any, offered: Sequence[Any]) -> list[int]:
        everything = list(range(len(offered)))
        name = context.name
        if name not in self._force and name not in self._forbid:
            return everything
        texts = [write_algorithm(context, a) for a in offered]
        chosen = allowed_positions(texts, self._force.get(name, ""), self._forbid.get(name, ()))
        if not chosen:
            self.refused.append(name)
        return chosen or everything

    def _report(self, contexts: Sequence[Any], chosen: Sequence[Any]) -> None:
        for context, algorithm in zip(contexts, chosen, strict=True):
            self.choices[context.name] = write_algorithm(context, algorithm)


def _make_selector(
    found: Library,
    select: Callable[[Any, Sequence[Any]], list[int]],
    report: Callable[[Sequence[Any], Sequence[Any]], None],
) -> Any:
    base = found.trt.IAlgorithmSelector

    class Selector(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            base.__init__(self)

        # An exception in here would be lost in native code and end the process: nothing in here may
        # raise.
        def select_algorithms(self, context: Any, choices: Sequence[Any]) -> list[int]:
            try:
                return select(context, choices)
            except Exception:
                return list(range(len(choices)))

        def report_algorithms(self, contexts: Sequence[Any], choices: Sequence[Any]) -> None:
            try:
                report(contexts, choices)
            except Exception:
                return

    return Selector()
