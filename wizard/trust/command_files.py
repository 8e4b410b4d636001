"""Which files a check command names, and what these import: what consent to the command covers
beside its text and its folder.

What cannot be told (a program that reads its own list of scripts, say) is covered by the folder
alone.
"""

import contextlib
import itertools
import os
import shlex
from pathlib import Path

from narrowdown.wizard.trust.reading import digest, imported, is_file, module_files, text

LARGEST = 64 << 20  # bytes; a larger file is data
_SCRIPTS = (".py", ".sh", ".bash", ".pl", ".rb", ".js", ".mjs", ".lua", ".R", ".jl")


def command_files(command: str, folder: str) -> dict[str, str]:
    """Path -> sha256 of the files that the command names: those below ``folder``, and scripts
    wherever they lie."""
    files: list[Path] = []
    for path in _files_named(command, folder):
        below = bool(folder) and path.is_relative_to(folder)
        if not is_file(path) or path.stat().st_size > LARGEST:
            continue
        if not (below or path.suffix in _SCRIPTS or text(path)[:2] == b"#!"):
            continue
        files += [path, *(imported(path.resolve()) if path.suffix == ".py" else ())]
    for name in _modules(command) if folder else ():
        for path in module_files(Path(folder), (*name.split("."), "__main__"), {}):
            files += [path, *imported(path, Path(folder))]
    return {str(file): found for file in dict.fromkeys(files) if (found := digest(file))}


def _files_named(command: str, folder: str) -> list[Path]:
    """What words of the command may name: also those of ``sh -c "python check.py"``."""
    texts = [
        text
        for word in _words(command)
        for text in (word, word.partition("=")[2])
        if text and "\0" not in text
    ]
    paths = [
        os.path.normpath(Path(folder, text)) for text in texts if folder or text.startswith("/")
    ]
    return [Path(path) for path in dict.fromkeys(paths) if path.startswith("/")]


def _modules(command: str) -> list[str]:
    """The names of modules behind ``-m``."""
    return [
        name
        for option, name in itertools.pairwise(_words(command))
        if option == "-m" and all(part.isidentifier() for part in name.split("."))
    ]


def _words(command: str) -> list[str]:
    """The words of the command, and those within each of them."""
    words = _split(command)
    return words + [inner for word in words for inner in _split(word)]


def _split(words: str) -> list[str]:
    with contextlib.suppress(ValueError):
        return shlex.split(words)
    return []
