"""Names and commands that hold anything, in the programs of a bundle: held literally, obeyed by
nobody."""

import ast
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines import discovery, outside
from narrowdown.engines.backends.tensorrt.outside import keep_in_fp32
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.declaration import Cure, Found
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.probe import Candidate
from narrowdown.engines.spec import EngineSpec, parse
from narrowdown.wizard.bundle.check_script import Asked, engine_part, list_judging_values, script
from narrowdown.wizard.bundle.export import printable, write_case
from narrowdown.wizard.report.portable import Traces
from narrowdown.wizard.words import visible

from ...patience import allow

ENDS = (
    '"', "'", '"""', "'''", "\\", "\n", "\r", "*/", "/*", "`", "$(: > hit)", "`: > hit`", "; : > hit;", "\n: > hit\n",
    "' > hit #", '" > hit #', "#VALUES#", "#NODES#", "{model}", "{{ 7*7 }}", "<script>hit()</script>", "</title>",
    "<!--", "\x1b[31m", "\u202e", "\u2028", "\0", "%s", "{0}", "é", "𝕏", "|", "![x](http://hit)",
    "[a](javascript:hit)", "*b*", "~~s~~", "-->", "EOF\n", "$HOME",
)  # fmt: skip
TEXT = st.lists(st.sampled_from(ENDS) | st.text(max_size=6), min_size=1, max_size=5).map("".join)
NAMES = st.lists(TEXT, min_size=1, max_size=3, unique=True).map(tuple)
# A command's words cannot hold a NUL: the system takes none. An option that ends in a backslash is
# refused.
FILE = TEXT.map(lambda t: re.sub(r"[,=+\0]", "", t).strip()).filter(
    lambda t: bool(t) and not t.endswith("\\")
)
ENGINE = st.builds(
    "{}={}".format,
    st.sampled_from(
        [
            "tensorrt:plugins",
            "tensorrt:precision=int8,calibration",
            "onnxruntime:custom_ops",
            "strange:option",
        ]
    ),
    FILE,
)
COMMAND = st.lists(TEXT.map(lambda t: t.replace("\0", "")).filter(bool), min_size=1, max_size=4)


def culprit(nodes: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> Culprit:
    signature = Signature(kind="accuracy", sample="real:0", outputs=tuple(outputs))
    names = {"nodes": tuple(nodes), "inputs": tuple(inputs), "outputs": tuple(outputs)}
    case = Case(Candidate(), "real:0", verified="3/3", signature=signature, **names)
    return Culprit(case, "overflow")


def asked(
    command: Sequence[str] = (),
    patterns: Sequence[str] = (),
    engine: str = "emulate:precision=fp16",
) -> Asked:
    return Asked(
        engine=engine,
        found_with="onnxruntime 1.31 on CPU",
        criterion=Criterion(tolerance=1e-2, fail_regex=tuple(patterns)),
        check=shlex.join(command),
        needs=tuple(command[1:]),
    )


@settings(max_examples=60)
@given(NAMES, NAMES, NAMES, st.just(()) | COMMAND, NAMES)
def test_check_py_compiles_and_holds_the_very_values(
    nodes, inputs, outputs, command, patterns
) -> None:
    about, how = culprit(nodes, inputs, outputs), asked(command, patterns)
    text = script(about, how)
    tree = ast.parse(text)
    compile(tree, "check.py", "exec")
    told: dict[str, Any] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id != "HERE"
        ):
            told[node.targets[0].id] = ast.literal_eval(node.value)
    values = dict(list_judging_values(about, how, engine_part(how)[0]))
    assert {name: told[name] for name in values} == values
    assert told["CASE"] == visible(told["CASE"]), (
        "it is printed in the terminal of whoever is sent the case"
    )
    assert text.isascii()
    statements = [
        type(node)
        for node in ast.parse(script(culprit("n", "i", "o"), asked(command and ["c"]))).body
    ]
    assert [type(node) for node in tree.body] == statements, "no statement came in with a value"


@settings(max_examples=60)
@given(NAMES.filter(any))
def test_keep_fp32_compiles_and_holds_the_very_names(names) -> None:
    tree = ast.parse(
        keep_in_fp32(Found(parse("tensorrt:precision=fp16"), {"precision": "fp16"}), names)
    )
    made = next(
        n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "NODES"
    )  # type: ignore[attr-defined]
    assert ast.literal_eval(made) == {name for name in names if name}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH in which the tools that commands name do nothing, and nothing else is."""
    place = tmp_path_factory.mktemp("tools")
    for name in ("polygraphy", "trtexec", "narrowdown", "python", "cp"):
        (place / name).write_text("#!/bin/sh\nexit 0\n")
        (place / name).chmod(0o755)
    return place


@settings(max_examples=60)
@given(NAMES, NAMES, st.just(()) | COMMAND, ENGINE)
def test_commands_sh_is_sound_and_runs_nothing_of_a_name(
    tools, tmp_path_factory, inputs, outputs, command, engine
) -> None:
    """Each line of it is run, the checker's own line aside, whose program is the user's."""
    place = tmp_path_factory.mktemp("case")
    write_case(
        place,
        culprit(("n",), inputs, outputs),
        {},
        asked(("checker", *command) if command else (), (), engine),
    )
    shell = shutil.which("sh") or "/bin/sh"
    assert (
        subprocess.run([shell, "-n", "commands.sh"], cwd=place, capture_output=True).returncode == 0
    )
    before = sorted(place.iterdir())
    ran = subprocess.run(
        [shell, "commands.sh"],
        cwd=place,
        env={"PATH": str(tools)},
        capture_output=True,
        timeout=allow(30),
    )
    assert sorted(place.iterdir()) == before, ran.stderr
    shutil.rmtree(place)


@given(TEXT.map(lambda t: t.replace("\0", "").replace("\r", "")))
@settings(max_examples=30)
def test_commands_sh_shows_a_name_and_says_it_whole(text: str) -> None:
    """``cat commands.sh`` obeyed the escapes of a name."""
    line = printable(f"printf %s {shlex.quote(text)}")
    assert visible(line, keep="\n", longest=10**6) == line
    ran = subprocess.run(["sh", "-c", line], capture_output=True, timeout=allow(30))
    assert ran.stdout.decode() == text


def test_which_host_it_was_is_left_out_however_short_its_name() -> None:
    told = {"host": "vm", "a": [{"host": "vm", "b": "vm is a name of a node, too"}]}
    assert Traces().cleaned(told) == {"a": [{"b": "vm is a name of a node, too"}]}


def test_a_node_called_like_roots_folder_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text('["/root/Conv"]', encoding="utf-8")
    (tmp_path / "journal.jsonl").write_text('{"at": "/home/mallory/x"}', encoding="utf-8")
    assert Traces({}, {"/root": "~", "/home/mallory": "~"}, ()).left(tmp_path) == ["journal.jsonl"]


@given(TEXT, TEXT)
def test_cleaning_twice_is_cleaning_once_and_touches_no_other_text(before: str, after: str) -> None:
    found = Traces(
        {"/home/mallory/net.onnx": "net.onnx"},
        {"/home/mallory": "~", "/srv/work": ""},
        ("mallory", "secret-host"),
    )
    for word in (
        "/home/mallory/net.onnx",
        "/home/mallory/x",
        "/srv/work/y",
        "/home/other/z",
        "mallory",
        "secret-host",
    ):
        once = found.clean(f"{before} {word} {after}")
        assert found.clean(once) == once
        assert "mallory" not in once
        assert "secret-host" not in once
        assert "/srv/work" not in once
    assert found.clean(before) == before
    assert (
        found.clean("/head/MatMul /home /var/home/mallory2 mallory-2")
        == "/head/MatMul /home /var/home/mallory2 mallory-2"
    )


@pytest.mark.parametrize("name", discovery.ours())
def test_no_option_becomes_code_in_a_workaround(name: str) -> None:
    """``tactic_sources`` and ``compute_capability`` of a session stood as they were in the Python
    of a workaround."""
    evil = "a)\nevil('b')#\\, \"\"\" ''' {evil()} #VALUES#"
    for option in discovery.find(name).options:
        if option.type in ("int", "float", "bool") or option.choices:
            continue
        for text in (evil, f"K={evil}"):
            spec = EngineSpec(name, ((option.name, text),))
            cure = Cure(
                ("node",), failing=outside.found(EngineSpec(name)), file="worked-around.onnx"
            )
            for recipe in outside.apply(outside.found(spec), cure):
                if recipe.language == "python":
                    called = [
                        n.func for n in ast.walk(ast.parse(recipe.text)) if isinstance(n, ast.Call)
                    ]
                    assert "evil" not in map(ast.unparse, called), (option.name, recipe.text)
