"""The models that a step has made, and the user's own with the workaround in it, written where they are wanted."""

import shutil
from pathlib import Path

from engines import outside
from engines.known.generator import NAME as GENERATOR
from engines.spec import parse
from engines.steps.registry import step_makes
from engines.store.content import Store, atomic
from wizard.machine_room import ask
from wizard.report.read import Reading
from wizard.session.state import Visit

WORKED_AROUND = "worked-around.onnx"


def write_worked_around(reading: Reading) -> str:
    """The model with the workaround applied, written into the session's folder; "" where the workaround is no change of the
    model, or one that an emulation alone can run. Raises MachineProblem, OSError."""
    return place_worked_around(reading, reading.folder)


def place_worked_around(reading: Reading, folder: Path) -> str:
    """The same, written into ``folder``: the file that was tried as it stands, where there is one."""
    cure = reading.state.findings.workaround
    makers = [v for v in reading.state.route if step_makes(v.step, "workaround")]
    # A step that finds nothing better than what stood leaves no files.
    makers = [v for v in makers if _list_files(reading, v).get("workaround")] or makers
    if cure is None or not (cure.keep or cure.kind in ("rewrite", "barrier", "control-flow")) or not makers:
        return ""
    emulated = outside.is_emulation(outside.found(parse(cure.engine)))
    if emulated and WORKED_AROUND not in _list_files(reading, makers[-1]).get("workaround", {}):
        return ""  # what an emulation builds rounds by itself
    return write_models(reading, makers[-1], str(folder / WORKED_AROUND))[0] or ""


def place_scripts(reading: Reading, folder: Path) -> None:
    """The programs that steps have written, the latest of each name, into ``folder``. Raises OSError."""
    for visit in reading.state.route:
        for name, text in _list_scripts(reading, visit).items():
            (folder / name).write_text(text, encoding="utf-8")


def _list_scripts(reading: Reading, visit: Visit) -> dict[str, str]:
    """The text of each program that a step has written, by the one name that it may have: a session may be a stranger's."""
    rows = reading.table(visit.tables.get("generator", ""))
    text = next((str(row["text"]) for row in rows if row.get("name") == GENERATOR and row.get("text")), "")
    return {GENERATOR: text} if text else {}


def _list_files(reading: Reading, visit: Visit) -> dict[str, dict[str, str]]:
    """Role -> the files that a step has left for it, name -> digest."""
    rows = reading.table(visit.tables.get("bundle", ""))
    return {str(row.get("role")): row.get("files") or {} for row in rows}


def write_models(reading: Reading, visit: Visit, output: str | None) -> tuple[str | None, str | None]:
    """Paths of (the model that the step made, its passing neighbour), written to ``output`` or into the session's folder.

    Raises MachineProblem, OSError."""
    folder, store = reading.folder, Store(reading.folder)
    target = Path(output).expanduser().absolute() if output else folder / f"{visit.step}.onnx"
    if scripts := _list_scripts(reading, visit):
        target = target if output else folder / next(iter(scripts))
        with atomic(target) as temporary:
            temporary.write_text(next(iter(scripts.values())), encoding="utf-8")
        return str(target), None
    if step_makes(visit.step, "model"):
        made = next((row.get("model") for row in reading.table(visit.tables.get("sanitized", ""))), None)
        if not made:
            return None, None
        ask("engines.workers.modelfiles", "whole", str(store.models / f"{made}.onnx"), str(target))
        return str(target), None
    rows = _list_files(reading, visit)
    case, good, cure = rows.get("case", {}), rows.get("good", {}), rows.get("workaround", {})
    as_written = "worked-around" if WORKED_AROUND in cure else "engine"
    kept, stem = (case, "model") if "model.onnx" in case else (cure, as_written)
    made = kept.get(f"{stem}.onnx")
    if made:
        _copy(store.path(made), target)
        for name in (f"{stem}.weights.bin", "weights.bin"):  # as the model calls them; the second in earlier versions
            if name in kept:
                _copy(store.path(kept[name]), target.with_name(name))
    neighbour = target.with_name(f"{target.stem}-good.onnx")
    if good.get("model.onnx"):
        _copy(store.path(good["model.onnx"]), neighbour)
    return str(target) if made else None, str(neighbour) if good.get("model.onnx") else None


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all."""
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)
