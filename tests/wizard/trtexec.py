"""The options of trtexec by version, read from NVIDIA's open source
(``samples/common/sampleOptions.cpp``), as trtexec itself cannot come without TensorRT. ``python
tests/wizard/trtexec.py CLONE`` records them, of a clone of github.com/NVIDIA/TensorRT."""

import functools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).with_suffix(".json")
VERSIONS = ("v9.3.0", "v10.0.1", "v10.6.0", "v10.8.0", "v10.12.0", "v10.15", "v11.0", "v11.1")


@functools.cache
def options(version: str) -> set[str]:
    """Those that trtexec of the version takes."""
    at = VERSIONS.index(version)
    spans = json.loads(TABLE.read_text())
    return {name for name, (a, b) in spans.items() if VERSIONS.index(a) <= at <= VERSIONS.index(b)}


def words(text: str) -> list[list[str]]:
    """The words of every call of trtexec in a script."""
    lines = text.replace("\\\n", " ").splitlines()
    return [
        line
        for line in (shlex.split(each, comments=True) for each in lines)
        if line[:1] == ["trtexec"]
    ]


def unknown(text: str, version: str) -> set[str]:
    """What that version would answer with "Unknown option", in all calls of a script."""
    used = {word.partition("=")[0] for line in words(text) for word in line[1:]}
    return used - options(version)


def record(clone: Path) -> None:
    spans: dict[str, list[str]] = {}
    for version in VERSIONS:
        shown = ["git", "-C", str(clone), "show", f"{version}:samples/common/sampleOptions.cpp"]
        text = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
        # Another sample's own options.
        text = re.sub(
            r"void SafeBuilderOptions::parse.*?^}", "", text, flags=re.DOTALL | re.MULTILINE
        )
        for name in sorted(set(re.findall(r'"(--[A-Za-z0-9]+)"', text))):
            spans[name] = [spans.get(name, [version])[0], version]
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(span)}" for name, span in sorted(spans.items())
    )
    TABLE.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
