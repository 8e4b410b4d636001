"""TensorRT 10.6 and 11.2 as their users meet them, from the command to the bundle: whole sessions
on a package with the real names of that version, which computes by the emulation
(tests/engines/backends/tensorrt/whole.py)."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from campaigns.gpu.networks import make_rotary
from narrowdown.wizard import follow_up
from narrowdown.wizard.bundle.models import place_worked_around
from narrowdown.wizard.follow_up import begin_after
from narrowdown.wizard.report.read import read
from narrowdown.wizard.report.sections import Table, tell_workaround
from narrowdown.wizard.runner.room import _parts
from narrowdown.wizard.session.journal import NAME, read as read_journal
from tests.engines.backends.tensorrt import whole
from tests.engines.workers import driver
from tests.gpu import models

from ..patience import allow
from .conftest import SCRIPT, Ran, Walked, environment

pytestmark = pytest.mark.skipif(
    driver.compiler() is None, reason="makes its driver with a C compiler"
)
Walk = Callable[..., Walked]
LAYERNORM = ("Pow", "ReduceMean", "Add", "Sqrt", "Div", "Sub")


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """Walk a session on a version; the same words are walked once."""
    home = tmp_path_factory.mktemp("tensorrt")
    known: dict[tuple[str, ...], Walked] = {}

    def walked(version: str, *words: str | Path, **behaves: object) -> Walked:
        asked = (version, *map(str, words), json.dumps(behaves))
        if asked not in known:
            folder, place = home / f"version-{len(known)}", home / f"walk-{len(known)}"
            folder.mkdir()
            surroundings = {
                **os.environ,
                **environment(home),
                **whole.install(folder, version, **behaves),
            }
            line = [str(SCRIPT), "run", *map(str, words), "--session", str(place)]
            done = subprocess.run(
                line,
                env=surroundings,
                cwd=home,
                capture_output=True,
                text=True,
                check=False,
                timeout=allow(240),
            )
            assert "Traceback (most recent call last)" not in done.stdout + done.stderr, done.stderr
            known[asked] = Walked(Ran(done.returncode, done.stdout, done.stderr), place)
            (folder / "tensorrt" / "builds.jsonl").touch()
            shutil.copy(folder / "tensorrt" / "builds.jsonl", place)
        return known[asked]

    return walked


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    """The words for a LayerNorm whose squares leave FP16."""
    model, inputs = models.layernorm(tmp_path_factory.mktemp("model"))
    return (model, "--inputs", inputs, "--engine", "tensorrt:precision=fp16")


def test_version_11_is_given_a_file_with_its_types_that_was_run(
    walk: Walk, overflowing: tuple[str | Path, ...]
) -> None:
    walked = walk("11.2.1.2", *overflowing)
    assert walked.ran.code == 0, walked.ran.out
    report = walked.reading.report()
    assert (report.verdict, report.culprits[0].cause) == ("worked-around", "overflow")
    assert (
        "worked-around.onnx (your model with 4 nodes in FP32), loaded and run: right on 40 of 40 samples."
        in walked.ran.said
    )
    made = onnx.load(walked.folder / "worked-around.onnx")
    assert {"Cast", "Pow"} <= {node.op_type for node in made.graph.node}
    assert {t.data_type for t in made.graph.initializer} >= {onnx.TensorProto.FLOAT16}
    tools = [recipe.tool for recipe in report.workaround.apply]
    assert tools[:3] == ["TensorRT in Python", "trtexec", "Polygraphy"]
    assert "assert parser.parse_from_file('worked-around.onnx')" in walked.ran.out
    assert (
        report.workaround.apply[1].text
        == "trtexec --onnx=worked-around.onnx --saveEngine=model.engine"
    )
    assert not (walked.folder / "case" / "keep_fp32.py").exists()


@pytest.mark.slow
def test_weakly_typed_a_file_without_the_workaround_is_not_handed_over(
    walk: Walk, overflowing: tuple[str | Path, ...]
) -> None:
    """Layers are kept by a setting of the build: no model holds that, and one that does not was
    written as if it did."""
    walked = walk("10.6.0", *overflowing)
    assert walked.ran.code == 0, walked.ran.out
    report = walked.reading.report()
    assert report.verdict == "worked-around"
    assert not list(walked.folder.rglob("worked-around.onnx"))
    assert "worked-around.onnx" not in walked.ran.out
    by_name = next(
        recipe.text for recipe in report.workaround.apply if recipe.tool.startswith("trtexec")
    )
    assert "--layerPrecisions=block0/Pow_square:fp32" in by_name
    assert "block0/Pow_square" in (walked.folder / "case" / "keep_fp32.py").read_text()


def test_what_passes_as_layers_stay_in_fp32_is_told(
    walk: Walk, overflowing: tuple[str | Path, ...]
) -> None:
    walked = walk("10.6.0", *overflowing, wide=LAYERNORM)
    assert (walked.ran.code, walked.answers()) == (10, [("reproduce", "kept")])
    assert "another machine" not in walked.ran.out
    strong = walk(
        "10.6.0", *overflowing[:-1], "tensorrt:precision=fp16,typing=strong", wide=LAYERNORM
    )
    assert ("reproduce", "yes") in strong.answers(), "what it said is so"


def test_all_rows_and_one_are_one_build_and_only_fresh_builds_share_no_timings(
    walk: Walk, overflowing: tuple[str | Path, ...]
) -> None:
    """Of the first two questions, all eight rows and the worst of them alone; and of a session from
    compare to the workaround."""
    walked = walk("11.2.1.2", *overflowing)
    builds = [
        json.loads(line) for line in (walked.folder / "builds.jsonl").read_text().splitlines()
    ]
    whole = builds[0]["nodes"]
    other = next(n for n, b in enumerate(builds) if b["nodes"] != whole)
    assert other <= 2, (
        "one for the given rows, and one where another worker is asked for made-up ones"
    )
    assert builds[other]["nodes"] > whole, (
        "then the one with what was foretold in FP32: cleaning up changed nothing"
    )
    assert walked.visits("reproduce")[0].outcome["samples"] == 8
    assert all(b["timings"] is not b["fresh"] for b in builds)
    assert walked.reading.report().culprits[0].verified == f"{sum(b['fresh'] for b in builds)}/5"


def test_int8_with_nothing_to_go_by_stops_at_once_with_what_to_give(
    walk: Walk, overflowing: tuple[str | Path, ...]
) -> None:
    walked = walk("10.6.0", *overflowing[:-1], "tensorrt:precision=int8")
    assert walked.ran.code == 4
    assert walked.answers() in ([], [("reproduce", "")])
    assert (
        walked.ran.err.count(
            "give a calibration cache (calibration=FILE), or a model with Q/DQ nodes"
        )
        == 1
    )


def run_here(folder: Path, version: str, home: Path, *words: str) -> Ran:
    """Python in a case's folder, where that version is installed."""
    (home / version).mkdir()
    surroundings = {**os.environ, **whole.install(home / version, version)}
    line = [sys.executable, *words]
    done = subprocess.run(
        line,
        env=surroundings,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=allow(120),
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_everything_in_fp32_is_asked_without_the_flag_and_not_layer_by_layer(
    walk: Walk, overflowing: tuple[str | Path, ...]
) -> None:
    """Layer by layer TensorRT 10.6 refuses it where it has joined layers (basic_pitch), and then no
    set was searched. Where a set was seen to cure before, it is not asked."""
    walked = walk("10.6.0", *overflowing, "--flow", "precision")
    nodes = len(onnx.load(overflowing[0]).graph.node)
    builds = [
        json.loads(line) for line in (walked.folder / "builds.jsonl").read_text().splitlines()
    ]
    whole = [b for b in builds if b["nodes"] == nodes]
    assert {b["kept"] for b in whole if b["narrow"]} & set(range(1, nodes)), (
        "some nodes are kept by layer"
    )
    assert not [b for b in whole if b["kept"] == nodes]
    assert [b for b in whole if not b["narrow"]], "everything in FP32 was asked"


@pytest.mark.parametrize("found_on", [pytest.param("10.6.0", marks=pytest.mark.slow), "11.2.1.2"])
def test_the_case_shows_the_fault_without_the_program(
    walk: Walk, overflowing: tuple[str | Path, ...], found_on: str, tmp_path: Path
) -> None:
    case = walk(found_on, *overflowing).folder / "case"
    here = run_here(case, found_on, tmp_path, "check.py")
    assert here.code == 1, here.out + here.err
    assert f"on tensorrt {found_on}" in here.out
    assert "The fault is still there: block0/Pow_square." in here.out
    newer = run_here(case, "11.4.0.106", tmp_path, "check.py")
    if found_on.startswith("11"):
        assert (newer.code, "The fault is still there" in newer.out) == (1, True)
    else:
        assert newer.code == 2
        assert (
            "TensorRT 11.4.0.106 has no flag for FP16: it computes in the types that the model has"
            in newer.out
        )


def test_the_script_for_polygraphy_keeps_the_nodes_of_a_network_of_this_version(
    walk: Walk, overflowing: tuple[str | Path, ...], tmp_path: Path
) -> None:
    case = walk("10.6.0", *overflowing).folder / "case"
    program = (
        "import sys; sys.path.insert(0, '')\n"  # Python may have been told to leave the folder out
        "import keep_fp32, tensorrt as trt\n"
        "network = trt.Builder(trt.Logger()).create_network(0)\n"
        "assert trt.OnnxParser(network, trt.Logger()).parse_from_file(sys.argv[1])\n"
        "keep_fp32.postprocess(network)\n"
        "print(sorted(layer.name for layer in network.layers if layer.kept))\n"
    )
    ran = run_here(case, "10.6.0", tmp_path, "-c", program, str(overflowing[0]))
    assert "keep_fp32: 4 of 4 nodes stay in FP32" in ran.out
    kept = ["block0/Add_vareps", "block0/Pow_square", "block0/ReduceMean_var", "block0/Sqrt_std"]
    assert str(kept) in ran.out
    newer = run_here(case, "11.2.1.2", tmp_path, "-c", program, str(overflowing[0]))
    assert newer.code == 1
    assert (
        "TensorRT 11.2.1.2 computes in the types that the model has and takes no precision for a layer"
        in newer.err
    )


@pytest.mark.slow
def test_an_if_that_is_refused_is_fixed_in_the_users_own_types(walk: Walk, tmp_path: Path) -> None:
    model, inputs = models.rated(tmp_path)
    words = (model, "--inputs", inputs, "--engine", "tensorrt:precision=fp16")
    walked = walk("11.2.1.2", *words, refuses=["If"])
    assert walked.ran.code == 0, walked.ran.out
    report = walked.reading.report()
    assert (report.culprits[0].nodes, report.workaround.condition) == (("choice",), "'sr' is 16000")
    assert "'choice' (If) is decided by 'is_wide' (Equal)" in walked.ran.said
    made = onnx.load(walked.folder / "worked-around.onnx")
    assert {t.data_type for t in made.graph.initializer} <= {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.INT64,
    }
    assert report.workaround.apply[0].tool == "TensorRT in Python, once worked-around.onnx is FP16"
    assert (
        "paste this first (TensorRT in Python, once worked-around.onnx is FP16)" in walked.ran.said
    )


BUILDS = """
import sys, tensorrt as trt
logger = trt.Logger()
builder = trt.Builder(logger)
network = builder.create_network(0)
assert trt.OnnxParser(network, logger).parse_from_file(sys.argv[1])
config, profile = builder.create_builder_config(), builder.create_optimization_profile()
config.set_flag(trt.BuilderFlag.FP16)
profile.set_shape("x", (1, 64), (4, 64), (8, 64))
config.add_optimization_profile(profile)
open("model.plan", "wb").write(bytes(builder.build_serialized_network(network, config)))
"""


@pytest.mark.parametrize("version", ["10.6.0", pytest.param("11.2.1.2", marks=pytest.mark.slow)])
def test_what_is_pasted_builds_an_engine_that_is_right(
    walk: Walk, overflowing: tuple[str | Path, ...], tmp_path: Path, version: str
) -> None:
    """By name, and from the file. Without what cures the engine is wrong."""
    walked = walk(version, *overflowing)
    told = walked.reading.report().workaround.apply[0]
    for given, name in (
        (overflowing[0], "model"),
        (walked.folder / "worked-around.onnx", "worked-around"),
    ):
        if Path(given).exists():
            shutil.copy(given, tmp_path / f"{name}.onnx")
    if (script := walked.folder / "case" / "keep_fp32.py").exists():
        shutil.copy(script, tmp_path)
    assert told.line in told.text
    profile = 'p.set_shape("x", (1, 64), (4, 64), (8, 64)); config.add_optimization_profile(p)'
    whole = told.text.replace(
        "\nopen(", f"\np = builder.create_optimization_profile(); {profile}\nopen("
    )
    without = whole.replace("worked-around", "model").replace("keep_fp32.postprocess(network);", "")
    for text, code in ((whole, 10), (without, 0)):
        home = tmp_path / f"home-{code}"
        home.mkdir()
        made = run_here(
            tmp_path, version, home, "-c", f"import sys; sys.path.insert(0, '')\n{text}"
        )
        assert made.code == 0, made.err
        if version > "11" and code == 0:
            continue  # the model as it was is in FP32, which is right: what is wrong is the one that was converted
        words = (*overflowing[:-1], f"tensorrt:plan={tmp_path / 'model.engine'},precision=fp16")
        assert (
            run_here(
                tmp_path,
                version,
                home / version,
                "-m",
                "narrowdown",
                "step",
                "compare",
                *map(str, words),
            ).code
            == code
        )


@pytest.mark.slow
def test_an_engine_that_was_built_before_ends_with_the_like_of_it_that_can_be_searched(
    walk: Walk, overflowing: tuple[str | Path, ...], tmp_path: Path
) -> None:
    """As trtexec --fp16 --saveEngine builds it; the line that it ends with is followed."""
    assert run_here(tmp_path, "10.6.0", tmp_path, "-c", BUILDS, str(overflowing[0])).code == 0
    plan = tmp_path / "model.plan"
    walked = walk("10.6.0", *overflowing[:-1], f"tensorrt:plan={plan}")
    assert walked.answers() == [("reproduce", "as-built"), ("rebuild", "alike")]
    like = "tensorrt:max_shapes=x:8x64,min_shapes=x:1x64,opt_shapes=x:4x64,precision=fp16"
    assert (
        f"next narrowdown edit {walked.folder} --engine {like} (built from the model"
        in walked.ran.said
    )
    assert "narrowdown after" not in walked.ran.out
    newer = walk("11.2.1.2", *overflowing[:-1], f"tensorrt:plan={plan}")
    assert newer.ran.code == 4
    assert "was built by another version than TensorRT 11.2.1.2" in newer.ran.err


def test_what_follows_hands_over_the_file_of_the_workaround_that_it_goes_on_from(
    walk: Walk, overflowing: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the model of whichever rewrite cures it, too, called "with the workaround applied"."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path))
    monkeypatch.setattr(
        follow_up, "require_engines", lambda *_, **__: None
    )  # the stand-in is there for the walks' processes alone
    for version, there in (("11.2.1.2", True), ("10.6.0", False)):
        ended = walk(version, *overflowing).folder
        place, _ = begin_after(ended)
        following = read(place)
        assert following.state.findings.workaround == read(ended).state.findings.workaround
        written = place_worked_around(following, tmp_path)
        assert bool(written) == there
        if there:
            assert Path(written).read_bytes() == (ended / "worked-around.onnx").read_bytes()
            kept = {digest for event in read_journal(place / NAME) for digest in _parts(event)}
            assert set(following.state.taken_workaround.values()) <= kept, (
                "it stays where the disk is short"
            )


def test_a_switch_of_the_compiler_comes_before_nodes_in_fp32(
    walk: Walk, overflowing: tuple[str | Path, ...]
) -> None:
    """Found on the case, among families of which some crash the builder; then verified on the whole
    model, down to the line to paste."""
    idle = {f"idle{i}:{name}": [] for i in range(6) for name in "abc"}
    switches = {**idle, "peep": [], "peep:widen": list(LAYERNORM)}
    walked = walk("10.6.0", *overflowing, switches=switches, crashes=["gra", "idle7:x"])
    assert walked.ran.code == 0, walked.ran.out
    report = walked.reading.report()
    cure = report.workaround
    assert [each.kind for each in report.cures] == ["optimizer", "precision"]
    table = next(b for s in tell_workaround(report) for b in s.blocks if isinstance(b, Table))
    assert [(row[0], row[-1]) for row in table.rows[1:]] == [
        ("switch off peep:widen", "nothing"),
        (f"{len(report.cures[1].keep_higher)} nodes in FP32", "types of nodes"),
    ]
    assert (cure.kind, cure.switched_off, cure.holds) == ("optimizer", ("peep:widen",), True)
    assert cure.held_out_ok == cure.held_out_n >= 32
    assert "os.environ['__LUNOWUD'] = '-peep:widen=off'" in walked.ran.out
    built = map(json.loads, (walked.folder / "builds.jsonl").read_text().splitlines())
    searched = {tuple(build["off"]) for build in built} - {()}
    assert len(searched) <= 8 + 2 * math.log2(len(switches))


def test_what_an_input_lost_is_named_where_types_are_an_order_and_no_switch_is_asked(
    walk: Walk, overflowing: tuple[str | Path, ...], tmp_path: Path
) -> None:
    """Positions times frequencies lose whole turns; an engine that rounds whatever it is fed cannot
    show it, and none of its switches may take wider types."""
    model, (given, _) = make_rotary(np.random.default_rng(1))
    onnx.save(model, tmp_path / "rotary.onnx")
    np.savez(tmp_path / "in.npz", **given)
    words = (tmp_path / "rotary.onnx", "--inputs", tmp_path / "in.npz", "--engine")
    strong = "tensorrt:precision=fp16,typing=strong"
    switches = {"peep": [], "peep:none": []}
    walked = walk("10.6.0", *words, strong, switches=switches)
    assert walked.ran.code == 0, walked.ran.out
    culprits = walked.reading.report().culprits
    assert {(c.cause, c.evidence.partition(" ")[0]) for c in culprits} == {("rounding", "angle")}
    held = walk(
        "10.6.0",
        *overflowing[:-1],
        "tensorrt:precision=fp16,constraints=always",
        switches=switches,
    )
    logs = [(each.folder / "builds.jsonl").read_text() for each in (walked, held)]
    assert not any(json.loads(line)["off"] for log in logs for line in log.splitlines())


@pytest.mark.parametrize(
    ("refuses", "named"), [(["Erf", "Tanh"], {"a", "b"}), (["Erf", "Tanh beside Neg"], {"a"})]
)
def test_operators_that_are_refused_alike_are_all_named(
    walk: Walk, tmp_path: Path, refuses: list[str], named: set[str]
) -> None:
    """One that is named beside others and built alone is not refused as the first is."""
    body = (
        "(float[2] x) => (float[2] y) { [a] e = Erf (x) s = Sin (e) [b] t = Tanh (s) y = Neg (t) }"
    )
    head = '<ir_version: 9, opset_import: ["":17]> g '
    onnx.save(onnx.parser.parse_model(head + body), tmp_path / "m.onnx")
    words = (tmp_path / "m.onnx", "--engine", "tensorrt:precision=fp16")
    (culprit,) = walk("11.2.1.2", *words, refuses=refuses).reading.report().culprits
    assert {*culprit.nodes, *culprit.also} == named


def test_layers_in_float_are_told_by_the_file_that_was_measured(walk: Walk, tmp_path: Path) -> None:
    model, inputs = models.scaled_apart(tmp_path)
    words = (model, "--inputs", inputs, "--engine", "tensorrt:precision=int8", "--reference")
    cure = (
        walk("10.6.0", *words, f"onnxruntime:model={tmp_path / 'float.onnx'}")
        .reading.report()
        .workaround
    )
    own = [recipe.text for recipe in cure.apply if recipe.tool.startswith("TensorRT")]
    assert ["'worked-around.onnx'" in text for text in own] == [True], cure.apply


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    """The words for a sound model, and three samples of as many lengths, which it leaves open."""
    folder = tmp_path_factory.mktemp("texts")
    ends = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, "length", 8])
        for n in "xy"
    ]
    nodes = [
        onnx.helper.make_node("Tanh", ["x"], ["t"]),
        onnx.helper.make_node("Neg", ["t"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
        ),
        folder / "m.onnx",
    )
    words: list[str | Path] = [folder / "m.onnx", "--engine", "tensorrt:precision=fp16"]
    for length in (71, 48, 60):
        np.savez(
            folder / f"{length}.npz",
            x=np.random.default_rng(length).random((1, length, 8), np.float32),
        )
        words += ["--inputs", folder / f"{length}.npz"]
    return tuple(words)


@pytest.mark.slow
def test_texts_of_several_lengths_are_one_build_a_look(
    walk: Walk, texts: tuple[str | Path, ...]
) -> None:
    """Seen with one build for each length and each look, 17 of them."""
    walked = walk("10.6.0", *texts)
    assert (walked.ran.code, walked.answers()) == (10, [("reproduce", "no")])
    assert walked.visits("reproduce")[0].outcome["samples"] == 3
    builds = (walked.folder / "builds.jsonl").read_text().splitlines()
    events = map(json.loads, (walked.folder / NAME).read_text().splitlines())
    probes = [e["probe"] for e in events if e["kind"] == "probe.started"]
    asked = [p for p in probes if p["op"] == "measure" and p["engine"].startswith("tensorrt")]
    assert 1 < len(builds) <= len(asked), "what was made near them is run on a build that stands"
