"""What SECURITY.md says of the source, held against the source; and of strangers' paths, against
the functions that take them."""

import ast
import functools
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from narrowdown.wizard.cli import entry
from narrowdown.wizard.tui.client import log_of

ROOTS = [Path(str(find_spec(f"narrowdown.{name}").origin)).parent for name in ("engines", "wizard")]
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "torch"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.full_load",
    "yaml.unsafe_load",
    "pickle.load",
}


# These run in the user's Python, on the program that was typed; tensors they load by ``weights_only``.
EXPORTING = "engines/exporting/"


@functools.cache
def nodes() -> list[tuple[Path, ast.Import | ast.ImportFrom | ast.Call]]:
    """Every import and every call of the product."""
    files = [path for root in ROOTS for path in sorted(root.rglob("*.py"))]
    walks = ((path, ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in files)
    wanted = ast.Import | ast.ImportFrom | ast.Call
    return [(path, node) for path, walk in walks for node in walk if isinstance(node, wanted)]


def called(node: ast.Call) -> str:
    """The name, with its dots, that is called; of what has none, as ``f(x).y``, the end of it:
    ``().y``."""
    parts, here = [], node.func
    while isinstance(here, ast.Attribute):
        parts, here = [here.attr, *parts], here.value
    return ".".join([here.id if isinstance(here, ast.Name) else "()", *parts])


def test_nothing_unpickles_evaluates_or_starts_a_shell() -> None:
    found = []
    arrays = 0
    for path, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [
            f"{path}:{node.lineno}: {name}"
            for name in names
            if name.partition(".")[0] in FORBIDDEN_MODULES and EXPORTING not in path.as_posix()
        ]
        if not isinstance(node, ast.Call):
            continue
        said, words = (
            called(node),
            {word.arg: getattr(word.value, "value", None) for word in node.keywords},
        )
        # The contract suite runs an engine's own part of check.py, as check.py does; it is a test,
        # and reads no session.
        own = said == "exec" and path.as_posix().endswith("engines/contract/suite.py")
        if (said in FORBIDDEN_CALLS and not own) or words.get("shell") is True:
            found.append(f"{path}:{node.lineno}: {said}")
        if said == "torch.load" and words.get("weights_only") is not True:
            found.append(f"{path}:{node.lineno}: {said} without weights_only=True")
        if said in ("np.load", "numpy.load", "np.lib.format.read_array", "np.lib.npyio.NpzFile"):
            arrays += 1
            if words.get("allow_pickle") is not False:
                found.append(f"{path}:{node.lineno}: {said} without allow_pickle=False")
    assert found == []
    assert arrays > 2, "the scan sees the places that read arrays"


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../../secret.log",
        "logs/../session.json",
        "logs/a/b.log",
        "..",
        "logs/..",
        "",
    ],
)
def test_a_log_that_lies_elsewhere_is_not_read(tmp_path: Path, name: str) -> None:
    assert log_of(tmp_path, name) is None
    assert log_of(tmp_path, "logs/012-measure-ab.log") == tmp_path / "logs" / "012-measure-ab.log"


# Lines of our own processes to each other, what an engine or our own table says, and two formats of
# arrays, which say what is wrong with them in their own words and know NaN.
OWN_JSON = {
    "engines/backends/survey.py", "engines/backends/tensorrt/layers.py", "engines/backends/tensorrt/switches.py",
    "engines/backends/tensorrt/timings.py", "engines/exporting/exporter.py",
    "engines/compare/patterns.py",
    "engines/contract/suite.py", "engines/data/golden.py", "engines/data/polygraphy.py", "engines/known/factors.py",
    "engines/steps/trigger.py", "engines/store/decoding.py", "engines/workers/child.py", "engines/workers/gpus.py",
    "engines/workers/modelfiles.py", "engines/workers/withheld.py", "engines/workers/worker.py", "wizard/cli/matrix.py",
    "wizard/runner/client.py", "wizard/runner/process.py", "wizard/runner/replay.py", "wizard/session/state.py",
    "wizard/machine_room.py",
}  # fmt: skip


def test_json_of_files_is_decoded_in_one_place() -> None:
    """Elsewhere a file of 200,000 ``[`` is no ``ValueError``, and ended with 70."""
    found = {
        path.relative_to(
            next(root.parent for root in ROOTS if path.is_relative_to(root))
        ).as_posix()
        for path, node in nodes()
        if isinstance(node, ast.Call)
        and called(node)
        in ("json.loads", "json.load", "msgspec.json.decode", "msgspec.json.Decoder")
    }
    assert found - OWN_JSON == set()


def test_a_report_that_is_nested_too_deeply_is_a_bad_one(tmp_path: Path) -> None:
    (tmp_path / "check.py").touch()
    (tmp_path / "report.json").write_text("[" * 200_000)
    assert entry.main(["trigger", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("value", "maker"), [("Consent", "wizard/trust/gate.py"), ("Permit", "wizard/trust/items.py")]
)
def test_nobody_but_the_gate_makes_a_consent(value: str, maker: str) -> None:
    """A door that was not thought of has none to hand over, and nothing runs without one."""
    makers = {
        path.relative_to(
            next(root.parent for root in ROOTS if path.is_relative_to(root))
        ).as_posix()
        for path, node in nodes()
        if isinstance(node, ast.Call) and called(node).rpartition(".")[2] == value
    }
    assert makers - {"engines/consent.py"} == {maker}, "there it says that there is none"


# What starts a process, loads a library, or runs text: calls by their whole name, and methods
# whoever has them.
_STARTS = re.compile(
    r"(subprocess|multiprocessing|pty|runpy|zipimport|webbrowser|cffi|code|codeop)\."
    r"|os\.(exec|spawn|posix_spawn|system|popen|startfile|fork)|asyncio\.(create_subprocess|subprocess)"
    r"|concurrent\.futures\.Process|ctypes\.(\w*DLL|\w*dll|util)\b|_ctypes\.|importlib\.(import_module|reload|util\.spec_from)"
    r"|importlib\.metadata\.entry_points|importlib\.machinery\.\w+Loader|(builtins\.)?(exec|eval|compile|__import__)$"
)
_METHODS = {
    "exec_module", "load_module", "register_custom_ops_library", "register_execution_provider_library", "load_library",
    "LoadLibrary", "add_extension", "register_plugin", "load_plugin", "load_plugins", "register_library",
    "deserialize_cuda_engine", "load_cuda_engine",
}  # fmt: skip
_HARMLESS = {
    "subprocess.DEVNULL", "subprocess.PIPE", "subprocess.STDOUT", "subprocess.TimeoutExpired", "subprocess.CompletedProcess",
}  # fmt: skip
# Every place that does. First what is a user's or a session's: held to the ``Consent`` in hand, or
# to what was typed.
_STARTED = {
    "engines/checker/keeper.py": {
        "os.posix_spawnp",
        "ctypes.CDLL",
    },  # a command's, from private copies that narrowdown.engines.checker lays out; C's library
    "engines/data/held.py": {  # what a script is and imports, as it was digested
        f"importlib.machinery.{kind}FileLoader" for kind in ("Source", "Sourceless", "Extension")
    },
    "engines/data/scripting.py": {
        "importlib.util.spec_from_file_location",
        ".exec_module",
    },  # by that loader
    "engines/backends/onnxruntime/engine.py": {".register_custom_ops_library"},
    "engines/backends/onnxruntime/plug_ins.py": {".register_execution_provider_library"},
    "engines/backends/tensorrt/library.py": {
        "ctypes.CDLL",
        "importlib.import_module",
    },  # plugins; TensorRT itself
    "engines/backends/tensorrt/built_file.py": {".deserialize_cuda_engine"},
    "engines/backends/tensorrt/engine.py": {
        ".deserialize_cuda_engine"
    },  # a plan that was agreed to, or built just now
    f"{EXPORTING}exporter.py": {
        "importlib.import_module",
        "importlib.util.spec_from_file_location",
        ".exec_module",
    },  # the program that was typed, in a process of its own
    f"{EXPORTING}compute.py": {"importlib.import_module"},  # a backend that was typed, there too
    "engines/exporting/launch.py": {"subprocess.run"},  # that process; a Python that was typed
    # Ours, and what is installed.
    "engines/backends/tensorrt/ask_names.py": {"importlib.import_module"},  # TensorRT itself
    "engines/processes.py": {
        "subprocess.Popen",
        "subprocess.run",
    },  # runner, workers and what watches; a module of ours, also by a typed interpreter; pip
    "engines/workers/__main__.py": {"importlib.import_module"},  # our own package
    "engines/workers/worker.py": {"ctypes.CDLL"},  # C's library, for prctl
    "engines/workers/gpus.py": {"ctypes.CDLL"},  # the driver
    "engines/backends/tensorrt/cuda.py": {"ctypes.CDLL"},  # the driver
    "engines/backends/__init__.py": {"importlib.import_module"},  # an engine by its declaration
    "engines/discovery.py": {"importlib.import_module", "importlib.metadata.entry_points"},
    "engines/steps/registry.py": {"importlib.import_module", "importlib.metadata.entry_points"},
    "engines/contract/suite.py": {
        "subprocess.run",
        "exec",
        "compile",
    },  # a test for engines of other packages
    "wizard/cli/parsing.py": {"importlib.import_module"},  # a command's own module
    "wizard/flow/load.py": {"importlib.metadata.entry_points"},
    "wizard/runner/__main__.py": {"importlib.import_module"},  # our own package
}


def starts(tree: ast.AST) -> set[str]:
    """What of a module starts or loads something, by its whole name whatever it is imported as; of
    annotations nothing."""
    meant: dict[str, str] = {}
    quiet: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meant |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom):
            meant |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        for said in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            quiet |= {id(each) for each in ast.walk(said)} if isinstance(said, ast.AST) else set()
    found = set()
    for node in ast.walk(tree):
        if id(node) in quiet or not isinstance(node, ast.Name | ast.Attribute):
            continue
        first, *rest = called(ast.Call(node, [], [])).split(".")
        name = ".".join([meant.get(first, first), *rest])
        if rest and rest[-1] in _METHODS:
            found.add(f".{rest[-1]}")
        elif _STARTS.match(name) and name not in _HARMLESS:
            found.add(name)
    return found


def test_nothing_starts_or_loads_but_at_the_places_named_here() -> None:
    found = {}
    for root in ROOTS:
        for path in root.rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found[path.relative_to(root.parent).as_posix()] = starts(tree)
            for words in (
                node.elts
                for node in ast.walk(tree)
                if isinstance(node, ast.List) and len(node.elts) > 1
            ):
                if (
                    ast.unparse(words[0]) == "sys.executable"
                ):  # no module of the folder that one stands in
                    assert getattr(words[1], "value", "") in ("-P", "-I"), (
                        f"{path}:{words[0].lineno}"
                    )
    assert {path: names for path, names in found.items() if names} == _STARTED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from subprocess import run as r\nr('x')", {"subprocess.run"}),
        ("import os as o\no.execvp('x', [])", {"os.execvp"}),
        ("import ctypes\nf = ctypes.cdll.LoadLibrary", {".LoadLibrary", "ctypes.cdll"}),
        ("from importlib import import_module as i\ni('x')", {"importlib.import_module"}),
        ("def f(x: subprocess.Popen[bytes]) -> None: re.compile(x)", set()),
    ],
)
def test_the_scan_sees_starts_by_any_name(text: str, said: set[str]) -> None:
    assert starts(ast.parse(text)) == said


def test_every_promise_names_a_test_that_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(
        r"`((?:tests|campaigns)/[\w/]+\.py)::(\w+)`",
        (root / "SECURITY.md").read_text(encoding="utf-8"),
    )
    assert len(named) > 8
    for file, name in named:
        functions = {
            n.name
            for n in ast.walk(ast.parse((root / file).read_text(encoding="utf-8")))
            if isinstance(n, ast.FunctionDef)
        }
        assert name in functions, f"{file} has no {name}"
