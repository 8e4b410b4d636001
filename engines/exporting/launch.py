"""Starts the export of a PyTorch module in an interpreter that has torch. Standard library and
msgspec alone.

``exporter.py`` is the program that runs there. Nothing of ours is imported there, and torch is never
imported here: the two talk by files in one folder.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines import installed, options
from narrowdown.engines.problem import Exported
from narrowdown.engines.sources import split_function
from narrowdown.engines.spec import parse
from narrowdown.engines.store import decoding, digest_file

SCRIPT = Path(__file__).with_name("exporter.py")
COMPUTES = SCRIPT.with_name("compute.py")
PACKAGES = ("torch", "onnxscript")
INPUT_KINDS = (".npz", ".npy", ".pt", ".safetensors")
TOLD, LOG = "export.json", "export.log"
_REQUEST = "request.json"
# package.module:attribute. A path has a slash or a dot in front, and names a file.
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Asks an interpreter whether it has the packages, without importing them: torch takes seconds.
_HAS = f"import importlib.util as u,sys;sys.exit(not all(u.find_spec(p) for p in {PACKAGES!r}))"
# Runs a text beside the script that is named in front of it.
RUNS = "import os, sys; sys.path[0] = os.path.dirname(sys.argv[-2]); exec(sys.argv[-1])"
# Seconds that an interpreter has to say so; bounds one that hangs.
_ANSWERS = 30.0


class ExportFault(Exception):
    """The export could not be made; the message is a sentence."""


class NoTorch(ExportFault):
    """No interpreter here has torch."""


class Request(msgspec.Struct, frozen=True):
    """What is to be exported. ``source``: an absolute path with ``:NAME``, ``package.module:NAME``, or
    a ``.pt2`` file. ``inputs``: files, a sample each. ``bytes``: of inner values that may be
    written. ``program``: whether the exported program is kept, which runs PyTorch as an engine."""

    source: str
    inputs: tuple[str, ...] = ()
    bytes: int = 1 << 28
    program: bool = False


def is_program(text: str) -> bool:
    """Whether a model is named as ``model.py:build``, ``package.module:attribute`` or ``file.pt2``."""
    path, function = split_function(text)
    if function or path.endswith(".pt2"):
        return True
    return bool(_ATTRIBUTE.fullmatch(text)) and not Path(text).exists()


def find_python(named: str) -> str:
    """The interpreter that exports: the named one, ours, or the first on the PATH that has torch.
    Raises NoTorch."""
    if named:
        found = shutil.which(str(Path(named).expanduser()))
        if found is None:
            raise NoTorch(f"--torch-python: there is no program '{named}'.")
        if not _has_torch(found):
            raise NoTorch(
                f"--torch-python: '{named}' lacks torch or onnxscript; install them with: "
                f"{found} -m pip install {' '.join(PACKAGES)}"
            )
        return found
    if all(map(installed.importable, PACKAGES)):
        return sys.executable
    other = next(filter(_has_torch, _list_pythons()), "")
    if not other:
        install = installed.command("pip install 'narrowdown[torch]'")
        raise NoTorch(
            "A PyTorch module is exported by PyTorch, and no Python here has torch and onnxscript. "
            f"Install them with: {install}; or name the Python that has them: --torch-python PATH."
        )
    return other


def _list_pythons() -> Iterator[str]:
    """Other interpreters on the PATH, in its order."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for name in ("python", "python3"):
            place = Path(folder) / name
            if place.is_absolute() and os.access(place, os.X_OK) and str(place) != sys.executable:
                yield str(place)


def _has_torch(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", _HAS], capture_output=True, timeout=_ANSWERS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def run_export(python: str, request: Request, folder: Path) -> Exported:
    """Export into ``folder``, which exists. Raises ExportFault; ``OSError``."""
    told = {**msgspec.to_builtins(request), "out": str(folder)}
    (folder / _REQUEST).write_text(json.dumps(told), encoding="utf-8")
    with (folder / LOG).open("w+b") as log:
        done = subprocess.run(
            [python, str(SCRIPT), str(folder / _REQUEST)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
        log.seek(0)
        printed = " ".join(log.read()[-400:].decode("utf-8", "replace").split())
    try:
        found = decoding.decode((folder / TOLD).read_bytes(), dict[str, Any])
        if fault := found.get("fault"):
            raise ExportFault(str(fault))
        files = (str(folder / f"golden-{n}.npz") for n in range(int(found.get("samples", 0))))
        script = request.source.rpartition(":")[0] or request.source  # a .pt2 names no function
        again = [python, "-c", RUNS, *([] if Path(script).is_file() else ["-m"]), script]
        ours = {
            "source": request.source,
            "recorded": f"golden:files={'+'.join(files)}",
            "program": str(parse("torch").with_option("program", shlex.join(again))),
        }
        return msgspec.convert({**found, **ours}, Exported)
    except (OSError, TypeError, ValueError):
        how = (
            f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        )
        raise ExportFault(
            f"The export of '{request.source}' ended without a result ({how}). Printed last: {printed or 'nothing'}"
        ) from None


def name_engine(text: str, python: str, folder: Path) -> str:
    """The spec of an engine or a reference that computes the program in ``folder``, with what it
    starts, which is written there; any other as it is. Raises ``ValueError`` for a text that is no
    spec; ``OSError``."""
    if not options.original(text):
        return text
    program, script = folder / "program.pt2", folder / "pytorch"
    words = [python, str(COMPUTES), str(program), digest_file(program)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    script.chmod(0o700)
    return str(parse(text).with_option("program", shlex.quote(str(script))))


def find_model(folder: Path) -> str:
    """The ONNX file that the export has written, which bears the name of the module."""
    return str(next(folder.glob("*.onnx")))


def list_inputs(folder: Path) -> list[str]:
    """The samples that the export has written, in order."""
    samples = folder.glob("inputs-*.npz")
    return [str(p) for p in sorted(samples, key=lambda p: int(p.stem.partition("-")[2]))]
