"""What is kept warm, and what goes first."""

import pytest
from onnx import helper

from narrowdown.engines.backends import builds
from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.backends.builds import Kept, serve, weigh_built
from narrowdown.engines.workers import captures


@pytest.fixture
def closed() -> list[str]:
    return []


def fill(kept: Kept[str], *names: str) -> None:
    for name in names:
        kept.get(name.encode(), lambda name=name: name)


def test_the_least_recently_used_go_first(closed: list[str]) -> None:
    kept: Kept[str] = Kept(closed.append, most=3)
    fill(kept, "a", "b", "c", "a", "d", "e")
    assert closed == ["b", "c"]
    assert kept.get(b"a", lambda: "made again") == "a"
    kept.clear()
    assert sorted(closed) == ["a", "b", "c", "d", "e"]


def test_a_heavy_one_stays_while_it_is_asked_and_goes_before_the_next(
    closed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "HELD", 5)
    kept: Kept[str] = Kept(closed.append, len)
    fill(kept, "ab", "heavyweight", "heavyweight")
    assert closed == []
    fill(kept, "c")
    assert closed == ["ab", "heavyweight"]
    kept.clear()


def test_what_is_heavy_goes_all_over_the_process_as_soon_as_another_engine_is_asked(
    closed: list[str],
) -> None:
    """The reference may take as much memory before anything is made for the engine; what is light
    may be asked again."""
    weights: Kept[str] = Kept(closed.append, {"heavy": 1 << 50, "light": 1}.__getitem__)
    serve("one")
    fill(weights, "heavy")
    serve("one")
    assert closed == []
    serve("other")
    assert closed == ["heavy"]
    fill(weights, "light")
    serve("one")
    assert closed == ["heavy"]


@pytest.mark.parametrize("problem", [MemoryError(), EngineFault("out-of-memory", "none left")])
def test_want_of_memory_lets_everything_go_and_tries_once_more(
    closed: list[str], problem: Exception
) -> None:
    here: Kept[str] = Kept(closed.append)
    elsewhere: Kept[str] = Kept(closed.append)
    fill(here, "a")
    fill(elsewhere, "b")

    def make() -> str:
        if len(closed) < 2:
            raise problem
        return "fits now"

    assert here.get(b"c", make) == "fits now"
    assert sorted(closed) == ["a", "b"]
    here.clear()


def test_other_failures_are_not_tried_again(closed: list[str]) -> None:
    kept: Kept[str] = Kept(closed.append)
    fill(kept, "a")

    def make() -> str:
        raise EngineFault("build-failed", "no")

    with pytest.raises(EngineFault):
        kept.get(b"b", make)
    assert closed == []
    kept.clear()


def test_the_numbers_in_classical_nodes_have_a_weight_and_make_the_reference_go(
    closed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [1.0] * 1000
    trees = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_values=numbers
    )
    plain = helper.make_node("Constant", [], ["y"], value_floats=numbers)
    models = {
        n.op_type: helper.make_model(helper.make_graph([n], "g", [], [])) for n in (trees, plain)
    }
    assert weigh_built(models["TreeEnsembleRegressor"]) > 9 * 4 * len(numbers)
    assert weigh_built(models["Constant"]) == 0
    warm: Kept[str] = Kept(closed.append)
    fill(warm, "the reference")
    monkeypatch.setattr(captures, "_builds", warm)
    monkeypatch.setattr(captures, "HELD", 9 * 4 * len(numbers))
    captures.make_room(models["Constant"])
    assert closed == []
    captures.make_room(models["TreeEnsembleRegressor"])
    assert closed == ["the reference"]
