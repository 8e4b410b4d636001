"""Which files of its own folder a Python script imports, as far as its text tells. Nothing is imported or run to find out."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from wizard.trust.reading import is_file, text

MOST = 200  # files; of a script that imports more, the rest is covered by its folder


def imported(script: Path, root: Path | None = None) -> tuple[Path, ...]:
    """The files that the script imports, and what they import, below ``root`` (its own folder). What it imports by names that it
    makes up as it runs is not found."""
    root = root or script.parent
    found: dict[Path, None] = {}
    waiting = [script]
    while waiting and len(found) < MOST:
        path = waiting.pop()
        for name in _modules(path, root):
            for module in _files(root, name):
                if module != script and module not in found:
                    found[module] = None
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
            yield from ((*base, alias.name) for alias in node.names)  # a module, or something in the one before


def _tree(path: Path) -> ast.AST | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text(path))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _files(root: Path, name: tuple[str, ...]) -> Iterator[Path]:
    """The files that importing this name would run, each package on the way first."""
    for count in range(1, len(name) + 1):
        place = root.joinpath(*name[:count])
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if is_file(file):
                yield file
                break
