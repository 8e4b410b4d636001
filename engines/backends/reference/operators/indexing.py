"""GatherElements: the evaluator refuses indices that are shorter than the data beside the axis."""

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array, Operator


class GatherElements(Operator):
    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        axis %= data.ndim
        read = data[
            tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(indices.shape))
        ]
        places = np.where(indices < 0, indices + data.shape[axis], indices)
        return (np.take_along_axis(read, places, axis),)
