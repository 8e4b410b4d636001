"""Execution providers that come as a library: held to what was agreed, chosen, and refused where
they compute nothing. ONNX Runtime's part is played here; what real libraries did is in
docs/engines.md."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from narrowdown.engines import options, outside
from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault, EngineMissing
from narrowdown.engines.backends.onnxruntime import plug_ins
from narrowdown.engines.consent import Consent, Permit
from narrowdown.engines.contract.suite import small_model
from narrowdown.engines.data import held
from narrowdown.engines.declaration import Cure

from ...consents import to_files

MODEL = small_model(
    [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Abs", ["h"], ["y"])],
    {"x": (TensorProto.FLOAT, [2])},
    ["y"],
)


class Device(SimpleNamespace):
    """As ONNX Runtime's, one is the same as itself alone."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]


def device(name: str, kind: str, own: str) -> Any:
    chip = SimpleNamespace(type=SimpleNamespace(name=kind), vendor="Acme", metadata={})
    return Device(ep_name=name, device=chip, ep_metadata={"acme_device": own})


def part(name: str, count: int) -> Any:
    return SimpleNamespace(ep_name=name, get_nodes=lambda: [object()] * count)


class Session(ort.InferenceSession):  # type: ignore[misc]
    """A real one on the CPU, which says what ``shares`` says."""

    shares = (part("acme", 2),)
    fallback: Any = None

    def __init__(self, model: Any, config: Any, **more: Any) -> None:
        type(self).fallback = more["enable_fallback"]
        super().__init__(model, config, **more)

    def get_provider_graph_assignment_info(self) -> Any:
        return self.shares


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What registers as two devices, and is agreed to with the library that its options name."""
    path, backend = tmp_path / "libonnxruntime_providers_acme.so", tmp_path / "libAcme.so"
    path.write_bytes(b"a library")
    backend.write_bytes(b"another")
    found = [device("CPUExecutionProvider", "CPU", "")]

    class Options(ort.SessionOptions):  # type: ignore[misc]
        told: ClassVar[dict[str, str]] = {}

        def add_provider_for_devices(self, devices: Any, told: dict[str, str]) -> None:
            assert [d.ep_name for d in devices] == ["acme"]
            Options.told = told

    def register(name: str, file: str) -> None:
        if Path(file).read_bytes() == b"no library":
            raise RuntimeError(f"Failed to load {file}")
        found.extend(
            [device(name, "GPU", "Acme.0"), device(name, "NPU", "Acme.1")][
                : 2 if b"lib" in Path(file).read_bytes() else 0
            ]
        )

    monkeypatch.setattr(plug_ins, "_registered", {})
    monkeypatch.setattr(ort, "register_execution_provider_library", register)
    monkeypatch.setattr(ort, "get_ep_devices", lambda: list(found))
    monkeypatch.setattr(ort, "SessionOptions", Options)
    monkeypatch.setattr(ort, "InferenceSession", Session)
    return path


def agreed(*paths: Path) -> Any:
    setting = "onnxruntime:provider_options=depth=3"  # of a key that only this provider knows
    return held.under(Consent((*to_files(*paths).permits, Permit(options.SETTING, setting))))


def test_a_plug_in_is_loaded_as_agreed_and_computes_on_the_device_that_was_chosen(
    library: Path,
) -> None:
    backend = library.with_name("libAcme.so")
    spec = f"onnxruntime:provider_library={library},provider_options=backend_path={backend}+depth=3"
    assert {path for _, path in options.loaded(spec)} == {str(library), str(backend)}
    with agreed(), pytest.raises(held.NotAgreed, match="nobody agreed"):
        make(spec)
    with agreed(library), pytest.raises(held.NotAgreed, match=r"libAcme\.so"):
        make(f"{spec},provider_device=npu")
    with agreed(library, backend):
        with pytest.raises(
            EngineMissing, match=r"has 2 devices; choose one .*: 0 \(GPU Acme\), 1 \(NPU Acme\)"
        ):
            make(spec)
        with pytest.raises(EngineMissing, match="has no device 'tpu'"):
            make(f"{spec},provider_device=tpu")
        engine = make(f"{spec},provider_device=acme.1,provider_precision=fp16")
        assert (engine.info.device, engine.info.precision, engine.info.gpus) == (
            "NPU Acme by acme",
            "fp16",
            0,
        )
        assert make(f"{spec},provider_device=0").info.gpus == 1
        built = engine.build(BuildRequest(MODEL, ""))
        assert built.facts == {"taken": (2, 2)}
        assert Session.fallback == 0, "else the CPU computes in silence where the provider cannot"
        told = ort.SessionOptions.told
        assert told["depth"] == "3"
        assert Path(told["backend_path"]).read_bytes() == b"another"
        assert told["backend_path"] != str(backend), (
            "a private copy: what comes to lie in its place is not seen"
        )
        before = engine.info.fingerprint
        library.write_bytes(b"another library")
        held.forget()
        plug_ins._registered.clear()
        with pytest.raises(held.NotAgreed, match="changed"):
            make(f"{spec},provider_device=1")
    with agreed(library, backend):
        assert (
            make(f"{spec},provider_device=acme.1,provider_precision=fp16").info.fingerprint
            != before
        )


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"", "", "loads, and finds no device on this machine"),
        (
            b"no library",
            "",
            r"cannot load '\S+libonnxruntime_providers_acme.so' as an execution provider: Failed to load \S+acme.so",
        ),
        (None, "", "There is no library of an execution provider"),
        (b"a library", ",provider=xnnpack", "give one"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_refused_plainly(
    library: Path, content: bytes | None, options: str, words: str
) -> None:
    library.unlink() if content is None else library.write_bytes(content)
    with (
        agreed(*[library] if content is not None else []),
        pytest.raises((EngineMissing, ValueError), match=words) as caught,
    ):
        make(f"onnxruntime:provider_library={library}{options}")
    assert "held-" not in str(caught.value)


def test_a_provider_that_takes_no_node_is_no_engine(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All would run on the CPU, and agree with it."""
    with agreed(library):
        engine = make(f"onnxruntime:provider_library={library},provider_device=1")
        monkeypatch.setattr(Session, "shares", (part("CPUExecutionProvider", 1), part("acme", 1)))
        assert engine.build(BuildRequest(MODEL, "")).facts == {"taken": (1, 2)}
        monkeypatch.setattr(Session, "shares", (part("CPUExecutionProvider", 2),))
        with pytest.raises(EngineFault, match="takes no node of this model") as caught:
            engine.build(BuildRequest(MODEL, ""))
    assert caught.value.status == "refused"


def test_the_bundles_check_uses_the_plug_in_and_its_recipe_does(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"onnxruntime:provider_library={library},provider_device=1,provider_options=backend_path=libAcme.so+depth=3"
    found = outside.found(options.check(spec))
    check, _ = outside.check_part(found)
    assert check is not None
    onnx.save(MODEL, tmp_path / "engine.onnx")

    class CannotTell(Exception):
        pass

    def cannot_tell(why: str) -> None:
        raise CannotTell(why)

    scope = {
        "HERE": tmp_path,
        "MODEL": "engine.onnx",
        "SETTINGS": check.settings,
        "beside": lambda name: library.parent / name,
        "cannot_tell": cannot_tell,
    }
    exec(check.source, scope)
    run, _ = scope["start"]()
    assert run({"x": np.array([1, -2], np.float32)})["y"].tolist() == [1, 2]
    assert ort.SessionOptions.told == {
        "backend_path": str(library.with_name("libAcme.so")),
        "depth": "3",
    }
    scope["start"]()  # a second look loads no second library
    monkeypatch.setattr(Session, "shares", (part("CPUExecutionProvider", 2),))
    with pytest.raises(CannotTell, match="takes no node"):
        scope["start"]()
    scope["PLUGGED"].clear()
    with pytest.raises(CannotTell, match="finds 0 devices '5'"):
        scope["plug_in"](ort, {**check.settings["plug_in"], "device": "5"})
    monkeypatch.setattr(Session, "shares", (part("acme", 2),))
    monkeypatch.chdir(tmp_path)
    recipes = outside.declared(found).by_hand.apply(found, Cure(file="engine.onnx"))  # type: ignore[misc]
    told = ModuleType("told")
    exec(recipes[0].text, told.__dict__)  # what is printed for users runs
    assert told.session.get_outputs()[0].name == "y"
    assert len(recipes) == 1, "no C++ that nobody tried"
    sys.modules.pop("told", None)
