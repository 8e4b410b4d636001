"""Which files Python takes for modules, by their names."""

from collections.abc import Collection
from pathlib import Path

COMPILED = (".so", ".pyc")  # which Python takes before a text of the same name, or in its place


def module_of(name: str) -> str:
    """The module that a file of this name is, in this Python or another: ``helper`` of
    ``helper.py``, ``helper.pyc``, ``helper.cpython-311-x86_64-linux-gnu.so``; "" for none."""
    module = name.partition(".")[0]
    return module if Path(name).suffix in (".py", *COMPILED) and module.isidentifier() else ""


def list_texts(folder: Path) -> set[str]:
    """Modules whose texts lie in the folder themselves, not as links."""
    return {path.stem for path in folder.glob("*.py") if not path.is_symlink()}


def hides(source: Path, name: str, texts: Collection[str]) -> bool:
    """Whether what is called so in ``source`` would be imported in place of one of these texts:
    compiled, or a package."""
    if name in texts:
        return any(map(module_of, (path.name for path in (source / name).glob("__init__.*"))))
    return module_of(name) in texts and Path(name).suffix in COMPILED
