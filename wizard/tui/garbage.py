"""Python's search for unreachable objects, kept out of the way of keys.

With a long session in memory one full search takes a tenth of a second and stops every thread. So
what is known once a session is on the screen is left out of it for good, and the rest is searched
only while nobody types.
"""

import gc

_THRESHOLDS = (2_000, 10, 1 << 30)  # the last: never by itself


def settle() -> None:
    """All that there is now stays; from now on only ``search`` looks at what has become old."""
    gc.set_threshold(*_THRESHOLDS)
    gc.freeze()


def search() -> None:
    """Free what has become unreachable since the last time; the rest stays."""
    gc.collect()
    gc.freeze()
