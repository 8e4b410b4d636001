import sys

# Before anything else is read, as another Python may not be able to: one line in the place of a
# SyntaxError or a missing name.
OLDEST, NEWEST = (3, 11), (3, 14)
if not OLDEST <= sys.version_info[:2] <= NEWEST:
    sys.exit(
        f"narrowdown: this is Python {sys.version_info[0]}.{sys.version_info[1]}, and 3.11 to 3.14 is needed: 3.10 lacks "
        "parts of the language that are used, and 3.15 was never tried. Install it with one of those."
    )
