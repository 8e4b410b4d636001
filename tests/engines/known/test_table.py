"""The table of known bugs: every file is an entry, shows what it says, and is mistaken for nothing
else."""

import re
from importlib import resources
from pathlib import Path

import msgspec
import onnx
import pytest
import yaml

from narrowdown import wizard
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.entry import Bug, Pattern, Stated
from narrowdown.engines.known.lookalike import find_lookalike, list_lookalikes
from narrowdown.engines.known.table import TableProblem, parse_bug, read_table
from narrowdown.engines.known.variant import vary_declared
from narrowdown.engines.probe import Candidate

MODELS = sorted(p for p in Path(wizard.__file__).parent.rglob("*.onnx"))
BUGS = read_table()
MADE = [bug for bug in BUGS if bug.make is not None]
PADDED = {"ort-pad-averagepool-end-pads", "ort-pad-averagepool-fusion", "ort-pad-averagepool-wide"}
# Constructions that show two entries, as one bug is the door to the other.
ALSO = {
    "ort-layernorm-keepdims": set(),
    **dict.fromkeys(PADDED, PADDED),
    "ort-layernorm-div-as-scale": {"ort-layernorm-scale-widens"},
    "ov-reducelogsumexp-axes-attribute": {"ov-reducelogsumexp-overflow"},
    "ort-gemm-identity-transpose-weight": {"ort-gemm-identity-transpose-refused"},
}


def lookalikes(index: GraphIndex, engine: str, findings: Findings | None = None) -> set[str]:
    """Ids of the bugs of any release, of any precision, that the case, or the whole graph, looks
    like."""
    bugs = [bug for bug in BUGS if bug.engine == engine and not bug.precision]
    found = list_lookalikes(findings or Findings(), index, bugs, version="", precision="fp32")
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
    """But for what numbers alone make healthy: a pattern holds none. What fires looks like it, or
    like its neighbour."""

    def looks_like(variant: dict[str, Stated], looked_for: list[Bug]) -> bool:
        assert bug.make is not None
        made = onnx.shape_inference.infer_shapes(construct(vary_declared(bug.make, variant)))
        index = build_index(made, "m")
        return any(
            find_lookalike(index, range(len(index.nodes)), other.looks) for other in looked_for
        )

    numbers = {"range", "values", "special", "shape", "pads", "kernel_shape", "perm"}
    told = [v for v in bug.beside if not {key.rpartition(".")[2] for key in v} <= numbers]
    assert [v for v in told if looks_like(v, [bug])] == []
    assert [
        v for v in bug.fires if not looks_like(v, [b for b in MADE if b.engine == bug.engine])
    ] == []


def test_a_release_of_ours_that_was_right_is_not_called_wrong() -> None:
    for bug in MADE:
        wrong = {
            version
            for version, seen in bug.ran.items()
            if seen == ("wrong" if bug.fails == "wrong" else "refused")
        }
        assert all(bug.affects(version) for version in wrong), bug.id
        assert bug.mended not in wrong, bug.id


def test_a_case_looks_like_what_it_has_and_a_whole_model_like_nothing() -> None:
    assert len(MODELS) >= 3
    for path in MODELS:
        index = build_index(onnx.load(path), "m")
        for engine in ("onnxruntime", "openvino", "tensorrt"):
            assert lookalikes(index, engine) == set(), (path.name, engine)
    index = build_index(onnx.load(next(p for p in MODELS if p.stem == "shapes_cnn")), "m")
    pool = next(n for n in index.nodes if n.op == "MaxPool")
    padded = index.made_by(pool.inputs[0])
    assert padded is not None
    nodes = f"{padded.id},{pool.id}"
    case = Case(candidate=Candidate(nodes=nodes), sample="real:0", node_ids=nodes)
    assert lookalikes(index, "onnxruntime", Findings(case=case)) == {"ort-pad-maxpool-fusion"}


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


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_an_entry_is_sound(bug: Bug) -> None:
    """It is called like its file, its pattern reads what comes before, and each variant changes
    something."""
    text = resources.files("narrowdown.flows").joinpath("known", f"{bug.id}.yaml").read_text()
    stated = {field for node in yaml.safe_load(text)["looks"] for field in node}
    assert stated <= set(Pattern.__struct_fields__)
    assert all(0 <= r < place for place, node in enumerate(bug.looks) for r in node.reads)
    for variant in (*bug.fires, *bug.beside):
        assert bug.make is not None
        assert vary_declared(bug.make, variant) != bug.make


def test_a_file_that_is_none_says_so() -> None:
    with pytest.raises(TableProblem, match=r"x\.yaml: "):
        parse_bug("x.yaml", b"id: x")
    with pytest.raises(TableProblem, match=r"x\.yaml: "):
        parse_bug("x.yaml", b"id: [")
