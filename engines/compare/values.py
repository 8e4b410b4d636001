"""What was computed beside what is right, small enough for a picture. Plain data: ``engines.workers.values`` makes it."""

import msgspec

BINS = 32
ROWS, COLUMNS = 24, 48


class Values(msgspec.Struct, frozen=True):
    """One output. ``expected`` and ``actual`` count the finite elements in ``BINS`` equal bins from ``low`` to ``high``;
    ``*_nonfinite`` the others. ``grid``: the largest difference in each of at most ``ROWS`` x ``COLUMNS`` tiles, over the largest
    expected magnitude, ``HUGE`` where only one of the two is finite; the last axis runs to the right, the others down."""

    output: str
    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    expected: tuple[int, ...]
    actual: tuple[int, ...]
    expected_nonfinite: int
    actual_nonfinite: int
    grid: tuple[tuple[float, ...], ...]
