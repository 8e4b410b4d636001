"""What most nodes' names begin with is left out where people read, and nowhere else; labels of a
picture differ."""

import io
from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.graph.index import GraphIndex, Node
from narrowdown.engines.probe import Describe, Measurement
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.plain import PlainDisplay
from narrowdown.wizard.report.document import Depth, Workaround
from narrowdown.wizard.report.prefix import Shared, find_shared, leave_out
from narrowdown.wizard.session.events import NoteAdded, ProbeFinished, ProbeStarted

BEFORE = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/"
NAMES = [f"{BEFORE}LayerNorm_{i}/Sum" for i in range(9)]


def test_most_nodes_decide() -> None:
    assert find_shared([*NAMES, "other", "", ""]) == Shared(BEFORE, 9, 10)
    assert (
        find_shared([*NAMES, *(f"x{i}" for i in range(9))]).prefix == ""
    )  # half of them are not most
    assert (
        find_shared([f"/model/{n}" for n in "abcd"]).prefix == ""
    )  # too short to be worth a legend
    assert find_shared([*NAMES, "LayerNorm_3/Sum"]).prefix == ""  # two nodes would have one name
    assert (
        find_shared([f"/attention_layers.{i}/Add" for i in range(9)]).prefix == ""
    )  # "0/Add" is no name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{BEFORE}a (Sum), '{BEFORE}b' and [{BEFORE}c].", "a (Sum), 'b' and [c]."),
        (f"emulate:keep={BEFORE}a+{BEFORE}b", f"emulate:keep={BEFORE}a+{BEFORE}b"),
        (f"my{BEFORE}a {BEFORE}", f"my{BEFORE}a {BEFORE}"),
        ("of another/p…aV2/LayerNorm_0/Sub", "of another/p…aV2/LayerNorm_0/Sub"),
    ],
)
def test_only_names_lose_it(text: str, shown: str) -> None:
    assert leave_out(text, BEFORE) == shown
    assert leave_out({"names": [text]}, BEFORE) == {"names": [shown]}


def test_engines_and_commands_stay_whole() -> None:
    cure = Workaround(
        "precision", True, NAMES[0], tuple(NAMES), (), 1, 1, None, None, NAMES[0], True
    )  # fmt: skip
    short = leave_out(cure, BEFORE)
    assert short.engine == NAMES[0]
    assert (short.keep_higher[8], short.cost) == ("LayerNorm_8/Sum", "LayerNorm_0/Sum")
    assert msgspec.structs.replace(short, keep_higher=cure.keep_higher, cost=cure.cost) == cure
    points = (Depth("y", "Add", 0.1, True),)
    assert leave_out(points, BEFORE) is points


def test_plain_output_tells_it_once() -> None:
    """The display learns the names from the probe that describes the model; before it, and of
    others, all stays whole."""
    nodes = tuple(Node(i, name, "Sum", "", (), ()) for i, name in enumerate(NAMES))
    index = GraphIndex(model="m", nodes=nodes, tensors=(), inputs=(), outputs=())
    out = io.StringIO()
    display = PlainDisplay(
        load("accuracy").flow, out, graph=lambda digest: index if digest == "d" else None
    )
    note = NoteAdded(text=f"{NAMES[0]} and {NAMES[1]}")
    display.event(note)
    display.event(ProbeStarted(key="k", run=1, probe=Describe(model="m")))
    display.event(ProbeFinished(key="k", run=1, measurement=Measurement(artifacts={"index": "d"})))
    display.event(note)
    display.event(note)
    said = [line for line in out.getvalue().splitlines() if "mapping" not in line]
    assert said == [
        f"    note: {NAMES[0]} and {NAMES[1]}",
        f"    (Left out of names: {BEFORE}, with which 9 of 9 nodes begin.)",
        "    note: LayerNorm_0/Sum and LayerNorm_1/Sum",
        "    note: LayerNorm_0/Sum and LayerNorm_1/Sum",
    ]


def test_no_file_of_a_session_is_needed_to_read_it(tmp_path: Path) -> None:
    from narrowdown.wizard.report.read import graph_of

    assert graph_of(tmp_path, "") is None
    assert graph_of(tmp_path, "0" * 64) is None
