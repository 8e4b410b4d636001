"""The knee of a curve: the point from which on a further node kept buys little."""

import math
from collections.abc import Sequence

USELESS = 10.0  # errors beyond this are all the same: the outputs are of no use
# Of the height of the curve; a point that lies less below the line from its first to its last point
# is no knee: each node buys as much as any other. Chosen, not measured.
BENT = 0.1


def find_knee(points: Sequence[tuple[int, float]], enough: float) -> int | None:
    """The index of the knee of (nodes kept, error), fewest nodes first and each with less error
    than those before: the point that lies farthest below the line from the first to the last,
    errors by their order of magnitude. None where no point does.

    ``enough``: an error below which less gains nothing, above 0; a model that is exact at the end
    would else bend there only."""
    if len(points) < 3 or enough <= 0:
        return None
    x = [float(nodes) for nodes, _ in points]
    y = [math.log10(min(USELESS, max(enough, error))) for _, error in points]
    wide, high = x[-1] - x[0], y[0] - y[-1]
    if wide <= 0 or high <= 0:
        return None
    below = [(y[0] - b) / high - (a - x[0]) / wide for a, b in zip(x, y, strict=True)]
    best = max(range(len(below)), key=lambda i: (below[i], -i))
    return best if below[best] >= BENT else None
