"""Every option given wrongly, and every pair that excludes each other: one sentence, exit 2 (4
where something is missing), and no session left behind."""

from pathlib import Path

import pytest

from . import tiny

WRONG: list[tuple[list[str], int, str]] = [
    (["--seed", "x"], 2, "--seed: 'x' is not a whole number"),
    (["--seed", "-1"], 2, "--seed: '-1' is not a whole number"),
    (["--jobs", "0"], 2, "--jobs: '0' is not a whole number from 1"),
    (["--jobs", "999999"], 2, "--jobs: '999999' is not a whole number from 1"),
    (["--timeout", "nan"], 2, "--timeout: 'nan' is not a number of seconds above 0"),
    (["--timeout", "-1"], 2, "--timeout: '-1' is not a number of seconds above 0"),
    (["--capture-bytes", "12Q"], 2, "'12Q' is not a size; write 512MiB"),
    (["--metric", "rel_l1"], 2, "'rel_l1' is not a metric. Did you mean 'rel_l2'?"),
    (["--tolerance", "-1"], 2, "--tolerance: '-1' is not a number of 0 or more"),
    (["--tolerance", "nan"], 2, "--tolerance: 'nan' is not a number of 0 or more"),
    (["--rtol", "y:"], 2, "--rtol: 'y:' is not a number of 0 or more"),
    (["--atol", "inf"], 2, "--atol: 'inf' is not a number of 0 or more"),
    (["--tolerance", "1", "--tolerance", "2"], 2, "--tolerance is given twice for all"),
    (["--atol", "y:1", "--atol", "y:2"], 2, "--atol is given twice for 'y'"),
    (["--input-shapes", "x"], 2, "--input-shapes: 'x' is not name:[d,d]"),
    (["--input-shapes", "x:[-1,16]"], 2, "is not name:[d,d], for example"),
    (["--input-shapes", "x:[2,16]", "--input-shapes", "x:[2,16]"], 2, "--input-shapes is given twice for 'x'"),
    (["--val-range", "x:[2,1]"], 2, "low at most high"),
    (["--val-range", "[nan,1]"], 2, "two finite numbers"),
    (["--engine", "onnxruntim"], 2, "There is no engine 'onnxruntim'. Did you mean 'onnxruntime'?"),
    (["--engine", "onnxruntime:thread=1"], 2, "onnxruntime has no option 'thread'. Did you mean 'threads'?"),
    (["--engine", "onnxruntime:threads=x"], 2, "threads=x is not a whole number"),
    (["--engine", "onnxruntime:threads=-1"], 2, "threads=-1 is out of range; it must be from 0 to 1024"),
    (["--engine", "onnxruntime:threads=1,threads=2"], 2, "'threads' is given twice"),
    (["--engine", "emulate:precision=fp8"], 2, "precision=fp8 is not one of fp16, bf16"),
    (["--engine", "command"], 2, "--engine: command needs run=. It needs a program"),
    (["--engine", "command:run=cat {inputs}"], 2, "run='cat {inputs}' does not say where {outputs} goes."),
    (["--engine", "command:run=no-such-program {inputs} {outputs}"], 4, "The program 'no-such-program' was not found"),
    (["--reference", "nothing"], 2, "--reference: There is no engine 'nothing'"),
    (["--engine", ""], 2, "--engine is empty"),
    (["--check", ""], 2, "--check is empty"),
    (["--metric", ""], 2, "--metric is empty"),
    (["--session", ""], 2, "SESSION is empty"),
    (["--flow", "acuracy"], 2, "Did you mean 'accuracy'?"),
    (["--flow", "none.yaml"], 2, "There is no flow file 'none.yaml'"),
    (["--display", "tv"], 2, "'tv' is not a value of --display"),
    (["--display", "tui"], 2, "--display tui needs a terminal"),
    (["--tolerence", "1"], 2, "There is no option '--tolerence' here. Did you mean '--tolerance'?"),
    (["stray"], 2, "'stray' was not expected"),
    (["--inputs", "none.npz"], 2, "There is no inputs file 'none.npz'"),
    (["--inputs", "x=none.npy"], 2, "There is no inputs file 'none.npy'"),
    (["--inputs", "notes.txt"], 2, "'notes.txt' is not a kind of inputs file"),
    (["--fail-regex", "x"], 2, "--fail-regex says how to read an external checker"),
    (["--check", "true", "--fail-regex", "("], 2, "'(' is not a regular expression"),
    (["--check", "true", "--fail-code", "999"], 2, "'999' is not an exit code from 0 to 255"),
    (["--check", "true", "--fail-code", "1", "--ignore-fail-code", "2"], 2, "not both"),
    (["--check", "true", "--tolerance", "1"], 2, "--check takes the place of the comparison, so --tolerance would say nothing"),
    (["--check", "true", "--metric", "cosine"], 2, "so --metric would say nothing"),
    (["--metric", "cosine", "--atol", "1"], 2, "--atol belongs to the metric elementwise, not to cosine"),
    (["--check", "'half"], 2, "cannot be split into words"),
    (["--check", "   "], 2, "--check needs a command"),
    (["--check", "no-such-checker {model}"], 4, "The checker 'no-such-checker' was not found"),
    (["--check", "./folder {model}"], 4, "The checker './folder' is a folder"),
    (["--check", "./plain.sh {model}"], 4, "The checker './plain.sh' is not executable; make it so (chmod +x plain.sh)"),
    (["--check", "python chekc.py {model}"], 4, "The checker's script 'chekc.py' was not found. Did you mean 'check.py'?"),
]  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for name, text, mode in (
        ("plain.sh", "#!/bin/sh\nexit 1\n", 0o644),
        ("check.py", "", 0o644),
        ("notes.txt", "", 0o644),
    ):
        (tmp_path / name).write_bytes(text.encode())
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir()
    return tiny.faultless(tmp_path)


@pytest.mark.parametrize(("words", "code", "said"), WRONG, ids=[" ".join(w) for w, *_ in WRONG])
def test_an_option_given_wrongly(
    narrowdown, model: Path, words: list[str], code: int, said: str
) -> None:
    ran = narrowdown("run", model, *words)
    assert said in ran.err, ran.err
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert not (model.parent / "sessions").exists(), "no session is left behind"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runn", "x"], "'runn' is not a command. Did you mean 'run'?"),
        (["step", "reduc", "x"], "'reduc' is not a step. Did you mean 'reduce'?"),
        (["flow", "chek", "x"], "'chek' is not a flow command. Did you mean 'check'?"),
        (["demo", "magica"], "'magica' is not a demo. Did you mean 'magika'?"),
        (
            ["replay", "x", "--expect", "fixd"],
            "'fixd' is not a value of --expect. Did you mean 'fixed'?",
        ),
        (["run"], "required: MODEL"),
        (["replay", "x", "--dry", "--engine", "emulate"], "There is no session 'x'"),
    ],
)
def test_a_wrong_word(narrowdown, words: list[str], said: str) -> None:
    ran = narrowdown(*words)
    assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_step_alone(narrowdown, model: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for words, code, said in (
        (
            ["--with", "bilds=3"],
            2,
            "the step repeat has no parameter 'bilds'. Did you mean 'builds'?",
        ),
        (
            ["--with", "builds=x"],
            2,
            "--with builds=x: 'builds' must be a whole number, and this is text.",
        ),
        (["--detach"], 2, "A step alone cannot be detached"),
        (["-o", "folder"], 2, "-o: 'folder' is a folder; name a file in it."),
        (
            ["-o", "taken/out.onnx"],
            2,
            f"-o: 'taken/out.onnx' cannot be written, as '{tmp_path}/taken' is a file",
        ),
        (["-o", model], 2, f"-o: '{model}' is what the step reads"),
    ):
        ran = narrowdown("step", "repeat", model, *words)
        assert ran.code == code
        assert said in ran.err, ran.err
    assert not (model.parent / "sessions").exists()


def test_a_checker_that_the_system_refuses_to_start(
    narrowdown, model: Path, tmp_path: Path
) -> None:
    """What its first bytes do not tell is found out by the first probe, and still is no verdict."""
    (tmp_path / "broken").write_bytes(b"\x7fELF" + bytes(60))
    (tmp_path / "broken").chmod(0o755)
    session = tmp_path / "s"
    ran = narrowdown(
        "run", model, "--check", "./broken {model}", "--display", "none", "--session", session
    )
    assert ran.code == 4, ran.err
    assert "could not be started: Exec format error." in ran.err
    (tmp_path / "broken").write_bytes(b"#!/bin/sh\nexit 0\n")
    assert (
        narrowdown("resume", session, "--display", "none", "--yes-run-scripts", "all").code == 10
    ), "the cause is gone"


def test_inputs_that_do_not_fit_and_the_session_that_waited_for_them(
    narrowdown, model: Path, tmp_path: Path
) -> None:
    loader = tmp_path / "loader.py"
    loader.write_text(
        "import numpy as np\nimport absent\n\ndef load_data():\n    yield {'x': np.ones((2, 16), np.float32)}\n"
    )
    session = tmp_path / "s"
    ran = narrowdown("run", model, "--inputs", loader, "--display", "none", "--session", session)
    assert ran.code == 2
    assert (
        "'loader.py', line 2, stopped with ModuleNotFoundError: No module named 'absent'."
        in ran.err
    )
    (tmp_path / "absent.py").write_text("")
    assert (
        narrowdown("resume", session, "--display", "none", "--yes-run-scripts", "all").code == 10
    ), "the cause is gone"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import time\n    time.sleep(600)", "'loader.py' gave no inputs in time."),
        pytest.param(
            "import os\n    os._exit(3)",
            "'loader.py' took its process down. The worker process ended by itself",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["hangs", "exits"],
)
def test_a_loader_that_does_not_return(
    narrowdown, model: Path, tmp_path: Path, body: str, said: str
) -> None:
    (tmp_path / "loader.py").write_text(f"def load_data():\n    {body}\n    yield {{}}\n")
    ran = narrowdown("run", model, "--inputs", "loader.py", "--timeout", "0.5", "--display", "none")
    assert (ran.code, said in ran.err) == (2, True), ran.err
