"""Exit codes (a public contract) and the one exception that carries one."""

from typing import Final

FOUND: Final = 0
BAD_USAGE: Final = 2
NEEDS_PERSON: Final = 3
MISSING: Final = 4
DIFFERS: Final = 5
UNRESOLVED: Final = 6
NOT_REPRODUCED: Final = 10
INPUT_SENSITIVE: Final = 11
FIXED_BY_SANITIZING: Final = 12
REFERENCE_SUSPECT: Final = 13
EXPORT_AT_FAULT: Final = 14
NOT_DETERMINED: Final = 15
OUR_FAULT: Final = 70
STOPPED: Final = 130

BY_VERDICT: Final[dict[str, int]] = {
    "minimal-case": FOUND,
    "worked-around": FOUND,
    "build-failure": FOUND,
    "not-reproduced": NOT_REPRODUCED,
    "input-sensitive": INPUT_SENSITIVE,
    "fixed-by-sanitizing": FIXED_BY_SANITIZING,
    "reference-suspect": REFERENCE_SUSPECT,
    "export-at-fault": EXPORT_AT_FAULT,
    "not-determined": NOT_DETERMINED,
    "refused": MISSING,
    "unresolved": UNRESOLVED,
}

# What an exit code says of the failure, for --expect: it was seen, or whether it is there could not
# be told.
FAILURE_SEEN: Final = frozenset({FOUND, INPUT_SENSITIVE, FIXED_BY_SANITIZING, EXPORT_AT_FAULT})
UNTOLD: Final = frozenset({UNRESOLVED, REFERENCE_SUSPECT, NOT_DETERMINED})


class Refusal(Exception):
    """A command cannot go on. The message is for people: what happened, to what, what to do
    next."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class BadUsage(Refusal):
    """Refused for what was typed (exit 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(BAD_USAGE, message)


class Missing(Refusal):
    """Refused for what is not here (exit 4)."""

    def __init__(self, message: str) -> None:
        super().__init__(MISSING, message)
