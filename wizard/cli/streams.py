"""The standard streams, whatever this process was started with: closed, or of an encoding that
cannot hold what is to be said."""

import codecs
import io
import os
import sys

ESCAPED = "narrowdown-escaped"  # the name of the error handler


def prepare() -> None:
    """Make the standard streams usable. A closed descriptor is taken by a null device, so that no
    file of a session is ever opened as this process's output; a character that a stream's encoding
    lacks, or a byte of a path that is not UTF-8, is written as JSON escapes it."""
    codecs.register_error(ESCAPED, escaped)
    # From the lowest number on; what comes after the three is not needed.
    while (taken := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(taken, True)
    os.close(taken)
    # Without one for stderr print takes stdout.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPED)


def escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that an encoding lacks, as ``\\\\uXXXX``: in JSON, beyond the first 65,536, two of
    them mean one character."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)
    ), error.end
