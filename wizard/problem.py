"""The PROBLEM as the command line asks for it."""

from typing import Final

from narrowdown.engines.problem import USUAL_ENGINE, Problem

__all__ = ["BOUNDS", "OPTIONS", "USUAL_ENGINE", "Problem"]

# Fields that are options of the command line, with the same names.
OPTIONS: Final = tuple(
    name
    for name in Problem.__struct_fields__
    if name not in ("model", "folder", "digests", "exported")
)
BOUNDS: Final = ("tolerance", "atol", "rtol")  # of an error, by output
