"""The fake engine's faults are what they say: others' tests stand on them."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault

node = helper.make_node
FLOAT = TensorProto.FLOAT
Array = np.ndarray[Any, Any]
X = {"x": np.array([4, 16], np.float32)}


@pytest.fixture
def chain(small: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """x -> Neg -> Abs -> Sqrt -> y"""
    return small(
        [
            node("Neg", ["x"], ["a"], name="n0"),
            node("Abs", ["a"], ["b"], name="n1"),
            node("Sqrt", ["b"], ["y"], name="n2"),
        ],
        {"x": (FLOAT, [2])},
        ["y"],
    )


def y(
    spec: str, model: onnx.ModelProto, attempt: int = 0, marks: tuple[str, ...] = ()
) -> list[float]:
    built = make(spec).build(BuildRequest(model, "", attempt=attempt, marks=marks))
    values: list[float] = built.run(X)["y"].tolist()
    return values


def test_without_a_fault_it_is_right(chain: onnx.ModelProto) -> None:
    assert y("fake", chain) == [2, 4]


def test_wrong_results_travel_from_the_last_of_the_named_nodes(chain: onnx.ModelProto) -> None:
    assert y("fake:fault=wrong,size=3", chain) == [8, 16]  # no condition: the last node
    assert y("fake:fault=wrong,size=3,ops=Abs", chain) == [4, 8]  # sqrt of four times as much
    assert y("fake:fault=wrong,size=3,nodes=n0+n1", chain) == [4, 8]
    assert y("fake:fault=wrong,size=3,ops=Neg,nodes=n2", chain) == [8, 16]
    assert y("fake:fault=wrong,size=3,ops=Abs+Conv", chain) == [2, 4]  # not all are here


def test_wrong_may_be_infinite_or_nan(chain: onnx.ModelProto) -> None:
    assert y("fake:fault=wrong,size=inf", chain) == [float("inf")] * 2
    assert np.isnan(y("fake:fault=wrong,size=nan,ops=Neg", chain)).all()


def test_the_fault_is_seen_at_the_mark_and_the_model_stays_the_requested_one(
    chain: onnx.ModelProto,
) -> None:
    built = make("fake:fault=wrong,size=3,ops=Neg").build(BuildRequest(chain, "", marks=("a",)))
    assert built.run(X)["a"].tolist() == [-16, -64]
    assert [n.op_type for n in built.model.graph.node] == ["Neg", "Abs", "Sqrt"]


def test_marks_may_cure(chain: onnx.ModelProto) -> None:
    assert y("fake:fault=wrong,marks=cure", chain) != [2, 4]
    assert y("fake:fault=wrong,marks=cure", chain, marks=("a",)) == [2, 4]


def test_a_build_is_drawn_once_and_the_same_again(chain: onnx.ModelProto) -> None:
    spec = "fake:fault=wrong,rate=0.5,seed=3"
    built = make(spec).build(BuildRequest(chain, "", attempt=1))
    assert len({tuple(built.run(X)["y"].tolist()) for _ in range(5)}) == 1
    drawn = [y(spec, chain, attempt) == [2, 4] for attempt in range(20)]
    assert drawn == [y(spec, chain, attempt) == [2, 4] for attempt in range(20)]
    assert 3 < sum(drawn) < 17
    assert make(spec).info.capabilities["rebuild"].present
    assert not make("fake:fault=wrong").info.capabilities["rebuild"].present


def test_each_run_may_be_drawn(chain: onnx.ModelProto) -> None:
    def runs() -> list[bool]:
        built = make("fake:fault=wrong,rate=0.3,per=run").build(BuildRequest(chain, ""))
        return [built.run(X)["y"].tolist() == [2, 4] for _ in range(40)]

    assert runs() == runs()
    assert 4 < runs().count(False) < 22


@pytest.mark.parametrize("status", ["out-of-memory", "build-failed", "invalid-model", "error"])
@pytest.mark.parametrize("at", ["build", "run"])
def test_faults_of_the_contract(chain: onnx.ModelProto, status: str, at: str) -> None:
    engine = make(f"fake:fault={status},at={at}")
    if at == "build":
        with pytest.raises(EngineFault) as caught:
            engine.build(BuildRequest(chain, ""))
    else:
        built = engine.build(BuildRequest(chain, ""))
        with pytest.raises(EngineFault) as caught:
            built.run(X)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("fault", "code"),
    [("crash", -11), ("abort", -6), ("exit", 3), ("hang,seconds=0.1", 0)],
    ids=["crash", "abort", "exit", "hang"],
)
def test_faults_of_the_process(fault: str, code: int) -> None:
    program = (
        "from fake_engine.engine import make, strike_process\nimport sys\nfrom narrowdown.engines.options import check, values\n"
        f"strike_process(make(check('fake:fault={fault}'))._fault)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=False)
    assert done.returncode == code


def test_a_size_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="size=much is not a number"):
        make("fake:size=much")


def test_only_the_sessions_that_run_are_made(
    chain: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right model of 50,000 nodes beside each wrong one took half of a search's time."""
    from fake_engine import engine

    made, usual = [], engine.Session
    monkeypatch.setattr(engine, "Session", lambda *of: made.append(of) or usual(*of))
    built = make("fake:fault=wrong,size=3,rate=0.5,per=run").build(BuildRequest(chain, ""))
    assert len(made) == 1
    assert {built.run(X)["y"].tolist()[0] for _ in range(32)} == {2, 8}
    assert len(made) == 2
    built.close()
    with pytest.raises(EngineFault, match="closed"):
        built.run(X)
    always = make("fake:fault=wrong,size=3").build(BuildRequest(chain, ""))
    always.run(X)
    assert len(made) == 3
