"""Every engine of ours keeps the contract. A new one has a class here."""

from engines import options
from engines.backends import make
from engines.contract import EngineContract
from engines.installed import importable
from engines.spec import parse


class TestOnnxruntime(EngineContract):
    specs = ("onnxruntime", "onnxruntime:optimization=all,threads=2")


class TestEmulate(EngineContract):
    specs = ("emulate", "emulate:precision=bf16")


class TestReference(EngineContract):
    specs = ("reference", "reference:precision=fp16", "reference:precision=bf16", "reference:precision=fp64")


class TestOpenvino(EngineContract):
    specs = ("openvino", "openvino:precision=bf16")
    complete, optional = False, True


class TestFake(EngineContract):
    specs = ("fake",)


def test_no_two_engines_have_one_fingerprint() -> None:
    classes = (TestOnnxruntime, TestEmulate, TestReference, TestOpenvino, TestFake)
    specs = [s for c in classes for s in c.specs if importable(options.declared_as(parse(s).name).package)]
    assert len({make(spec).info.fingerprint for spec in specs}) == len(specs) > 8
