"""``python -P narrowdown/wizard/runner/__main__.py SESSION [OPTIONS]``: the runner of one session,
a process of its own.

``OPTIONS`` is ``wizard.runner.requests.Options`` as JSON. Started by its path, so that it works from
a checkout, an editable install and a wheel alike and so that a folder ``narrowdown`` of the user is
never taken for ours. Its output goes to ``logs/runner.log``.
"""

import importlib
import sys
from pathlib import Path


def _pin_package() -> None:
    """Make ``import narrowdown`` mean the package that holds this file, whatever ``sys.path``
    says."""
    sys.path.insert(0, str(Path(__file__).absolute().parents[3]))
    importlib.import_module("narrowdown")
    del sys.path[0]


def main() -> int:
    """Run a session to its end; the exit code."""
    _pin_package()
    try:
        from narrowdown.wizard.runner.process import serve
    except ImportError as error:
        return _lacking(error, Path(sys.argv[1]))

    return serve(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "{}")


def _lacking(error: ImportError, folder: Path) -> int:
    """Say which package is missing where the displays look for it; the exit code. Raises what is
    our own fault again."""
    from narrowdown.engines import installed
    from narrowdown.wizard import Exit
    from narrowdown.wizard.runner import progress

    if not (sentence := installed.say_change() or installed.lacking(error)):
        raise error
    print(sentence, file=sys.stderr)
    progress.write(folder, progress.Snapshot(phase="stopped", text=sentence))
    return Exit.MISSING


if __name__ == "__main__":
    sys.exit(main())
