"""A PyTorch program for tests that have no torch: a Python that copies a recorded export."""

import shutil
import stat
import sys
from pathlib import Path
from typing import NamedTuple

RECORDED = Path(__file__).parent / "engines" / "exporting" / "recorded"
ENGINE = ("--engine", "onnxruntime:optimization=all")


class Program(NamedTuple):
    """What is named as a model, the Python that exports it, and what that copies."""

    source: str
    python: str
    recorded: Path
    runs: Path

    @property
    def model(self) -> Path:
        """The ONNX file, which bears the name of the module's class."""
        return self.recorded / "Net.onnx"

    @property
    def words(self) -> tuple[str, ...]:
        return (self.source, "--torch-python", self.python, *ENGINE)

    @property
    def started(self) -> int:
        """How often it exported."""
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


def program(folder: Path, name: str) -> Program:
    """A program whose export is the recorded one of that name."""
    recorded = folder / name
    shutil.copytree(RECORDED / name, recorded)
    (recorded / "model.onnx").rename(recorded / "Net.onnx")
    source, python, runs = folder / "model.py", folder / "python", folder / "runs"
    source.write_text("def build(): ...\n")
    python.write_text(
        f"#!{sys.executable}\nimport sys, json, pathlib, shutil\n"
        "if sys.argv[1] == '-c':\n    sys.exit(0)\n"
        "request = json.loads(pathlib.Path(sys.argv[2]).read_text())\n"
        f"open({str(runs)!r}, 'a').write(request['source'] + chr(10))\n"
        f"shutil.copytree({str(recorded)!r}, request['out'], dirs_exist_ok=True)\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return Program(f"{source}:build", str(python), recorded, runs)
