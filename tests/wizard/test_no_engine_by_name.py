"""The application knows no engine by its name: what is particular to one is in its declaration."""

import re
from pathlib import Path

from narrowdown import wizard
from narrowdown.engines import discovery

# File -> what it may name, and why.
ALLOWED = {
    "agent/server.py": "examples of options, told to coding agents",
    "cli/shared_options.py": "the help text of --reference",
    "cli/grammar.py": "the help text of --install",
    "demo/__init__.py": "a demo is a failure of one engine",
}
# Words that are a name of an engine and something else besides: a role, a field's name, a command
# of the shell, golden outputs, a package.
COMMON = {"reference", "command", "golden", "torch"}


def test_no_module_names_an_engine() -> None:
    names = "|".join(sorted(set(discovery.OURS) - COMMON))
    root = Path(wizard.__file__).parent
    found = {
        str(path.relative_to(root)): sorted(set(said))
        for path in root.rglob("*.py")
        if (said := re.findall(rf"(?<![\w.])(?:{names})(?!\w)", path.read_text(encoding="utf-8")))
    }
    assert set(found) <= set(ALLOWED), found


def test_no_role_is_taken_for_an_engine() -> None:
    """``spec.name == "reference"`` would be one."""
    root = Path(wizard.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\.name (?:==|in|!=) [(\[{]?[\"'](?:reference|command)[\"']", text), (
            path
        )
