"""Words, sentences and source code made from a seed."""

import re

import numpy as np

_PARTS = tuple(re.findall("..", "bakedimolusatenarivornapelquistogramizethar"))
_NAMES = ("value", "index", "total", "buffer", "result", "node", "name", "count", "path", "item")


def word(random: np.random.Generator) -> str:
    """Two to four syllables, or a number."""
    if random.random() < 0.15:
        return str(int(random.integers(0, 10000)))
    return "".join(
        _PARTS[int(i)] for i in random.integers(0, len(_PARTS), int(random.integers(1, 5)))
    ).capitalize()


def sentence(random: np.random.Generator, words: int) -> str:
    """So many words, a space between them."""
    return " ".join(word(random) for _ in range(words))


def code(seed: int, size: int) -> bytes:
    """About ``size`` bytes of a file: Python, C, JSON, shell, HTML, CSV, plain text or bytes of no
    kind, in turn."""
    random = np.random.default_rng(seed)
    kind = seed % 8
    if kind == 7:
        return random.integers(0, 256, size).astype(np.uint8).tobytes()
    lines = [_HEADS[kind]] if kind in _HEADS else []
    while sum(map(len, lines)) < size:
        lines.append(_line(kind, random))
    return "\n".join(lines).encode()[:size]


_HEADS = {
    0: "import os\nimport sys\n",
    1: "#include <stdio.h>\n",
    3: "#!/bin/sh\nset -e",
    4: "<!doctype html><html><body>",
}


def _line(kind: int, random: np.random.Generator) -> str:
    a, b = (_NAMES[int(i)] for i in random.integers(0, len(_NAMES), 2))
    n = int(random.integers(0, 1000))
    return {
        0: f"def {a}_{n}({b}):\n    return [x * {n} for x in {b} if x]\n",
        1: f"static int {a}_{n}(const char *{b}) {{\n    return {b}[{n % 9}] + {n};\n}}\n",
        2: f'{{"{a}": {n}, "{b}": ["{word(random)}", {n / 7:.3f}], "deep": {{"{b}": null}}}}',
        3: f'for {a} in $(ls /{b}); do\n  echo "${a}" >> log.{n}\ndone',
        4: f'<div class="{a}"><a href="/{b}/{n}">{sentence(random, 4)}</a></div>',
        5: f"{n},{word(random)},{n / 3:.4f},{word(random)}",
    }.get(kind, sentence(random, 9) + ".")
