"""``python -P -m narrowdown.engines.workers SESSION PARENT-PID``: one worker process.

The pool starts this file by its path, so that it works from a checkout, an editable install and a
wheel alike, and so that a folder ``narrowdown`` of the user is never taken for ours. Nothing but
the standard library is imported before file descriptors 1 and 2 are a log: native libraries write
where they like.
"""

import importlib
import os
import sys
from pathlib import Path


def _claim_protocol() -> tuple[int, int]:
    """Duplicates of fds 0 and 1, which only the protocol uses; fd 0 then reads nothing and fd 1
    writes where fd 2 does."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return incoming, outgoing


def _pin_package() -> None:
    """Make ``import narrowdown`` mean the package that holds this file, whatever ``sys.path``
    says."""
    sys.path.insert(0, str(Path(__file__).absolute().parents[3]))
    importlib.import_module("narrowdown")
    del sys.path[0]


def main() -> None:
    incoming, outgoing = _claim_protocol()
    _pin_package()
    from narrowdown.engines.workers.worker import serve_probes

    parent = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    serve_probes(Path(sys.argv[1]), incoming, outgoing, parent)


if __name__ == "__main__":
    main()
