"""Would the campaign notice? Promises broken one by one in a copy of the product, each of which it
must find: ``make fuzz-mutants``.

Each mutant reads the same few files as the unbroken copy, in a process with a limit from outside: a
broken promise may hang in native code. It counts as noticed only where the unbroken copy passes
with these files within the same limit. Exit 1 where one is not noticed, or where the unbroken copy
is; a change of the product that moves what a mutant replaces fails at once, here and in the fast
suite (``test_mutants.py``).
"""

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COPIED = (
    "wizard",
    "engines",
    "flows",
    "narrowdown",
    "campaigns/fuzz",
    "campaigns/conftest.py",
    "tests/sessions",
    "tests/conftest.py",
    "tests/patience.py",
    "pyproject.toml",
)
LIMIT = 10  # seconds of the processor for one file: what a broken promise makes endless
SEED = 1  # of the campaign's files: for the unbroken copy and for the broken ones the very same
# The slice of each kind: so many files that each of its mutants shows, and few enough that it is
# read in seconds.
FILES = {
    "special files in sessions": 40,
    "special files that are named": 60,
    "npz archives": 100,
    "npy arrays": 100,
    "journals": 300,
    "session.json": 200,
    "functions": 60,
    "flows": 300,
    "Polygraphy inputs": 500,
}
PATIENCE = 900  # seconds for one slice, from outside of the campaign, which may hang itself: by the clock, and a busy one
AT_ONCE = 2


class Mutant(NamedTuple):
    """``promise``: what no longer holds once ``new`` stands for ``old`` in ``file``; ``kind`` of
    hostile files must show it."""

    promise: str
    kind: str
    file: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "what is no regular file is not read", "special files in sessions", "engines/store/regular.py",
        "    if not stat.S_ISREG(found.st_mode):", "    if False:",
    ),
    Mutant(
        "no file is read beyond its bound", "special files in sessions", "engines/store/regular.py",
        "    if found.st_size > most:", "    if False:",
    ),
    Mutant(
        "a lock is not waited for", "special files in sessions", "wizard/session/lock.py",
        "with regular.opened(folder / NAME, links=False) as file:", 'with (folder / NAME).open("rb") as file:',
    ),
    Mutant(
        "no session holds links", "special files in sessions", "wizard/session/folder.py",
        "                raise _linked(entry.path)", "                continue",
    ),
    Mutant(
        "a session is looked at before its flow is read", "special files in sessions", "wizard/cli/run.py",
        "folders.describe(place)  # first", "folders._described(place)  # first",
    ),
    Mutant(
        "what a user names is looked at before it is opened", "special files that are named", "wizard/problem_options.py",
        "    if fault := regular.fault(path):", '    if fault := "":',
    ),
    Mutant(
        "arrays are never unpickled (npz)", "npz archives", "engines/data/files.py",
        "        loaded = np.load(file, allow_pickle=False)", "        loaded = np.load(file, allow_pickle=True)",
    ),
    Mutant(
        "arrays are never unpickled (npy)", "npy arrays", "engines/data/files.py",
        'np.load(file, mmap_mode="r", allow_pickle=False)', "np.load(file, allow_pickle=True)",
    ),
    Mutant(
        "what is nested too deeply is damaged, not our fault", "session.json", "engines/store/decoding.py",
        "    except RecursionError:", "    except ZeroDivisionError:",
    ),
    Mutant(
        "a number of more than 64 bits is damage", "journals", "engines/store/decoding.py",
        '        if _LONG in b"x" + data.translate(_SHAPE):', "        if False:",
    ),
    Mutant(
        "names are shown literally", "journals", "wizard/words.py",
        "    text = bounded(text, longest)", "    return text",
    ),
    Mutant(
        "a refusal has its exit code", "session.json", "wizard/cli/entry.py",
        "        return refusal.code", "        return 0",
    ),
    Mutant(
        "functions count as often as they are called", "functions", "engines/graph/load.py",
        "(many := functions.count_expanded_nodes(proto)) > MOST_NODES:",
        "(many := functions.count_expanded_nodes(proto)) > 10**99:",
    ),
    Mutant(
        "functions that call themselves are refused", "functions", "engines/graph/functions.py",
        "            if key in within:", "            if False:",
    ),
    Mutant(
        "no flow has aliases", "flows", "wizard/flow/load.py",
        "        if id(node) in self._seen:", "        if False:",
    ),
    Mutant(
        "no text of a flow holds half of a character", "flows", "wizard/flow/load.py",
        "        if isinstance(node, yaml.ScalarNode) and (half := HALF.search(node.value)):", "        if half := None:",
    ),
    Mutant(
        "a number of 5,000 digits in a template is a fault of the flow", "flows", "wizard/flow/expressions.py",
        "    except ValueError:  # Python reads", "    except ZeroDivisionError:  # Python reads",
    ),
    Mutant(
        "a number of 5,000 digits in JSON is a fault of the file", "Polygraphy inputs", "engines/data/polygraphy.py",
        "    except (ValueError, RecursionError) as error:", "    except RecursionError as error:",
    ),
)  # fmt: skip


def mutated(mutant: Mutant, root: Path = ROOT) -> str:
    """The file's text with the promise broken. Raises ValueError where what is to be replaced does
    not stand there once."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if (found := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.file} has {found} times, and not once: {mutant.old.strip()}")
    return text.replace(mutant.old, mutant.new)


def noticed(kind: str, folder: Path, patience: float = PATIENCE) -> tuple[bool, str]:
    """Whether the campaign fails over this copy of the product, and by which finding. Raises
    RuntimeError where it ended in neither of the two."""
    test = f"campaigns/fuzz/test_fuzz.py::test_many_damaged_files[{kind}]"
    options = ["-m", "fuzz", "-p", "no:cacheprovider", "--tb=short", f"--hypothesis-seed={SEED}"]
    environment = {
        **os.environ, "PYTHONPATH": str(folder), "TMPDIR": str(folder / "tmp"), "XDG_RUNTIME_DIR": str(folder / "tmp"),
        "NARROWDOWN_FUZZ": str(FILES[kind]), "NARROWDOWN_FUZZ_LIMIT": str(LIMIT),
        "NARROWDOWN_FUZZ_SESSION": str(folder / "recorded" / "s"),
    }  # fmt: skip
    try:
        code, said = within(
            patience, [sys.executable, "-m", "pytest", *options, test], folder, environment
        )
    except subprocess.TimeoutExpired:
        return True, f"the campaign was not done within {patience:.0f} s"
    failed = code == 1 and f"FAILED {test}" in said
    if not failed and (code != 0 or f"| {kind} | {FILES[kind]} |" not in said):
        raise RuntimeError(f"The campaign did not run:\n{said[-4000:]}")
    return failed, finding(said) if failed else ""


def within(
    seconds: float, words: list[str], folder: Path, environment: dict[str, str]
) -> tuple[int, str]:
    """The exit code of a program and what it said. After so many seconds it is killed with all that
    it started. Raises TimeoutExpired."""
    with subprocess.Popen(
        words, cwd=folder, env=environment, text=True, errors="replace", start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as started:  # fmt: skip
        try:
            said, _ = started.communicate(timeout=seconds)
            return started.returncode, said
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def finding(said: str) -> str:
    """The line of a failed campaign that tells how the file ended."""
    lines = [line for line in said.splitlines() if line.startswith("E  ")]
    added = next(
        (n for n, line in enumerate(lines) if line.startswith("E       assert ")), len(lines)
    )  # by pytest
    told = [line.removeprefix("E").strip() for line in lines[:added]]
    ends = [line for line in told if re.match(r"[\w.]+: |strayed|hung|died|(\w+\.)*Late", line)]
    return " ".join((ends or told or [""])[-1].split())[:120].replace("|", "\\|")


def copy(folder: Path) -> Path:
    """The product and the campaign, below ``folder``, which is made."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(
                source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copyfile(source, target)
    (folder / "tmp").mkdir(mode=0o700)
    return folder


def record(folder: Path) -> None:
    """The session that the campaign damages, walked once by the unbroken copy. Raises
    CalledProcessError, TimeoutExpired."""
    models = folder / "wizard" / "demo" / "models"
    route = [
        "run",
        models / "shapes_cnn.onnx",
        "--inputs",
        models / "shapes_cnn_in.npz",
        "--tolerance",
        "1e-3",
    ]
    place = folder / "recorded"
    environment = {
        **os.environ, "PYTHONPATH": str(folder), "NARROWDOWN_HOME": str(place / "home"), "XDG_STATE_HOME": str(place / "state"),
    }  # fmt: skip
    words = [
        sys.executable,
        "-P",
        "-m",
        "narrowdown",
        *map(str, route),
        "--display",
        "none",
        "--session",
        str(place / "s"),
    ]
    code, said = within(PATIENCE, words, folder, environment)
    if code:
        raise subprocess.CalledProcessError(code, words, said)
    for part in ("models", "captures", "inputs", "case", "logs"):
        shutil.rmtree(place / "s" / part, ignore_errors=True)


def tried(sound: Path, kind: str, mutant: Mutant | None) -> tuple[bool, str, float]:
    """Whether the campaign notices this mutant (None: the unbroken copy), by which finding, and
    after how many seconds."""
    with tempfile.TemporaryDirectory(
        prefix="narrowdown-mutant-", ignore_cleanup_errors=True
    ) as place:
        folder = Path(shutil.copytree(sound, Path(place) / "product"))
        if mutant:
            (folder / mutant.file).write_text(mutated(mutant, folder), encoding="utf-8")
        began = time.monotonic()
        found, why = noticed(kind, folder)
        return found, why, time.monotonic() - began


def main(words: list[str]) -> int:
    """Print the table; ``words`` choose mutants by a part of their promise."""
    chosen = [m for m in MUTANTS if not words or any(word in m.promise for word in words)]
    kinds = sorted({m.kind for m in chosen})
    survived = 0
    print(
        "| broken promise | hostile files | noticed | by which finding | seconds |\n|---|---|---|---|---|",
        flush=True,
    )
    with (
        tempfile.TemporaryDirectory(
            prefix="narrowdown-mutants-", ignore_cleanup_errors=True
        ) as place,
        concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        sound = copy(Path(place) / "product")
        record(sound)
        fails = set()
        for kind, (found, why, spent) in zip(
            kinds, pool.map(lambda k: tried(sound, k, None), kinds), strict=True
        ):
            fails |= {kind} if found else set()
            print(
                f"| none | {kind} | {'FAILS' if found else 'passes'} | {why} | {spent:.0f} |",
                flush=True,
            )
        for mutant, (found, why, spent) in zip(
            chosen, pool.map(lambda m: tried(sound, m.kind, m), chosen), strict=True
        ):
            told = "counts for nothing" if mutant.kind in fails else "yes" if found else "NO"
            survived += told != "yes"
            print(
                f"| {mutant.promise} | {mutant.kind} | {told} | {why} | {spent:.0f} |", flush=True
            )
    return 1 if survived or fails else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
