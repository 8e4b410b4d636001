"""The switches of TensorRT's compiler: their names as the library says them, and builds without
some of them. TensorRT-RTX builds for real where it is installed; TensorRT itself is a stand-in here
(``whole``), as it needs a GPU."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines import options, outside
from narrowdown.engines.backends import make
from narrowdown.engines.backends.tensorrt import switches
from narrowdown.engines.declaration import Cure, Recipe
from narrowdown.engines.installed import importable
from narrowdown.engines.spec import parse
from narrowdown.wizard.demo import MODELS
from tests.engines.workers import driver
from tests.engines.workers.conftest import Session

from . import whole

VARIABLE = "__LUNOWUD"
RTX = pytest.mark.skipif(not importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed")


def test_names_are_read_from_the_text_of_a_library(tmp_path: Path) -> None:
    """As 10.6 writes them, with their values, and as later ones do, alone. A name that holds the
    word "epilogue" does not talk."""
    library = tmp_path / "libnvinfer.so.10"
    library.write_bytes(
        b"\0-peep:epilogue_fusion=[on|off]\0x-loop_unroll=[on | off] \0-peep:max=[1|2]\0"
        b"\0-kgen:dump_source=[on|off]\0-match_gelu\0-\0--other\0a-b\0-V\0-autotune:hostname\0"
    )
    stated, possible = switches.read_names(library)
    assert stated == {"peep:epilogue_fusion", "loop_unroll"}
    assert {"match_gelu", "peep:max", "peep:epilogue_fusion"} <= possible
    assert not possible & {"V", "b", "other", "kgen:dump_source", "autotune:hostname"}


def test_build_routes_that_can_be_off_and_are_not() -> None:
    """In the form in which TensorRT's public trtexec reads them."""
    knobs = [
        ("-slice_fusion", "-slice_fusion=[on|off]", "on"),
        ("-kgen:tiling", "-kgen:tiling=[0|1|2]", "1"),
        ("-peep:max", "-peep:max=[1|2|...]", "0"),
        ("-already", "-already=[on|off]", "off"),
        ("-kgen:debug", "-kgen:debug=[on|off]", "on"),
        ("-three", "-three=[auto|on|off]", "auto"),
    ]
    listed = {
        "tuner_version": "1",
        "tuner_options": [
            {"option": name, "allowed_values": values, "default_value": usual, "help": "a -x=[on|off]"}
            for name, values, usual in knobs
        ],
    }  # fmt: skip
    assert switches.read_routes(json.dumps(listed)) == {"slice_fusion", "three"}
    assert switches.read_routes("") == switches.read_routes("[1]") == set()


def test_a_build_is_told_and_the_users_own_variable_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = SimpleNamespace(routes=False)
    monkeypatch.setenv(VARIABLE, "-dce=off")
    with switches.switched_off(found, None, ("a", "b:c")):
        assert os.environ[VARIABLE] == "-dce=off -a=off -b:c=off"
    assert os.environ[VARIABLE] == "-dce=off"
    monkeypatch.delenv(VARIABLE)
    with contextlib.suppress(RuntimeError), switches.switched_off(found, None, ("a",)):
        assert os.environ[VARIABLE] == "-a=off"
        raise RuntimeError
    assert VARIABLE not in os.environ
    config = SimpleNamespace(build_route="")
    with switches.switched_off(SimpleNamespace(routes=True), config, ("a", "b")):  # type: ignore[arg-type]
        assert (config.build_route, os.environ.get(VARIABLE)) == ("-a=off -b=off", None)


def test_a_library_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, asked = tmp_path / "libnvinfer.so.10", []
    library.write_bytes(b"\0-dce=[on|off]\0-peep\0")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(switches, "find_file", lambda _: library)

    def ask(_: str, names: Any) -> set[str]:
        asked.append(list(names))
        return {"peep"} if "peep" in names else set()

    monkeypatch.setattr(switches, "ask_names", ask)
    found: Any = SimpleNamespace(name="tensorrt", version="10.6.0", routes=False)
    assert switches.list_switches(found) == switches.list_switches(found) == ("peep",)
    assert asked == [["dce", "peep"]]
    # One that does not answer is taken at its word.
    library.write_bytes(b"\0-gvn=[on|off]\0-other\0 another library\0")
    assert switches.list_switches(found) == ("gvn",)


def told(spec: str, version: str) -> dict[str, Recipe]:
    """What is said of the switches of a spec that cure."""
    bare = str(parse(spec).with_option("disabled_optimizers", ""))
    failing = outside.found(parse(bare), version)
    cured = outside.apply(outside.found(options.check(spec), version), Cure(failing=failing))
    return {recipe.tool: recipe for recipe in cured}


def test_each_tool_is_told_of_a_switch() -> None:
    spec = "tensorrt:precision=fp16,disabled_optimizers=peep:fc_h_fusion+autotune"
    off = "-autotune=off -peep:fc_h_fusion=off"
    old, new = told(spec, "10.6.0"), told(spec.replace("fp16", "model"), "11.2.1.2")
    assert old["TensorRT in Python"].line.startswith(f"os.environ['{VARIABLE}'] = '{off}'")
    assert "import os" in old["TensorRT in Python"].text.splitlines()
    assert f'setenv("{VARIABLE}", "{off}", 1);' in old["TensorRT in C++"].text
    for tool in ("trtexec", "Polygraphy"):
        assert old[tool].text.startswith(f"{VARIABLE}='{off}' ")
    assert new["TensorRT in Python"].line == f"config.build_route = '{off}'"
    assert new["TensorRT in C++"].text == f'config->setBuildRoute("{off}");'
    assert f"'--setBuildRoute={off}'" in new["trtexec"].text
    assert VARIABLE not in "".join(r.text for r in new.values())
    assert "Polygraphy" not in new  # no word of its reaches the configuration's build route
    # 11.0 has no build route yet.
    assert VARIABLE in told(spec.replace("fp16", "model"), "11.0.0.114")["trtexec"].text


def test_what_cannot_be_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no name of a switch"):
        options.check("tensorrt:disabled_optimizers=a;b")


_ASK = """
import json, sys
import numpy as np, onnx
from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest
try:
    engine = make(sys.argv[1])
except ValueError as error:
    print(json.dumps({"refused": str(error)}))
    sys.exit()
info = engine.info
built = engine.build(BuildRequest(onnx.load("model.onnx"), "", feed_shapes={"x": (4,)}))
y = built.run({"x": np.full(4, 300, np.float32)})["y"]
print(json.dumps({"names": info.optimizers, "can": info.can("optimizers"), "experimental": info.experimental,
                  "fingerprint": info.fingerprint, "finite": bool(np.isfinite(y).all())}))
"""


@pytest.mark.skipif(driver.compiler() is None, reason="makes its driver with a C compiler")
@pytest.mark.parametrize("version", ["10.6.0", "11.2.1.2"])
def test_a_whole_version_builds_without_a_switch(version: str, tmp_path: Path) -> None:
    """Of the stand-in: squares of 300 leave FP16, and are FP32 with one switch off. 11 is always
    strongly typed, so that the stand-in computes in FP32 anyway."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["s"], name="square"), helper.make_node("Sqrt", ["s"], ["y"], name="root")],
        "squares",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=opset, ir_version=8), str(tmp_path / "model.onnx")
    )
    known = {"peep:widen": ["Mul", "Sqrt"], "dce": []}
    surroundings = {
        **os.environ,
        **whole.install(tmp_path / "here", version, switches=known, crashes=["gra"]),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }

    def ask(options: str) -> dict[str, Any]:
        line = [sys.executable, "-c", _ASK, f"tensorrt:{options}"]
        done = subprocess.run(
            line, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False
        )
        if done.returncode < 0:
            return {"signal": -done.returncode}
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    weak = version.startswith("10")
    precision = "precision=fp16" if weak else "precision=model"
    bare, cured = ask(precision), ask(f"{precision},disabled_optimizers=peep:widen")
    assert (bare["names"], bare["can"]) == (["dce", "gra", "peep:widen"], True)
    assert bool(bare["experimental"]) == weak
    assert bare["fingerprint"] != cured["fingerprint"]
    assert (bare["finite"], cured["finite"]) == (not weak, True)
    builds = (tmp_path / "here" / "tensorrt" / "builds.jsonl").read_text().splitlines()
    assert [json.loads(line)["off"] for line in builds] == [[], ["peep:widen"]]
    assert ask(f"{precision},disabled_optimizers=gra") == {"signal": 11}
    assert "no switch 'peep:widne'" in ask(f"{precision},disabled_optimizers=peep:widne")["refused"]


@RTX
def test_tensorrt_rtx_tells_its_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for real, with nothing kept of an earlier time; no file of the asking stays."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    info = make("tensorrt_rtx").info
    assert info.can("optimizers")
    assert info.experimental
    assert {"peep", "runtime_fusion", "peep:epilogue_fusion", "kgen:disable_fusion"} <= set(
        info.optimizers
    )
    assert not {"dump", "autotune:hostname", "peep:max", "kgen:debug"} & set(info.optimizers)
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    with pytest.raises(ValueError, match="Did you mean 'peep'"):
        make("tensorrt_rtx:disabled_optimizers=peeep")


def test_the_compilers_own_numbers_and_their_order_are_no_other_build() -> None:
    """They stand as text and as numbers, and a longer one moves what comes behind it."""
    one = b'\x07\0copy={ from=__mye7 to="bb1_9" }\0\x03\0fqn=__myl_Add_0x47c1\0'
    same = b'\xff\x02\0fqn=__myl_Add_0x47c1\0\x09\x01\0\0copy={ from=__mye1012 to="bb1_10" }\0'
    assert switches.digest_plan(one) == switches.digest_plan(same)
    assert switches.digest_plan(one) != switches.digest_plan(one.replace(b"0x47c1", b"0x47c2"))


@RTX
def test_a_probe_tells_which_build_it_was(tmp_path: Path) -> None:
    """Where nothing can run: of a build that is not run, as a search asks for it. Whatever is built
    in between, a switch that changes the build is told from one that does not."""
    session = Session(tmp_path, MODELS / "shapes_cnn.onnx", MODELS / "shapes_cnn_in.npz")

    def digest(off: str, attempt: int) -> str:
        spec = f"tensorrt_rtx:disabled_optimizers={off}" if off else "tensorrt_rtx"
        made = session.measure(spec, samples=("real:0",), runs=0, attempt=attempt)
        return str(made.facts["build"]["digest"])

    assert_told(digest("", 0), digest("", 1), {digest("peep", 0), digest("gra", 0)})
    assert digest("peep:scan_down", 0) == digest("", 0) == digest("peep:partial_scan", 0)


def assert_told(plain: str, again: str, others: set[str]) -> None:
    """Other builds have other digests. Skips the rest where the library builds two engines of the
    same network and options, of which the search for what changes says so."""
    assert not {plain, again} & others
    if plain != again:
        pytest.skip("equal builds differ on this machine")
