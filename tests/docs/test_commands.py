"""Every command that README.md, SECURITY.md and docs/ show is run, or is only parsed for a reason
that ``shown`` names.

Those that need seconds are run here with every change, those that need longer are slow. What is
only parsed is parsed by the very program that it is for: ours, make, pip's requirements, Dask,
Polygraphy, pytest, a script of ours.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import pytest
from packaging.requirements import Requirement

from narrowdown import engines, wizard
from narrowdown.engines import discovery, options
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.runner.progress import Snapshot
from narrowdown.wizard.session.events import AnyEvent
from tests.wizard.schemas.conforms import against

from .shown import PAGES, PROGRAMS, ROOT, RULES, SCENES, SHOWN, Shown, completed, kind, of, rule_of

MAKEFILE = ROOT / "Makefile"
PARSED = [command for command in SHOWN if kind(command).startswith("parsed: ")]


def named(command: Shown) -> str:
    return f"{command.page}: {' '.join(command.words)}"[:70]


def told(program: str) -> list[Shown]:
    return [command for command in PARSED if command.words[0] == program]


@pytest.mark.parametrize("command", SHOWN, ids=named)
def test_every_command_is_run_or_has_a_reason_not_to_be(command: Shown) -> None:
    assert command.words[0] in PROGRAMS, (
        f"{command.page} shows a program that tests/docs/shown.py does not know"
    )
    assert kind(command), (
        f"{command.page} shows '{command.line}': give it a scene or a reason in tests/docs/shown.py"
    )


def test_every_scene_is_a_test_and_every_rule_is_needed() -> None:
    used = {rule_of(command) for command in SHOWN}
    assert [rule for rule in RULES if rule not in used] == []
    assert {kind(command) for command in SHOWN} - {kind(command) for command in PARSED} == set(
        SCENES
    )
    for scene, test in SCENES.items():
        file, _, name = test.partition("::")
        source = (ROOT / file).read_text(encoding="utf-8")
        body = source.partition(f"def {name}(")[2].partition("\n\n\n")[0]
        assert body, f"{test} is not there"
        assert f'of("{scene}")' in body, f"{test} does not run the scene '{scene}'"
    assert len(SHOWN) > 120


OURS = [
    command for command in SHOWN if command.words[0] == "narrowdown" and kind(command) != "a step"
]  # of another package


@pytest.mark.parametrize("command", OURS, ids=named)
def test_narrowdown_knows_the_words(command: Shown) -> None:
    words = command.words[1:]
    if command.block or "COMMAND" in words:
        words = [word for word in words if word != "COMMAND"]
        if "--help" not in words:
            parse(words)
            return
    assert completed(words) is not None


# What is only parsed, by the program that it is for


@pytest.mark.skipif(
    not MAKEFILE.exists(), reason="the suite beside an installed wheel has no Makefile"
)
@pytest.mark.parametrize("command", told("make"), ids=named)
def test_make_knows_what_to_do(command: Shown) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *command.words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr


@pytest.mark.parametrize("command", told("pip"), ids=named)
def test_pip_is_told_what_there_is(command: Shown) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    verb, *asked = command.words[1:]
    assert verb == "install"
    for word in asked:
        wanted = Requirement(re.sub(r"^\.", project["name"], word))
        if wanted.name == project["name"]:
            assert wanted.extras <= set(project["optional-dependencies"])


@pytest.mark.parametrize("command", told("dask"), ids=named)
def test_dask_knows_the_words(command: Shown) -> None:
    (group,) = (
        e for e in importlib.metadata.entry_points(group="dask_cli") if e.name == command.words[1]
    )
    group.load().make_context(group.name, command.words[2:])


@pytest.mark.parametrize("command", told("polygraphy"), ids=named)
@pytest.mark.filterwarnings(
    "ignore:SelectableGroups:DeprecationWarning"
)  # its own affair, as is the next
@pytest.mark.filterwarnings("ignore:'mark all' is deprecated:DeprecationWarning")
def test_polygraphy_knows_the_words(
    command: Shown,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """``polygraphy run`` writes the script of what it would do, so all of it but the engine is its
    own."""
    tools = pytest.importorskip("polygraphy.tools")
    words = command.words[1:]
    if words[0] == "run" and len(words) > 1:
        monkeypatch.setattr(
            sys, "argv", ["polygraphy", *words, "--gen-script", str(tmp_path / "script.py")]
        )
        assert not tools.main()
        assert "model.onnx" in (tmp_path / "script.py").read_text(encoding="utf-8")
        return
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers(dest="tools", required=True)
    for tool in tools.registry.TOOL_REGISTRY:
        tool.setup_parser(subparsers)
    if len(words) < 3:  # the name of a command, or an option of 'run' by itself
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(
                [*words, "--help"] if words[0] != "--calibration-cache" else ["run", "--help"]
            )
        assert ended.value.code == 0
        assert words[-1] in capsys.readouterr().out
        return
    assert parser.parse_known_args(words)[1] == []


@pytest.mark.parametrize("command", told("python"), ids=named)
def test_a_script_of_ours_knows_the_words(
    command: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.words[1] == "-m":
        assert importlib.util.find_spec(command.words[2])
        return
    script, *words = command.words[1:]
    if (
        not words
    ):  # nothing to ask of it; one that takes no words may not know --help either, and would run
        assert (ROOT / script).is_file()
        return
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert ended.value.code == 0
    assert {word for word in words if word.startswith("-")} <= set(
        re.findall(r"--[\w-]+", capsys.readouterr().out)
    )


def test_whatever_else_is_only_named_is_no_program_of_ours() -> None:
    asked = {"narrowdown", "make", "pip", "dask", "polygraphy", "python"}
    assert {command.words[0] for command in PARSED} - asked == {
        "git", "chmod", "trtexec", "sh", "ssh", "scp", "docker",
    }  # fmt: skip


@pytest.mark.parametrize("command", told("ssh"), ids=named)
def test_what_runs_on_another_machine_is_known(command: Shown) -> None:
    last = shlex.split(command.words[-1].rpartition(" && ")[2])
    assert last[0] == "narrowdown"
    parse(last[1:])


def test_every_engine_that_is_spelt_out_is_one() -> None:
    """``NAME:key=value,...`` between backticks or behind ``--engine`` in a block: every option and
    value is one."""
    names = "|".join(discovery.ours())
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for spec in re.findall(rf"(?:`|--(?:engine|reference) )((?:{names}):[\w=+,.:/-]+)", text):
            options.values(options.check(spec.rstrip(".:,")))


def test_every_variable_of_the_environment_is_read_somewhere() -> None:
    told = {
        name
        for page in PAGES
        for name in re.findall(r"NARROWDOWN_[A-Z_]+", page.read_text(encoding="utf-8"))
    }
    folders = [
        ROOT / "tests",
        ROOT / "campaigns",
        *(Path(package.__file__ or "").parent for package in (wizard, engines)),
    ]
    files = [
        path
        for folder in folders
        for path in folder.rglob("*.py")
        if path.parent != Path(__file__).parent
    ]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert [name for name in sorted(told) if f'"{name}"' not in source] == []


# What is run


Shell = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Runs a line in a folder that holds what the pages speak of, with sessions of its own."""
    folder = tmp_path_factory.mktemp("docs")
    names = {
        "shapes_cnn.onnx": ("shapes_cnn.onnx", "model.onnx"),
        "shapes_cnn_in.npz": ("shapes_cnn_in.npz", "batch.npz"),
    }
    for source, copies in names.items():
        for name in copies:
            shutil.copy(MODELS / source, folder / name)
    flow, answers, *_ = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs/flows.md").read_text(encoding="utf-8"), re.DOTALL
    )
    (folder / "my-flow.yaml").write_text(flow, encoding="utf-8")
    (folder / "answers.yaml").write_text(answers, encoding="utf-8")
    surroundings = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "NARROWDOWN_HOME": str(folder / "sessions"),
        "XDG_STATE_HOME": str(folder / "state"),
        "NO_COLOR": "1",
        "PYTHONSAFEPATH": "1",
    }

    def run(line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=surroundings, input=stdin, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert "Traceback" not in done.stdout + done.stderr, (line, done.stderr)
        return done

    return run


def page_of(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def still(text: str) -> str:
    """A line of output without what differs from run to run and from machine to machine."""
    return " ".join(re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", text).split())


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    """Its commands, as they stand, end as it says; so does all that other pages do with a session,
    on the one that they made. What any page shows as printed is among what was."""
    said = ""
    ran = of("tutorial")
    for command in ran:
        done = shell(command.line)
        assert done.returncode == command.exit, (command.line, done.stdout, done.stderr)
        said += done.stdout + done.stderr
    done_before = {shlex.join(command.words) for command in ran}
    for line, code in on_the_session(of("session")).items():
        if line in done_before:
            continue
        done = shell(line)
        assert done.returncode == code, (line, done.stdout, done.stderr)
        said += done.stdout
        if line.endswith("--display json"):
            told = [json.loads(line) for line in done.stdout.splitlines()]
            assert {row["kind"] for row in told} <= {
                e.__struct_config__.tag for e in get_args(AnyEvent)
            } | {"progress"}
            assert set(told[-1]) == {
                "v",
                "kind",
                *Snapshot.__struct_fields__,
                "watching",
                "holder",
                "taken",
                "free",
            }
            assert [said for row in told for said in against("events", row)] == []
        if line == "narrowdown replay bug --json":
            assert against("replay", json.loads(done.stdout)) == []
    bundle = page_of("session-format").partition("\n## Bundle\n")[2].partition("\n## ")[0]
    listed = re.findall(
        r"`([\w.]+)`", re.sub(r"^(?!\|).*|\|[^|]*\|$", "", bundle, flags=re.MULTILINE)
    )
    files = set(listed) - {
        "keep_fp32.py",
        "traces.txt",
    }  # this case's workaround is another one, and nothing is left to look for
    assert set(shell("ls case").stdout.split()) == files, "the page lists what a bundle holds"
    printed = still(said)
    pages = {
        path.name: path.read_text(encoding="utf-8") for path in PAGES if path.parent.name == "docs"
    }
    shown = {
        n: "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL)).splitlines()
        for n, text in pages.items()
    }
    assert len(shown["tutorial.md"]) > 20
    assert sum(map(bool, shown.values())) > 3
    assert [
        (name, line)
        for name, lines in shown.items()
        for line in lines
        if still(line) not in printed
    ] == []


def on_the_session(commands: Sequence[Shown]) -> dict[str, int]:
    """Each as a line that works on the tutorial's session, with the exit status that it promises;
    each line once."""
    lines = {}
    for number, command in enumerate(commands):
        words = completed(command.words[1:], f"written-{number}")
        assert words is not None
        names = {"SESSION": "bug", "NODE": "workaround", "case/": f"case-{number}"}
        here = [names.get(word, word.replace("/var/lib/node_exporter/", "")) for word in words]
        lines.setdefault(shlex.join(["narrowdown", *here]), command.exit)
    return lines


@pytest.mark.slow
def test_a_session_is_resumed_in_every_way_that_is_shown(shell: Shell) -> None:
    """From its end, back from a question, with a copy: each comes to the same end. And with another
    set-up."""
    begun = shell(of("tutorial")[0].line)
    assert begun.returncode == 0, begun.stderr
    lines = on_the_session(of("resume"))
    assert len(lines) >= 4
    for line, code in lines.items():
        done = shell(line)
        assert (
            done.returncode,
            "8 of 8 tuning samples" in done.stdout or '"end":"worked-around"' in done.stdout,
        ) == (
            code,
            True,
        ), (
            line,
            done.stdout,
            done.stderr,
        )
    edited = on_the_session(of("edit"))
    assert edited
    for line, code in edited.items():
        done = shell(line)
        assert (done.returncode, " taken over." in done.stdout) == (code, True), (
            line,
            done.stdout,
            done.stderr,
        )


@pytest.mark.slow
def test_the_page_about_tolerance_does_what_it_says(shell: Shell) -> None:
    lines = of("tolerance")
    assert len(lines) == 3
    for command in lines:
        done = shell(command.line)
        assert done.returncode == command.exit, (command.line, done.stdout, done.stderr)


def test_what_answers_at_once_does(shell: Shell) -> None:
    shown = (shlex.join(["narrowdown", *(completed(c.words[1:], "") or [])]) for c in of("at once"))
    lines = {line.replace("COMMAND", "step").replace("FILE", "my-flow.yaml") for line in shown}
    assert len(lines) >= 5
    for line in sorted(lines):
        done = shell(line)
        assert (done.returncode, bool(done.stdout)) == (0, True), (line, done.stderr)


@pytest.mark.slow
def test_what_looks_at_the_machine_runs(shell: Shell) -> None:
    for line in sorted({shlex.join(command.words) for command in of("surveys")}):
        done = shell(line)
        assert (done.returncode, "onnxruntime" in done.stdout) == (0, True), (line, done.stderr)


@pytest.mark.slow
def test_whole_routes_come_to_an_end(shell: Shell) -> None:
    """With the model of the tutorial; a person's answers are Enter each time."""
    for number, command in enumerate(of("routes")):
        words = completed(command.words[1:])
        assert words is not None
        names = {"MODEL": "model.onnx", "FILE": "answers.yaml"}
        line = shlex.join(
            [
                "narrowdown",
                *(names.get(word, word) for word in words),
                "--session",
                f"route-{number}",
            ]
        )
        done = shell(line, "\n" * 40)
        assert done.returncode == command.exit, (command.page, line, done.stdout, done.stderr)
        assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_demo_that_is_shown_comes_to_its_end(shell: Shell) -> None:
    """``make demo`` without its installing, which needs the network: with the environment that the
    tests run in."""
    lines = set()
    for command in of("demos"):
        words = command.words
        if words[0] == "make":
            if not MAKEFILE.exists():
                continue
            words = [
                *words[:1],
                "-C",
                str(ROOT),
                "-o",
                f"{sys.prefix}/.demo",
                *words[1:],
                f"VENV={sys.prefix}",
            ]
        lines.add(shlex.join(words))
    for line in sorted(lines):
        done = shell(line)
        if (
            "pillars" in line and "Error 10" in done.stderr
        ):  # a race, which a busy machine may not show in 300 runs
            continue
        assert done.returncode == 0, (line, done.stdout[-3000:], done.stderr)
        assert "workaround" in done.stdout
        if line.startswith("make") and "ARGS" not in line:
            assert [
                text for text in shown_first() if still(text) not in still(done.stdout)
            ] == [], "README"


def shown_first() -> list[str]:
    (block,) = re.findall(
        r"```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    return block.splitlines()


@pytest.mark.slow
def test_pytest_finds_what_it_is_told_to_run() -> None:
    for command in of("collected"):
        done = subprocess.run(
            [sys.executable, "-m", *command.words, "--collect-only", "-q", "-p", "no:cacheprovider"], cwd=ROOT,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command.line, done.stdout)
