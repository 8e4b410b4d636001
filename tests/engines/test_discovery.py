"""Engines of other packages are found by their entry points; a broken one is named with its reason
and harms nothing else."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from narrowdown import engines
from narrowdown.engines import discovery
from narrowdown.engines.discovery import Plugin
from narrowdown.engines.installed import importable
from narrowdown.wizard.demo import MODELS

ROOT = Path(engines.__file__).parents[1]
WHOLE = """
from narrowdown.engines.declaration import Declaration, Option

DECLARATION = Declaration(
    "drift", "An engine of somebody else.", "drift.engine", package="drift", install="pip install drift-engine",
    options=(Option("fault", "str", "on", "Whether it goes wrong.", ("on", "off")),),
)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Puts a package with one entry point on a path, as pip leaves it."""

    def put(
        source: str, name: str = "drift", value: str = "", package: str = "", distribution: str = ""
    ) -> None:
        package = package or name
        distribution = distribution or f"{package}-engine"
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(source, encoding="utf-8")
        info = tmp_path / f"{distribution}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1\n"
        )
        (info / "entry_points.txt").write_text(
            f"[narrowdown.engines]\n{name} = {value or f'{package}:DECLARATION'}\n"
        )

    return put


@pytest.fixture
def asked(tmp_path: Path) -> Callable[[str], str]:
    """What a fresh process prints that has the packages on its path."""

    def python(code: str) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))),
        }
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return done.stdout.strip()

    return python


@pytest.fixture
def plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], tuple[Plugin, ...]]]:
    """What this process finds that has the packages on its path, beside the fake engine of all
    tests."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def found() -> tuple[Plugin, ...]:
        discovery.plugins.cache_clear()
        return tuple(plugin for plugin in discovery.plugins() if plugin.name != "fake")

    yield found
    discovery.plugins.cache_clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_table_of_ours_is_what_is_declared_and_what_is_installed() -> None:
    pages = (
        tomllib.loads((ROOT / "pyproject.toml").read_text())
        if (ROOT / "pyproject.toml").is_file()
        else {}
    )
    declared = (
        pages.get("project", {}).get("entry-points", {}).get(discovery.GROUP, dict(discovery.OURS))
    )
    assert declared == dict(discovery.OURS)
    installed = [
        p
        for p in importlib.metadata.entry_points(group=discovery.GROUP)
        if p.dist and p.dist.name == "narrowdown"
    ]
    assert {p.name: p.value for p in installed} == dict(discovery.OURS)
    for name, ours in discovery.ours().items():
        assert ours.refusal or not discovery.fault_of(ours, name)


def test_ours_are_found_with_nothing_installed(asked: Callable[[str], str]) -> None:
    code = (
        "import sys, importlib.metadata as m; m.entry_points = lambda **_: (); from narrowdown.engines import options; "
        "print(options.check('emulate:precision=BF16')); from narrowdown.engines import discovery; print(len(discovery.engines()))"  # noqa: E501
    )
    assert asked(code).split() == ["emulate:precision=bf16", str(len(discovery.OURS))]


def test_a_spec_of_ours_reads_no_entry_points(asked: Callable[[str], str]) -> None:
    code = (
        "from narrowdown.engines import discovery, options\n"
        "discovery.plugins = None\n"
        "print(options.check('onnxruntime:optimization=all'), options.values(options.check('tensorrt'))['precision'])"
    )
    assert asked(code) == "onnxruntime:optimization=all tf32"


def test_an_engine_of_another_package_is_one_of_all(
    install: Install, asked: Callable[[str], str]
) -> None:
    install(WHOLE)
    code = (
        "from narrowdown.engines import discovery, options\n"
        "print(options.check('drift:fault=OFF'))\n"
        "for wrong in ('drift:falt=off', 'drift:fault=of', 'drif'):\n"
        "    try: options.check(wrong)\n"
        "    except ValueError as problem: print(problem)\n"
        "print('drift' in discovery.engines(), discovery.plugins()[0].source)"
    )
    assert asked(code).splitlines() == [
        "drift:fault=off",
        "drift has no option 'falt'. Did you mean 'fault'? It takes fault.",
        "drift: fault=of is not one of on, off. Did you mean 'off'?",
        "There is no engine 'drif'. Did you mean 'drift'? Known: onnxruntime, reference, emulate, openvino, tensorrt, "
        "tensorrt_rtx, golden, command, torch, drift.",
        "True drift-engine 0.1",
    ]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("DECLARATION = 1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("x = 1", "AttributeError: "),
        ("def :", "SyntaxError: "),
        ("DECLARATION = {'name': 'drift'}", "it is of the type dict, not a narrowdown.engines.declaration.Declaration"),
        (WHOLE.replace('"drift",', '"adrift",', 1), "it is of 'adrift', and the entry point is named 'drift'"),
        (WHOLE.replace('"drift.engine"', '""'), "its module is empty"),
        (WHOLE.replace('"drift.engine"', "None"), "it is not valid: Expected `str`, got `null` - at `$.module`"),
        (WHOLE.replace('"str"', '"string"'), "its option 'fault' is not valid: Invalid enum value 'string'"),
        (WHOLE.replace('"on", "Whether', '"onn", "Whether'), "its option 'fault' has the default 'onn'"),
        (WHOLE.replace('Option("fault"', 'Option("fau=lt"'), "'fau=lt' is not the name of an option"),
        (WHOLE.replace('Option("fault", "str", "on", "Whether it goes wrong.", ("on", "off"))', "'a'"), "at `$.options[0]`"),
        (WHOLE.replace('("on", "off")', "4"), "its option 'fault' is not valid: "),
        (WHOLE.replace("options=(", "under_test=(('falt', 'on'),), options=("), "it says something of 'falt'"),
    ],
)  # fmt: skip
def test_a_broken_plug_in_is_named_with_its_reason_and_harms_nothing(
    source: str,
    reason: str,
    install: Install,
    plugins: Callable[[], tuple[Plugin, ...]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    install("print('noise')\n" + source)
    install(WHOLE.replace("drift", "tide"), "tide")
    broken, whole = plugins()
    assert (broken.name, broken.source, broken.declared) == ("drift", "drift-engine 0.1", None)
    assert reason in broken.broken
    assert broken.broken.endswith(".")
    assert (whole.name, whole.source, whole.broken) == ("tide", "tide-engine 0.1", "")
    assert discovery.find("tide") is whole.declared
    assert "drift" not in discovery.engines()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("package", "here"), [("numpy", True), ("no_such.thing", False), ("", False), ("onnx", True)]
)
def test_whether_a_package_is_here(package: str, here: bool) -> None:
    assert importable(package) is here


def test_a_name_is_given_once(install: Install, plugins: Callable[[], tuple[Plugin, ...]]) -> None:
    install(WHOLE.replace("drift", "onnxruntime"), "onnxruntime", package="theirs")
    install(WHOLE, package="drift", distribution="b-drift")
    install(WHOLE, package="drift2", distribution="a-drift")
    assert [(p.name, p.source, p.broken) for p in plugins()] == [
        ("drift", "a-drift 0.1", ""),
        ("drift", "b-drift 0.1", "a-drift 0.1 has an engine of that name already."),
        ("onnxruntime", "theirs-engine 0.1", "Narrowdown has an engine of that name already."),
    ]


def test_a_broken_plug_in_is_refused_by_name_with_its_reason(
    install: Install, tmp_path: Path
) -> None:
    install("import nothing_like_it")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))),
    }

    def narrowdown(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "narrowdown", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    model = MODELS / "shapes_cnn.onnx"
    refused = narrowdown("run", str(model), "--engine", "drift")
    assert refused.returncode == 4
    assert (
        "The engine 'drift' of drift-engine 0.1 cannot be used. Its declaration drift:DECLARATION does not load"
        in refused.stderr
    )
    assert "nothing_like_it" in refused.stderr
    listed = narrowdown("engines", "--json")
    assert listed.returncode == 0
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows["onnxruntime"]["present"]
    assert not rows["drift"]["present"]
    assert "No module named 'nothing_like_it'" in rows["drift"]["reason"]
    assert rows["drift"]["reason"].endswith("pip uninstall drift-engine")
