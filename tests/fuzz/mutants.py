"""Would the campaign notice? Promises broken one by one in a copy of the product, each of which it must find:
``make fuzz-mutants``.

Exit 1 where one is not noticed, or where the unbroken copy is; a change of the product that moves what a mutant replaces fails
at once, here and in the fast suite (``test_mutants.py``).
"""

import os
import shutil
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
    "tests/fuzz",
    "tests/models",
    "tests/sessions",
    "tests/conftest.py",
    "pyproject.toml",
)
LIMIT = 20  # seconds for one file: what a broken promise makes endless
FILES = 300  # of each kind that is to notice
FEWER = {"journals": 80, "session.json": 40, "parts of sessions": 80, "special files in sessions": 60, "flows": 150}
PATIENCE = 900  # seconds for one mutant


class Mutant(NamedTuple):
    """``promise``: what no longer holds once ``new`` stands for ``old`` in ``file``; ``kind`` of hostile files must show it."""

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
        "with regular.opened(folder / NAME, _NOTE, links=False) as file:", 'with (folder / NAME).open("rb") as file:',
    ),
    Mutant(
        "no session holds links", "special files in sessions", "wizard/session/folder.py",
        "            if stat.S_ISLNK(mode):", "            if False:",
    ),
    Mutant(
        "what a user names is looked at before it is opened", "special files that are named", "wizard/given.py",
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
        "what is nested too deeply is damaged, not our fault", "parts of sessions", "engines/store/decoding.py",
        "    except RecursionError:", "    except ZeroDivisionError:",
    ),
    Mutant(
        "a number of more than 64 bits is damage", "journals", "engines/store/decoding.py",
        "        if _LONG.search(data):", "        if False:",
    ),
    Mutant(
        "names are shown literally", "journals", "wizard/words.py",
        "    text = bounded(text, longest)", "    return text",
    ),
    Mutant(
        "a refusal has its exit code", "session.json", "wizard/cli/entry.py",
        "            return problem.code", "            return 0",
    ),
    Mutant(
        "functions count as often as they are called", "functions", "engines/graph/load.py",
        "(many := functions.expanded(proto)) > MOST_NODES:", "(many := functions.expanded(proto)) > 10**99:",
    ),
    Mutant(
        "functions that call themselves are refused", "functions", "engines/graph/functions.py",
        "            elif inner in path:", "            elif False:",
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
        "a number of 5,000 digits in a template is a fault of the flow", "flows", "wizard/flow/template.py",
        "    except ValueError:  # Python reads", "    except ZeroDivisionError:  # Python reads",
    ),
    Mutant(
        "a number of 5,000 digits in JSON is a fault of the file", "Polygraphy inputs", "engines/data/polygraphy.py",
        "    except ValueError as error:  # Python reads", "    except ZeroDivisionError as error:  # Python reads",
    ),
)  # fmt: skip


def mutated(mutant: Mutant, root: Path = ROOT) -> str:
    """The file's text with the promise broken. Raises ValueError where what is to be replaced does not stand there once."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if (found := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.file} has {found} times, and not once: {mutant.old.strip()}")
    return text.replace(mutant.old, mutant.new)


def noticed(kind: str, folder: Path) -> tuple[bool, str]:
    """Whether the campaign fails over this copy of the product, and the last line of why. Raises RuntimeError where it ended in
    neither of the two."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "fuzz",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        "tests/fuzz/test_fuzz.py",
    ]
    environment = {
        **os.environ, "PYTHONPATH": str(folder), "TMPDIR": str(folder / "tmp"),
        "NARROWDOWN_FUZZ": str(FEWER.get(kind, FILES)), "NARROWDOWN_FUZZ_LIMIT": str(LIMIT),
    }  # fmt: skip
    chosen = f"test_many_damaged_files[{kind}]"
    done = subprocess.run(
        [*words, "--deselect", "nothing", "-k", f"many and {_expression(kind)}"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    failed = done.returncode == 1 and f"FAILED tests/fuzz/test_fuzz.py::{chosen}" in done.stdout
    if not failed and (done.returncode != 0 or kind not in done.stdout):
        raise RuntimeError(f"The campaign did not run:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    said = [line for line in done.stdout.splitlines() if line.startswith("E  ")]
    why = next(
        (line for line in said if "Error" in line or "Late" in line or "strayed" in line), said[0] if said else ""
    )
    return failed, why.removeprefix("E").strip()[:100]


def _expression(kind: str) -> str:
    """The words of a kind, for pytest's ``-k``; "npz archives" must not choose others."""
    return " and ".join(word for word in kind.replace(".", " ").split() if word not in ("in", "of", "that", "are"))


def copy(folder: Path) -> None:
    """The product and the campaign, below ``folder``."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    (folder / "tmp").mkdir()


def main(words: list[str]) -> int:
    """Print the table; ``words`` choose mutants by a part of their promise."""
    chosen = [m for m in MUTANTS if not words or any(word in m.promise for word in words)]
    survived = 0
    print("| broken promise | hostile files | noticed | how | seconds |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="narrowdown-mutants-") as place:
        folder = Path(place) / "product"
        copy(folder)
        for kind in sorted({m.kind for m in chosen}):
            began = time.monotonic()
            found, why = noticed(kind, folder)
            survived += found
            print(
                f"| none | {kind} | {'FAILS' if found else 'passes'} | {why} | {time.monotonic() - began:.0f} |",
                flush=True,
            )
        for mutant in chosen:
            began = time.monotonic()
            target = folder / mutant.file
            sound = target.read_text(encoding="utf-8")
            target.write_text(mutated(mutant, folder), encoding="utf-8")
            try:
                found, why = noticed(mutant.kind, folder)
            except subprocess.TimeoutExpired:
                found, why = True, f"the campaign was not done within {PATIENCE} s"
            finally:
                target.write_text(sound, encoding="utf-8")
            survived += not found
            spent = time.monotonic() - began
            print(
                f"| {mutant.promise} | {mutant.kind} | {'yes' if found else 'NO'} | {why} | {spent:.0f} |", flush=True
            )
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
