"""Inputs for the demo model ``magika``, made from this machine's own files: ``python -P -m
narrowdown.engines.demos.magika_inputs OUT.npz``.

The model names a file's type from its first and last 1,024 bytes (leading and trailing white space
stripped from a block of 4,096, padded with the token 256). The choice of files is bounded and
deterministic on one machine; a few short and repetitive contents are made here, as real folders
hold too few of them.
"""

import itertools
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SIZE = 1024
BLOCK = 4096
PADDING = 256
FEWEST = 8  # bytes below which the model's own package does not ask the model
MOST = 32

# Little variety among the tokens makes the variance of the first normalization tiny beside its
# mean.
WRITTEN: dict[str, bytes] = {
    "repeated-line.txt": b"the same line again and again\n" * 400,
    "dashes.txt": b"-" * 3000,
    "zeros.bin": bytes(4096),
    "short.sh": b"#!/bin/sh\necho hello\n",
    "short.json": b'{"answer": 42, "list": [1, 2, 3]}\n',
    "numbers.csv": b"".join(b"%d,%d,%d\n" % (i, i * i % 97, i % 7) for i in range(600)),
    "counting.txt": b" ".join(b"%d" % i for i in range(900)),
    "page.html": b"<!doctype html>\n<html><head><title>t</title></head><body><p>text</p></body></html>\n",
    "one-word.txt": b"hello hello hello",
    "source.c": b"#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
}  # fmt: skip


def features(content: bytes) -> np.ndarray:
    """The model's input row for one file's content: int32 [2048], first bytes then last bytes."""
    begin = np.frombuffer(content[:BLOCK].lstrip()[:SIZE], np.uint8)
    end = np.frombuffer(content[-BLOCK:].rstrip()[-SIZE:], np.uint8)
    row = np.full(2 * SIZE, PADDING, np.int32)
    row[: len(begin)] = begin
    row[2 * SIZE - len(end) :] = end
    return row


def candidates() -> Iterator[Path]:
    """Files to look at, in a fixed order that takes one of each kind in turn."""
    library = Path(sysconfig.get_paths()["stdlib"])
    packages = Path(sysconfig.get_paths()["purelib"])
    system = Path("/etc")
    groups = [
        sorted(library.glob("*.py"))[:200:14],
        sorted(system.glob("*.conf"))[:6],
        [
            system / name
            for name in (
                "passwd",
                "services",
                "os-release",
                "hosts",
                "profile",
                "fstab",
                "mime.types",
            )
        ],
        sorted(packages.glob("*/METADATA"))[:4] + sorted(packages.glob("*.dist-info/RECORD"))[:4],
        sorted(library.glob("__pycache__/*.pyc"))[:40:10],
        sorted(library.glob("lib-dynload/*.so"))[:9:3],
        [Path(sys.executable).resolve(), Path("/bin/ls"), Path("/bin/sh")],
        sorted(packages.glob("numpy/**/*.pyi"))[:30:10]
        + sorted(packages.glob("numpy/**/*.h"))[:30:10],
        sorted(packages.glob("**/*.json"))[:3],
    ]
    for turn in itertools.zip_longest(*groups):
        yield from (path for path in turn if path is not None)


def contents() -> dict[str, bytes]:
    """Name -> content, at most MOST of them: the written ones first, then files of this machine."""
    chosen = dict(WRITTEN)
    for path in candidates():
        if len(chosen) >= MOST:
            break
        try:
            with path.open("rb") as file:
                head = file.read(BLOCK)
                file.seek(max(0, path.stat().st_size - BLOCK))
                content = head if len(head) < BLOCK else head + file.read(BLOCK)
        except OSError:
            continue
        if len(content.strip()) >= FEWEST:
            chosen[str(path)] = content
    return chosen


def main(words: list[str]) -> int:
    """Write the archive ``bytes`` (int32 [n, 2048]) and print its facts as JSON."""
    chosen = contents()
    np.savez_compressed(
        words[0], bytes=np.stack([features(content) for content in chosen.values()])
    )
    print(json.dumps({"files": list(chosen), "samples": len(chosen)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
