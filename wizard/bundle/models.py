"""The models that a step has made, and the user's own with the workaround in it, written where they
are wanted."""

import contextlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from narrowdown.engines.known.generator import NAME as GENERATOR, Program, write_generator
from narrowdown.engines.steps.registry import step_makes
from narrowdown.engines.store import Store, atomic, copying, digest_file, sound, write_atomically
from narrowdown.wizard.machine_room import ask
from narrowdown.wizard.report import cured
from narrowdown.wizard.report.cured import WORKED_AROUND
from narrowdown.wizard.report.read import Reading
from narrowdown.wizard.session import SessionProblem
from narrowdown.wizard.session.state import Visit

_WRITING = 3600.0  # seconds: tens of gigabytes are read and written


def write_worked_around(reading: Reading) -> str:
    """The model with the workaround applied, written into the session's folder; "" where the
    workaround is no change of the model, or one that an emulation alone can run. Raises
    SessionProblem, MachineProblem, OSError."""
    for left in reading.folder.glob(
        f".{Path(WORKED_AROUND).stem}.*.tmp"
    ):  # by a command that was killed as it wrote
        left.unlink(missing_ok=True)
    return place_worked_around(reading, reading.folder)


def share_worked_around(written: Path, folder: Path) -> None:
    """Give the model that ``write_worked_around`` has written, and a file of its weights, a second
    name in ``folder``. Raises OSError."""
    for name in (WORKED_AROUND, f"{Path(WORKED_AROUND).stem}.weights.bin"):
        if (kept := written.with_name(name)).is_file():
            copying.link(kept, folder / name)


def place_worked_around(reading: Reading, folder: Path) -> str:
    """The same, written into ``folder``: the file that was tried as it stands, where there is
    one."""
    files = cured.list_handed_over(reading.state, reading.table)
    return (
        _write_files(reading, folder / WORKED_AROUND, files, cured.stem_of(files), {})[0] or ""
        if files
        else ""
    )


def place_scripts(reading: Reading, folder: Path) -> None:
    """The programs that steps have written, the latest of each name, into ``folder``. Raises
    OSError."""
    for visit in reading.state.route:
        if text := _find_script(reading, visit):
            (folder / GENERATOR).write_text(text, encoding="utf-8")


def _find_script(reading: Reading, visit: Visit) -> str:
    """The program that a step has made of its case, written anew from what it was written from: the
    text in a session may be a stranger's. "" where there is none, or one of earlier versions."""
    for row in reading.table(visit.tables.get("generator", "")):
        with contextlib.suppress(
            ValueError, LookupError, TypeError, ArithmeticError, RecursionError
        ):
            return write_generator(msgspec.convert(row["program"], Program))
    return ""


def write_models(
    reading: Reading, visit: Visit, output: str | None
) -> tuple[str | None, str | None]:
    """Paths of (the model that the step made, its passing neighbour), written to ``output`` or into
    the session's folder: a workaround under the name that the report gives to what is pasted.

    Raises MachineProblem, OSError."""
    folder, store = reading.folder, Store(reading.folder)
    target = Path(output).expanduser().absolute() if output else folder / f"{visit.step}.onnx"
    if script := _find_script(reading, visit):
        target = target if output else folder / GENERATOR
        write_atomically(target, script)
        return str(target), None
    if step_makes(visit.step, "model"):
        made = next(
            (row.get("model") for row in reading.table(visit.tables.get("sanitized", ""))), None
        )
        if not made:
            return None, None
        write_whole(store, {target: find_model(store, made)})
        return str(target), None
    rows = cured.list_files(visit, reading.table)
    case, good, cure = (
        rows.get("case", {}),
        rows.get("good", {}),
        rows.get("workaround") or rows.get("rewrite", {}),
    )
    kept, stem = (case, "model") if "model.onnx" in case else (cure, cured.stem_of(cure))
    if kept and kept is rows.get("workaround") and not output:
        target = folder / WORKED_AROUND
    return _write_files(reading, target, kept, stem, good)


def _write_files(
    reading: Reading, target: Path, kept: Mapping[str, str], stem: str, good: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Paths of (the model ``stem`` of ``kept``, that of ``good`` beside it). Raises as
    ``write_models``."""
    store = Store(reading.folder)
    made = kept.get(f"{stem}.onnx")
    neighbour = target.with_name(f"{target.stem}-good.onnx")
    whole = {target: made} if made else {}
    whole |= {neighbour: good["model.onnx"]} if good.get("model.onnx") else {}
    beside = [
        name for name in (f"{stem}.weights.bin", "weights.bin") if made and name in kept
    ]  # the second in earlier versions
    copied = {**whole, **{target.with_name(name): kept[name] for name in beside}}
    found = find_sound(store, {place.name: digest for place, digest in copied.items()})
    for place in copied:
        with atomic(place) as temporary:
            shutil.copyfile(found[place.name], temporary)
    write_whole(store, {place: place for place in whole})
    return str(target) if made else None, str(neighbour) if neighbour in whole else None


def find_model(store: Store, digest: str) -> Path:
    """Where a model of the session lies. Raises as ``find_sound``."""
    return _find_file(store.model_path, digest, "the model")


def find_sound(store: Store, files: Mapping[str, str]) -> dict[str, Path]:
    """Where a step's files lie, by name. Raises SessionProblem for one that is gone, or no longer
    what was written, or that a stranger's session names elsewhere; OSError."""
    return {name: _find_file(store.path, digest, name) for name, digest in files.items()}


def _find_file(place: Callable[[str], Path], digest: str, name: str) -> Path:
    try:
        path = place(digest)
    except ValueError as error:
        raise SessionProblem(
            f"{error} Somebody has changed this session; ask for it anew."
        ) from None
    _require_sound(path, digest, name)
    return path


def _require_sound(path: Path, digest: str, name: str) -> None:
    """Raise SessionProblem for a file that is gone, or no longer what was written. ``name``: what
    it is for people."""
    if not path.is_file():
        raise SessionProblem(
            f"The session's file for {name} is gone; copy the whole session folder."
        )
    if digest_file(path) != digest:
        raise SessionProblem(
            f"The session's file for {name}, '{path}', is damaged: its bytes are not those that were written. Take it from a "
            "backup, or narrow the model down again."
        )


def write_whole(store: Store, models: Mapping[Path, Path]) -> None:
    """Write models of a session so that they can be moved: target -> where each lies. One that
    points to none of the session's weights stays as it is where it is its own target. Raises
    SessionProblem, MachineProblem, OSError."""
    weights = {source: sound.weights_of(source) for source in models.values()}
    for name in sorted({name for names in weights.values() for name in names}):
        _require_sound(store.root / name, Path(name).stem, f"the weights '{name}'")
    pairs = [
        (source, target) for target, source in models.items() if weights[source] or source != target
    ]
    if pairs:
        words = [str(path) for pair in pairs for path in pair]
        try:
            ask(
                "narrowdown.engines.workers.modelfiles",
                "whole",
                str(store.models),
                *words,
                timeout=_WRITING,
            )
        except OSError as error:
            raise OSError(error.errno, error.strerror, error.filename or str(pairs[0][1])) from None
