"""BatchNormalization of opset 7 to 13 has no training mode in what it gives: the evaluator mixes
the batch's own mean and variance in wherever ``momentum`` has a value, which by its default it
always has."""

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array, Operator


class BatchNormalization(Operator):
    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, **given: float
    ) -> tuple[Array, ...]:
        epsilon, momentum = given["epsilon"], given["momentum"]
        if self.since < 14 or not given.get("training_mode"):
            return (_normalize(x, scale, bias, mean, var, epsilon),)
        axes = (0, *range(2, x.ndim))
        own_mean, own_var = x.mean(axis=axes), x.var(axis=axes)
        running = (
            old * momentum + new * (1 - momentum) for old, new in ((mean, own_mean), (var, own_var))
        )
        kept = (value.astype(mean.dtype) for value in running)
        return (_normalize(x, scale, bias, own_mean, own_var, epsilon), *kept)


def _normalize(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float
) -> Array:
    """Statistics of one value a channel, or (``spatial=0`` of opset 7) of one value an element of a
    sample."""
    shape = (-1, *(1,) * (x.ndim - 2)) if mean.ndim == 1 else mean.shape
    scale, bias, mean, var = (value.reshape(shape) for value in (scale, bias, mean, var))
    return np.asarray((x - mean) / np.sqrt(var + epsilon) * scale + bias).astype(x.dtype)
