import sys
from enum import IntEnum
from typing import Final

# Before anything else is read, as another Python may not be able to: one line in the place of a
# SyntaxError or a missing name.
OLDEST, NEWEST = (3, 11), (3, 14)
if not OLDEST <= sys.version_info[:2] <= NEWEST:
    sys.exit(
        f"narrowdown: this is Python {sys.version_info[0]}.{sys.version_info[1]}, and 3.11 to 3.14 is needed: 3.10 lacks "
        "parts of the language that are used, and 3.15 was never tried. Install it with one of those."
    )


class Exit(IntEnum):
    """How a command ends: a public contract."""

    FOUND = 0
    BAD_USAGE = 2
    NEEDS_PERSON = 3
    MISSING = 4
    DIFFERS = 5
    UNRESOLVED = 6
    NOT_REPRODUCED = 10
    INPUT_SENSITIVE = 11
    FIXED_BY_SANITIZING = 12
    REFERENCE_SUSPECT = 13
    EXPORT_AT_FAULT = 14
    NOT_DETERMINED = 15
    OUR_FAULT = 70
    STOPPED = 130


BY_VERDICT: Final[dict[str, Exit]] = {
    "minimal-case": Exit.FOUND,
    "worked-around": Exit.FOUND,
    "build-failure": Exit.FOUND,
    "not-reproduced": Exit.NOT_REPRODUCED,
    "input-sensitive": Exit.INPUT_SENSITIVE,
    "fixed-by-sanitizing": Exit.FIXED_BY_SANITIZING,
    "reference-suspect": Exit.REFERENCE_SUSPECT,
    "export-at-fault": Exit.EXPORT_AT_FAULT,
    "not-determined": Exit.NOT_DETERMINED,
    "refused": Exit.MISSING,
    "unresolved": Exit.UNRESOLVED,
}

# What an exit code says of the failure, for --expect: it was seen, or whether it is there could not
# be told.
FAILURE_SEEN: Final = frozenset(
    {Exit.FOUND, Exit.INPUT_SENSITIVE, Exit.FIXED_BY_SANITIZING, Exit.EXPORT_AT_FAULT}
)
UNTOLD: Final = frozenset({Exit.UNRESOLVED, Exit.REFERENCE_SUSPECT, Exit.NOT_DETERMINED})


class Refusal(Exception):
    """A command cannot go on. The message is for people: what happened, to what, what to do
    next."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class BadUsage(Refusal):
    """Refused for what was typed (exit 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(Exit.BAD_USAGE, message)


class Missing(Refusal):
    """Refused for what is not here (exit 4)."""

    def __init__(self, message: str) -> None:
        super().__init__(Exit.MISSING, message)
