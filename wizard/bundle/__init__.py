"""The case bundle: what is handed on, runnable without Narrowdown."""

from pathlib import Path


def write(session: Path, target: Path) -> Path:
    """Write the bundle of a session folder to a folder, or to one file where ``target`` ends in
    ``.zip``.

    Raises SessionProblem, FlowProblem, MachineProblem, OSError.
    """
    from narrowdown.wizard.bundle.export import export
    from narrowdown.wizard.report.read import read

    return export(read(session), target)
