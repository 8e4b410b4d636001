"""The export itself, in a Python that has torch: NARROWDOWN_TORCH_PYTHON names it."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from narrowdown.engines import options
from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, Engine, EngineFault
from narrowdown.engines.consent import Consent, Permit
from narrowdown.engines.data import held
from narrowdown.engines.exporting import launch
from narrowdown.engines.problem import Exported
from tests.consents import digests
from tests.docs.shown import ROOT

PYTHON = os.environ.get("NARROWDOWN_TORCH_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="needs a Python with torch"),
    pytest.mark.timeout(600),
]
PROGRAM = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, a, b=None):
        y = self.act(self.norm(self.l(a)))
        return {"y": y if b is None else y + b, "z": [y * 2]}


def given():
    return Two(), {"a": torch.randn(2, 4), "b": torch.randn(2, 4)}


def told():
    return Two(), {"a": torch.randn(2, 4)}, {"opset_version": 21, "dynamic_shapes": {"a": {0: "n"}}}


def half():
    return Two().half(), {"a": torch.randn(2, 4).half()}


class Draws(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def draws():
    return Draws(), (torch.randn(2, 4),)


def bad():
    raise ValueError("the weights are gone")


class Plain(Two):  # what the exporter has put together it cannot take other weights of
    def __init__(self):
        super().__init__()
        self.norm = nn.Identity()
"""
WRITE = """
import sys, torch
import numpy as np
from safetensors.torch import save_file
sys.path.insert(0, ".")
import program
a, b = torch.ones(2, 4), torch.ones(2, 4) * 2
np.savez("named.npz", b=b.numpy(), a=a.numpy())
np.savez("placed.npz", a.numpy(), b.numpy())
torch.save({"a": a, "b": b}, "named.pt")
torch.save((a, b), "placed.pt")
save_file({"a": a, "b": b}, "named.safetensors")
torch.save(program.Two(), "whole.pt")
np.savez("other.npz", q=a.numpy())
torch.export.save(torch.export.export(program.Two().eval(), (a, b)), "program.pt2")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("program")
    (made / "program.py").write_text(PROGRAM)
    subprocess.run([PYTHON, "-c", WRITE], cwd=made, check=True)
    return made


def export(folder: Path, source: str, *inputs: str, out: Path) -> Exported:
    named = f"{folder}/{source}"
    return launch.run_export(
        PYTHON, launch.Request(named, tuple(str(folder / i) for i in inputs)), out
    )


@pytest.mark.parametrize(
    "file", ["named.npz", "placed.npz", "named.pt", "placed.pt", "named.safetensors"]
)
def test_every_kind_of_inputs_is_fed(folder: Path, tmp_path: Path, file: str) -> None:
    found = export(folder, "program.py:Two", file, out=tmp_path)
    inputs = np.load(tmp_path / "inputs-0.npz")
    assert [float(inputs[name].mean()) for name in ("a", "b")] == [1.0, 2.0]
    assert (found.steady, found.training, found.unpaired) == (True, True, "")
    assert found.pairs > 2
    assert Path(launch.find_model(tmp_path)).name == "Two.onnx"


def test_several_samples_and_inputs_of_the_function(folder: Path, tmp_path: Path) -> None:
    both = export(folder, "program.py:Two", "named.npz", "named.pt", out=tmp_path)
    assert both.recorded.count("golden-") == 2
    (tmp_path / "own").mkdir()
    own = export(folder, "program.py:given", out=tmp_path / "own")
    assert own.recorded.count("golden-") == 1


def test_what_the_function_says_of_the_export_is_done(folder: Path, tmp_path: Path) -> None:
    found = export(folder, "program.py:told", out=tmp_path)
    model = onnx.load(launch.find_model(tmp_path))
    assert [each.version for each in model.opset_import if not each.domain] == [21]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    assert (found.steady, found.unpaired) == (True, "")


def test_an_exported_program(folder: Path, tmp_path: Path) -> None:
    found = export(folder, "program.pt2", out=tmp_path)
    assert (found.steady, found.training) == (True, False)
    assert Path(launch.find_model(tmp_path)).name == "program.onnx"


@pytest.mark.parametrize(("name", "precision"), [("given", "fp32"), ("half", "fp16")])
def test_what_pytorch_computes_in_is_told(
    folder: Path, tmp_path: Path, name: str, precision: str
) -> None:
    assert export(folder, f"program.py:{name}", out=tmp_path).precision == precision


def test_a_module_that_draws_is_not_steady(folder: Path, tmp_path: Path) -> None:
    assert not export(folder, "program.py:draws", out=tmp_path).steady


@pytest.mark.parametrize(
    ("source", "inputs", "said"),
    [
        (
            "program.py:bad",
            (),
            "program.py', line 39, stopped with ValueError: the weights are gone",
        ),
        ("program.py:Two", (), "give --inputs FILE with a, b"),
        ("program.py:Two", ("whole.pt",), "more than tensors"),
        ("program.py:Two", ("other.npz",), "'q'"),
        ("program.py:Too", (), "did you mean Two"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    folder: Path, tmp_path: Path, source: str, inputs: tuple[str, ...], said: str
) -> None:
    with pytest.raises(launch.ExportFault) as caught:
        export(folder, source, *inputs, out=tmp_path)
    assert said in str(caught.value)


def test_what_is_printed_for_pytorch_exports_a_module_that_works(tmp_path: Path) -> None:
    """By its own check: the module and the line are told, and FP16 breaks it without the text."""
    script = ROOT / "campaigns" / "pytorch" / "engine_faults.py"
    words = ("--torch-python", PYTHON, "--only", "exponential", "--home", tmp_path)
    subprocess.run([sys.executable, script, *words], check=True)


@pytest.fixture(scope="module")
def exported(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exported")
    request = launch.Request(f"{folder}/program.py:Two", (str(folder / "named.npz"),), program=True)
    launch.run_export(PYTHON, request, made)
    return made


def pytorch(exported: Path, mode: str) -> Engine:
    """PyTorch as an engine, as a worker has it that was told of consent."""
    return make(launch.name_engine(f"torch:compile={mode}", PYTHON, exported))


def agreed(folder: Path) -> AbstractContextManager[None]:
    """Consent to the program of that export."""
    name = launch.name_engine("torch", PYTHON, folder)
    (kind, words), script = options.commands(name)[0], folder / "pytorch"
    return held.under(Consent((Permit(kind, words, files=digests(script)),)))


FED = {"relu": np.full((2, 4), 3, np.float32), "b": np.full((2, 4), 2, np.float32)}


@pytest.mark.parametrize("mode", ["no", "yes"])
def test_pytorch_computes_a_part_of_the_program(exported: Path, tmp_path: Path, mode: str) -> None:
    """Fed with another value than it had there, as a search feeds a part; twice by one process. What
    it ran is a program by itself, which check.py takes."""
    part = tmp_path / "part.onnx"
    onnx.utils.extract_model(launch.find_model(exported), part, ["relu", "b"], ["add"])
    with agreed(exported):
        built = pytorch(exported, mode).build(BuildRequest(onnx.load(part), ""))
        for factor in (1, 2):
            fed = {name: factor * value for name, value in FED.items()}
            assert np.array_equal(built.run(fed)["add"], np.full((2, 4), 5 * factor, np.float32))
        (tmp_path / "part.pt2").write_bytes(built.save()["part.pt2"])
    source = f"import torch; print(torch.export.load('{tmp_path}/part.pt2').module().code)"
    code = subprocess.run([PYTHON, "-c", source], check=True, capture_output=True, text=True).stdout
    assert "aten.add.Tensor(relu, b)" in code


def test_what_is_read_in_place_of_a_tensor_and_other_weights_are_taken(
    folder: Path, tmp_path: Path
) -> None:
    """As onnxruntime, which knows the edited model alone, computes it."""
    exported, inputs = tmp_path, (str(folder / "named.npz"),)
    request = launch.Request(f"{folder}/program.py:Plain", inputs, program=True)
    launch.run_export(PYTHON, request, exported)
    model = onnx.load(launch.find_model(exported))
    for node in model.graph.node:
        node.input[:] = ["relu__fed" if name == "relu" else name for name in node.input]
    model.graph.input.append(onnx.helper.make_tensor_value_info("relu__fed", 1, [2, 4]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("relu", 1, [2, 4]))
    for weight in model.graph.initializer:
        value = onnx.numpy_helper.to_array(weight)
        if weight.name.startswith("l."):
            weight.CopyFrom(onnx.numpy_helper.from_array(value * np.float32(1.5), weight.name))
    fed = {**np.load(exported / "inputs-0.npz"), "relu__fed": FED["relu"]}
    names = [output.name for output in model.graph.output]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    with agreed(exported):
        got = pytorch(exported, "no").build(BuildRequest(model, "")).run(fed)
    for name, value in zip(names, session.run(names, fed), strict=True):
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6)


def test_a_node_that_the_exporter_has_not_made_is_refused(exported: Path) -> None:
    model = onnx.load(launch.find_model(exported))
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Sigmoid"
    fed = dict(np.load(exported / "inputs-0.npz"))
    with agreed(exported), pytest.raises(EngineFault, match="no 'node_relu'") as caught:
        pytorch(exported, "no").build(BuildRequest(model, "")).run(fed)
    assert caught.value.status == "unsupported"


def test_another_program_is_not_loaded(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    launch.name_engine("torch", PYTHON, tmp_path)
    with (tmp_path / "program.pt2").open("ab") as program:
        program.write(b"x")
    ran = subprocess.run(
        [tmp_path / "pytorch", "no", "asks", "answers"], check=False, capture_output=True
    )
    assert (ran.returncode, b"not the program" in ran.stderr) == (1, True)


FAILS = """
import torch
from torch import nn


class Softplus(nn.Module):
    def forward(self, x):
        return torch.log(1 + torch.exp(x * 6)) / 6


class Net(nn.Module):
    def __init__(self, inside=True):
        super().__init__()
        torch.manual_seed(7)
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 8)
        self.act = Softplus() if inside else Softplus().forward

    def forward(self, x):
        return self.b(self.act(self.a(x * 8)))


def outer():
    return Net(inside=False), (torch.randn(4, 32),)


MADE = Net()
torch.manual_seed(1)
if __name__ == "__main__":
    import numpy as np

    x = torch.randn(4, 32)
    np.savez("x.npz", x=x.numpy())
    torch.export.save(torch.export.export(Net().eval(), (x,)), "program.pt2")
"""


@pytest.mark.parametrize(
    ("source", "inputs", "said"),
    [
        ("fails.py:Net", ("--inputs", "x.npz"), "exported again: right on"),
        ("fails.py:MADE", ("--inputs", "x.npz"), "exported again: right on"),
        ("program.pt2", (), "exported again: right on"),
        ("fails.py:outer", (), "below the outermost one"),
    ],
)
def test_the_change_is_tried_however_the_module_was_named(
    tmp_path: Path, source: str, inputs: tuple[str, ...], said: str
) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    subprocess.run([PYTHON, "fails.py"], cwd=tmp_path, check=True)
    narrowdown = Path(sys.executable).with_name("narrowdown")
    words = ["run", source, *inputs, "--torch-python", PYTHON, "--session", "session"]
    engine = ["--engine", "emulate:precision=fp16"]
    ran = subprocess.run(
        [narrowdown, *words, *engine], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert said in " ".join(ran.stdout.split())


def test_a_session_with_a_stand_in_for_torch_tensorrt_comes_to_its_end(tmp_path: Path) -> None:
    """A backend by that name, which is wrong on purpose: the node, and what works without it."""
    here = ROOT / "campaigns" / "pytorch"
    python, place = tmp_path / "python", tmp_path / "session"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={here / "stand_in"} exec {PYTHON} "$@"\n')
    python.chmod(0o700)
    narrowdown = Path(sys.executable).with_name("narrowdown")
    words = ["run", f"{here / 'models.py'}:vit", "--torch-python", python, "--session", place]
    engine = ["--engine", "torch:compile=torch_tensorrt"]
    assert subprocess.run([narrowdown, *words, *engine], check=False).returncode == 0
    told = subprocess.run(
        [narrowdown, "report", place, "--format", "json"], check=True, capture_output=True
    )
    report = json.loads(told.stdout)
    assert report["nodes"]
    assert all(node.startswith("node_gelu") for node in report["nodes"])
    assert (report["cause"], report["workaround"]["kind"]) == ("option", "option")
    assert subprocess.run([PYTHON, place / "case" / "check.py"], check=False).returncode
