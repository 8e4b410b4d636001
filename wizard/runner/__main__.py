"""``python -P narrowdown/wizard/runner/__main__.py SESSION [OPTIONS]``: the runner of one session,
a process of its own.

``OPTIONS`` is ``wizard.runner.options.Options`` as JSON. Started by its path, so that it works from
a checkout, an editable install and a wheel alike and so that a folder ``narrowdown`` of the user is
never taken for ours. Its output goes to ``logs/runner.log``.
"""

import importlib.util
import sys
from pathlib import Path


def _pin_package() -> None:
    """Make ``import narrowdown`` mean the package that holds this file, whatever ``sys.path``
    says."""
    if "narrowdown" in sys.modules:
        return
    folder = Path(__file__).absolute().parents[2]
    spec = importlib.util.spec_from_file_location(
        "narrowdown", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"The package 'narrowdown' in {folder} cannot be loaded.")
    package = importlib.util.module_from_spec(spec)
    sys.modules["narrowdown"] = package
    spec.loader.exec_module(package)


def main() -> int:
    """Run a session to its end; the exit code."""
    if len(sys.argv) < 2:
        print(
            "A runner is started by narrowdown: python -P -m narrowdown.wizard.runner SESSION [OPTIONS]",
            file=sys.stderr,
        )
        return 2
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
    from narrowdown.wizard.exits import Exit
    from narrowdown.wizard.runner import progress

    if not (sentence := installed.say_change() or installed.lacking(error)):
        raise error
    print(sentence, file=sys.stderr)
    progress.write(folder, progress.Snapshot(phase="stopped", text=sentence))
    return Exit.MISSING


if __name__ == "__main__":
    sys.exit(main())
