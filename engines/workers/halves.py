"""A reference that is the model as it was before it was converted: it takes FP32 where the model
holds halves."""

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import Built
from narrowdown.engines.graph.cut import Cut
from narrowdown.engines.spec import parse


class _Fed:
    """What was built of a float original or twin, fed with halves where it takes FP32."""

    def __init__(self, built: Built, part: Cut) -> None:
        self.model, self.facts, self._built = built.model, built.facts, built
        kinds = {i.name: i.type.tensor_type.elem_type for i in part.model.graph.input}
        self._wide = {name for name, kind in kinds.items() if kind == TensorProto.FLOAT}

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        wide = {
            n: a.astype(np.float32) if n in self._wide and a.dtype.itemsize == 2 else a
            for n, a in feeds.items()
        }
        return self._built.run(wide, outputs)

    def close(self) -> None:
        self._built.close()


def take_halves(built: Built, part: Cut, engine: str) -> Built:
    """What was built of a floated cut, so that it takes what the model itself takes."""
    return _Fed(built, part) if parse(engine).get("model") else built
