"""The workaround as Polygraphy's network postprocess script, loaded and called as Polygraphy
does."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from narrowdown.engines import options, outside
from narrowdown.engines.backends.tensorrt.network import keep_higher
from narrowdown.engines.backends.tensorrt.outside import keep_in_fp32
from narrowdown.engines.declaration import Cure
from narrowdown.engines.spec import parse
from narrowdown.wizard.bundle.export import KEEP_SCRIPT, keep_script
from narrowdown.wizard.report.document import Workaround

mod = pytest.importorskip("polygraphy.mod")
pytestmark = pytest.mark.filterwarnings(
    "ignore:SelectableGroups:DeprecationWarning"
)  # its own affair

NASTY = "a'\"\\\n\x1b[31m{x}"


class Layer:
    def __init__(
        self,
        name: str,
        metadata: str = "",
        kind: str = "ELEMENTWISE",
        dtype: str = "float16",
        shape: bool = False,
        reads: tuple[str, ...] = (),
    ) -> None:
        self.name, self.metadata, self.type, self.num_outputs = name, metadata, kind, 1
        self.output = SimpleNamespace(name=f"{name}:0", dtype=dtype, is_shape_tensor=shape)
        self.inputs = [SimpleNamespace(name=f"{read}:0") for read in reads]
        self.precision = ""
        self.given: dict[int, str] = {}

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_input(self, k: int) -> Any:
        return self.inputs[k]

    def get_output(self, _: int) -> Any:
        return self.output

    def set_output_type(self, k: int, dtype: str) -> None:
        self.given[k] = dtype


class Network(list[Layer]):
    @property
    def num_layers(self) -> int:
        return len(self)

    def get_layer(self, i: int) -> Layer:
        return self[i]


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The part of TensorRT 10's bindings that the script touches."""
    fake = ModuleType("tensorrt")
    fake.__dict__.update(
        __version__="10.13", ILayer=Layer, float32="float32", float16="float16", int32="int32",
        LayerType=SimpleNamespace(CONSTANT="CONSTANT", SHAPE="SHAPE"),
    )  # fmt: skip
    Layer.precision = ""  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    return fake


def loaded(folder: Path, *nodes: str) -> Any:
    path = folder / KEEP_SCRIPT
    path.write_text(
        keep_in_fp32(outside.found(options.check("tensorrt:precision=fp16")), nodes),
        encoding="utf-8",
    )
    assert path.read_text().isascii()
    return mod.import_from_script(str(path), "postprocess")


def test_the_layers_of_the_nodes_stay_in_fp32(
    trt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Network(
        [
            Layer("sum", "[ONNX Layer: sum]"), Layer("sum_cast", "[ONNX Layer: sum]"), Layer("other", "[ONNX Layer: other]"),
            Layer("older"), Layer("weights", "[ONNX Layer: sum]", "CONSTANT"), Layer("ids", "[ONNX Layer: sum]", dtype="int32"),
            Layer("shape", "[ONNX Layer: sum]", shape=True), Layer(NASTY),
        ]
    )  # fmt: skip
    loaded(tmp_path, "sum", "older", "gone", NASTY)(network=network)
    kept = [layer.name for layer in network if layer.precision == "float32"]
    assert kept == ["sum", "sum_cast", "older", NASTY]
    assert [layer.name for layer in network if layer.given == {0: "float32"}] == kept
    assert capsys.readouterr().out == "keep_fp32: 3 of 4 nodes stay in FP32; not found: ['gone']\n"


# A Log of a sum with an epsilon, as the parser makes it: between the constant and its reader there
# is a layer that is no node.
GUARDED = (
    ("eps", "", "CONSTANT", "float16", ()), ("rows", "", "CONSTANT", "int32", ()), ("size", "", "SHAPE", "float16", ()),
    ("broadcast", "", "SHUFFLE", "float16", ("eps", "rows", "size")),
    ("square", "[ONNX Layer: square]", "ELEMENTWISE", "float16", ()),
    ("add", "[ONNX Layer: add]", "ELEMENTWISE", "float16", ("square", "broadcast")), ("far", "", "CONSTANT", "float16", ()),
    ("log", "[ONNX Layer: log]", "UNARY", "float16", ("add", "far")),
)  # fmt: skip


@pytest.mark.parametrize("way", ["script", "engine"])
def test_a_constant_that_feeds_a_kept_node_stays_in_fp32_with_it(
    trt, tmp_path: Path, way: str
) -> None:
    network = Network(
        [Layer(n, m, kind, dtype, reads=reads) for n, m, kind, dtype, reads in GUARDED]
    )
    if way == "script":
        loaded(tmp_path, "add")(network=network)
    else:
        assert keep_higher(SimpleNamespace(trt=trt), network, {"add"}) == 1  # type: ignore[arg-type]
    assert [layer.name for layer in network if layer.precision == "float32"] == [
        "eps",
        "broadcast",
        "add",
    ]
    assert [layer.name for layer in network if layer.given == {0: "float32"}] == [
        "eps",
        "broadcast",
        "add",
    ]


def test_tensorrt_11_is_told_what_to_do_instead(
    trt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trt, "ILayer", object)
    monkeypatch.setattr(trt, "__version__", "11.2")
    with pytest.raises(SystemExit, match=r"11\.2 computes in the types that the model has"):
        loaded(tmp_path, "sum")(network=Network())


def workaround(version: str = "10.6.0", in_float: bool = False, **fields: Any) -> Workaround:
    plain = {
        "kind": "precision", "holds": True, "engine": "tensorrt:precision=fp16", "keep_higher": ("sum",), "switched_off": (),
        "samples_ok": 1, "samples_n": 1, "error": 0.0, "margin": 2.0, "cost": "", "minimal": True,
    }  # fmt: skip
    made = Workaround(**{**plain, **fields})
    cure = Cure(made.keep_higher, file="worked-around.onnx", in_float=in_float)
    told = outside.apply(outside.found(parse(made.engine), version), cure)
    return msgspec.structs.replace(made, apply=tuple(told))


@pytest.mark.parametrize(
    ("fields", "version", "written"),
    [
        ({}, "10.6.0", True),
        ({"engine": "emulate:precision=bf16"}, "1.31.1", True),
        ({}, "11.0.0", False),
        ({"engine": "tensorrt:precision=fp16,typing=strong"}, "10.6.0", False),
        ({"engine": "openvino:precision=f16"}, "2026.4", False),
        ({"kind": "optimizer", "keep_higher": ()}, "10.6.0", False),
        ({"engine": "tensorrt:precision=int8", "in_float": True}, "10.6.0", False),
    ],
)
def test_it_is_written_where_layers_can_be_told(
    fields: dict[str, Any], version: str, written: bool
) -> None:
    assert bool(keep_script(workaround(version, **fields), version)) is written
    assert keep_script(None, version) == ""


def test_polygraphy_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in its own words, through the real parser."""
    tools = pytest.importorskip("polygraphy.tools")
    text = keep_script(workaround(), "10.6.0")
    (line,) = [
        line.strip() for line in text.splitlines() if line.strip().startswith("polygraphy run")
    ]
    (tmp_path / KEEP_SCRIPT).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [*line.split(), "--gen-script", "made.py"])
    assert not tools.main()
    made = (tmp_path / "made.py").read_text()
    assert "keep_fp32.py" in made
    assert "PostprocessNetwork" in made
