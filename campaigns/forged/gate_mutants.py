"""Would the campaign notice a door that forgets the gate? One door after the other lets all
through, in a copy of the product; a fast test of the campaign or of the gate must fail:
``python campaigns/forged/gate_mutants.py [WORD ...]``. Exit 1 where one lives, or where the copy
without a mutant fails.
"""

import concurrent.futures
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import narrowdown

ROOT = Path(__file__).parents[2]
PACKAGE = Path(narrowdown.__file__).parent  # with its rooms, in a checkout and in a wheel
COPIED = ("wizard", "engines", "flows", "narrowdown", "campaigns/forged", "tests")
# Those of the gate first: they end at once.
TESTS = (
    "tests/wizard/test_doors.py",
    "tests/wizard/test_trust.py",
    "tests/engines/data/test_held.py",
    "tests/wizard/ladder/test_ladder.py",
    "tests/engines/store/test_places.py",
    "campaigns/forged",
)
PATIENCE = 900  # seconds for these tests, from outside: a door without its gate may work for long


class Mutant(NamedTuple):
    """In ``file`` what stands in ``old`` lets all through as ``new`` stands there."""

    door: str
    file: str
    old: str
    new: str


_ALL = '("all",)'
_PROBLEM = "trust.admit(folders.describe(place).problem, arguments.yes_run_scripts"
MUTANTS = (
    Mutant(
        "a coding agent's tools",
        "wizard/agent/desk.py",
        "trust.admit(about.problem)",
        f"trust.admit(about.problem, {_ALL})",
    ),
    Mutant(
        "resume",
        "wizard/cli/run.py",
        "trust.admit(about.problem, arguments.yes_run_scripts)",
        f"trust.admit(about.problem, {_ALL})",
    ),
    Mutant(
        "run",
        "wizard/cli/run.py",
        "trust.admit(problem, arguments.yes_run_scripts)",
        f"trust.admit(problem, {_ALL})",
    ),
    Mutant(
        "replay",
        "wizard/cli/replay.py",
        f"{_PROBLEM}, engine)",
        f"trust.admit(folders.describe(place).problem, {_ALL}, engine)",
    ),
    Mutant(
        "export",
        "wizard/cli/sessions.py",
        "trust.admit_session(reading.folder, arguments.yes_run_scripts)",
        f"trust.admit_session(reading.folder, {_ALL})",
    ),
    Mutant(
        "trigger",
        "wizard/cli/from_session.py",
        "consent = trust.admit(base, arguments.yes_run_scripts)",
        f"consent = trust.admit(base, {_ALL})",
    ),
    Mutant(
        "ladder of a session",
        "wizard/cli/ladder.py",
        "trust.admit_session(folders.find(name), yes)",
        f"trust.admit_session(folders.find(name), {_ALL})",
    ),
    Mutant(
        "ladder of a bundle",
        "wizard/cli/ladder.py",
        "files, path, head(path, 5))], yes)",
        f"files, path, head(path, 5))], {_ALL})",
    ),
    Mutant(
        "after",
        "wizard/cli/run.py",
        "trust.admit(base, arguments.yes_run_scripts)",
        f"trust.admit(base, {_ALL})",
    ),
    Mutant(
        "edit",
        "wizard/cli/from_session.py",
        "run.agreed(problem, arguments.yes_run_scripts, base)",
        "run.agreed(problem, arguments.yes_run_scripts)",
    ),
    Mutant(
        "screens: edit",
        "wizard/tui/library.py",
        "trust.agree(problem, self._yes, before)",
        "trust.agree(problem, self._yes)",
    ),
    Mutant("what is edited", "wizard/trust/gate.py", "[*before, *kept], yes", "kept, yes"),
    Mutant("what an edit keeps", "wizard/trust/gate.py", "[*before, *kept], yes", "before, yes"),
    Mutant(
        "screens: after",
        "wizard/tui/library.py",
        "        trust.admit(folders.describe(folder).problem, self._yes)\n",
        "",
    ),
    Mutant(
        "screens: open",
        "wizard/tui/library.py",
        "trust.admit(about.problem, self._yes)",
        f"trust.admit(about.problem, {_ALL})",
    ),
    Mutant(
        "screens: create",
        "wizard/tui/library.py",
        "            trust.admit(problem, self._yes)  #",
        "            pass  #",
    ),
    Mutant(
        "matrix",
        "wizard/cli/matrix.py",
        f"{_PROBLEM}, named)",
        f"trust.admit(folders.describe(place).problem, {_ALL}, named)",
    ),
    Mutant(
        "a path that is not plain",
        "wizard/trust/gate.py",
        "    if bad := next((item for item in found if item.fault), None):",
        "    if bad := None:",
    ),
    Mutant("what was found", "wizard/trust/gate.py", ", found_on=specs_found(place))", ")"),
    Mutant(
        "a probe that names more",
        "engines/consent.py",
        "            if self.find(asked) is None:",
        "            if False:",
    ),
    Mutant(
        "the folder of a permit",
        "engines/consent.py",
        "asked.folder in (None, permit.folder)",
        "asked.folder != 0",
    ),
    Mutant(
        "a release that was planted",
        "wizard/ladder/environments.py",
        "not linked and as_installed(folder).key in trust.trusted()",
        "folder.is_dir()",
    ),
    Mutant(
        "a home that is no whole path",
        "engines/store/places.py",
        "        home = _home()\n",
        "        home = home.absolute()\n",
    ),
    Mutant(
        "a worker's own look",
        "engines/data/held.py",
        "    if found != wanted:\n",
        "    if False:\n",
    ),
)


def mutated(mutant: Mutant, root: Path = PACKAGE) -> str:
    """The file's text with the gate left out. Raises ValueError where what is to be replaced does
    not stand there once."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if (found := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.file} has {found} times, and not once: {mutant.old.strip()}")
    return text.replace(mutant.old, mutant.new)


def noticed(sound: Path, mutant: Mutant | None) -> tuple[bool, str]:
    """Whether a test fails over this copy of the product, and which one."""
    from campaigns.fuzz.mutants import within

    with tempfile.TemporaryDirectory(prefix="narrowdown-mutant-") as place:
        folder = Path(shutil.copytree(sound, Path(place) / "product", symlinks=True))
        if mutant:
            (folder / mutant.file).write_text(mutated(mutant, folder), encoding="utf-8")
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
        words += ["-k", "not every_mutant"]  # which would find its gate gone
        code, said = within(PATIENCE, words, folder, {**os.environ, "PYTHONPATH": str(folder)})
        if code not in (0, 1):
            raise RuntimeError(f"The tests did not run:\n{said[-4000:]}")
        failed = [line for line in said.splitlines() if line.startswith("FAILED")]
        return code == 1, failed[0].partition("::")[2].partition(" ")[0] if failed else ""


def main(words: list[str]) -> int:
    """Print the table; ``words`` choose mutants by a part of their door."""
    chosen = [m for m in MUTANTS if not words or any(word in m.door for word in words)]
    lived = 0
    with tempfile.TemporaryDirectory(prefix="narrowdown-mutants-") as place:
        sound = Path(place) / "product"
        left = shutil.ignore_patterns("__pycache__", ".git")
        for name in COPIED:
            shutil.copytree(ROOT / name, sound / name, symlinks=True, ignore=left)
        for name in ("pyproject.toml", "campaigns/conftest.py"):
            shutil.copyfile(ROOT / name, sound / name)
        print("| gate left out | noticed | by |\n|---|---|---|", flush=True)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            tried = pool.map(lambda mutant: noticed(sound, mutant), [None, *chosen])
            for mutant, (found, test) in zip([None, *chosen], tried, strict=True):
                lived += found is (mutant is None)
                door = mutant.door if mutant else "none"
                print(f"| {door} | {'yes' if found else 'no'} | {test} |", flush=True)
    return 1 if lived else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
