"""The command line's grammar and its manners: sentences, exit codes, and no heavy import."""

import argparse
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown.engines import installed
from narrowdown.wizard import Exit, Refusal
from narrowdown.wizard.cli import main
from narrowdown.wizard.cli.arguments import parse, parser, parser_for
from narrowdown.wizard.cli.parsing import Parser, inner
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.problem_options import (
    bounds,
    checker,
    input_source,
    model_file,
    problem_from,
    require_engines,
    shape,
    value_range,
)

HEAVY = ("numpy", "onnx", "onnxruntime", "openvino", "tensorrt", "textual", "jinja2")


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["step", "--help"], ["--version"], ["runn"]]
)
def test_a_light_start(words: list[str]) -> None:
    code = (
        f"import sys; from narrowdown.wizard.cli import main; main({words!r}); "
        f"print(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1:] in ([""], []), done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "narrowdown.wizard.cli",
        "narrowdown.wizard.plain",
        "narrowdown.wizard.report",
        "narrowdown.wizard.problem_options",
        "narrowdown.wizard.demo",
        "narrowdown.wizard.trust",
    ],
)
def test_no_module_loads_the_machine_room(module: str) -> None:
    code = f"import sys, {module}; sys.exit(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runn", "m.onnx"], "Did you mean 'run'?"),
        (["run", "m.onnx", "--engin=x"], "Did you mean '--engine'?"),
        (["run", "m.onnx", "--jobs", "0"], "whole number"),
        (["run", "m.onnx", "--capture-bytes", "lots"], "is not a size"),
        (["run", "m.onnx", "--timeout", "-1"], "seconds"),
        (["run"], "MODEL"),
        (["step", "reduse", "m.onnx"], "Did you mean 'reduce'?"),
        (["run", "m.onnx", "extra"], "'extra' was not expected"),
        (["replay", "s", "--expect", "beter"], "same"),
    ],
)
def test_wrong_words_are_one_sentence_and_exit_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == Exit.BAD_USAGE
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_a_missing_model_names_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "resnet50.onnx").touch()
    assert main(["run", str(tmp_path / "resnet.onnx")]) == Exit.BAD_USAGE
    assert "Did you mean 'resnet50.onnx'?" in capsys.readouterr().err


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="is a folder"):
        model_file(str(tmp_path))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("no-such-checker {model}", Exit.MISSING),
        ("'open quote", Exit.BAD_USAGE),
        ("  ", Exit.BAD_USAGE),
    ],
)
def test_a_checker_that_cannot_be_started(command: str, code: int) -> None:
    with pytest.raises(Refusal) as refused:
        checker(command)
    assert refused.value.code == code


def test_a_checker_that_misspells_what_is_put_in() -> None:
    """``{modell}`` was handed over as it stands, and the checker's own failing was no failure of
    the model."""
    with pytest.raises(
        Refusal, match=r"nothing is put in for '\{modell\}'\. Did you mean '\{model\}'\?"
    ) as refused:
        checker("cat {modell}")
    assert refused.value.code == Exit.BAD_USAGE
    for command in (
        "cat {model} {dir}",
        "sh -c 'echo ${modell} {a: 1}' {model}",
        "awk '{print}' {model}",
    ):
        assert checker(command)


def test_a_checker_that_is_not_executable(tmp_path: Path) -> None:
    script = tmp_path / "check.sh"
    script.write_text("exit 0\n")
    with pytest.raises(Refusal, match="is not executable") as refused:
        checker(f"{script} {{model}}")
    assert refused.value.code == Exit.MISSING


@pytest.mark.timeout(20)  # it would wait for a writer without end
def test_a_checker_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "check"
    os.mkfifo(pipe, 0o755)
    with pytest.raises(
        Refusal, match=r"^The checker '.*/check' cannot be started: it is a pipe, "
    ) as refused:
        checker(f"{pipe} {{model}}")
    assert refused.value.code == Exit.MISSING


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("image:[1,3,224,224]", ("image", (1, 3, 224, 224))),
        ("a:b:[2]", ("a:b", (2,))),
        ("scalar:[]", ("scalar", ())),
    ],
)
def test_shapes(text: str, parsed: tuple[str, tuple[int, ...]]) -> None:
    assert shape(text) == parsed


@pytest.mark.parametrize("text", ["image", "image:1,2", "image:[a]", ":[1]", "[1,2]"])
def test_wrong_shapes(text: str) -> None:
    with pytest.raises(Refusal, match="--input-shapes"):
        shape(text)


def test_ranges_and_bounds() -> None:
    assert value_range("[0,1]") == ("", (0.0, 1.0))
    assert value_range("x:y:[-1,1e3]") == ("x:y", (-1.0, 1000.0))
    assert bounds("--atol", ["1e-3", "out:0:0.5"]) == {"": 1e-3, "out:0": 0.5}
    for wrong in ("x:[1]", "[2,1]", "[a,b]"):
        with pytest.raises(Refusal):
            value_range(wrong)
    assert bounds("--tolerance", ["1%", "y:2.5%"]) == {"": 0.01, "y": 0.025}
    for wrong in ("nan", "inf", "-1", "x:", "abc", "%", "1%%", "1%2"):
        with pytest.raises(Refusal):
            bounds("--tolerance", [wrong])


def test_images_are_refused_in_the_form_where_nothing_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.PNG").touch()
    problem = Problem(
        model="m.onnx",
        engine="reference",
        reference="reference",
        inputs=(f"x={tmp_path / 'photos'}",),
    )
    require_engines(problem)
    here = installed.importable
    monkeypatch.setattr(installed, "importable", lambda package: package != "PIL" and here(package))
    with pytest.raises(Refusal, match=re.escape(f"{sys.executable} -m pip install pillow")):
        require_engines(problem)
    require_engines(problem, "dask:tcp://hosts:1")


def test_inputs_are_checked_early(tmp_path: Path) -> None:
    script = tmp_path / "loader.py"
    script.write_text("def load_data(): yield {}\n")
    (tmp_path / "data.txt").touch()
    assert input_source(f"{script}:batches") == f"{script}:batches"
    assert input_source(str(script)) == str(script)
    with pytest.raises(Refusal, match=r"Did you mean 'loader\.py'"):
        input_source(str(tmp_path / "loaders.py"))
    with pytest.raises(Refusal, match="not a kind of inputs"):
        input_source(str(tmp_path / "data.txt"))


def test_regexes_need_a_checker_and_must_compile(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(bytes([0x3A, 0x00]))  # the smallest file with a graph
    with pytest.raises(Refusal, match="--check"):
        problem_from(parse(["run", str(model), "--fail-regex", "x"]))
    with pytest.raises(Refusal, match="not a regular expression"):
        problem_from(parse(["run", str(model), "--check", "true", "--fail-regex", "("]))


def test_every_command_has_a_function_that_exists() -> None:
    top = parser()
    subparsers = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    required = {
        "open", "run", "resume", "replay", "report", "export", "sessions", "show", "watch", "engines", "flow", "step", "demo",
    }  # fmt: skip
    assert required <= set(subparsers.choices)
    for name, made in subparsers.choices.items():
        command = made.get_default("command")
        assert callable(
            getattr(
                importlib.import_module(f"narrowdown.wizard.cli.{command.module}"), command.function
            )
        ), name


def test_the_steps_are_those_of_the_registry() -> None:
    from narrowdown.engines.steps.registry import STEPS

    alone = [name for name, spec in STEPS.items() if spec.alone]
    assert set(STEPS) - set(alone) == {"double-check"}
    for name in alone:
        assert parse(["step", name, "model.onnx"]).name == name
    with pytest.raises(Refusal, match="only makes sense in a flow"):
        parse(["step", "double-check", "model.onnx"])


def test_our_own_fault_is_one_sentence_and_a_trace_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import narrowdown.wizard.cli.entry as entry

    def broken(_: object) -> None:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(entry, "plain_words", broken)
    assert main(["sessions"]) == 70
    said = capsys.readouterr().err
    assert "our fault" in said
    assert "Traceback" not in said
    trace = next(
        Path(word.rstrip(";")) for word in said.split() if word.rstrip(";").endswith(".trace")
    )
    assert "deep inside" in trace.read_text()
    trace.unlink()


def test_folders_of_the_user_are_not_taken_for_ours(tmp_path: Path) -> None:
    for name in ("engines", "wizard", "flows"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from narrowdown.wizard.cli import main; sys.exit(main(['sessions']))"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("after", [(), ("--seed", "3")])
def test_two_patterns_behind_one_option_and_the_model_anywhere(
    tmp_path: Path, after: tuple[str, ...]
) -> None:
    """As Polygraphy reads them; a word that names a file is the model, whatever its name ends
    in."""
    model = tmp_path / "m.onnx"
    model.write_bytes((MODELS / "shapes_cnn.onnx").read_bytes())
    for words in (
        [str(model), "--check", "true", "--fail-regex", "exceeds", "is NaN", *after],
        ["--check", "true", "--fail-regex", "exceeds", "is NaN", *after, str(model)],
        [
            "--check",
            "true",
            "--fail-regex",
            "exceeds",
            "--fail-regex",
            "is NaN",
            *after,
            str(model),
        ],
    ):
        problem = problem_from(parse(["run", *words]))
        assert (problem.fail_regex, problem.model) == (("exceeds", "is NaN"), str(model))
    other = model.rename(model.with_suffix(".bin"))
    problem = problem_from(parse(["run", "--check", "true", "--fail-regex", "exceeds", str(other)]))
    assert (problem.fail_regex, problem.model) == (("exceeds",), str(other))


@pytest.mark.parametrize("name", inner(parser()))
def test_a_command_alone_has_the_grammar_that_it_has_among_all(name: str) -> None:
    """What is made for one command of the line is what the whole grammar says of it, to the last
    word of its help."""
    whole, alone = inner(parser()), inner(parser_for([name, "anything"]))
    assert list(alone) == [name]

    def all_help(made: Parser) -> list[str]:
        return [
            made.format_help(),
            *(text for below in inner(made).values() for text in all_help(below)),
        ]

    assert all_help(alone[name]) == all_help(whole[name])


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["nothing-of-ours"], ["model.onnx"], ["-V", "step"]]
)
def test_words_that_begin_with_no_command_are_held_against_all(words: list[str]) -> None:
    assert inner(parser_for(words)).keys() == inner(parser()).keys()


def test_the_exit_codes_are_all_in_the_help() -> None:
    """14 and what it means were missing."""
    told = " ".join(parser().format_help().split()).partition("Exit: ")[2]
    codes = set(Exit)
    assert {int(entry.split()[0]) for entry in told.strip(".").split(", ")} == codes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["step", "ladder", "x.onnx"], "'ladder' is a command of its own and no step: narrowdown ladder --help"),
        (["reduce", "x.onnx"], "'reduce' is a step and no command: narrowdown step reduce MODEL"),
        (["help", "reduce"], "'reduce' is a step and no command: narrowdown help step"),
        (["flow"], "are required: list|check|show."),
        (["run", str(MODELS / "shapes_cnn.onnx"), "--engine", "onnxruntime", "--reference", "golden"],
         "--reference: nothing follows 'golden:'. It needs what was recorded: golden:OUTPUTS.npz."),
    ],
)  # fmt: skip
def test_what_is_lacking_or_is_another_kind_of_word(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == Exit.BAD_USAGE
    assert told in capsys.readouterr().err
