"""Where a release of an engine runs: an interpreter or a folder that the user named, or one that
pip fills when asked."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from narrowdown.engines.processes import run_module
from narrowdown.engines.store.places import own_folder
from narrowdown.engines.store.scratch import scratch
from narrowdown.wizard import BadUsage, Missing, trust
from narrowdown.wizard.problem import USUAL_ENGINE
from narrowdown.wizard.trust.reading import digests

_RELEASE = re.compile(r"[0-9][0-9A-Za-z.+!_-]*")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FINAL = re.compile(r"\d+(\.\d+)*(\.post\d+)?")
_MINUTES = 20  # that one installation may take; the largest wheel of an engine, TensorRT's, is 3 GB


class Place(NamedTuple):
    """One release. ``name``: as it is shown; ``words``: the interpreter and its flags;
    ``variables``: added to the environment. ``package``, ``version``: to be installed first into
    ``folder``, where it was asked for."""

    name: str
    words: tuple[str, ...]
    variables: Mapping[str, str]
    package: str = ""
    version: str = ""
    folder: Path | None = None


def root() -> Path:
    """Where the releases that were installed for ladders lie, beside the sessions; whoever wants
    the room removes the folder."""
    return own_folder("XDG_STATE_HOME") / "releases"


def interpreter(name: str) -> Place:
    """An environment's folder, or its python. Raises Refusal (exit 2)."""
    path = Path(name).expanduser().absolute()
    found = path / "bin" / "python" if path.is_dir() else path
    if not os.access(found, os.X_OK) or found.is_dir():
        raise BadUsage(
            f"--python: there is no interpreter in '{name}'; name an environment's folder, or its python."
        )
    return Place(name, (str(found), "-P"), {})


def site(name: str) -> Place:
    """A folder of packages, in front of those of this interpreter. Raises Refusal (exit 2)."""
    path = Path(name).expanduser().absolute()
    if not path.is_dir():
        raise BadUsage(
            f"--site: '{name}' is no folder; name one that pip install --target has filled."
        )
    return Place(name, (sys.executable, "-P"), {"PYTHONPATH": str(path)})


def releases(asked: str) -> list[Place]:
    """``PACKAGE==1.20.1,1.23.2`` or ``PACKAGE:1.18..1.24``, oldest first. A range asks the package
    index once which releases there are. Raises Refusal."""
    package, mark, rest = (asked.partition("==") if "==" in asked else asked.partition(":"))  # fmt: skip
    if not mark or not _PACKAGE.fullmatch(package) or not rest:
        raise BadUsage(
            f"--install: '{asked}' names no releases; write {USUAL_ENGINE}==1.22.1,1.23.2 or {USUAL_ENGINE}:1.20..1.23.2."
        )
    if ".." in rest:
        low, _, high = rest.partition("..")
        versions = [v for v in published(package) if in_range(v, low, high)]
        if not versions:
            raise BadUsage(f"--install: the package index has no release of {package} in {rest}.")
    else:
        versions = rest.split(",")
    if bad := next((v for v in versions if not _RELEASE.fullmatch(v)), None):
        raise BadUsage(
            f"--install: '{bad}' is no version; write numbers with points, such as 1.23.2."
        )
    tag = f"py{sys.version_info.major}{sys.version_info.minor}"
    made = []
    for version in sorted(set(versions), key=order):
        folder = root() / f"{package}-{version}-{tag}"
        # -S: nothing of this installation is seen, so that a release that lacks something cannot
        # borrow it.
        made.append(
            Place(
                f"{package} {version}",
                (sys.executable, "-S", "-P"),
                {"PYTHONPATH": str(folder)},
                package,
                version,
                folder,
            )
        )
    return made


def order(version: str) -> tuple[int, ...]:
    """By its numbers: 1.9 before 1.10."""
    return tuple(map(int, re.findall(r"\d+", version)))


def in_range(version: str, low: str, high: str) -> bool:
    """Whether a final release lies in a range whose ends count, "" for no end; 1.23 as its upper
    end takes in 1.23.2."""
    if not _FINAL.fullmatch(version):
        return False
    place, top = order(version), order(high)
    return order(low) <= place and (not top or place[: len(top)] <= top)


def published(package: str) -> list[str]:
    """The releases that the package index has for this interpreter. Raises Refusal (exit 4)."""
    done = _pip("index", "versions", package)
    found = re.search(r"Available versions: (.*)", done.stdout)
    if done.returncode or not found:
        raise Missing(
            f"The package index did not tell which releases of {package} there are: {_last_line(done.stderr)}"
        )
    return [version.strip() for version in found[1].split(",")]


def install(place: Place) -> str:
    """Fill the place's folder, whole or not at all; nothing where it is as this has filled it. ""
    or why it cannot be had, as a sentence."""
    folder = place.folder
    if folder is None:
        return ""
    # No link goes elsewhere: what is behind it is not digested.
    linked = any(path.is_symlink() for path in (folder, *folder.rglob("*")))
    if not linked and as_installed(folder).key in trust.trusted():
        return ""
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = f"{place.package}=={place.version}"
    with scratch(".install-", folder.parent) as partial:
        # Wheels only: nothing is built, so that no code of a package runs before the case does.
        # Releases from before NumPy 2 cannot be imported beside it and do not say so, so the older
        # one is tried first.
        done = None
        for numpy in ("numpy<2", "numpy"):
            done = _pip(
                "install", "--quiet", "--only-binary", ":all:", "--target", str(partial / "site"), numpy, wanted,
                temporary=str(partial),
            )  # fmt: skip
            if done.returncode == 0:
                if folder.exists():  # somebody else's, or damaged
                    folder.rename(partial / "old")
                (partial / "site").rename(folder)
                trust.remember([as_installed(folder)])
                return ""
            shutil.rmtree(partial / "site", ignore_errors=True)
        return f"It could not be installed: {_last_line(done.stderr if done else '')}"


def as_installed(folder: Path) -> trust.Item:
    """What lies in a release's folder, with its digests."""
    return trust.Item(
        "release of an engine", str(folder), files=digests(folder), path=str(folder), command=True
    )


def _pip(*words: str, temporary: str = "") -> "subprocess.CompletedProcess[str]":
    """``temporary``: a folder for what pip unpacks, which goes also where pip is killed; "" for the
    usual one."""
    environment = {**os.environ, **({"TMPDIR": temporary} if temporary else {})}
    try:
        return run_module(
            "pip", ["--disable-pip-version-check", *words], _MINUTES * 60, environment
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess([], 1, "", f"pip took more than {_MINUTES} minutes")


def _last_line(text: str) -> str:
    lines = [
        line for line in text.strip().splitlines() if line.startswith("ERROR")
    ] or text.strip().splitlines()
    return lines[-1] if lines else "pip said nothing."
