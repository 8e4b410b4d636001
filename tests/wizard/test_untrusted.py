"""What SECURITY.md says of the source, held against the source; and of strangers' paths, against the functions that take them."""

import ast
import functools
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from wizard.tui.client import log_of

ROOTS = [Path(str(find_spec(name).origin)).parent for name in ("engines", "wizard")]
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


@functools.cache
def nodes() -> list[tuple[Path, ast.Import | ast.ImportFrom | ast.Call]]:
    """Every import and every call of the product."""
    files = [path for root in ROOTS for path in sorted(root.rglob("*.py"))]
    walks = ((path, ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in files)
    wanted = ast.Import | ast.ImportFrom | ast.Call
    return [(path, node) for path, walk in walks for node in walk if isinstance(node, wanted)]


def called(node: ast.Call) -> str:
    """The name, with its dots, that is called; of what has none, as ``f(x).y``, the end of it: ``().y``."""
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
        found += [f"{path}:{node.lineno}: {name}" for name in names if name.partition(".")[0] in FORBIDDEN_MODULES]
        if not isinstance(node, ast.Call):
            continue
        said, words = called(node), {word.arg: getattr(word.value, "value", None) for word in node.keywords}
        # The contract suite runs an engine's own part of check.py, as check.py does; it is a test, and reads no session.
        own = said == "exec" and path.as_posix().endswith("engines/contract/suite.py")
        if (said in FORBIDDEN_CALLS and not own) or words.get("shell") is True:
            found.append(f"{path}:{node.lineno}: {said}")
        if said in ("np.load", "numpy.load", "np.lib.format.read_array", "np.lib.npyio.NpzFile"):
            arrays += 1
            if words.get("allow_pickle") is not False:
                found.append(f"{path}:{node.lineno}: {said} without allow_pickle=False")
    assert found == []
    assert arrays > 2, "the scan sees the places that read arrays"


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../secret.log", "logs/../session.json", "logs/a/b.log", "..", "logs/..", ""]
)
def test_a_log_that_lies_elsewhere_is_not_read(tmp_path: Path, name: str) -> None:
    assert log_of(tmp_path, name) is None
    assert log_of(tmp_path, "logs/012-measure-ab.log") == tmp_path / "logs" / "012-measure-ab.log"


def test_nobody_but_the_gate_makes_a_consent() -> None:
    """A door that was not thought of has none to hand over, and nothing runs without one."""
    makers = {
        path.relative_to(next(root.parent for root in ROOTS if path.is_relative_to(root))).as_posix()
        for path, node in nodes()
        if isinstance(node, ast.Call) and called(node).rpartition(".")[2] == "Consent"
    }
    # The bundle's writer hands on a part of what it was given.
    assert makers == {"wizard/trust/gate.py", "engines/consent.py", "wizard/bundle/withheld.py"}


def test_every_promise_names_a_test_that_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (root / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 8
    for file, name in named:
        functions = {
            n.name
            for n in ast.walk(ast.parse((root / file).read_text(encoding="utf-8")))
            if isinstance(n, ast.FunctionDef)
        }
        assert name in functions, f"{file} has no {name}"
