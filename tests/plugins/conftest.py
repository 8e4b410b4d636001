"""The toy package as pip would have installed it: its metadata and its modules on a path, for this
process or another."""

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ..e2e.conftest import Narrowdown, command, environment

# Packages with tests of their own, which run where they are installed: test_engine.py does it.
collect_ignore = ["drift", "weak"]
TOY = Path(__file__).with_name("headroom")


def installed(site: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> Path:
    """Metadata of a distribution of that name in ``site``. ``groups``: its entry points, as a
    pyproject has them."""
    about = site / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in found.items())
        for group, found in groups.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(points))
    return site


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that holds the toy's metadata; its module is beside this file."""
    project = tomllib.loads((TOY / "pyproject.toml").read_text())["project"]
    return installed(tmp_path / "site", project["name"], project["entry-points"])


@pytest.fixture
def with_path(tmp_path: Path) -> Callable[..., Narrowdown]:
    """``with_path(*folders)``: ``narrowdown`` with these folders on Python's path."""
    return lambda *folders: command(
        environment(tmp_path) | {"PYTHONPATH": os.pathsep.join(map(str, folders))}, tmp_path
    )


@pytest.fixture
def narrowdown(site: Path, with_path: Callable[..., Narrowdown]) -> Narrowdown:
    return with_path(site, TOY)
