"""Whether a package is here; one that is missing as a sentence with the command that installs it
for this very interpreter. And whether our own are still those that this process began with."""

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path

OURS = ("narrowdown.wizard", "narrowdown.engines", "narrowdown.flows")
OF_WORKERS = ("narrowdown.engines",)  # all that a worker ever loads of them
ROOT = Path(__file__).parents[2]  # where the package `narrowdown` lies
_BEGUN = time.time()  # when the first of our modules were read
# What a package that is imported is called where it is installed from.
_CALLED = {"yaml": "pyyaml", "google": "protobuf", "PIL": "pillow", "ml_dtypes": "ml-dtypes"}


def importable(package: str) -> bool:
    """Whether a package of this import name is installed; it is not loaded."""
    try:
        return bool(package) and find_spec(package) is not None
    except (ImportError, ValueError):  # of what a dotted name lies in
        return False


def command(install: str) -> str:
    """``pip install X`` as it reaches this interpreter, whichever ``pip`` stands first on the
    path."""
    return f"{shlex.quote(sys.executable)} -m {install}"


def lacking(error: ImportError) -> str:
    """Which package is missing, or cannot be loaded, and what installs it; "" where it is one of
    ours, which is our own fault."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "narrowdown"):
        return ""
    install = command(f"pip install {_CALLED.get(package, package)}")
    if isinstance(error, ModuleNotFoundError):
        return f"The package '{package}' is needed and is not installed for this Python; install it with: {install}"
    why = (str(error).splitlines() or [type(error).__name__])[0][:300]
    again = f"{install} --force-reinstall"
    return f"The package '{package}' is installed and cannot be loaded ({why}); install it again with: {again}"


def find_change(names: Collection[str] = OURS) -> str:
    """A file of these packages that was written, replaced or removed since this process began,
    relative to their folder; "" where there is none. What is loaded later no longer fits what was
    loaded before."""
    for module in list(sys.modules.values()):
        place = getattr(module, "__file__", None)
        within = any(f"{getattr(module, '__name__', '')}.".startswith(f"{name}.") for name in names)
        if place and within and not os.path.lexists(place):
            return os.path.relpath(place, ROOT)
    now = time.time()
    return next(
        (
            os.path.relpath(f.path, ROOT)
            for f in _list_files(names)
            if _BEGUN < _last_written(f) <= now
        ),
        "",
    )


def say_change(names: Collection[str] = OURS) -> str:
    """That the program was changed while it ran, and what to do; "" where it was not. Asked where
    something failed inside."""
    if not (changed := find_change(names)):
        return ""
    return (
        f"Narrowdown was changed while it ran, as an update or an edit does ('{changed}'), and its parts no longer fit. What was "
        "measured is kept: 'narrowdown resume' goes on with the session. Any other command can be given again."
    )


def _list_files(names: Collection[str]) -> "Iterator[os.DirEntry[str]]":
    """The modules of these packages, and what an installer writes of each installation."""
    folders = [str(ROOT / name.replace(".", "/")) for name in names]
    with contextlib.suppress(OSError):
        folders += [str(place) for place in ROOT.glob("narrowdown-*.dist-info")]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py") or entry.name == "RECORD":
                    yield entry
                elif (
                    "." not in entry.name
                    and entry.name != "__pycache__"
                    and entry.is_dir(follow_symlinks=False)
                ):
                    folders.append(entry.path)


def _last_written(file: "os.DirEntry[str]") -> float:
    """When the file came to be what it is, in seconds. Unpacked files may bear an old time, which
    the change of their entry tells; not where others link to the same file, as installers do from a
    cache: each further link changes the entry."""
    with contextlib.suppress(OSError):
        its = file.stat()
        return max(its.st_mtime, its.st_ctime if its.st_nlink == 1 else 0.0)
    return 0.0
