"""The engine of docs/engines.md, put where the page says, passes the contract that every engine must."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def put(path: Path, before: str, text: str) -> None:
    """Insert the text in front of this place, of which there must be one."""
    whole = path.read_text(encoding="utf-8")
    assert whole.count(before) == 1, before
    path.write_text(whole.replace(before, text + before), encoding="utf-8")


def test_the_engine_on_the_page_keeps_the_contract(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    declaration, module = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (point,) = re.findall(r'`(evaluator = "evaluator:DECLARATION")`', page)
    package, known = tmp_path / "evaluator", tmp_path / "evaluator-1.0.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text(declaration, encoding="utf-8")
    (package / "engine.py").write_text(module, encoding="utf-8")
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: evaluator\nVersion: 1.0\n", encoding="utf-8")
    entry = f"[narrowdown.engines]\n{point}\n".replace('"', "")
    (known / "entry_points.txt").write_text(entry, encoding="utf-8")
    suite = tmp_path / "suite"
    suite.mkdir()
    for name in ("conftest.py", "test_contract.py"):
        shutil.copy(ROOT / "tests/engines/backends" / name, suite / name)
    put(suite / "test_contract.py", '    "fake",\n]', '    "evaluator",\n    "evaluator:denormals=flush",\n')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", "evaluator", "."],
        cwd=suite, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) > 40
    assert "skipped" not in done.stdout
