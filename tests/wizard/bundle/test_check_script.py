"""The check that travels with a case: a script of its own, run as a stranger would, against real
engines."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper

from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.probe import Candidate
from narrowdown.wizard.bundle.check_script import Asked, ascii_only, script

from ...here import run_check

NAME = "out'\"\n\x1b[0mé"


def culprit(kind="accuracy", outputs=("y",)) -> Culprit:
    signature = Signature(kind=kind, sample="real:0", outputs=outputs)
    return Culprit(
        Case(
            Candidate(),
            "real:0",
            nodes=("Square",),
            outputs=outputs,
            verified="3/3",
            signature=signature,
        ),
        "overflow",
    )


def model(path: Path, *, half: bool, output: str = "y") -> None:
    """y = x * x, stored in between as FP16 where ``half``: 300 squared does not fit."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"], name="Square")]
    if half:
        nodes += [
            helper.make_node("Cast", ["s"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["h"], [output], to=TensorProto.FLOAT),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["s"], [output]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "square", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path
    )


def case(
    folder: Path, asked: Asked, *, half: bool = True, of: Culprit | None = None, output: str = "y"
) -> Path:
    x = np.array([1, 2, 3, 300], np.float32)
    model(folder / "model.onnx", half=False, output=output)
    model(folder / "engine.onnx", half=half, output=output)
    np.savez(folder / "inputs.npz", x=x)
    np.savez(folder / "expected.npz", **{output: x * x})
    (folder / "check.py").write_text(
        script(of or culprit(outputs=(output,)), asked), encoding="utf-8"
    )
    return folder


def run(folder: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return run_check(folder / "check.py", *words, environment={**os.environ, **extra})


def asked(engine="emulate:precision=fp16", **rest) -> Asked:
    return Asked(
        engine=engine,
        found_with="onnxruntime 1.31.1 on CPU",
        criterion=rest.pop("criterion", Criterion(tolerance=1e-2)),
        **rest,
    )


@pytest.mark.parametrize(
    "engine", ["emulate:precision=fp16", "reference:precision=fp16", "onnxruntime:optimization=all"]
)
def test_it_fails_while_the_fault_lasts_and_passes_once_it_is_gone(
    tmp_path: Path, engine: str
) -> None:
    case(tmp_path, asked(engine))
    still = run(tmp_path)
    assert still.returncode == 1, still.stdout + still.stderr
    assert "still there: Square" in still.stdout
    assert "inf, allowed 0.01" in still.stdout
    model(tmp_path / "engine.onnx", half=False)
    gone = run(tmp_path)
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert "The fault is gone" in gone.stdout


@pytest.mark.parametrize("spoil", ["engine.onnx", "inputs.npz", "expected.npz"])
def test_it_cannot_tell_from_broken_files(tmp_path: Path, spoil: str) -> None:
    case(tmp_path, asked())
    (tmp_path / spoil).write_bytes(b"broken")
    told = run(tmp_path)
    assert told.returncode == 2
    assert told.stdout.startswith("cannot tell:")
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("gone", ["engine.onnx", "inputs.npz", "expected.npz"])
def test_it_names_what_is_missing_and_says_what_to_do(tmp_path: Path, gone: str) -> None:
    """It said that the engine refused."""
    case(tmp_path, asked())
    (tmp_path / gone).unlink()
    told = run(tmp_path)
    assert told.returncode == 2
    where = (
        f"{gone} should lie beside check.py in {tmp_path}; copy the whole folder of the case again"
    )
    assert told.stdout.splitlines() == [f"cannot tell: {where}"]


def test_a_file_that_cannot_be_read_is_not_the_engine_s(tmp_path: Path) -> None:
    case(tmp_path, asked())
    (tmp_path / "inputs.npz").write_bytes(b"broken")
    said = run(tmp_path).stdout
    assert f"cannot tell: inputs.npz in {tmp_path} cannot be read (" in said
    assert "engine refused" not in said


def test_weights_that_are_missing_are_no_fault_of_the_engine(tmp_path: Path) -> None:
    """A case that does not build is still there where the engine refuses it, which it does for want
    of the weights, too."""
    case(tmp_path, asked(), of=culprit("build"))
    built = onnx.load(tmp_path / "engine.onnx")
    built.graph.initializer.append(
        onnx.numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    )
    built.graph.node.append(helper.make_node("Identity", ["w"], ["unused"]))
    onnx.save(
        built, tmp_path / "engine.onnx", save_as_external_data=True, location="engine.weights.bin"
    )
    assert run(tmp_path).returncode == 0
    (tmp_path / "engine.weights.bin").unlink()
    told = run(tmp_path)
    assert told.returncode == 2, told.stdout
    assert "cannot tell: engine.weights.bin should lie beside check.py" in told.stdout


def test_it_cannot_tell_without_its_packages(tmp_path: Path) -> None:
    case(tmp_path, asked())
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "onnxruntime.py").write_text(
        "raise ModuleNotFoundError('gone', name='onnxruntime')\n"
    )
    told = run(tmp_path, PYTHONPATH=str(shadow))
    assert told.returncode == 2
    assert (
        "onnxruntime is not installed; check.py needs: pip install numpy onnxruntime" in told.stdout
    )


def test_an_engine_that_it_does_not_know(tmp_path: Path) -> None:
    case(tmp_path, asked("tensorrt:precision=fp16"))
    told = run(tmp_path)
    assert told.returncode == 2
    assert "tensorrt" in told.stdout


def test_an_intermittent_fault_is_looked_at_n_times(tmp_path: Path) -> None:
    case(tmp_path, asked(looks=3), half=False)
    told = run(tmp_path)
    assert told.returncode == 0
    assert told.stdout.count("passes") == 3
    assert "in 3 looks" in told.stdout
    assert run(tmp_path, "--looks", "2").stdout.count("passes") == 2


def test_a_model_that_does_not_build(tmp_path: Path) -> None:
    case(tmp_path, asked(), of=culprit("build"), half=False)
    assert run(tmp_path).returncode == 0
    broken = onnx.load(tmp_path / "model.onnx")
    broken.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(broken, tmp_path / "engine.onnx")
    told = run(tmp_path)
    assert told.returncode == 1, told.stdout + told.stderr
    assert "refuses the model" in told.stdout


def test_a_crash_is_looked_at_in_a_process_of_its_own(tmp_path: Path) -> None:
    case(tmp_path, asked(), of=culprit("crash"))
    assert run(tmp_path).returncode == 0
    killer = tmp_path / "killer"
    killer.mkdir()
    (killer / "onnxruntime.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    told = run(tmp_path, PYTHONPATH=str(killer))
    assert told.returncode == 1
    assert "died of signal 11" in told.stdout
    (killer / "onnxruntime.py").rename(tmp_path / "onnxruntime.py")
    told = subprocess.run(
        [sys.executable, "-P", tmp_path / "check.py"], capture_output=True, text=True
    )
    assert told.returncode == 0, "started without the modules beside it, so is what it starts"


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ({}, 1),
        ({"ignore_fail_codes": (7,)}, 0),
        ({"fail_codes": (7,)}, 1),
        ({"fail_codes": (8,)}, 0),
        ({"fail_regex": ("difference",)}, 1),
        ({"fail_regex": ("nothing",)}, 0),
        ({"fail_regex": ("nothing",), "fail_codes": (7,)}, 0),
    ],
)
def test_an_external_checker(tmp_path: Path, rules: dict, code: int) -> None:
    checker = tmp_path / "checker.sh"
    checker.write_text('#!/bin/sh\ntest -f "$1" || exit 99\necho "difference exceeds"\nexit 7\n')
    checker.chmod(0o755)
    case(
        tmp_path,
        asked(check=f"{checker} {{model}}", criterion=Criterion(**rules)),
        of=culprit("check"),
    )
    told = run(tmp_path)
    assert told.returncode == code, told.stdout + told.stderr


def test_a_pattern_that_comes_to_no_end_is_ended(tmp_path: Path) -> None:
    words = {"criterion": Criterion(fail_regex=("(a+)+$",)), "check": f"echo {'a' * 60}! {{model}}"}
    case(tmp_path, asked(**words), of=culprit("check"))
    path = tmp_path / "check.py"
    text = path.read_text()
    assert text.count("timeout=60)") == 1
    path.write_text(text.replace("timeout=60)", "timeout=1)"))
    told = run(tmp_path)
    assert told.returncode == 2, told.stdout + told.stderr
    assert "could not be searched for" in told.stdout


def test_names_that_hold_anything(tmp_path: Path) -> None:
    case(tmp_path, asked(), output=NAME)
    told = run(tmp_path)
    assert told.returncode == 1, told.stdout + told.stderr
    assert "\x1b" not in told.stdout
    assert (tmp_path / "check.py").read_text().isascii()


def test_outputs_that_only_a_postprocess_script_names(tmp_path: Path) -> None:
    """The case is the whole model, its failure that of an output which the model does not have."""
    signed = culprit(outputs=("score",))
    whole = msgspec.structs.replace(
        signed, case=msgspec.structs.replace(signed.case, outputs=("y",))
    )
    done = run(case(tmp_path, asked(), of=whole))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "'y'" in done.stdout


def test_old_pythons_can_read_it() -> None:
    """Whoever gets the case may have another Python: no syntax that is newer than 3.8."""
    text = script(culprit(), asked())
    ast.parse(text, feature_version=(3, 8))
    calls = {
        node.func.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and hasattr(node.func, "attr")
    }
    assert not calls & {"removeprefix", "removesuffix", "pairwise", "batched", "is_relative_to"}, (
        "methods of later ones"
    )


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_any_value_survives_the_way_into_the_script(values: dict[str, str]) -> None:
    assert eval(ascii_only(repr(values))) == values


@pytest.mark.parametrize(
    "metric",
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
    ],
)
def test_every_metric_tells_right_from_wrong(tmp_path: Path, metric: str) -> None:
    tolerance = {"sqnr_db": 40.0, "ulp": 4.0}.get(metric, 1e-3)
    folder = case(
        tmp_path, asked(criterion=Criterion(metric=metric, tolerance=tolerance)), half=False
    )
    assert run(folder).returncode == 0
    np.savez(
        folder / "expected.npz", y=np.array([1, -4, 9, -45000], np.float32)
    )  # every difference is finite
    told = run(folder)
    assert told.returncode == 1, told.stdout + told.stderr
    assert "inf" not in told.stdout


TENSORRT = '''
"""A stand-in for TensorRT's builder: prints the flags of a build. The network quantizes where the model file says so."""
from pathlib import Path
from types import SimpleNamespace

__version__ = "10.6.0"
BuilderFlag = SimpleNamespace(INT8="INT8", FP16="FP16", TF32="TF32")
LayerType = SimpleNamespace(DEQUANTIZE="DEQUANTIZE")
NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
ComputeCapability = SimpleNamespace(SM89="SM89")


class Logger:
    ERROR = 1

    def __init__(self, level):
        pass


class IInt8EntropyCalibrator2:
    pass


class Network:
    num_inputs, num_layers = 0, 1

    def get_layer(self, i):
        return SimpleNamespace(type=self.kind)


class OnnxParser:
    def __init__(self, network, logger):
        self.network = network

    def parse_from_file(self, path):
        self.network.kind = "DEQUANTIZE" if b"DequantizeLinear" in Path(path).read_bytes() else "ELEMENTWISE"
        return True


class Config:
    int8_calibrator = None

    def __init__(self):
        self.flags = []

    def set_flag(self, flag):
        self.flags.append(flag)

    def clear_flag(self, flag):
        pass

    def set_compute_capability(self, *_):
        pass


class Builder:
    def __init__(self, logger):
        pass

    def create_network(self, flags):
        return Network()

    def create_builder_config(self):
        return Config()

    def build_serialized_network(self, network, config):
        cache = config.int8_calibrator.read_calibration_cache() if config.int8_calibrator else b""
        print("built with", config.flags, cache)
        return b"plan"
'''


def tensorrt_case(folder: Path, spec: str) -> Path:
    """A case of a TensorRT build, checked by the stand-in, under the name of the one that needs no
    GPU."""
    (folder / "tensorrt_rtx").mkdir()
    (folder / "tensorrt_rtx" / "__init__.py").write_text(TENSORRT)
    case(folder, asked(spec), of=culprit(kind="build"))
    check = folder / "check.py"
    text = check.read_text(encoding="utf-8")
    check.write_text(
        text.replace("'package': 'tensorrt'", "'package': 'tensorrt_rtx'"), encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize(("pairs", "flags"), [(False, []), (True, ["INT8"])])
def test_a_part_that_quantizes_nothing_is_built_without_the_flag(
    tmp_path: Path, pairs: bool, flags: list[str]
) -> None:
    folder = tensorrt_case(tmp_path, "tensorrt:precision=int8,typing=weak")
    if pairs:
        (folder / "engine.onnx").write_bytes(b"DequantizeLinear")
    ran = run(folder, PYTHONPATH=str(folder))
    assert f"built with {flags} b''" in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0


def test_a_calibration_cache_is_asked_for_and_used(tmp_path: Path) -> None:
    folder = tensorrt_case(
        tmp_path, "tensorrt:precision=int8,typing=weak,calibration=/elsewhere/model.cache"
    )
    ran = run(folder, PYTHONPATH=str(folder))
    assert "put it beside this file as calibration.cache" in ran.stdout + ran.stderr
    (folder / "calibration.cache").write_bytes(b"TRT-100600-EntropyCalibration2\nx: 3c")
    ran = run(folder, PYTHONPATH=str(folder))
    assert "built with ['INT8'] b'TRT-100600" in ran.stdout, ran.stdout + ran.stderr


def test_what_cannot_be_measured_does_not_pass(tmp_path: Path) -> None:
    """Doubles of 1e200: their norms are infinite, and infinite over infinite is NaN, which is under
    no limit."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["wide", "much"], ["y"], name="Square"),
    ]
    ends = [
        helper.make_tensor_value_info("x", 1, [4]),
        helper.make_tensor_value_info("y", TensorProto.DOUBLE, [4]),
    ]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [helper.make_tensor("much", 11, [], [1e200])]
    )
    for name in ("model.onnx", "engine.onnx"):
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
            tmp_path / name,
        )
    x = np.array([1, 2, 3, 4], np.float32)
    np.savez(tmp_path / "inputs.npz", x=x)
    np.savez(tmp_path / "expected.npz", y=3e200 * x.astype(np.float64))
    (tmp_path / "check.py").write_text(script(culprit(), asked("onnxruntime")), encoding="utf-8")
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILS " in done.stdout


def test_no_value_of_a_session_becomes_code() -> None:
    """An engine named ``x=#VALUES#`` had all values put into the middle of a quoted text, where
    the name of a node was code."""
    evil = "');raise SystemExit('ran')#"
    named = msgspec.structs.replace(culprit().case, nodes=(evil, "#ENGINE#"), verified="#VALUES#")
    for engine in ("emulate:x=#VALUES#", "nobodys:x=#VALUES##ENGINE#"):
        text = script(
            Culprit(named, "overflow"), Asked(engine, f"{evil}#VALUES#", Criterion("rel_l2", 1e-3))
        )
        assert sum(line.startswith("CASE = ") for line in text.splitlines()) == 1
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id.isupper()
            and node.targets[0].id != "HERE"
        }
        assert values["ENGINE"] == engine
        assert values["FAILED"] == "#VALUES#"
        raised = [ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Raise)]
        assert "raise SystemExit('ran')" not in raised
