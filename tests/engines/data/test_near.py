"""Feeds near the given ones: other than these, of the same types and shapes, within what is
natural, the same each time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.data import near, samples
from narrowdown.engines.probe import LoadInputs
from narrowdown.engines.store import Store

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def loaded(model: Any, store: Store, *sources: Path | str, **rest: Any) -> dict[str, Any]:
    given = LoadInputs(model.digest, tuple(map(str, sources)), ("",) * len(sources), **rest)
    return samples.load_inputs(given, model, store)


def made(
    model: Any, store: Store, base: str, count: int, **rest: Any
) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
    facts = samples.load_inputs(
        LoadInputs(model.digest, base=base, near=count, **rest), model, store
    )
    return facts, [samples.load_feed(store, facts["inputs"], s["id"]) for s in facts["samples"]]


@pytest.fixture
def sound(tmp_path: Path, make: Any, store: Store) -> Any:
    """(model, inputs): a sound, its rate, a mask and a state, of which two samples agree in rate,
    mask and state."""
    model = make(
        {
            "sound": (FLOAT, [1, 400]),
            "rate": (INT64, []),
            "mask": (FLOAT, [1, 400]),
            "state": (FLOAT, [2, 1, 8]),
        },
    )
    rng = np.random.default_rng(0)
    mask = np.concatenate([np.ones((1, 300), np.float32), np.zeros((1, 100), np.float32)], axis=1)
    for name in ("a", "b"):
        np.savez(
            tmp_path / f"{name}.npz", sound=rng.uniform(-0.5, 0.5, (1, 400)).astype(np.float32), rate=np.int64(16000),
            mask=mask, state=np.zeros((2, 1, 8), np.float32),
        )  # fmt: skip
    return model, loaded(model, store, tmp_path / "a.npz", tmp_path / "b.npz", random=False)[
        "inputs"
    ]


def test_what_is_no_signal_stays_and_the_rest_moves_within_its_range(
    sound: Any, store: Store
) -> None:
    model, base = sound
    given = [samples.load_feed(store, base, f"real:{k}") for k in range(2)]
    facts, feeds = made(model, store, base, 28)
    assert [s["id"] for s in facts["samples"]] == [f"near:{k}" for k in range(28)]
    assert {word for s in facts["samples"] for word in near.WAYS if word in s["source"]} == set(
        near.WAYS
    )
    for feed in feeds:
        assert {n: (a.dtype, a.shape) for n, a in feed.items()} == {
            n: (a.dtype, a.shape) for n, a in given[0].items()
        }
        for name in ("rate", "mask", "state"):
            assert np.array_equal(feed[name], given[0][name])
        assert not any(np.array_equal(feed["sound"], g["sound"]) for g in given)
        assert np.abs(feed["sound"]).max() <= 1
    assert len({feed["sound"].tobytes() for feed in feeds}) == 28
    _, told = made(model, store, base, 28, ranges={"sound": (-0.25, 0.5)})
    assert min(feed["sound"].min() for feed in told) == -0.25, "as the user said"
    what = near.classify_inputs(model.index, given)
    narrow = [near.vary_sample(given, 0, k, what, 0, narrow=True)[1]["sound"] for k in range(12)]
    loudest = max(np.linalg.norm(g["sound"]) for g in given)
    assert max(map(np.linalg.norm, narrow)) < 1.01 * loudest, "codes end where data ended"


def test_the_same_question_makes_the_same_feeds_and_another_batch_makes_others(
    sound: Any, store: Store
) -> None:
    model, base = sound
    first, again, other = (made(model, store, base, 5, start=start) for start in (0, 0, 5))
    assert first[0]["inputs"] == again[0]["inputs"] != other[0]["inputs"]
    mine = {f["sound"].tobytes() for f in first[1]}
    assert mine.isdisjoint(f["sound"].tobytes() for f in other[1])
    assert made(model, store, base, 5, seed=2)[0]["inputs"] != first[0]["inputs"]


def test_ids_are_only_exchanged_for_ids_that_were_seen(
    tmp_path: Path, make: Any, store: Store
) -> None:
    table = np.zeros((100, 4), np.float32)
    model = make(
        {"ids": (INT64, ["n", 32])}, [helper.make_node("Gather", ["table", "ids"], ["y"])], {"table": table},
        {"y": (FLOAT, ["n", 32, 4])},
    )  # fmt: skip
    ids = np.random.default_rng(0).choice([3, 5, 8, 13, 21, 34], (4, 32))
    np.savez(tmp_path / "in.npz", ids=ids)
    base = loaded(model, store, tmp_path / "in.npz", random=False)["inputs"]
    facts, feeds = made(model, store, base, 6)
    assert all(s["rows"] == 4 for s in facts["samples"]), (
        "rows stay rows, each varied in its own way"
    )
    rows = np.concatenate([f["ids"] for f in feeds])
    assert set(np.unique(rows)) <= set(np.unique(ids))
    assert sum((row == given).all() for row in rows for given in ids) <= 1
    told = " ".join(s["source"] for s in facts["samples"])
    assert near.OTHER_IDS in told
    assert "noise" not in told, "codes are neither noisy nor loud"


def test_ids_that_are_fed_as_floats_stay_ids(tmp_path: Path, make: Any, store: Store) -> None:
    """Between two of them is none, and beyond the table the model ends: Thai words of deepcut and
    oskut, by tf2onnx."""
    table = np.zeros((100, 4), np.float32)
    nodes = [  # as tf2onnx counts rows from the end
        helper.make_node("Cast", ["ids"], ["whole"], to=INT64),
        helper.make_node("Add", ["whole", "none"], ["row"]),
        helper.make_node("Gather", ["table", "row"], ["y"]),
    ]
    weights = {"table": table, "none": np.array(0, np.int64)}
    model = make({"ids": (FLOAT, ["n", 32])}, nodes, weights, {"y": (FLOAT, ["n", 32, 4])})
    ids = np.random.default_rng(0).choice(np.float32([3, 5, 8, 13, 21, 99]), (4, 32))
    np.savez(tmp_path / "in.npz", ids=ids)
    base = loaded(model, store, tmp_path / "in.npz", random=False)["inputs"]
    rows = np.concatenate([f["ids"] for f in made(model, store, base, 6)[1]])
    assert rows.dtype == np.float32
    assert set(np.unique(rows)) <= set(np.unique(ids))
    assert sum((row == given).all() for row in rows for given in ids) <= 1


def test_without_given_ones_they_are_drawn_by_role(make: Any, store: Store) -> None:
    model = make({"x": (FLOAT, [2, 8])})
    base = loaded(model, store)["inputs"]
    facts, feeds = made(model, store, base, 3)
    assert {s["source"] for s in facts["samples"]} == {"random by role"}
    drawn = [samples.load_feed(store, base, "random:0"), *feeds]
    assert len({f["x"].tobytes() for f in drawn}) == 4


def test_a_loader_is_asked_for_more(tmp_path: Path, make: Any, store: Store) -> None:
    model = make({"x": (FLOAT, [1, 3])})
    script = tmp_path / "more.py"
    script.write_text(
        "import numpy as np, pathlib\n"
        "count = pathlib.Path(__file__).with_name('count')\n"
        "def load_data():\n"
        "    n = int(count.read_text()) if count.exists() else 0\n"
        "    count.write_text(str(n + 1))\n"
        "    yield {'x': np.full((1, 3), 7, np.float32)}\n"
        "    yield {'x': np.full((1, 3), n, np.float32)}\n"
    )
    base = loaded(model, store, script, random=False)["inputs"]
    facts, feeds = made(model, store, base, 4, sources=(str(script),), source_digests=("",))
    assert facts["samples"][0]["source"] == "more.py"
    assert feeds[0]["x"].tolist() == [[1, 1, 1]], "what it gave before is not unseen"
    assert [s["source"].partition(":")[0] for s in facts["samples"][1:]] == ["near real"] * 3
