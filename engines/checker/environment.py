"""What of the user's environment a checker gets: a short list of names, and those of
``--pass-env``. The standard library only.

A list of what is kept back cannot be complete: secrets have names of all kinds. What is needed can
be listed: it lets a program be found, loaded and run on its device. Which further names a checker
gets is said by whoever starts it, never by a session.
"""

import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Mapping

from narrowdown.engines.processes import USERS

# Each name with why a checker gets it. A name that ends in * stands for all that begin so.
HANDED: Mapping[str, str] = {
    "PATH": "finds programs",
    "HOME": "finds the user's own packages, caches and settings",
    "USER": "some programs do not start without it",
    "LOGNAME": "the same by its older name",
    "LANG": "in which language and encoding it speaks",
    "LANGUAGE": "the same for messages",
    # By name and not as LC_*: ssh servers take any LC_ name from a client, so people send secrets
    # under such names.
    **dict.fromkeys(
        ("LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"),
        "the same by category",
    ),
    "TZ": "what time it prints",
    "TERM": "some programs do not start without it",
    "TMPDIR": "a folder that goes with the session",
    "LD_LIBRARY_PATH": "finds the libraries of engines and of CUDA",
    "LD_PRELOAD": "an allocator or a sanitizer that the engine was told to use",
    "DYLD_LIBRARY_PATH": "finds libraries on macOS",
    "CUDA_*": "which devices, which toolkit, how kernels are loaded",
    "CUBLAS_WORKSPACE_CONFIG": "decides whether sums come out the same twice",
    "NVIDIA_VISIBLE_DEVICES": "which devices, in a container",
    "NVIDIA_DRIVER_CAPABILITIES": "what of the driver there is, in a container",
    "NVIDIA_TF32_OVERRIDE": "decides in which precision FP32 is computed",
    "HIP_VISIBLE_DEVICES": "which devices of AMD's",
    "ROCR_VISIBLE_DEVICES": "the same below HIP",
    "HSA_OVERRIDE_GFX_VERSION": "for which device of AMD's is compiled",
    "ONEAPI_DEVICE_SELECTOR": "which devices of Intel's",
    "ZE_AFFINITY_MASK": "the same below oneAPI",
    "OMP_NUM_THREADS": "how many threads share out a sum, which decides its last digits",
    "MKL_NUM_THREADS": "the same for MKL",
    "OPENBLAS_NUM_THREADS": "the same for OpenBLAS, which numpy uses",
    "POLYGRAPHY_*": "settings of the tool that most checkers are written for",
    "PYTHONPATH": "finds modules",
    "PYTHONHOME": "finds Python's own modules",
    "PYTHONUSERBASE": "finds the user's own packages",
    "PYTHONNOUSERSITE": "leaves these out",
    "PYTHONSAFEPATH": "leaves out the folder that it runs in",
    "PYTHONDONTWRITEBYTECODE": "writes nothing beside modules that may be read-only",
    "PYTHONHASHSEED": "in which order sets are walked",
    "PYTHONIOENCODING": "in which encoding it prints",
    "PYTHONUTF8": "the same",
    "VIRTUAL_ENV": "which environment of Python",
    "CONDA_PREFIX": "the same of conda's",
    "CONDA_DEFAULT_ENV": "its name",
    "NARROWDOWN_WORKER": "our own mark, by which what a checker leaves running is found",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# $NAME and ${NAME} of a shell; environ["NAME"], environ.get("NAME") and getenv("NAME") of Python.
_ASKED = re.compile(
    r"""\$\{?([A-Za-z_]\w*)|(?:environ(?:\.get)?|getenv)\s*[\[(]\s*["']([A-Za-z_]\w*)"""
)
_SHELL_S = frozenset(
    {"PWD", "OLDPWD", "SHLVL", "SHELL", "COLUMNS", "LINES", "_"}
)  # it sets them itself, so they say nothing


def for_checker(held: Mapping[str, str], named: Collection[str] = ()) -> dict[str, str]:
    """What a checker gets of an environment. ``named``: the names of ``--pass-env``."""
    given = {
        n: value
        for n, value in held.items()
        if n in named or any(fnmatch.fnmatchcase(n, known) for known in HANDED)
    }
    users = {n.removeprefix(USERS): value for n, value in held.items() if n.startswith(USERS)}
    return given | users


def for_worker(held: Mapping[str, str]) -> dict[str, str]:
    """What a worker gets of an environment: all of it, but one thread for OpenBLAS, as numpy's
    would compete with the engine's (20 times slower); a checker has what the user says."""
    name = "OPENBLAS_NUM_THREADS"
    users = {USERS + name: held[name]} if name in held else {}
    return {**held, **users, name: "1"}


def list_missed(
    said: Iterable[str],
    sources: Iterable[str],
    held: Mapping[str, str],
    named: Collection[str] = (),
) -> list[str]:
    """Names, sorted, of variables that a checker did not get and that it speaks of: what to hand on
    where it fails, or passes, for want of one. ``said``: what it printed; ``sources``: its scripts,
    in which a variable is asked for."""
    words = {word for text in said for word in _NAME.findall(text) if word.isupper() or "_" in word}
    words |= {word for text in sources for found in _ASKED.findall(text) for word in found}
    here = {word: held[word] for word in words if word in held}
    return sorted(here.keys() - for_checker(here, named).keys() - _SHELL_S)


def fault(name: str, held: Mapping[str, str] = os.environ) -> str:
    """Why ``--pass-env`` cannot hand on this name, in a sentence; "" where it can."""
    if not _NAME.fullmatch(name):
        return f"'{name}' is no name of a variable; give the name alone, such as HF_TOKEN, and its value in the environment."
    if name not in held:
        return (
            f"The variable '{name}' is not set here; set it (export {name}=...), or leave it out."
        )
    return ""
