"""Pictures are pure: never wider than asked, ASCII in the ASCII set, true to their numbers, and
safe with any name."""

import math

from hypothesis import given, settings, strategies as st

from narrowdown.engines.graph import GraphIndex, Node, Tensor
from narrowdown.wizard.cells import Row
from narrowdown.wizard.report import pictures, vicinity
from narrowdown.wizard.report.pictures import STEPS, Profile
from narrowdown.wizard.report.strip import Strip
from narrowdown.wizard.report.vicinity import Spot, Vicinity
from narrowdown.wizard.tui.literal import ASCII, UNICODE, Glyphs

from .test_hostile import harmless, names

SETS = (UNICODE, ASCII)
errors = st.one_of(st.floats(0, 1e300), st.just(0.0), st.just(1e300))
widths = st.integers(1, 160)


@st.composite
def places(draw: st.DrawFn) -> Vicinity:
    spots = []
    for at in range(draw(st.integers(0, vicinity.MOST))):
        reads = draw(st.lists(st.integers(0, at - 1), unique=True, max_size=4)) if at else []
        spots.append(
            Spot(draw(names), draw(names), tuple(sorted(reads)), draw(st.booleans()), draw(names))
        )
    return Vicinity(tuple(spots), draw(st.integers(0, 9999)), draw(st.integers(0, 9999)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=300), places(), widths, errors, st.integers(1, 8),
)  # fmt: skip
def test_no_picture_is_wider_than_asked_nor_acts_on_the_terminal(
    logs: list[float], place: Vicinity, width: int, error: float, height: int
) -> None:
    for glyphs in SETS:
        drawn = [
            *pictures.depth(
                Profile(logs, error, marks=[(len(logs) // 2, "the suspect")]), width, glyphs, height
            ),
            *pictures.graph(place, width, glyphs),
        ]
        assert all(row.cell_length <= width for row in drawn)
        assert all(harmless(row.plain) and "\n" not in row.plain for row in drawn)


def text(rows: list[Row]) -> str:
    return "\n".join(row.plain for row in rows)


def everything(glyphs: Glyphs, width: int) -> str:
    return text([
        *pictures.depth(Profile([-7, -6, -2, -1], 1e-3, marks=[(2, "the suspect")]), width, glyphs),
        *pictures.graph(vicinity.vicinity(diamond(), [1]), width, glyphs),
    ])  # fmt: skip


def test_the_ascii_set_draws_ascii_and_both_say_what_they_mean() -> None:
    assert everything(ASCII, 80).isascii()
    for glyphs in SETS:
        for width in (60, 80, 120):
            drawn = everything(glyphs, width)
            for word in ("allowed", "the suspect", "suspect", "5 nodes on"):
                assert word in drawn, (word, width)


def test_depth_shows_the_worst_of_each_column_over_the_line_of_the_tolerance() -> None:
    logs = [-7.0] * 1000
    logs[500] = 0.5
    rows = [
        row.plain
        for row in pictures.depth(Profile(logs, 1e-4, marks=[(500, "here")]), 80, UNICODE, 4)
    ]
    assert "step" in pictures.depth(Profile(logs, along=STEPS), 80, UNICODE)[0].plain
    top, marked = rows[1], rows[-2]
    assert sum(c in UNICODE.levels for c in top) == 1, "a single bad tensor never vanishes"
    assert next(i for i, c in enumerate(top) if i > 8 and c != " ") == marked.index("▲"), (
        "the mark stands below it"
    )
    line = next(row for row in rows if row.startswith("allowed"))
    assert "–" in line
    assert pictures.depth(Profile([-3.0]), 80, UNICODE) == []
    assert pictures.depth(Profile([]), 80, UNICODE) == []


# The neighbourhood


def diamond() -> GraphIndex:
    """x -> 0 Conv -> {1 Mul, 2 Sigmoid} -> 3 Add -> 4 .. 8 Relu chain -> y"""
    made = [("x", "input", -1), *((f"t{i}", "node", i) for i in range(9))]
    tensors = tuple(
        Tensor(i, name, "float32", kind, producer) for i, (name, kind, producer) in enumerate(made)
    )  # type: ignore[arg-type]
    reads = [(0,), (1,), (1,), (2, 3), (4,), (5,), (6,), (7,), (8,)]
    ops = ["Conv", "Mul", "Sigmoid", "Add", *["Relu"] * 5]
    nodes = tuple(Node(i, f"/n{i}", ops[i], "", reads[i], (i + 1,)) for i in range(9))
    return GraphIndex("m", nodes, tensors, (0,), (9,))


def test_a_neighbourhood_is_the_suspect_what_it_reads_and_who_reads_it() -> None:
    place = vicinity.vicinity(diamond(), [1])
    assert [(s.op, s.suspect) for s in place.spots] == [
        ("Conv", False),
        ("Mul", True),
        ("Add", False),
    ]
    assert [s.reads for s in place.spots] == [(), (0,), (1,)]
    assert (place.before, place.after) == (0, 5)
    assert place.spots[0].note == "reads input x"


def test_a_neighbourhood_never_becomes_the_whole_graph() -> None:
    wide = 200
    tensors = (
        Tensor(0, "x", "float32", "input", -1),
        *(Tensor(i + 1, f"t{i}", "float32", "node", i) for i in range(wide + 1)),
    )
    nodes = (
        Node(0, "hub", "Split", "", (0,), (1,)),
        *(Node(i, f"n{i}", "Relu", "", (1,), (i + 1,)) for i in range(1, wide + 1)),
    )
    index = GraphIndex("m", nodes, tensors, (0,), tuple(range(2, wide + 2)))
    assert len(vicinity.vicinity(index, [0]).spots) <= vicinity.MOST
    assert len(vicinity.vicinity(index, range(wide)).spots) <= vicinity.MOST
    assert vicinity.vicinity(index, [9999]).spots == ()


@given(places())
def test_edges_of_the_drawing_are_the_edges_of_the_graph(place: Vicinity) -> None:
    """Follow the columns of the drawing back: what each row reads is what the data says."""
    reads = [spot.reads for spot in place.spots]
    rows = pictures._gutters(reads, UNICODE, [False] * len(reads))
    holder: dict[int, int] = {}
    for at, gutter in enumerate(rows):
        cells = gutter[::2]
        own = cells.index("○")
        horizontal = [i for i, c in enumerate(cells) if c in "├┤┘"]
        found = {holder[c] for c in horizontal}
        if own in holder:
            found.add(holder.pop(own))
        assert found == set(reads[at]), rows
        for c in horizontal:
            if cells[c] == "┘":
                del holder[c]
        if any(at in later for later in reads[at + 1 :]):
            holder[own] = at


def test_a_drawing_of_a_diamond() -> None:
    place = vicinity.vicinity(diamond(), [1, 2])
    drawn = [row.plain.rstrip() for row in pictures.graph(place, 60, UNICODE)]
    assert drawn[:4] == [
        "○   Conv     /n0  reads input x",
        "├─▶ Mul      /n1  suspect",
        "▶ │ Sigmoid  /n2  suspect",
        "○─┘ Add      /n3",
    ]
    assert drawn[4] == "… 5 nodes on"


def test_errors_are_drawn_between_a_floor_and_a_ceiling() -> None:
    assert pictures.log_error(0.0) == pictures.log_error(-1.0) == pictures.FLOOR
    assert pictures.log_error(math.inf) == pictures.CEILING


def test_the_suspects_are_named_where_they_fill_the_row() -> None:
    model = Strip(
        whole=400, cells=("wrong",) * 400, suspects=frozenset(range(399)), said=("trying",)
    )
    rows = [row.plain for row in pictures.strip(model, range(398), 40, UNICODE)]
    assert [row.split()[0] for row in rows[1:3]] == ["suspects", "trying"]
    assert all(len(row) <= 40 for row in rows)
