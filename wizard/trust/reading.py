"""Looking at files that a stranger may have named, and at what scripts among them import, as far as
their text tells: nothing is waited for, and nothing of them is imported or run."""

import ast
import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from narrowdown.engines.data.compiled import COMPILED, module_of
from narrowdown.engines.store import digest_file, regular

MOST = 200  # files; of a script that imports more, the rest is covered by its folder
TEXT = 1 << 20  # bytes; a larger file is no script that somebody wrote


def digest(path: str | Path) -> str:
    """sha256 of a regular file; "" for what is none, or cannot be read."""
    try:
        return digest_file(Path(path))
    except (OSError, ValueError):
        return ""


def digests(folder: Path) -> dict[str, str]:
    """Name -> sha256 of each file below a folder, as it is read there; of a linked folder none."""
    return {
        str(path.relative_to(folder)): found
        for place, _, names in os.walk(folder)
        for path in (Path(place, name) for name in names)
        if (found := digest(path))
    }


def text(path: str | Path) -> bytes:
    """The bytes of a script; none of what cannot be read, or is too large for one."""
    try:
        return regular.read(path, TEXT)
    except (OSError, ValueError):
        return b""


def head(path: str | Path, lines: int) -> tuple[str, ...]:
    """The first lines of a script."""
    return tuple(text(path).decode(errors="replace").splitlines()[:lines])


def is_file(path: str | Path) -> bool:
    """Whether a regular file lies there, also behind a link."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def imported(script: Path, root: Path | None = None) -> tuple[Path, ...]:
    """The files that the script imports, and what they import, below ``root`` (its own folder):
    text and compiled ones, as which is taken depends on the Python. What a compiled one imports
    cannot be told, so all that lie beside it come with it. What is imported by names that are made
    up as it runs is not found."""
    root = root or script.parent
    found: dict[Path, None] = {}
    waiting = [script]
    listed: dict[Path, dict[str, list[Path]]] = {}
    while waiting and len(found) < MOST:
        path = waiting.pop()
        for name in _modules(path, root):
            for module in module_files(root, name, listed):
                if module != script and module not in found:
                    found[module] = None
                    if module.suffix not in COMPILED:
                        waiting.append(module)
    return tuple(found)


def _modules(path: Path, root: Path) -> Iterator[tuple[str, ...]]:
    """Dotted names, split, that a text imports; relative ones from the root on."""
    tree = _tree(path)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base: tuple[str, ...] = ()
            if node.level:
                parts = path.parent.relative_to(root).parts if path.is_relative_to(root) else ()
                base = parts[: len(parts) - node.level + 1]
            base += tuple(filter(None, (node.module or "").split(".")))
            yield from (
                (*base, alias.name) for alias in node.names
            )  # a module, or something in the one before


def texts(path: Path) -> tuple[str, ...]:
    """The texts that a script holds, which may be commands."""
    tree = _tree(path)
    nodes = (
        (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)) if tree else ()
    )
    return tuple(dict.fromkeys(text for text in nodes if isinstance(text, str)))


def _tree(path: Path) -> ast.AST | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text(path))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def module_files(
    root: Path, name: tuple[str, ...], listed: dict[Path, dict[str, list[Path]]]
) -> Iterator[Path]:
    """The files that importing this name may run, each package on the way first. ``listed``:
    modules by folder and name, once they were looked for."""
    for count in range(1, len(name) + 1):
        place = root.joinpath(*name[:count])
        for folder, module in ((place, "__init__"), (place.parent, place.name)):
            if folder not in listed:
                listed[folder] = _list_modules(folder)
            files = listed[folder].get(module, [])
            yield from files
            if any(file.suffix in COMPILED for file in files):
                beside = (file for others in listed[folder].values() for file in others)
                yield from (file for file in beside if file.suffix in COMPILED)


def _list_modules(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError, ValueError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if (module := module_of(entry.name)) and is_file(entry.path):
                found.setdefault(module, []).append(Path(entry.path))
    return found
