"""Files that are the same on every machine: magika's demo reads the machine's own, so that each has
another guide."""

import base64
import itertools
import json
import random
from pathlib import Path

import numpy as np

from narrowdown.engines.demos.magika_inputs import MOST, WRITTEN, features

MAGIC = (
    b"\x89PNG\r\n\x1a\n",
    b"\x7fELF\x02\x01\x01",
    b"PK\x03\x04",
    b"%PDF-1.7\n",
    b"\xff\xd8\xff\xe0",
    b"\x1f\x8b\x08",
)
WORDS = (
    "value",
    "size",
    "name",
    "index",
    "error",
    "file",
    "line",
    "count",
    "table",
    "first",
    "open",
    "read",
    "text",
    "node",
)


def write_content(draw: random.Random) -> bytes:
    """Source, text, a table, data or binary, of 20 to 6,000 bytes."""
    words = [draw.choice(WORDS) for _ in range(draw.randint(4, 900))]
    kind = draw.randrange(8)
    if kind == 0:
        lines = [
            f"def {a}_{b}({b}):\n    return {a}[{draw.randint(0, 99)}]\n"
            for a, b in itertools.pairwise(words)
        ]
        return "\n".join(["import os\n", *lines]).encode()
    if kind == 1:
        lines = [
            f"static int {a}(char *{b}) {{ return {b}[{draw.randint(0, 99)}]; }}"
            for a, b in itertools.pairwise(words)
        ]
        return "\n".join(["#include <stdio.h>", *lines]).encode()
    if kind == 2:
        return json.dumps(
            {f"{w}{i}": draw.choice([i, w, None, [i, w]]) for i, w in enumerate(words)}, indent=1
        ).encode()
    if kind == 3:
        return "".join(f"{w},{draw.random():.4f},{draw.randint(0, 9)}\n" for w in words).encode()
    if kind == 4:
        return (" ".join(words).capitalize() + ".\n").encode(draw.choice(["utf-8", "utf-16"]))
    if kind == 5:
        return base64.encodebytes(draw.randbytes(len(words)))
    if kind == 6:
        rows = (f"<{w} id='{i}'>{draw.choice(WORDS)}</{w}>" for i, w in enumerate(words))
        return ("<?xml version='1.0'?>\n<all>\n" + "\n".join(rows) + "\n</all>\n").encode()
    return draw.choice(MAGIC) + draw.randbytes(6 * len(words))


def write_inputs(path: Path, seed: int) -> Path:
    """An .npz with ``bytes``, int32 [32, 2048]: those that the demo writes itself, and others."""
    draw = random.Random(seed)
    contents = [*WRITTEN.values()]
    contents += [write_content(draw) for _ in range(MOST - len(contents))]
    np.savez_compressed(path, bytes=np.stack([features(c) for c in contents]))
    return path
