"""The user's own model with the workaround in it: which files a step has left of it, and whether
they are handed over."""

from collections.abc import Callable, Mapping
from typing import Any

from narrowdown.engines import outside
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.registry import step_makes
from narrowdown.wizard.session.state import State, Visit

WORKED_AROUND = "worked-around.onnx"

Rows = Callable[[str], list[dict[str, Any]]]


def list_files(visit: Visit, table: Rows) -> dict[str, dict[str, str]]:
    """Role -> the files that a step has left for it, name -> digest."""
    return {str(row.get("role")): files_of(row) for row in table(visit.tables.get("bundle", ""))}


def files_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The files of a row of such a table, name -> digest; without what a stranger may have written
    in their place."""
    files = row.get("files")
    return (
        {n: d for n, d in files.items() if isinstance(n, str) and isinstance(d, str)}
        if isinstance(files, dict)
        else {}
    )


def list_workaround_files(state: State, table: Rows) -> dict[str, str]:
    """The files of the workaround, name -> artifact: of the step that found it last, or of the
    session that this goes on from. A step that finds nothing better than what stood leaves none."""
    route = [v for v in state.route if step_makes(v.step, "workaround")]
    made = [files for v in route if (files := list_files(v, table).get("workaround"))]
    return dict(made[-1] if made else state.taken_workaround)


def list_handed_over(state: State, table: Rows) -> dict[str, str]:
    """Those files where a model is made of them; none where the workaround is no change of the
    model, or one that an emulation alone can run, as what it builds rounds by itself."""
    cure, files = state.findings.workaround, list_workaround_files(state, table)
    if cure is None or not (cure.keep or cure.in_file):
        return {}
    emulated = outside.declared(outside.found(parse(cure.engine))).emulation
    if emulated and WORKED_AROUND not in files:
        return {}
    return files if f"{stem_of(files)}.onnx" in files else {}


def stem_of(files: Mapping[str, str]) -> str:
    """Which of a workaround's models is handed over: the file that was run as it stands, else what
    the engine built."""
    return "worked-around" if WORKED_AROUND in files else "engine"
