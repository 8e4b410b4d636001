"""Every command that README.md and docs/ show is run, or held to its grammar, or listed here with the reason why not.

A *shown* command is a line of a ``sh`` block; one in running text (`` `narrowdown ...` ``) is held to the grammar.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wizard.cli.arguments import parse
from wizard.cli.exits import Refusal

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

# Run here, in this order: its other commands work on the session that the first one makes.
TUTORIAL = "docs/tutorial.md"
# Quickly done: run here wherever they are shown, but for ci.md, which has its own test.
AT_ONCE = {"report", "export", "flow"}
# The grammar is all that can be held here, and why.
NEEDS = {
    "open": "a person at a terminal; tests/wizard/tui walks it",
    "demo": "half a minute; tests/e2e and tests/wizard/tui walk the demos",
    "run": "seconds to minutes; the tutorial's is run here, the others below tests/e2e and tests/cluster",
    "step": "seconds; those of tutorial.md and tolerance.md are run here, those of polygraphy.md by "
    "tests/e2e/test_polygraphy_page.py, that of quantization.md needs a quantized model: tests/e2e/test_quantized_models.py",
    "replay": "seconds; README's and the tutorial's are run here, those of ci.md by tests/e2e/test_ci_recipe.py",
    "diff-tactics": "folders of replays; tests/e2e/test_polygraphy_page.py runs it",
}
# Words at the beginning of a line that is no command of ours: why nothing is run.
OTHERS = {
    "git clone": "needs a network, and where to clone from is the reader's affair",
    "python case/check.py": "run with the tutorial",
    "python bugs/pad-fusion/check.py": "run by tests/e2e/test_ci_recipe.py",
    "polygraphy": "another tool; tests/e2e/test_polygraphy_page.py holds it to its grammar and runs it",
    "dask": "a cluster; tests/cluster starts one",
    "CUDA_VISIBLE_DEVICES=0 dask worker": "a cluster with GPUs",
}


def shown() -> Iterator[tuple[str, str]]:
    """(page, command line) in the order of the page."""
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield str(page.relative_to(ROOT)), line


def mentioned() -> Iterator[tuple[str, str]]:
    """(page, command) in running text, but for those that leave words out."""
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for command in re.findall(r"`(narrowdown [^`]+)`", text):
            if "..." not in command and "COMMAND" not in command:
                yield str(page.relative_to(ROOT)), " ".join(command.split())


SHOWN, MENTIONED = tuple(shown()), tuple(mentioned())


def words(line: str) -> list[str]:
    """The line's words without its remark, and without variables set before it."""
    told = shlex.split(line, comments=True)
    return told[1:] if re.match(r"NARROWDOWN_\w+=", told[0]) else told


def expected(line: str) -> int:
    """The exit status that a line's remark promises; 0 where it says nothing."""
    told = re.search(r"# exit (\d+)", line)
    return int(told[1]) if told else 0


def known(line: str) -> str:
    """The beginning of OTHERS that fits, "" where none does."""
    return next((start for start in OTHERS if line.startswith(start)), "")


def test_no_command_is_overlooked() -> None:
    ours = ("narrowdown", "make", "pip")
    unknown = [(page, line) for page, line in SHOWN if words(line)[0] not in ours and not known(line)]
    assert unknown == []
    assert {known(line) for _, line in SHOWN} >= set(OTHERS), "a reason for what is shown nowhere any more"
    assert len(SHOWN) > 40


def test_every_command_of_ours_is_run_or_has_a_reason() -> None:
    verbs = {words(line)[1] for _, line in SHOWN if words(line)[0] == "narrowdown"}
    assert verbs == AT_ONCE | set(NEEDS)


@pytest.mark.parametrize(
    ("page", "line"), [s for s in SHOWN if words(s[1])[0] == "narrowdown"], ids=lambda text: text[:60]
)
def test_narrowdown_knows_the_words(page: str, line: str) -> None:
    parse(words(line)[1:])


@pytest.mark.parametrize(("page", "line"), sorted(set(MENTIONED)), ids=lambda text: text[:60])
def test_what_is_mentioned_is_a_command(page: str, line: str) -> None:
    """Running text may leave out what a command works on, and where it writes; every other word must be one."""
    told = words(line)[1:]
    refused = ""
    for left_out in ([], ["MODEL"], ["SESSION", "-o", "FILE"]):
        try:
            parse([*told, *left_out])
        except Refusal as refusal:
            refused = refused or str(refusal)
        except SystemExit:  # --help, --version
            return
        else:
            return
    pytest.fail(refused)


def test_make_and_pip_are_told_what_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {*project["optional-dependencies"]}
    for page, line in SHOWN:
        asked = re.findall(r"(?:\.|narrowdown)\[([\w,]+)\]", line) if line.startswith("pip") else []
        assert {extra for group in asked for extra in group.split(",")} <= extras, (page, line)
    makefile = ROOT / "Makefile"
    if not makefile.exists():  # the suite beside an installed wheel has none
        return
    targets = set(re.findall(r"^([\w-]+):", makefile.read_text(encoding="utf-8"), re.MULTILINE))
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    told = set(re.findall(r"^(?:NARROWDOWN_\w+=\d+ )?make ([\w-]+)", text, re.MULTILINE))
    assert told | set(re.findall(r"`make ([\w-]+)", text)) <= targets


Shell = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Runs a line in a folder that holds what the pages speak of, with sessions of its own."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("shapes_cnn.onnx", "shapes_cnn_in.npz"):
        shutil.copy(MODELS / name, folder / name)
    page = (ROOT / "docs" / "flows.md").read_text(encoding="utf-8")
    (folder / "my-flow.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    surroundings = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "NARROWDOWN_HOME": str(folder / "sessions"),
        "XDG_STATE_HOME": str(folder / "state"),
        "NO_COLOR": "1",
        "PYTHONSAFEPATH": "1",
    }

    def run(line: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=surroundings, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert "Traceback" not in done.stdout + done.stderr, (line, done.stderr)
        return done

    return run


def still(text: str) -> str:
    """A line of output without what differs from run to run and from machine to machine."""
    return " ".join(re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", text).split())


def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    """Its commands, as they stand, end as it says and print what it shows; then README's, on the session they made."""
    page = (ROOT / TUTORIAL).read_text(encoding="utf-8")
    said = ""
    for line in (line for page, line in SHOWN if page == TUTORIAL):
        done = shell(line)
        assert done.returncode == expected(line), (line, done.stdout, done.stderr)
        said += done.stdout + done.stderr
    printed = still(said)
    told = [line for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(told) > 20
    assert [line for line in told if still(line) not in printed] == []
    ours = [
        shlex.join(words(line.replace("SESSION", "bug")))
        for page, line in SHOWN
        if page == "README.md" and "SESSION" in line
    ]
    assert len(ours) == 4
    for line in set(ours) - {shlex.join(words(line)) for page, line in SHOWN if page == TUTORIAL}:
        done = shell(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)


def test_the_page_about_tolerance_does_what_it_says(shell: Shell) -> None:
    lines = [line for page, line in SHOWN if page == "docs/tolerance.md"]
    assert len(lines) == 2
    for line in lines:
        done = shell(line)
        assert done.returncode == expected(line), (line, done.stdout, done.stderr)


def test_what_answers_at_once_does(shell: Shell) -> None:
    lines = [line for _, line in SHOWN if words(line)[:2] == ["narrowdown", "flow"]]
    assert len(lines) >= 2
    for line in lines:
        done = shell(line)
        assert (done.returncode, bool(done.stdout)) == (0, True), (line, done.stderr)
