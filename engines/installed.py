"""Whether a package is here; one that is missing as a sentence with the command that installs it for this very interpreter."""

import shlex
import sys
from importlib.util import find_spec

OURS = ("wizard", "engines", "flows")
# What a package that is imported is called where it is installed from.
_CALLED = {"yaml": "pyyaml", "google": "protobuf", "PIL": "pillow", "ml_dtypes": "ml-dtypes"}


def importable(package: str) -> bool:
    """Whether a package of this import name is installed; it is not loaded."""
    try:
        return bool(package) and find_spec(package) is not None
    except (ImportError, ValueError):  # of what a dotted name lies in
        return False


def command(install: str) -> str:
    """``pip install X`` as it reaches this interpreter, whichever ``pip`` stands first on the path."""
    return f"{shlex.quote(sys.executable)} -m {install}"


def lacking(error: ImportError) -> str:
    """Which package is missing, or cannot be loaded, and what installs it; "" where it is one of ours, which is our own fault."""
    package = (error.name or "").partition(".")[0]
    if not package or package in OURS:
        return ""
    install = command(f"pip install {_CALLED.get(package, package)}")
    if isinstance(error, ModuleNotFoundError):
        return f"The package '{package}' is needed and is not installed for this Python; install it with: {install}"
    why = (str(error).splitlines() or [type(error).__name__])[0][:300]
    again = f"{install} --force-reinstall"
    return f"The package '{package}' is installed and cannot be loaded ({why}); install it again with: {again}"
