"""Every engine of ours keeps the contract. A new one has a class here."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowdown.engines import options
from narrowdown.engines.backends import make
from narrowdown.engines.contract import EngineContract
from narrowdown.engines.data import held
from narrowdown.engines.installed import importable
from narrowdown.engines.spec import parse

from ..conftest import EVERYTHING


class TestOnnxruntime(EngineContract):
    specs = ("onnxruntime", "onnxruntime:optimization=all,threads=2")


class TestEmulate(EngineContract):
    specs = ("emulate", "emulate:precision=bf16")


class TestReference(EngineContract):
    specs = (
        "reference",
        "reference:precision=fp16",
        "reference:precision=bf16",
        "reference:precision=fp64",
    )


class TestOpenvino(EngineContract):
    specs = ("openvino", "openvino:precision=bf16", "openvino:disabled_optimizers=SNIPPETS_MODE")
    complete, optional = False, True


class TestFake(EngineContract):
    specs = ("fake",)


TOY = f"{sys.executable} {Path(__file__).parents[2] / 'plugins/toy/run_toy.py'} {{model}} {{inputs}} {{outputs}}"


@pytest.mark.slow  # each run starts a Python of its own
class TestCommand(EngineContract):
    """A program that is none of ours: the page's toy runtime."""

    specs = (
        f"command:run={TOY}",
        f"command:build=cp {{model}} {{engine}},run={TOY.replace('{model}', '{engine}')},precision=fp16,typed=true",
    )
    complete = False

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _agreed_to_it(cls) -> Iterator[None]:
        with held.under(EVERYTHING):
            yield


def test_no_two_engines_have_one_fingerprint() -> None:
    classes = (TestOnnxruntime, TestEmulate, TestReference, TestOpenvino, TestFake)
    specs = [
        s
        for c in classes
        for s in c.specs
        if importable(options.declared_as(parse(s).name).package)
    ]
    assert len({make(spec).info.fingerprint for spec in specs}) == len(specs) > 8
