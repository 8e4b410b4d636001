"""``narrowdown ladder``: real check scripts in real processes, of releases that answer as they are
told to."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.table import read_table
from narrowdown.engines.probe import Candidate
from narrowdown.wizard import trust
from narrowdown.wizard.bundle.check_script import Asked, script
from narrowdown.wizard.cli import main
from narrowdown.wizard.cli.arguments import parser
from narrowdown.wizard.cli.ladder import asked_places
from narrowdown.wizard.ladder import checks, environments
from narrowdown.wizard.ladder.offer import first_release, offer_ladder
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.state import State

CHECK = """HERE = ""
import os, sys, time
version = os.environ.get("RELEASE", "") or open(os.path.join(os.environ["PYTHONPATH"], "version")).read()
open(HERE + "asked", "a").write(version + " ")
if version == "1.3":
    os.kill(os.getpid(), 11)
print("  FAILS   rel_l2 1, allowed 0.001, on 'y'" if version < "1.5" else "  passes  rel_l2 0, allowed 0.001, on 'y'")
print(f"on fast {version}; the case was found with fast 1.2 on CPU")
sys.exit(version < "1.5")
"""

LEAVES = "left = tempfile.mkstemp()[1]; open(HERE + 'left', 'w').write(left)\n"


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    made = tmp_path / "case-of-mine"
    made.mkdir()
    write(made)
    return made


def write(bundle: Path, text: str = CHECK) -> None:
    """A check that leaves its marks beside the bundle: what runs is a copy of it."""
    (bundle / "check.py").write_text(
        text.replace('HERE = ""', f"HERE = {str(bundle.parent) + '/'!r}")
    )


def sites(tmp_path: Path, *versions: str) -> list[str]:
    words = []
    for version in versions:
        (tmp_path / version).mkdir()
        (tmp_path / version / "version").write_text(version)
        words += ["--site", str(tmp_path / version)]
    return words


def test_nothing_of_a_bundle_runs_before_somebody_agreed(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ladder", str(bundle), *sites(tmp_path, "1.1", "1.6")]
    assert main(words) == 3
    said = capsys.readouterr().err
    assert "check of a bundle" in said
    assert not (bundle.parent / "asked").exists()
    digest = said.partition("sha256 ")[2].split()[0]
    assert main([*words, "--yes-run-scripts", digest]) == 0
    assert main(words) == 0  # it is remembered
    write(bundle, CHECK + "\n")
    assert main(words) == 3  # as it was


def test_a_case_over_releases_is_told_and_drawn(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ladder", str(bundle), *sites(tmp_path, "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")]
    assert main([*words, "--yes-run-scripts", "all", "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["mended_in"].endswith("/1.5")
    assert case["last_bad"].endswith("/1.4")
    assert (case["first_bad"], case["monotone"], case["found_with"]) == (
        "",
        True,
        "fast 1.2 on CPU",
    )
    outcomes = [(rung["outcome"], rung["tried"]) for rung in case["rungs"]]
    assert outcomes[0] == ("fails", True)
    assert outcomes[1] == ("fails", False)
    assert outcomes[5] == ("passes", True)
    assert len((bundle.parent / "asked").read_text().split()) == case["tried"] < 6
    assert main([*words, "--yes-run-scripts", "all"]) == 0
    assert "(fails)" in capsys.readouterr().out
    assert main([*words, "--yes-run-scripts", "all", "--every"]) == 0
    said = capsys.readouterr()
    assert "It died of signal 11." in said.err
    assert "(fails)" not in said.out
    assert "5 of 6 were tried" in said.out


def test_a_release_that_hangs_or_is_another_one_cannot_tell(
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environments, "_pip", lambda *words: pytest.fail("it was there already"))
    installed("1.1")
    installed("1.6", runs="1.61")
    words = ["ladder", str(bundle), "--install", "fast==1.6,1.1", "--yes-run-scripts", "all"]
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr()
    rungs = json.loads(told.out)["cases"][0]["rungs"]
    assert [(r["release"], r["outcome"]) for r in rungs] == [
        ("fast 1.1", "fails"),
        ("fast 1.6", "cannot tell"),
    ]
    assert "fails in fast 1.1: FAILS   rel_l2 1" in told.err
    assert "Another release ran than was asked for: fast 1.61." in told.err
    write(bundle, "import time; time.sleep(600)")
    assert main([*words, "--timeout", "1s"]) == 6
    assert "It was ended after 1 s." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "in one way"),
        (["--install", "fast"], "names no releases"),
        (["--install", "fast==1;rm"], "is no version"),
        (["--install=-r==1"], "names no releases"),
        (["--site", "/none/at/all"], "is no folder"),
    ],
)
def test_what_cannot_be_climbed_is_refused(
    bundle: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ladder", str(bundle), *words, "--yes-run-scripts", "all"]) == 2
    assert said in capsys.readouterr().err


def test_releases_are_ordered_by_their_numbers() -> None:
    assert [p.version for p in environments.releases("fast==1.10,1.9,1.9.1")] == [
        "1.9",
        "1.9.1",
        "1.10",
    ]
    versions = ("1.9", "1.19.9", "1.20.0", "1.23.2", "1.24.0", "1.21.0rc1")
    assert [v for v in versions if environments.in_range(v, "1.20", "1.23")] == ["1.20.0", "1.23.2"]


def test_a_check_that_is_ended_leaves_no_temporary_file(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine := tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(mine))
    write(
        bundle, CHECK.replace("import os, sys, time", "import os, sys, time, tempfile\n" + LEAVES)
    )
    answer = checks.ask(
        checks.Case("case", bundle),
        environments.Place("here", (sys.executable,), {"RELEASE": "1.6"}),
        20.0,
    )
    assert answer.outcome == "passes"
    assert list(mine.iterdir()) == []
    assert Path((bundle.parent / "left").read_text()).parent.parent == mine


def test_pip_is_that_of_the_interpreter_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pip.py", "json.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    environments._pip("--version")
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_an_identity_transpose_before_a_gemm_is_wrong_up_to_1_29_and_mended_in_1_30(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """microsoft/onnxruntime#32228, in releases from the package index: some minutes and 0.6 GB."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = next(bug.make for bug in read_table() if bug.id == "ort-gemm-identity-transpose")
    model = construct(made)
    (folder := tmp_path / "gemm").mkdir()
    onnx.save(model, folder / "engine.onnx")
    feeds = {"a": np.random.default_rng(1).uniform(-1, 1, (4, 4)).astype(np.float32)}
    np.savez(folder / "inputs.npz", **feeds)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.savez(folder / "expected.npz", y=expected)
    case = Case(
        Candidate(),
        "real:0",
        nodes=("Gemm",),
        outputs=("y",),
        signature=Signature("accuracy", "real:0", ("y",)),
    )
    engine = "onnxruntime:optimization=all"
    found = Asked(
        engine,
        f"{engine} 1.23.2 on CPU",
        Criterion(metric="rel_l2", tolerance=1e-3),
        version="1.23.2",
    )
    (folder / "check.py").write_text(script(Culprit(case, "fusion"), found))
    words = [
        "ladder",
        str(folder),
        "--install",
        "onnxruntime==1.23.2,1.26.0,1.29.0,1.30.0",
        "--yes-run-scripts",
        "all",
    ]
    assert main([*words, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["cases"]
    assert (told["last_bad"], told["mended_in"]) == ("onnxruntime 1.29.0", "onnxruntime 1.30.0")


def installed(*versions: str, runs: str = "") -> None:
    """Releases that lie where pip has put them. ``runs``: the release that they really are."""
    tag = f"py{sys.version_info.major}{sys.version_info.minor}"
    for version in versions:
        (folder := environments.root() / f"fast-{version}-{tag}").mkdir(parents=True)
        (folder / "version").write_text(runs or version)
        trust.remember([environments.as_installed(folder)])


@pytest.mark.parametrize("comes", ["planted", "changed", "linked"])
def test_a_release_runs_as_it_was_installed_or_is_installed_anew(
    bundle: Path, comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that somebody else has put there ran."""
    evil = "import os; open(os.environ['PYTHONPATH'] + '/../ran', 'w')"
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    write(bundle, CHECK + "import planted\n")
    (place,) = environments.releases("fast==1.6")
    assert place.folder
    if comes != "planted":
        installed("1.6")
    place.folder.mkdir(parents=True, exist_ok=True)
    if comes == "linked":
        (bundle.parent / "evil").mkdir()
        (bundle.parent / "evil" / "__init__.py").write_text(evil)
        (place.folder / "planted").symlink_to(bundle.parent / "evil")
    else:
        (place.folder / "planted.py").write_text(evil)
    asked: list[str] = []

    def pip(module: str, words: list[str], *_: object) -> subprocess.CompletedProcess[str]:
        asked.append(words[-1])
        (folder := Path(words[words.index("--target") + 1])).mkdir()
        (folder / "version").write_text("1.6")
        (folder / "planted.py").write_text("")
        return subprocess.CompletedProcess([], 0, "", "")

    monkeypatch.setattr(environments, "run_module", pip)
    words = ["ladder", str(bundle), "--install", "fast==1.6", "--yes-run-scripts", "all"]
    assert main(words) == 0
    assert not (environments.root() / "ran").exists()
    assert (place.folder / "version").read_text() == "1.6"
    assert environments.install(place) == ""
    assert asked == ["fast==1.6"], "once is enough"


@pytest.mark.parametrize(
    ("version", "first"),
    [("1.31.1", "1.0"), ("1.2", "1.0"), ("2026.4.1-1234", "2026.0"), ("11.3.0.14", "11.0")],
)
def test_a_ladder_begins_where_the_first_number_does(version: str, first: str) -> None:
    assert first_release(version) == first


EMULATED = "emulate:precision=fp16"


def test_what_is_offered_is_a_command_of_the_case_and_its_engine() -> None:
    culprit = Culprit(Case(Candidate(), "real:0", nodes=("Gemm",)), "fusion")
    taken = State(
        taken=Findings(culprits=(culprit,)),
        engines={"onnxruntime": {"version": "1.31.1"}, EMULATED: {"version": "1.31.1"}},
    )
    problem = Problem(model="/m.onnx", engine="onnxruntime")
    line = offer_ladder(taken, problem, "bug")
    assert line == "narrowdown ladder bug --install onnxruntime:1.0.."
    parser().parse_args(shlex.split(line)[1:])
    assert (
        offer_ladder(msgspec.structs.replace(taken, taken=None), problem, "bug") == ""
    )  # 'after' comes first
    assert offer_ladder(msgspec.structs.replace(taken, taken=Findings()), problem, "bug") == ""
    emulated = msgspec.structs.replace(problem, engine=EMULATED)
    assert offer_ladder(taken, emulated, "bug") == ""  # no release is at fault


BESIDE = """HERE = ""
import os, pathlib, subprocess, sys
from pathlib import Path
COMMAND = "python judge.py {model}"
said = subprocess.run([sys.executable, str(Path(__file__).parent / "judge.py")], capture_output=True, text=True)
open(HERE + "asked", "a").write(said.stdout)
print("on fast 1.6; the case was found with fast 1.2 on CPU")
"""


def test_a_bundle_is_agreed_to_whole_and_runs_as_it_was_agreed_to(
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the checker of a bundle imports counts as its check.py does; nothing can be swapped
    behind the question."""
    monkeypatch.delenv(
        "PYTHONSAFEPATH", raising=False
    )  # with it no file beside the check is imported
    installed("1.6")
    write(bundle, BESIDE)
    (bundle / "judge.py").write_text("import helper\n")
    (bundle / "helper.py").write_text("print('agreed')\n")
    words = ["ladder", str(bundle), "--install", "fast==1.6"]
    assert main(words) == 3
    said = capsys.readouterr().err
    assert str(bundle / "helper.py") in said
    agreeing = ["--yes-run-scripts", said.partition("sha256 ")[2].split()[0]]
    assert main([*words, *agreeing]) == 0
    assert main(words) == 0
    assert (bundle.parent / "asked").read_text().split() == ["agreed", "agreed"]
    (bundle / "helper.py").write_text("print('other')\n")
    assert main(words) == 3
    assert main([*words, "--yes-run-scripts", "all"]) == 0
    assert (bundle.parent / "asked").read_text().split() == ["agreed", "agreed", "other"]

    def swapped(*given: object) -> list[environments.Place]:
        (bundle / "helper.py").write_text("print('swapped')\n")
        return asked_places(*given)

    monkeypatch.setattr("narrowdown.wizard.cli.ladder.asked_places", swapped)
    assert main([*words, "--yes-run-scripts", "all"]) == 4
    assert "helper.py' has changed since it was agreed to" in capsys.readouterr().err
    assert "swapped" not in (bundle.parent / "asked").read_text()


def test_a_script_elsewhere_that_a_bundle_names_is_agreed_to_with_it(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (script := tmp_path / "elsewhere.py").write_text("print('agreed')\n")
    write(bundle, BESIDE.replace("judge.py {model}", f"{script} {{model}}"))
    words = ["ladder", str(bundle), *sites(tmp_path, "1.6")]
    assert main(words) == 3
    said = capsys.readouterr().err
    assert str(script) in said
    assert main([*words, "--yes-run-scripts", said.partition("sha256 ")[2].split()[0]]) == 0
    script.write_text("print('other')\n")
    assert main(words) == 3


LETS_GO = """import signal, subprocess
open(HERE + "seen", "w").write(os.environ.get("HF_TOKEN", "nothing") + os.environ["PATH"])
daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(HERE + "left", "w").write(str(daemon.pid))
"""


def test_a_check_is_run_as_any_checker_is(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No secret of the environment is seen, and a daemon that it lets go of ends with it."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    write(bundle, CHECK.replace("import os, sys, time", "import os, sys, time\n" + LETS_GO))
    assert main(["ladder", str(bundle), *sites(tmp_path, "1.6"), "--yes-run-scripts", "all"]) == 0
    assert (bundle.parent / "seen").read_text() == "nothing" + os.environ["PATH"]
    left = int((bundle.parent / "left").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(left, 0)
