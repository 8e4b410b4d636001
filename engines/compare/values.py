"""What was computed beside what is right, small enough for a picture. Plain data:
``engines.workers.histograms`` makes it."""

import msgspec

ROWS, COLUMNS = 24, 48


class Values(msgspec.Struct, frozen=True):
    """One output. ``expected`` and ``actual`` add up to how many elements are finite, from ``low`` to
    ``high`` (earlier versions wrote them as 32 bins); ``*_nonfinite`` count the others. ``grid``: the
    largest difference in each of at most ``ROWS`` x ``COLUMNS`` tiles, over the largest expected
    magnitude, ``HUGE`` where only one of the two is finite; of the axes longer than 1 the last runs
    to the right, the others down. ``kinds`` has a letter for each tile: what is there and is not
    finite on one side alone, ``n`` NaN or ``i`` infinity of the engine's, ``r`` one of the
    reference's, else a dot; none in files of earlier versions. ``*_nan``: how many of the elements
    that are not finite are NaN."""

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
    kinds: tuple[str, ...] = ()
    expected_nan: int = 0
    actual_nan: int = 0
