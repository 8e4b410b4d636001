"""Inputs and outputs that one tool saved and the other reads: real models, the real Polygraphy."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.consent import Consent, Permit
from narrowdown.engines.data import held, polygraphy, samples
from narrowdown.engines.graph import load
from narrowdown.engines.probe import Check, LoadInputs, Measurement
from narrowdown.engines.store import Store
from narrowdown.engines.workers.operations import execute_probe

from ..consents import digests, to_check

tools = pytest.importorskip("polygraphy.tools")
comparator = pytest.importorskip("polygraphy.comparator")
# Its own affairs: what it uses of importlib, and statistics of empty arrays.
pytestmark = [
    pytest.mark.filterwarnings("ignore:SelectableGroups:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

TYPES = {
    "f16": TensorProto.FLOAT16, "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8, "i16": TensorProto.INT16, "u16": TensorProto.UINT16, "i32": TensorProto.INT32,
    "u32": TensorProto.UINT32, "i64": TensorProto.INT64, "u64": TensorProto.UINT64, "bool": TensorProto.BOOL,
}  # fmt: skip
SHAPES = {"plain": [2, 3], "scalar": [], "empty": [0, 4]}
POLYGRAPHY = shlex.quote(str(Path(sys.executable).with_name("polygraphy")))


def model(path: Path, inputs: dict[str, tuple[int, list[int]]]) -> Path:
    """Every input goes out again."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"], name=name) for name in inputs]
    ins = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    outs = [helper.make_tensor_value_info(f"{n}_out", t, s) for n, (t, s) in inputs.items()]
    graph = helper.make_graph(nodes, "g", ins, outs)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10), path
    )
    return path


class Session(msgspec.Struct):
    store: Store
    model: str
    inputs: str = ""

    def load(self, *sources: Path) -> list[dict[str, Any]]:
        """The feeds of these files as the engines get them."""
        probe = LoadInputs(model=self.model, sources=tuple(map(str, sources)), random=not sources)
        m = execute_probe(probe, self.store, lambda _: None)
        assert m.status == "ok", m.message
        self.inputs = m.facts["inputs"]
        return [
            samples.load_feed(self.store, self.inputs, sample["id"])
            for sample in m.facts["samples"]
        ]

    def check(self, command: str, sample: str) -> Measurement:
        probe = Check(
            model=self.model, command=command, inputs=self.inputs, sample=sample, reference="onnxruntime",
            artifacts=("inputs.json", "expected.json"),
        )  # fmt: skip
        with held.under(to_check(command)):
            return execute_probe(probe, self.store, lambda _: None)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Session]:
    def get(path: Path) -> Session:
        store = Store(tmp_path / "session")
        return Session(store, load.import_model(path, store).digest)

    return get


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """``polygraphy`` in this process and the test's folder: what it printed."""

    def runs(*words: str | Path, good: bool = True) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["polygraphy", *map(str, words)])
        try:
            code = tools.main()
        except Exception as error:
            code = str(error)
        said = "".join(capsys.readouterr())
        assert (not code) == good, said
        return said

    return runs


@pytest.fixture
def every(tmp_path: Path) -> Path:
    """A model with inputs of every type that both tools know, in every kind of shape."""
    return model(
        tmp_path / "every.onnx", {f"{t}_{s}": (TYPES[t], SHAPES[s]) for t in TYPES for s in SHAPES}
    )


def equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (value.dtype, value.shape), name
        assert np.array_equal(ours[name], value), name


@pytest.mark.parametrize("form", ["in.json", "folder"])
def test_we_read_what_it_saved(form: str, every: Path, opened, run, tmp_path) -> None:
    """A list in one file, or (from 0.53 on) a folder of one file an iteration."""
    run(
        "run",
        every,
        "--onnxrt",
        "--iterations",
        "3",
        "--save-inputs",
        form,
        "--save-outputs",
        "out.json",
    )
    feeds = opened(every).load(tmp_path / form)
    theirs = [dict(feed) for feed in comparator.StreamingDataLoader(str(tmp_path / form))]
    assert len(feeds) == len(theirs) == 3
    for ours, their in zip(feeds, theirs, strict=True):
        equal(ours, their)
    ((_, results),) = polygraphy.read_outputs(tmp_path / "out.json")
    for ours, result in zip(feeds, results, strict=True):
        equal({f"{name}_out": value for name, value in ours.items()}, result)


def test_outputs_of_several_runners(every: Path, run, tmp_path) -> None:
    run("run", every, "--onnxrt", "--onnxrt", "--iterations", "2", "--save-outputs", "out.json")
    ours = polygraphy.read_outputs(tmp_path / "out.json")
    theirs = comparator.RunResults.load(str(tmp_path / "out.json"))
    assert [name for name, _ in ours] == [name for name, _ in theirs.items()]
    assert len(ours) == 2
    for (_, iterations), (_, results) in zip(ours, theirs.items(), strict=True):
        for mine, result in zip(iterations, results, strict=True):
            equal(mine, dict(result.items()))


def test_it_reads_what_we_wrote(every: Path, opened, run, tmp_path) -> None:
    """As a check command, the inputs and expected outputs of a candidate; and again from our files,
    wrong values found."""
    session = opened(every)
    (feed,) = session.load()
    exact = "--onnxrt --load-inputs {inputs} --load-outputs {expected} --atol 0 --rtol 0"
    m = session.check(f"{POLYGRAPHY} run {{model}} {exact}", "random:0")
    assert m.facts["returncode"] == 0, m.facts
    compared = [line for line in m.facts["stdout"].splitlines() if "PASSED | Output:" in line]
    assert len(compared) == len(TYPES) * len(SHAPES)
    (tmp_path / "in.json").write_bytes(session.store.get(m.artifacts["inputs.json"]))
    equal(polygraphy.read_inputs(tmp_path / "in.json")[0], feed)
    expected = {f"{name}_out": value.copy() for name, value in feed.items()}
    polygraphy.write_inputs(tmp_path / "in.json", [feed, feed])
    polygraphy.write_outputs(tmp_path / "out.json", [expected, expected])
    words = ("run", every, "--onnxrt", "--load-inputs", "in.json", "--load-outputs", "out.json")
    assert "Passed: 2/2 iterations" in run(*words)
    expected["i64_plain_out"][1, 1] += 1
    polygraphy.write_outputs(tmp_path / "out.json", [feed_out(feed), expected])
    assert "Passed: 1/2 iterations" in run(*words, good=False)


def feed_out(feed: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}_out": value for name, value in feed.items()}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
        (TensorProto.STRING, np.str_),
    ],
)
def test_types_that_it_cannot_feed_come_back_whole(
    kind: int, dtype: Any, opened, run, tmp_path
) -> None:
    """Its JSON has no such arrays: floats are widened, which loses nothing, and narrowed again by
    us. It refuses the model."""
    path = model(tmp_path / "m.onnx", {"x": (kind, [2, 3])})
    session = opened(path)
    (feed,) = session.load()
    m = session.check("true {inputs} {expected}", "random:0")
    (tmp_path / "in.json").write_bytes(session.store.get(m.artifacts["inputs.json"]))
    (tmp_path / "out.json").write_bytes(session.store.get(m.artifacts["expected.json"]))
    (again,) = session.load(tmp_path / "in.json")
    if dtype is not np.str_:
        assert again["x"].dtype == dtype
    assert again["x"].tolist() == feed["x"].tolist()
    ((_, (result,)),) = polygraphy.read_outputs(tmp_path / "out.json")
    assert np.array_equal(result["x_out"], feed["x"].astype(result["x_out"].dtype))
    run(
        "run",
        path,
        "--onnxrt",
        "--load-inputs",
        "in.json",
        "--load-outputs",
        "out.json",
        good=False,
    )


LOADER = """
import numpy as np
table = np.load("table.npy")
def load_data():
    for row in table:
        yield {"x": row[None]}
def listed():
    return [{"x": table[:1]}, {"x": table[1:2]}]
"""


@pytest.mark.parametrize("function", ["", ":load_data", ":listed"])
def test_one_loader_script_for_both(function: str, opened, run, tmp_path) -> None:
    """A generator or a list; its files are found where the user stands, not where the script
    lies."""
    path = model(tmp_path / "m.onnx", {"x": (TensorProto.FLOAT, [1, 3])})
    np.save(tmp_path / "table.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/loader.py").write_text(LOADER)
    source = f"{tmp_path / 'scripts/loader.py'}{function}"
    run("run", path, "--onnxrt", "--data-loader-script", source, "--save-inputs", "in.json")
    session = opened(path)
    probe = LoadInputs(model=session.model, sources=(source,), random=False, folder=str(tmp_path))
    loader = tmp_path / "scripts/loader.py"
    agreed = Consent((Permit("data loader script", source, str(tmp_path), digests(loader)),))
    with held.under(agreed):
        facts = execute_probe(probe, session.store, lambda _: None).facts
    feeds = [
        samples.load_feed(session.store, facts["inputs"], sample["id"])
        for sample in facts["samples"]
    ]
    theirs = polygraphy.read_inputs(tmp_path / "in.json")
    assert len(feeds) == len(theirs) == 2
    for ours, their in zip(feeds, theirs, strict=True):
        equal(ours, their)


def test_a_loader_script_from_the_command_line(narrowdown, tmp_path) -> None:
    path = model(tmp_path / "m.onnx", {"x": (TensorProto.FLOAT, [1, 3])})
    np.save(tmp_path / "table.npy", np.full((2, 3), 7, np.float32))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/loader.py").write_text(LOADER)
    seen = f"{shlex.quote(sys.executable)} -c \"import sys; sys.exit('k05V' not in open(sys.argv[1]).read())\" {{inputs}}"
    ran = narrowdown(
        "step",
        "repeat",
        path,
        "--inputs",
        "scripts/loader.py:listed",
        "--check",
        seen,
        "--until",
        "1",
        "--json",
    )
    assert ran.code == 10, ran.out + ran.err
    assert ran.json()["passed"] == 1
