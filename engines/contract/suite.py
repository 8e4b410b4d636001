"""What every engine must do, whatever it is: outputs of every kind, marked tensors, weights in
other files, wrong models, what happens after ``close``, what the declaration promises."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines import discovery, options, outside
from narrowdown.engines.array import Array
from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, Engine, EngineFault, EngineInfo
from narrowdown.engines.installed import importable
from narrowdown.engines.spec import parse

node = helper.make_node
FLOAT, INT64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)

CAPABILITIES = {"build", "run", "mark", "keep", "optimizers", "tactics", "rebuild", "threads"}
STATUSES = {"build-failed", "invalid-model", "unsupported", "out-of-memory", "refused", "error"}


def small_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of these nodes. ``inputs``: name -> (element type, shape); outputs state no type."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()],
    )
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d, v) for d, v in (domains or {}).items()),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def model_with_weights_outside(folder: Path) -> tuple[onnx.ModelProto, Array]:
    """A model whose one weight lies in ``weights/w.bin`` below ``folder``, and that weight."""
    values = np.linspace(-1, 1, 4096, dtype=np.float32)
    (folder / "weights").mkdir()
    (folder / "weights/w.bin").write_bytes(bytes(64) + values.tobytes())
    model = small_model([node("Mul", ["x", "w"], ["y"], name="mul")], {"x": (FLOAT, [4096])}, ["y"])
    weight = model.graph.initializer.add()
    weight.name, weight.data_type, weight.data_location = "w", FLOAT, TensorProto.EXTERNAL
    weight.dims.append(4096)
    for key, value in (
        ("location", "weights/w.bin"),
        ("offset", "64"),
        ("length", str(values.nbytes)),
    ):
        weight.external_data.add(key=key, value=value)
    return model, values


def once(
    engine: Engine, model: onnx.ModelProto, feeds: dict[str, Array], **request: Any
) -> dict[str, Array]:
    """Build, run, close."""
    built = engine.build(BuildRequest(model, request.pop("weights_dir", ""), **request))
    try:
        return built.run(feeds)
    finally:
        built.close()


class EngineContract:
    """The suite. A subclass whose name begins with ``Test`` names the ``specs`` that it is run on.

    ``complete`` False: the engine may refuse kinds of tensors that it lacks (text, sequences,
    16-bit outputs), with a status and a sentence. ``optional`` True: skipped where the engine's
    package is not installed.
    """

    specs: ClassVar[tuple[str, ...]] = ()
    complete: ClassVar[bool] = True
    optional: ClassVar[bool] = False

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for fixture, values in (
            ("engine", self.specs),
            ("name", dict.fromkeys(parse(s).name for s in self.specs)),
        ):
            if fixture in metafunc.fixturenames:
                metafunc.parametrize(
                    fixture, list(values), indirect=fixture == "engine", scope="class"
                )

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, request: pytest.FixtureRequest) -> Engine:
        package = options.declared_as(parse(request.param).name).package
        if cls.optional and not importable(package):
            pytest.skip(f"{package} is not installed")
        return make(request.param)

    @pytest.fixture
    def with_weights(self, tmp_path: Path) -> tuple[onnx.ModelProto, Array]:
        return model_with_weights_outside(tmp_path)

    def once_or_fault(
        self, engine: Engine, model: onnx.ModelProto, feeds: dict[str, Array]
    ) -> dict[str, Array]:
        """What the run gives; nothing where the engine refuses, which only one that is not
        ``complete`` may."""
        if self.complete:
            return once(engine, model, feeds)
        status = "ok"
        try:
            return once(engine, model, feeds)
        except EngineFault as fault:
            status = fault.status
        assert status in STATUSES
        return {}

    def test_the_declaration_is_valid(self, name: str) -> None:
        assert not discovery.fault_of(discovery.find(name), name)

    def test_the_declaration_loads_nothing_native(self, name: str) -> None:
        """Options are checked on the command line, which must be quick and must not die of a native
        library."""
        heavy = (
            "numpy",
            "onnx",
            "onnxruntime",
            options.declared_as(name).module,
            *self._package(name),
        )
        code = (
            f"import sys; from narrowdown.engines import options; options.check({name!r}); "
            f"print([m for m in {heavy!r} if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"

    def _package(self, name: str) -> tuple[str, ...]:
        """What the engine needs, where that is not what declares it."""
        declared = discovery.find(name)
        own = declared.module.partition(".")[0] if declared else ""
        return (declared.package,) if declared and declared.package != own else ()

    def test_a_wrong_option_is_refused_by_a_sentence(self, name: str) -> None:
        known = [o.name for o in options.declared_as(name).options if len(o.name) > 3]
        wrong = known[0][:-2] + known[0][-1] if known else "nothing_like_it"
        with pytest.raises(ValueError, match="has no option") as caught:
            options.check(f"{name}:{wrong}=1")
        assert not known or f"Did you mean '{known[0]}'?" in str(caught.value)

    def test_what_check_py_takes_computes_what_the_engine_does(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        found = outside.found(options.check(engine.info.spec), engine.info.version)
        part, why = outside.check_part(found)
        if part is None and "does not say" in why:
            pytest.skip(why)
        assert part is not None, why
        # A product of matrices, as some engines compute everything else in full precision whatever
        # they are told.
        weight = np.sin(np.arange(64 * 64, dtype=np.float32)).reshape(64, 64)
        nodes = [node("Tanh", ["x"], ["t"]), node("MatMul", ["t", "w"], ["y"])]
        model = small_model(nodes, {"x": (FLOAT, [1, 64])}, ["t", "y"], {"w": weight})
        for value in model.graph.output:  # the files of a case state them
            value.CopyFrom(helper.make_tensor_value_info(value.name, FLOAT, [1, 64]))
        built = engine.build(BuildRequest(model, ""))
        feeds = {"x": np.linspace(-4, 4, 64, dtype=np.float32).reshape(1, 64)}
        mine = built.run(feeds)
        onnx.save(model, str(tmp_path / "model.onnx"))
        onnx.save(built.model, str(tmp_path / "engine.onnx"))
        np.savez(tmp_path / "inputs.npz", x=feeds["x"])
        names: dict[str, Any] = {
            "HERE": tmp_path, "MODEL": part.model, "SETTINGS": dict(part.settings), "KIND": "accuracy", "np": np, "sys": sys,
            "Path": Path, "cannot_tell": pytest.fail, "beside": lambda name: tmp_path / name,
        }  # fmt: skip
        exec(compile(part.source, "check.py", "exec"), names)  # noqa: S102 (its own source, as check.py has it)
        run, said = names["start"]()
        its = run(feeds)
        built.close()
        assert isinstance(said, str)
        for name in ("t", "y"):
            np.testing.assert_allclose(
                its[name].astype(np.float64), mine[name].astype(np.float64), rtol=1e-6, atol=1e-6
            )

    def test_the_info_is_complete_and_plain(self, engine: Engine) -> None:
        info = engine.info
        assert info.name
        assert info.version
        assert info.device
        assert info.fingerprint.startswith(info.name)
        assert info.precision in ("fp16", "bf16", "tf32", "fp32", "fp64")
        assert info.storage in ("float16", "bfloat16", "float32", "float64")
        assert info.capabilities.keys() >= CAPABILITIES
        for capability in info.capabilities.values():
            assert capability.present or capability.reason.endswith("."), capability
        assert info.slots >= 1
        again = msgspec.json.decode(msgspec.json.encode(info), type=EngineInfo)
        assert msgspec.json.encode(again) == msgspec.json.encode(info)

    def test_the_fingerprint_is_stable_and_follows_the_options(self, engine: Engine) -> None:
        assert make(engine.info.spec).info.fingerprint == engine.info.fingerprint
        others = {make(spec).info.fingerprint for spec in self.specs}
        assert len(others) == len(self.specs)

    def test_a_default_written_out_changes_no_fingerprint(self, engine: Engine) -> None:
        spec = parse(engine.info.spec)
        for option in options.declared_as(spec.name).options:
            if (
                option.type in ("int", "str")
                and option.default is not None
                and not spec.get(option.name)
            ):
                written = spec.with_option(option.name, str(option.default))
                assert make(written).info.fingerprint == engine.info.fingerprint

    def test_every_output_by_its_name(self, engine: Engine) -> None:
        model = small_model(
            [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])],
            {"x": (FLOAT, [2, 3])},
            ["z", "y"],
        )
        x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
        built = engine.build(BuildRequest(model, ""))
        got = built.run({"x": x})
        assert set(got) == {"y", "z"}
        np.testing.assert_array_equal(got["y"], np.maximum(x, 0))
        np.testing.assert_array_equal(got["z"], -x)
        assert set(built.run({"x": x}, ["y"])) == {"y"}  # only those that are asked for
        with pytest.raises(EngineFault, match="no output 'w'"):
            built.run({"x": x}, ["w"])

    def test_results_outlive_the_next_run_and_the_end(self, engine: Engine) -> None:
        model = small_model([node("Neg", ["x"], ["y"])], {"x": (FLOAT, [3])}, ["y"])
        built = engine.build(BuildRequest(model, ""))
        first = built.run({"x": np.ones(3, np.float32)})["y"]
        built.run({"x": np.full(3, 7, np.float32)})
        built.close()
        built.close()  # twice is fine
        np.testing.assert_array_equal(first, np.full(3, -1))
        with pytest.raises(EngineFault):
            built.run({"x": np.ones(3, np.float32)})

    def test_marks_are_given_beside_the_outputs(self, engine: Engine) -> None:
        chain = [node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["b"]), node("Sqrt", ["b"], ["y"])]
        model = small_model(chain, {"x": (FLOAT, [2])}, ["y"])
        before = model.SerializeToString()
        got = once(engine, model, {"x": np.array([4, 9], np.float32)}, marks=("a", "b"))
        assert set(got) == {"a", "b", "y"}
        np.testing.assert_array_equal(got["a"].astype(np.float32), [-4, -9])
        np.testing.assert_array_equal(got["y"].astype(np.float32), [2, 3])
        assert model.SerializeToString() == before

    @pytest.mark.parametrize(
        ("nodes", "inputs", "feeds", "expected"),
        [
            pytest.param(
                [node("ReduceSum", ["x"], ["y"], keepdims=0)],
                {"x": (FLOAT, [3])},
                {"x": np.array([1, 2, 4], np.float32)},
                np.array(7, np.float32),
                id="scalar",
            ),
            pytest.param(
                [node("Neg", ["x"], ["y"])],
                {"x": (FLOAT, [0, 3])},
                {"x": np.zeros((0, 3), np.float32)},
                np.zeros((0, 3), np.float32),
                id="zero-size",
            ),
            pytest.param(
                [node("Greater", ["x", "z"], ["y"])],
                {"x": (FLOAT, [2]), "z": (FLOAT, [2])},
                {"x": np.array([1, 2], np.float32), "z": np.array([2, 1], np.float32)},
                np.array([False, True]),
                id="bool",
            ),
            pytest.param(
                [node("Add", ["x", "z"], ["y"])],
                {"x": (INT64, [2]), "z": (INT64, [2])},
                {"x": np.array([1, -5]), "z": np.array([2, 3])},
                np.array([3, -2]),
                id="int64",
            ),
            pytest.param(
                [node("Not", ["x"], ["y"])],
                {"x": (BOOL, [2])},
                {"x": np.array([True, False])},
                np.array([False, True]),
                id="bool-input",
            ),
            pytest.param(
                [node("Identity", ["x"], ["y"])],
                {"x": (STRING, [2])},
                {"x": np.array(["ä", "longer text"], object)},
                np.array(["ä", "longer text"], object),
                id="string",
            ),
        ],
    )  # fmt: skip
    def test_outputs_of_every_kind(
        self, engine: Engine, nodes: Any, inputs: Any, feeds: dict[str, Array], expected: Array
    ) -> None:
        """Right, or refused with a sentence; never another exception, never something else."""
        got = self.once_or_fault(engine, small_model(nodes, inputs, ["y"]), feeds).get("y")
        if got is None:
            return
        assert isinstance(got, np.ndarray)
        assert got.shape == expected.shape
        assert got.tolist() == expected.tolist()

    def test_a_sequence_is_left_out_and_the_rest_is_given(self, engine: Engine) -> None:
        model = small_model(
            [node("SequenceConstruct", ["x", "x"], ["s"]), node("Neg", ["x"], ["y"])],
            {"x": (FLOAT, [2])},
            ["s", "y"],
        )
        got = self.once_or_fault(engine, model, {"x": np.ones(2, np.float32)})
        assert set(got) == {"y"} or not self.complete
        assert "s" not in got

    def test_bfloat16_and_float16_pass_through(self, engine: Engine) -> None:
        model = small_model(
            [
                node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
                node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
            ],
            {"x": (FLOAT, [3])},
            ["b", "h"],
        )
        got = once(engine, model, {"x": np.array([1, 2.0078125, -3], np.float32)})
        if self.complete:
            assert got["b"].dtype == ml_dtypes.bfloat16
            assert got["h"].dtype == np.float16
        assert got["b"].astype(np.float32).tolist() == [1, 2, -3]

    @pytest.mark.parametrize(
        "nodes",
        [
            pytest.param([node("Add", ["x", "nowhere"], ["y"])], id="undefined-name"),
            pytest.param([node("MatMul", ["x", "x"], ["y"])], id="shapes-do-not-fit"),
            pytest.param([node("NoSuchOperator", ["x"], ["y"])], id="unknown-operator"),
            pytest.param([node("Relu", ["x"], ["z"])], id="output-that-nothing-makes"),
            pytest.param([node("Nothing", ["x"], ["y"], domain="com.nobody")], id="custom-domain"),
        ],
    )
    def test_an_invalid_model_is_an_engine_fault(self, engine: Engine, nodes: Any) -> None:
        model = small_model(nodes, {"x": (FLOAT, [2, 3])}, ["y"], domains={"com.nobody": 1})
        with pytest.raises(EngineFault) as caught:
            once(engine, model, {"x": np.zeros((2, 3), np.float32)})
        assert caught.value.status in STATUSES
        text = str(caught.value)
        assert "\n" not in text
        assert text[0].isupper() or text.startswith("'")
        assert text.endswith((".", "!", "?"))

    def test_an_unknown_operator_is_unsupported(self, engine: Engine) -> None:
        model = small_model(
            [node("Nothing", ["x"], ["y"], domain="com.nobody")],
            {"x": (FLOAT, [2])},
            ["y"],
            domains={"com.nobody": 1},
        )
        with pytest.raises(EngineFault, match="Nothing") as caught:
            once(engine, model, {"x": np.zeros(2, np.float32)})
        assert caught.value.status == "unsupported"

    def test_a_missing_input_is_refused(self, engine: Engine) -> None:
        model = small_model(
            [node("Add", ["x", "z"], ["y"])], {"x": (FLOAT, [2]), "z": (FLOAT, [2])}, ["y"]
        )
        with pytest.raises(EngineFault, match="'z'") as caught:
            once(engine, model, {"x": np.zeros(2, np.float32)})
        assert caught.value.status == "refused"

    def test_keep_is_honoured_or_the_capability_is_absent(self, engine: Engine) -> None:
        """x*x of 300 overflows FP16 and is 90,000 in FP32; a kept pair of nodes exchanges it
        exactly."""
        model = small_model(
            [
                node("Mul", ["x", "x"], ["a"], name="square"),
                node("Sqrt", ["a"], ["y"], name="root"),
            ],
            {"x": (FLOAT, [2])},
            ["y"],
        )
        x = np.array([300, 1000.1], np.float32)
        present = engine.info.capabilities["keep"].present
        plain = once(engine, model, {"x": x})["y"].astype(np.float64)
        if not present:
            if engine.info.precision in ("fp32", "fp64"):
                np.testing.assert_allclose(
                    once(engine, model, {"x": x}, keep=frozenset({0, 1}))["y"], x, rtol=1e-5
                )
            elif engine.info.capabilities.get("casts", engine.info.capabilities["keep"]).present:
                # Casts are put into the model, and the engine is free to ignore them: it runs, and
                # no more is promised.
                assert once(engine, model, {"x": x}, keep=frozenset({0, 1}))["y"].shape == x.shape
            else:
                with pytest.raises(EngineFault, match="precision") as caught:
                    once(engine, model, {"x": x}, keep=frozenset({0}))
                assert caught.value.status == "unsupported"
            return
        kept = once(engine, model, {"x": x}, keep=frozenset({0, 1}))["y"].astype(np.float64)
        np.testing.assert_allclose(kept, x, rtol=1e-6)
        assert np.abs(plain / x - 1).max() > 1e-5  # without them the precision shows
        if engine.info.precision == "fp16":
            assert np.isinf(plain).all()
            assert np.isinf(once(engine, model, {"x": x}, keep=frozenset({1}))["y"]).all()

    def test_weights_outside_stay_outside(
        self, engine: Engine, with_weights: tuple[onnx.ModelProto, Array], tmp_path: Path
    ) -> None:
        model, weight = with_weights
        before = model.SerializeToString()
        built = engine.build(BuildRequest(model, str(tmp_path)))
        got = built.run({"x": np.ones(4096, np.float32)})["y"].astype(np.float32)
        tolerance = {"fp16": 1e-3, "bf16": 8e-3}.get(engine.info.precision, 1e-7)
        np.testing.assert_allclose(got, weight, rtol=tolerance, atol=tolerance)
        assert model.SerializeToString() == before
        assert built.model.ByteSize() < 2000
        assert not [
            p for p in tmp_path.iterdir() if p.is_file()
        ]  # nothing lies about where the weights are
        built.close()

    def test_a_missing_weights_file_is_an_engine_fault(
        self, engine: Engine, with_weights: tuple[onnx.ModelProto, Array], tmp_path: Path
    ) -> None:
        (tmp_path / "weights/w.bin").unlink()
        with pytest.raises(EngineFault) as caught:
            once(
                engine, with_weights[0], {"x": np.ones(4096, np.float32)}, weights_dir=str(tmp_path)
            )
        assert caught.value.status in STATUSES
