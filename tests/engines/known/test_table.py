"""The table of known bugs: every file is an entry, shows what it says, and is mistaken for nothing
else."""

import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest

from narrowdown import wizard
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.construct import construct
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.known.entry import Bug, Stated
from narrowdown.engines.known.table import TableProblem, parse_bug, read_table
from narrowdown.engines.known.variant import vary_declared
from narrowdown.engines.search.lookalike import find_lookalike, list_lookalikes

MODELS = sorted(p for p in Path(wizard.__file__).parent.rglob("*.onnx"))
BUGS = read_table()
MADE = [bug for bug in BUGS if bug.make is not None]
# What the demo models really have: the failures that they are demos of.
THEIRS = {"shapes_cnn": {"ort-pad-maxpool-fusion"}}
PADDED = {"ort-pad-averagepool-end-pads", "ort-pad-averagepool-fusion", "ort-pad-averagepool-wide"}
# Constructions that show two entries, as one bug is the door to the other.
ALSO = {
    "ort-layernorm-keepdims": set(),
    **dict.fromkeys(PADDED, PADDED),
    "ort-layernorm-div-as-scale": {"ort-layernorm-scale-widens"},
    "ov-reducelogsumexp-axes-attribute": {"ov-reducelogsumexp-overflow"},
    "ort-gemm-identity-transpose-weight": {"ort-gemm-identity-transpose-refused"},
}


def lookalikes(index: GraphIndex, engine: str) -> set[str]:
    """Ids of the bugs of any release, of any precision, that the whole graph looks like."""
    bugs = [bug for bug in BUGS if bug.engine == engine and not bug.precision]
    found = list_lookalikes(Findings(), index, bugs, version="", precision="fp32")
    return {bug.id for bug, _ in found}


def test_there_are_forty_with_a_thread_each_and_what_has_none_was_run_here() -> None:
    assert len([bug for bug in BUGS if bug.thread]) >= 40
    assert all(bug.ran and not bug.more_threads for bug in BUGS if not bug.thread)
    threads = [thread for bug in BUGS if bug.thread for thread in (bug.thread, *bug.more_threads)]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#[1-9]\d*", thread) for thread in threads)
    # What was not seen here says so.
    assert all(bug.unverified for bug in BUGS if bug.make is None)


@pytest.mark.parametrize("bug", MADE, ids=lambda bug: bug.id)
def test_a_construction_is_a_valid_model_that_looks_like_its_own_bug_and_no_other(bug: Bug) -> None:
    assert bug.make is not None
    found = lookalikes(build_index(construct(bug.make), "m"), bug.engine)
    assert bug.id in found
    assert found <= {bug.id, *ALSO.get(bug.id, ())}


@pytest.mark.parametrize("bug", [bug for bug in MADE if bug.ran], ids=lambda bug: bug.id)
def test_a_trigger_names_valid_models_on_both_sides(bug: Bug) -> None:
    assert bug.make is not None
    assert bug.fires
    assert bug.beside
    made = [vary_declared(bug.make, variant) for variant in (*bug.fires, *bug.beside)]
    assert all(construct(one).graph.node for one in made)
    assert all(one not in made[:n] for n, one in enumerate(made))
    drawn = [t.range for one in made for t in one.inputs.values()]
    assert all(low <= high for low, high in drawn)
    assert len(bug.fires) <= 5 >= len(bug.beside)  # each is a build in front of a person who waits


@pytest.mark.parametrize("bug", MADE, ids=lambda bug: bug.id)
def test_what_a_trigger_calls_healthy_looks_like_no_bug(bug: Bug) -> None:
    """But for what values alone make healthy: a graph does not hold these. What fires looks like
    it, or like its neighbour."""

    def looks_like(variant: dict[str, Stated], looked_for: list[Bug]) -> bool:
        assert bug.make is not None
        made = onnx.shape_inference.infer_shapes(construct(vary_declared(bug.make, variant)))
        index = build_index(made, "m")
        return any(
            find_lookalike(index, range(len(index.nodes)), other.looks) for other in looked_for
        )

    values = ("range", "values", "special")
    told = [v for v in bug.beside if any(key.rpartition(".")[2] not in values for key in v)]
    assert [v for v in told if looks_like(v, [bug])] == []
    assert [
        v for v in bug.fires if not looks_like(v, [b for b in MADE if b.engine == bug.engine])
    ] == []


@pytest.mark.parametrize(
    ("attributes", "cut"),
    [
        ({"pads": [0, 0, 1, 1]}, True),
        ({"pads": [1, 0, 1, 0]}, True),  # even, and wrong all the same
        ({"pads": [0, 0, 1, 0]}, True),
        ({"pads": [0, 0, 0, 1]}, False),  # uneven, and right
        ({"pads": [0, 1, 0, 1]}, False),
        ({"pads": [0, 1, 1, 1]}, False),
        ({"pads": [1, 1, 1, 1]}, False),
        ({"pads": [1, 1, 0, 0]}, False),
        ({"auto_pad": "SAME_UPPER"}, True),  # of some sizes
        ({}, False),
    ],
)
def test_which_padding_a_pool_of_onnxruntime_1_22_is_wrong_by(
    attributes: dict[str, Any], cut: bool
) -> None:
    """Each was run there, on 5 by 5 values with windows of 2 and 3."""
    bug = next(bug for bug in BUGS if bug.id == "ort-averagepool-end-pads")
    pool = onnx.helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[2, 2], count_include_pad=1, **attributes
    )
    image = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 5, 5])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([pool], "g", [image], [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)])
    assert bool(find_lookalike(build_index(model, "m"), [0], bug.looks)) == cut


def test_a_release_of_ours_that_was_right_is_not_called_wrong() -> None:
    for bug in MADE:
        wrong = {
            version
            for version, seen in bug.ran.items()
            if seen == ("wrong" if bug.fails == "wrong" else "refused")
        }
        assert all(bug.affects(version) for version in wrong), bug.id
        assert bug.mended not in wrong, bug.id


def test_the_demo_models_look_like_what_they_have_and_nothing_else() -> None:
    assert len(MODELS) >= 3
    for path in MODELS:
        index = build_index(onnx.load(path), "m")
        for engine in ("onnxruntime", "openvino", "tensorrt"):
            theirs = THEIRS.get(path.stem, set()) if engine == "onnxruntime" else set()
            assert lookalikes(index, engine) == theirs, (path.name, engine)


def test_a_quotient_of_computed_integers_is_not_one_divided_by_them() -> None:
    """A size divided and multiplied again, as speech models round lengths up: no constant is
    divided."""
    bug = next(bug for bug in MADE if bug.id == "ort-int-div-mul-fusion")
    assert bug.make is not None
    model = construct(bug.make)
    index = build_index(model, "m")
    assert find_lookalike(index, range(len(index.nodes)), bug.looks)
    divide = model.graph.node[0]
    divide.input[:] = list(reversed(divide.input))
    index = build_index(model, "m")
    assert not find_lookalike(index, range(len(index.nodes)), bug.looks)


def test_an_entry_is_the_same_once_a_journal_has_held_it() -> None:
    """A step is told the table by a probe, whose answer is JSON; its keys are text."""
    for bug in BUGS:
        assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(bug)), Bug) == bug


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("ort-matmul-transpose-vector", {"w.shape": [4, 1]}),
        ("ov-unsqueeze-wider-ones", {"c.shape": [1, 1, 1, 1]}),
        ("ov-unsqueeze-wider-ones", {"c.shape": [1, 1, 1, 1, 2], "c.values": [1, 2]}),
        ("ov-reduce-transpose-one", {"x.shape": [3, 5, 2, 7]}),
        ("ov-reducesum-add", {"1.keepdims": 1}),
    ],
)
def test_what_is_of_another_shape_looks_like_something_else(
    name: str, beside: dict[str, Stated]
) -> None:
    bug = next(bug for bug in MADE if bug.id == name)
    assert bug.make is not None
    for made, found in ((bug.make, True), (vary_declared(bug.make, beside), False)):
        index = build_index(construct(made), "m")
        assert bool(find_lookalike(index, range(len(index.nodes)), bug.looks)) == found


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_an_entry_is_sound(bug: Bug) -> None:
    """It is called like its file, its pattern reads what comes before, and each variant changes
    something."""
    assert resources.files("narrowdown.flows").joinpath("known", f"{bug.id}.yaml").is_file()
    assert all(0 <= r < place for place, node in enumerate(bug.looks) for r in node.reads)
    for variant in (*bug.fires, *bug.beside):
        assert bug.make is not None
        assert vary_declared(bug.make, variant) != bug.make


def test_a_file_that_is_none_says_so() -> None:
    with pytest.raises(TableProblem, match=r"x\.yaml: "):
        parse_bug("x.yaml", b"id: x")
    with pytest.raises(TableProblem, match=r"x\.yaml: "):
        parse_bug("x.yaml", b"id: [")
