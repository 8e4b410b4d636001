"""The commands that come with a case: for its engine, words that the real tools take."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from narrowdown.engines import discovery, options
from narrowdown.engines.compare import metrics
from narrowdown.engines.compare.judge import Criterion, over
from narrowdown.engines.spec import parse
from narrowdown.wizard.cli.arguments import parse as narrowdown
from narrowdown.wizard.manual_commands import commands, tolerances

# Its own affair: what it uses of importlib.
pytestmark = pytest.mark.filterwarnings("ignore:SelectableGroups:DeprecationWarning")

SPECS = {
    "onnxruntime": "--onnxrt --graph-optimization-level ORT_DISABLE_ALL",
    "onnxruntime:optimization=all": "engine.onnx --onnxrt --load-inputs",
    "onnxruntime:optimization=all,provider=cuda": "--providers CUDAExecutionProvider CPUExecutionProvider",
    "onnxruntime:disabled_optimizers=Pad_Fusion,optimization=all": "cannot be told: which optimizers are off",
    "emulate:precision=bf16": "--trt --bf16",
    "openvino:precision=f16": "cannot run OpenVINO",
    "reference:precision=fp16": "cannot run ONNX's own evaluator",
    "tensorrt": "--trt --tf32",
    "tensorrt:precision=fp32": "--noTF32",
    "tensorrt:precision=fp16": "--trt --fp16",
    "tensorrt:precision=fp16,typing=strong": "engine.onnx --trt --strongly-typed",
    "tensorrt:precision=int8,calibration=my cache.bin": "--calibration-cache 'my cache.bin'",
    "tensorrt:precision=fp16,optimization_level=0,workspace=64,tactic_sources=CUBLAS+CUDNN": "workspace:64M",
    "tensorrt_rtx:precision=fp16": "POLYGRAPHY_USE_TENSORRT_RTX=1 polygraphy run engine.onnx --trt",
    "fake:fault=wrong": "cannot run fake",
}  # fmt: skip


def lines(
    spec: str,
    inputs: tuple[str, ...] = ("x",),
    criterion: Criterion | None = None,
    version: str = "",
) -> list[str]:
    return commands(options.check(spec), criterion or Criterion(tolerance=1e-2), inputs, version)


@pytest.fixture
def polygraphy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], str]:
    """The script that the real Polygraphy makes of a command: its parser has taken every word, its
    checks have passed."""
    tools = pytest.importorskip("polygraphy.tools")

    def script(words: list[str]) -> str:
        made = tmp_path / "made.py"
        monkeypatch.setattr("sys.argv", ["polygraphy", *words, "--gen-script", str(made)])
        capsys.readouterr()
        try:
            code = tools.main()
        except SystemExit as end:  # what argparse does with a word that it does not know
            code = end.code
        said = capsys.readouterr()
        assert not code, said.out + said.err
        return made.read_text()

    return script


@pytest.mark.parametrize("spec", SPECS)
def test_they_are_for_the_engine_of_the_case(spec: str) -> None:
    said = "\n".join(lines(spec))
    assert SPECS[spec] in said
    assert ("--trt" in said) == spec.startswith(("tensorrt", "emulate"))
    assert ("trtexec" in said) == spec.startswith(("tensorrt:", "emulate")) or spec == "tensorrt"


@pytest.mark.parametrize("spec", SPECS)
def test_polygraphy_and_narrowdown_take_them(
    spec: str, polygraphy: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for line in lines(spec):
        words = shlex.split(line, comments=True)
        if words[:1] == ["POLYGRAPHY_USE_TENSORRT_RTX=1"]:
            monkeypatch.setattr("polygraphy.config.USE_TENSORRT_RTX", True)
            words = words[1:]
        if words[:2] == ["polygraphy", "run"]:
            script = polygraphy(words[1:])
            assert "load_json" in script or "inputs.json" in script
            assert ("TrtRunner" in script) == ("--trt" in words)
            assert ("OnnxrtRunner" in script) == ("--onnxrt" in words)
            seen.append("polygraphy")
        if words[:1] == ["narrowdown"]:
            narrowdown(words[1:])
            seen.append("narrowdown")
    assert {"polygraphy", "narrowdown"} <= set(seen)


# Options of ``polygraphy run`` in 0.49.0, seen in its help; all later ones up to 0.53.6 have them
# too.
OLD = {
    "--onnxrt", "--trt", "--load-inputs", "--load-outputs", "--atol", "--rtol", "--providers", "--strongly-typed", "--fp16",
    "--bf16", "--int8", "--fp8", "--tf32", "--builder-optimization-level", "--pool-limit", "--tactic-sources", "--plugins",
    "--calibration-cache",
}  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_older_polygraphy_takes_them_too_where_the_file_says_so(spec: str) -> None:
    said = "\n".join(lines(spec))
    used = {
        w
        for line in lines(spec)
        if "polygraphy run" in line
        for w in line.split()
        if w.startswith("--")
    }
    assert used - OLD <= {"--graph-optimization-level"}
    assert ("before Polygraphy 0.53.6 leave out --graph" in said) == (
        "--graph-optimization-level" in used
    )


def test_a_fault_that_comes_and_goes() -> None:
    spec, criterion = (
        options.check("onnxruntime:optimization=all,threads=2"),
        Criterion(tolerance=1e-2),
    )
    said = "\n".join(commands(spec, criterion, ("x",), looks=300))
    assert "check.py looks up to 300 times, one run of what follows may pass" in said
    assert "cannot be told: 2 threads" in said
    assert "comes and goes" not in "\n".join(commands(spec, criterion, ("x",)))


def test_typing_ends_with_tensorrt_10() -> None:
    assert "--trt --fp16" in "\n".join(lines("tensorrt:precision=fp16", version="10.13.3"))
    new = "\n".join(lines("tensorrt:precision=fp16", version="11.0.0.1"))
    assert "--strongly-typed" in new
    assert "trtexec --onnx=engine.onnx" in new
    assert "--stronglyTyped" not in new, "trtexec of 11 has no other typing"
    assert "--fp16" not in new


@pytest.mark.parametrize(
    ("criterion", "said"),
    [
        (Criterion(tolerance=1e-2), ("--tolerance 0.01", "--atol 0 --rtol 0.01")),
        (
            Criterion(metric="max_abs", tolerance=0.5),
            ("--metric max_abs --tolerance 0.5", "--atol 0.5 --rtol 0"),
        ),
        (
            Criterion(metric="sqnr_db", tolerance=40),
            ("--metric sqnr_db --tolerance 40", "--atol 0 --rtol 0.01"),
        ),
        (Criterion(metric="elementwise", atol=1e-3, rtol=1e-2), ("--atol 0.001 --rtol 0.01",) * 2),
    ],
)
def test_what_is_allowed(criterion: Criterion, said: tuple[str, str]) -> None:
    own, theirs = said
    found = lines("onnxruntime", criterion=criterion)
    assert own in found[-1]
    assert any(theirs in line for line in found if line.startswith("polygraphy"))
    narrowdown(shlex.split(found[-1])[1:])


@pytest.mark.parametrize("name", ["a b", "$(touch pwned)", "`touch pwned`", "ü", "; exit 3", '"'])
def test_no_name_is_obeyed_by_the_shell(name: str, tmp_path) -> None:
    for spec in ("tensorrt", "onnxruntime"):
        ours = [line for line in lines(spec, (name,)) if line and not line.startswith("#")]
        tools = "".join(
            f"{tool}() {{ printf '%s\\n' \"$@\"; }}\n"
            for tool in ("polygraphy", "trtexec", "narrowdown", "python")
        )
        ran = subprocess.run(
            ["sh", "-c", tools + "\n".join(ours)], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert not list(tmp_path.iterdir())
        if spec == "tensorrt":
            assert f"--loadInputs='{name}':input-0.bin" in ran.stdout.splitlines()


@pytest.mark.parametrize("name", ["a'b", "a,b", "a\x1b[31m"])
def test_names_that_trtexec_cannot_be_told_are_left_out(name: str) -> None:
    said = "\n".join(lines("tensorrt", (name,)))
    assert "trtexec" not in said
    assert "\x1b" not in said
    assert len(said) < 3_000


def test_every_engine_has_commands() -> None:
    for name, declared in discovery.ours().items():
        if declared.package:
            own = lines(name)[:2]
            assert (
                own[1] == "python check.py"
                if declared.check_part
                else own[0].startswith("# check.py cannot run")
            )
            assert parse(name).name == name


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(
        [
            "rel_l2",
            "rel_max",
            "max_abs",
            "max_rel",
            "cosine",
            "sqnr_db",
            "ulp",
            "mismatched",
            "elementwise",
        ]
    ),
    st.lists(st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 2), min_size=1, max_size=8),
    st.floats(1e-6, 0.5),
)
def test_polygraphy_sees_whatever_the_metric_sees(
    metric: str, pairs: list[tuple[float, float]], limit: float
) -> None:
    """Its rule: an element fails where it is over both; there is one wherever the output fails for
    us."""
    expected, actual = (np.float32(x) for x in zip(*pairs, strict=True))
    tolerance = {"sqnr_db": 40.0, "ulp": 1e4 * limit}.get(metric, limit)
    criterion = Criterion(metric=metric, tolerance=tolerance, atol=limit, rtol=limit)
    assume(over(metrics.score("y", actual, expected), criterion))
    atol, rtol = tolerances(criterion)
    difference, size = np.abs(actual.astype(float) - expected), np.abs(expected.astype(float))
    assert ((difference > atol * (1 - 1e-6)) & (difference > rtol * (1 - 1e-6) * size)).any()


def test_what_no_runner_gives_from_rounded_inputs_is_not_offered() -> None:
    spec, criterion = options.check("openvino"), Criterion(tolerance=1e-2)
    assert "--onnxrt" in "\n".join(commands(spec, criterion, ("x",)))
    assert "--onnxrt" not in "\n".join(commands(spec, criterion, ("x",), rounded=True))
