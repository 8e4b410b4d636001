"""One checker, two tools: the real Polygraphy and Narrowdown must read it alike, except where we
are three-valued on purpose."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.compare.judge import judge_check
from narrowdown.engines.compare.tolerance import criterion
from narrowdown.engines.data import held
from narrowdown.engines.graph import load
from narrowdown.engines.probe import Check
from narrowdown.engines.store import Store
from narrowdown.engines.workers.operations import execute_probe
from narrowdown.wizard.cli import main
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.problem_options import problem_from

from ..consents import to_check

tools = pytest.importorskip("polygraphy.tools")
pytestmark = pytest.mark.filterwarnings(
    "ignore:SelectableGroups:DeprecationWarning"
)  # its own affair

Behaviour = tuple[int, str, str]  # exit status, stdout, stderr


def chain(path: Path, ops: tuple[str, ...] = ("Relu", "Exp", "Neg", "Sigmoid")) -> Path:
    """A model of one node after another, x -> y, on [1, 4] floats."""
    names = ["x", *(f"t{i}" for i in range(1, len(ops))), "y"]
    nodes = [
        helper.make_node(op, [names[i]], [names[i + 1]], name=f"{op}_{i}")
        for i, op in enumerate(ops)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def polygraphy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run the real tool in this process, in the test's folder: what it printed. It must end with
    0."""

    def run(*words: str | Path) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["polygraphy", *map(str, words)])
        code = tools.main()
        said = capsys.readouterr()
        assert not code, said.out + said.err
        return said.out + said.err

    return run


def theirs(polygraphy: Callable[..., str], checker: Path, options: list[str]) -> str:
    polygraphy("debug", "repeat", "--until=1", *options, "--check", checker)
    replay = json.loads(Path("polygraphy_debug_replay.json").read_text())
    return "pass" if replay["_N0"]["success"] else "fail"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str, Path]:
    folder = tmp_path_factory.mktemp("session")
    store = Store(folder)
    path = chain(folder / "m.onnx")
    return store, load.import_model(path, store).digest, path


def ours(
    session: tuple[Store, str, Path], checker: Path, options: list[str], timeout: float = 0.0
) -> str:
    """From the command line's words to a verdict, as a session takes them."""
    store, model, path = session
    problem = problem_from(parse(["step", "repeat", str(path), "--check", str(checker), *options]))
    with held.under(to_check(problem.check)):
        measurement = execute_probe(
            Check(model=model, command=problem.check, timeout=timeout), store, lambda _: None
        )
    return judge_check(measurement, criterion(problem, "fp32")).kind


PASS, FAIL = "pass", "fail"
TABLE: list[tuple[Behaviour, list[str], str]] = [
    # no options: the exit status alone
    ((0, "", ""), [], PASS),
    ((1, "", ""), [], FAIL),
    ((255, "", ""), [], FAIL),
    ((0, "FAILED", "error"), [], PASS),
    # listed codes are failures, every other one passes
    ((3, "", ""), ["--fail-code", "3"], FAIL),
    ((1, "", ""), ["--fail-code", "3"], PASS),
    ((0, "", ""), ["--fail-code", "0"], FAIL),
    ((4, "", ""), ["--fail-code", "3", "4"], FAIL),
    ((5, "", ""), ["--fail-code", "3", "4"], PASS),
    # ignored codes pass, every other one but 0 fails
    ((3, "", ""), ["--ignore-fail-code", "3"], PASS),
    ((2, "", ""), ["--ignore-fail-code", "3"], FAIL),
    ((4, "", ""), ["--ignore-fail-code", "3", "4"], PASS),
    ((0, "", ""), ["--ignore-fail-code", "3"], PASS),
    # a regex alone decides, whatever the exit status; either stream will do
    ((0, "Difference exceeds tolerance", ""), ["--fail-regex", "exceeds"], FAIL),
    ((0, "", "Difference exceeds tolerance"), ["--fail-regex", "exceeds"], FAIL),
    ((1, "out of memory", ""), ["--fail-regex", "exceeds"], PASS),
    ((1, "it exceeds", ""), ["--fail-regex", "exceeds"], FAIL),
    ((0, "Exceeds", ""), ["--fail-regex", "exceeds"], PASS),
    ((0, "Exceeds", ""), ["--fail-regex", "(?i)exceeds"], FAIL),
    ((0, "max 0.25\\nlast", ""), ["--fail-regex", r"max 0\.[0-9]+$"], PASS),
    ((0, "max 0.25\\nlast", ""), ["--fail-regex", r"(?m)max 0\.[0-9]+$"], FAIL),
    ((0, "one", "two"), ["--fail-regex", "onetwo"], FAIL),  # the streams are searched end to end
    ((0, "one", "two"), ["--fail-regex", "^two"], PASS),
    ((0, "", "one"), ["--fail-regex", "^one"], FAIL),
    # ignored codes come before the regex
    ((3, "it exceeds", ""), ["--ignore-fail-code", "3", "--fail-regex", "exceeds"], PASS),
    ((2, "it exceeds", ""), ["--ignore-fail-code", "3", "--fail-regex", "exceeds"], FAIL),
    ((2, "fine", ""), ["--ignore-fail-code", "3", "--fail-regex", "exceeds"], PASS),
    # listed codes and a regex: both
    ((3, "it exceeds", ""), ["--fail-code", "3", "--fail-regex", "exceeds"], FAIL),
    ((3, "fine", ""), ["--fail-code", "3", "--fail-regex", "exceeds"], PASS),
    ((2, "it exceeds", ""), ["--fail-code", "3", "--fail-regex", "exceeds"], PASS),
    ((0, "it exceeds", ""), ["--fail-code", "3", "--fail-regex", "exceeds"], PASS),
]  # fmt: skip


@pytest.mark.parametrize(("behaviour", "options", "verdict"), TABLE)
def test_the_same_verdict(
    behaviour: Behaviour, options: list[str], verdict: str, polygraphy, session, tmp_path
) -> None:
    code, out, err = behaviour
    checker = script(tmp_path / "check.sh", f"printf '{out}'; printf '{err}' >&2; exit {code}")
    assert theirs(polygraphy, checker, options) == verdict
    assert ours(session, checker, options) == verdict


@pytest.mark.parametrize("patterns", [["exceeds", "NaN"], ["NaN", "exceeds"]])
def test_any_of_several_regexes(patterns: list[str], polygraphy, session, tmp_path) -> None:
    """Theirs stand behind one option, of which the last counts; ours repeat it."""
    checker = script(tmp_path / "check.sh", "echo it exceeds")
    repeated = [word for pattern in patterns for word in ("--fail-regex", pattern)]
    assert theirs(polygraphy, checker, ["--fail-regex", *patterns]) == FAIL
    assert ours(session, checker, repeated) == FAIL
    assert ours(session, script(tmp_path / "check.sh", "echo fine"), repeated) == PASS


def test_a_regex_finds_what_stands_deep_in_a_long_output(polygraphy, session, tmp_path) -> None:
    line = "yes 'a line of a long log' | head -n {} "
    checker = script(
        tmp_path / "check.sh", f"{line.format(20_000)}; echo it exceeds; {line.format(20_000)}"
    )
    assert theirs(polygraphy, checker, ["--fail-regex", "exceeds"]) == FAIL
    assert ours(session, checker, ["--fail-regex", "exceeds"]) == FAIL


@pytest.mark.parametrize(("options", "their_verdict"), [([], FAIL), (["--fail-code", "1"], PASS)])
def test_a_checker_that_dies_is_no_verdict_here(
    options: list[str], their_verdict: str, polygraphy, session, tmp_path
) -> None:
    """On purpose: a crash says nothing about accuracy. There it is a failure, or, with codes or a
    regex, a pass."""
    checker = script(tmp_path / "check.sh", "kill -SEGV $$")
    assert theirs(polygraphy, checker, options) == their_verdict
    assert ours(session, checker, options) == "unresolved"


def test_a_checker_that_takes_too_long_is_no_verdict_here(session, tmp_path) -> None:
    """On purpose: there it would never be stopped."""
    checker = script(tmp_path / "check.sh", "exec sleep 60")
    assert ours(session, checker, [], timeout=0.2) == "unresolved"


def test_too_much_output_to_be_searched_is_no_verdict_here(session, tmp_path) -> None:
    """On purpose: what a regex would find in the part that is not kept nobody knows. A match in the
    rest still counts."""
    line = "yes 'a line of a long log that is very long indeed' | head -n 60000"
    silent = script(tmp_path / "check.sh", line)
    assert ours(session, silent, ["--fail-regex", "exceeds"]) == "unresolved"
    assert ours(session, silent, ["--fail-code", "3", "--fail-regex", "exceeds"]) == PASS
    assert ours(session, silent, []) == PASS
    assert (
        ours(
            session,
            script(tmp_path / "check.sh", f"{line}; echo it exceeds"),
            ["--fail-regex", "exceeds"],
        )
        == FAIL
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--check", "true", "--fail-code", "1", "--ignore-fail-code", "2"], "not both"),
        (["--ignore-fail-code", "2"], "--check"),
        (["--check", "true", "--artifacts", "/tmp/x"], "below the folder"),
        (["--check", "true", "--until", "soon"], "neither good nor bad"),
        (["--check", "true", "--until", "0"], "neither good nor bad"),
        (["--artifacts", "x"], "--check"),
        (["--seed", "-1"], "whole number"),
        (["--val-range", "[0,inf]"], "finite"),
        (["--val-range", "x:[nan,1]"], "finite"),
        (["--input-shapes", "x:[1,-1]"], "name:[d,d]"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    tmp_path, capsys, options: list[str], said: str
) -> None:
    assert main(["step", "repeat", str(chain(tmp_path / "m.onnx")), *options]) == 2
    assert said in capsys.readouterr().err


# -- the same script, unmodified, under both tools

# It reads the candidate and a file of its own by name from where it runs, and leaves a log.
HABITUAL = "read op < suspect.txt; echo looked > look.log; ! grep -q $op polygraphy_debug.onnx"


@pytest.mark.slow
def test_a_reducers_script_works_unmodified(polygraphy, narrowdown, tmp_path) -> None:
    model = chain(tmp_path / "m.onnx")
    script(tmp_path / "check.sh", HABITUAL)
    (tmp_path / "suspect.txt").write_text("Exp\n")
    files = ["--artifacts", "polygraphy_debug.onnx", "look.log"]
    polygraphy(
        "debug",
        "reduce",
        model,
        "-o",
        "theirs.onnx",
        "--mode=bisect",
        *files,
        "--art-dir",
        "t",
        "--check",
        "./check.sh",
    )
    ran = narrowdown(
        "step",
        "reduce",
        model,
        "-o",
        "ours.onnx",
        *files,
        "--art-dir",
        "o",
        "--check",
        "./check.sh",
        "--json",
    )
    assert ran.code == 0, ran.err
    assert [
        [n.op_type for n in onnx.load(tmp_path / f"{who}.onnx").graph.node]
        for who in ("theirs", "ours")
    ] == [["Exp"]] * 2
    assert not (tmp_path / "look.log").exists()  # each check has a folder of its own
    assert not (tmp_path / "polygraphy_debug.onnx").exists()
    names = sorted(p.name for p in (tmp_path / "o" / "bad").iterdir())
    pattern = r"(look|polygraphy_debug)_\d\d-\d\d-\d\d_\d\d-\d\d-\d\d_N\d+{}\.(log|onnx)"
    assert_all(pattern.format(""), names)
    assert_all(
        pattern.format("_(in|out)puts"), [p.name for p in (tmp_path / "t" / "bad").iterdir()]
    )
    # Every kept candidate is what its folder says.
    for folder, holds in (("good", False), ("bad", True)):
        kept = list((tmp_path / "o" / folder).glob("*.onnx"))
        assert kept
        for path in kept:
            assert ("Exp" in {n.op_type for n in onnx.load(path).graph.node}) == holds
    assert "iteration(s) | Passed:" in ran.err
    # The case travels with a check that runs the same script in the same way.
    case = tmp_path / "case"
    assert narrowdown("export", ran.json()["session"], "-o", case).code == 0
    check = [sys.executable, "-P", str(case / "check.py")]
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 1
    assert subprocess.run(check, cwd=case, check=False).returncode == 2, "the script is not there"
    assert subprocess.run([*check, "--folder", tmp_path], cwd=case, check=False).returncode == 1
    (tmp_path / "suspect.txt").write_text("Tanh\n")
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0


def test_a_command_may_name_the_candidate_as_polygraphy_does(narrowdown, tmp_path) -> None:
    """An old candidate that lies about is not meant, and nothing is appended to a command that
    names it."""
    model = chain(tmp_path / "m.onnx")
    chain(tmp_path / "polygraphy_debug.onnx", ("Tanh", "Tanh"))
    (tmp_path / "check.py").write_text(
        "import sys\nassert sys.argv[1:] == ['polygraphy_debug.onnx', '--strict'], sys.argv\n"
        "data = open(sys.argv[1], 'rb').read()\nassert b'Tanh' not in data\nsys.exit(7 if b'Neg' in data else 0)\n"
    )
    command = f"{sys.executable} check.py polygraphy_debug.onnx --strict"
    ran = narrowdown("step", "reduce", model, "--check", command, "--fail-code", "7", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["nodes"] == ["Neg_2"]


FLAKY = "n=$(cat $COUNTER 2>/dev/null || echo 0); n=$((n+1)); echo $n > $COUNTER; echo $n > look.txt; [ $((n % 3)) -ne 0 ]"


@pytest.mark.parametrize(
    ("until", "verdicts"),
    [
        ("7", "1101101"),
        pytest.param("bad", "110", marks=pytest.mark.slow),
        pytest.param("good", "1", marks=pytest.mark.slow),
    ],
)
def test_repeat_until(
    until: str, verdicts: str, polygraphy, narrowdown, surroundings, tmp_path, monkeypatch
) -> None:
    """Every third look fails: both tools see the same ones, sort the same files, and end with the
    same words."""
    expected = [v == "1" for v in verdicts]
    script(tmp_path / "check.sh", FLAKY)
    model = chain(tmp_path / "m.onnx")
    files = ["--artifacts", "look.txt"]
    monkeypatch.setenv("COUNTER", str(tmp_path / "theirs"))
    said = polygraphy(
        "debug", "repeat", f"--until={until}", *files, "--art-dir", "t", "--check", "./check.sh"
    )
    surroundings["COUNTER"] = str(tmp_path / "ours")
    own = ["--check", "./check.sh", "--pass-env", "COUNTER"]
    ran = narrowdown("step", "repeat", model, "--until", until, *files, "--art-dir", "o", *own)
    assert ran.code == (0 if False in expected else 10), ran.out + ran.err
    words = next(line for line in said.splitlines() if "Finished" in line).removeprefix("[I] ")
    assert words in ran.out.splitlines()
    for folder, good in (("good", True), ("bad", False)):
        looks = [str(i + 1) for i, passed in enumerate(expected) if passed == good]
        for who in ("t", "o"):
            found = (
                sorted((tmp_path / who / folder).glob("*"))
                if (tmp_path / who / folder).exists()
                else []
            )
            assert [p.read_text().strip() for p in found] == looks, who
            assert [p.stem.rpartition("_N")[2] for p in found] == [str(int(n) - 1) for n in looks]


def test_builds_of_an_engine_are_sorted_too(narrowdown, tmp_path) -> None:
    """``debug build``: what each build leaves goes where its accuracy says."""
    model = chain(tmp_path / "m.onnx", ("Exp", "Exp"))
    words = [
        "--engine",
        "fake:fault=wrong,rate=0.5,seed=4",
        "--until",
        "6",
        "--artifacts",
        "engine.onnx",
        "--art-dir",
        "o",
    ]
    ran = narrowdown("step", "repeat", model, *words)
    assert ran.code == 0, ran.out + ran.err
    good, bad = (
        len(list((tmp_path / "o" / kind).glob("engine_*.onnx"))) for kind in ("good", "bad")
    )
    assert good
    assert bad
    assert good + bad == 6
    assert f"Finished 6 iteration(s) | Passed: {good}/6" in ran.out


def test_builds_that_choose_kernels_leave_their_replays(narrowdown, tmp_path) -> None:
    """``debug build --save-tactics``, then ``inspect diff-tactics``: the same folders and suspects,
    in Polygraphy's format."""
    model = chain(tmp_path / "m.onnx", ("Exp", "Tanh"))
    names = [n.name for n in onnx.load(model).graph.node]
    engine = f"fake:fault=wrong,nodes={names[1]},tactics=3,bad=1,seed=4"
    words = [
        "--engine",
        engine,
        "--until",
        "10",
        "--artifacts",
        "replay.json",
        "--art-dir",
        "replays",
    ]
    ran = narrowdown("step", "repeat", model, *words)
    assert ran.code == 0, ran.out + ran.err
    told = narrowdown("diff-tactics", "--dir", "replays")
    good, bad = (
        sorted((tmp_path / "replays" / kind).glob("replay_*_N*.json")) for kind in ("good", "bad")
    )
    assert good
    assert bad
    assert f"Loaded {len(bad)} bad tactic replays." in told.out
    assert "Found potentially bad tactics:" in told.out
    assert f"Layer: {names[1]}" in told.out
    assert "(Implementation: 0, Tactic: 1)" in told.out
    content = json.loads(bad[0].read_text())
    assert content["polygraphy_class"] == "TacticReplayData"
    assert content["replay"][names[1]]["polygraphy_class"] == "Algorithm"


def assert_all(pattern: str, names: list[str]) -> None:
    assert names
    assert [n for n in names if not re.fullmatch(pattern, n)] == []
