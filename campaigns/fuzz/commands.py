"""The program's own commands, run in this process: what each file comes to for whoever meets it at
a prompt."""

import contextlib
import io
import os
import sys
from typing import NamedTuple
from unittest import mock

DOCUMENTED = (0, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15)


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run(words: list[str], **environment: str) -> Ended:
    """``narrowdown`` with these words. Fails for our own fault, for a traceback and for a refusal
    that says nothing."""
    from narrowdown.wizard.cli.entry import main

    out, err = io.StringIO(), io.StringIO()
    hook = sys.excepthook
    try:
        with (
            mock.patch.dict(os.environ, environment),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(words)
    finally:
        sys.excepthook = hook
    ended = Ended(code, out.getvalue(), err.getvalue())
    assert code in DOCUMENTED, (words, ended)
    assert "Traceback" not in ended.out + ended.err, (words, ended)
    assert "\x1b" not in ended.out + ended.err, (words, ended)
    assert code not in (2, 3, 4) or ended.err.strip() or ended.out.strip(), (words, ended)
    return ended
