"""What a culprit takes along of the nodes that are like it, and how that is said."""

from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate
from narrowdown.engines.search.cured import Cut, Left
from narrowdown.engines.search.remedy import Alike, say_kept_along, widen_culprit
from narrowdown.engines.steps.confirm import Without, join_culprit

from ..steps.simulated import graph

LEFT = Left(Findings())


def culprit(*nodes: int, cause: str = "overflow") -> Culprit:
    case = Case(
        candidate=Candidate(),
        sample="real:0",
        nodes=tuple(f"n{n}" for n in nodes),
        node_ids=ranges.encode(nodes),
    )
    return Culprit(case=case, cause=cause, evidence="It overflows.", keep=ranges.encode(nodes))


def test_what_is_alike_is_kept_also_where_the_culprit_widens_an_earlier_one() -> None:
    index = graph([(), *((n,) for n in range(7))])
    new = widen_culprit(culprit(2), Alike(along=("n6",), keep=(3, 6, 7)))
    assert ranges.decode(new.keep) == (2, 3, 6, 7)
    assert new.also == ("n6",)
    (both,) = join_culprit(index, (culprit(1),), Without(new, LEFT))
    assert ranges.decode(both.keep) == (1, 2, 3, 6, 7)
    assert both.also == new.also


def test_one_node_and_several_are_spoken_of_in_the_right_number() -> None:
    assert "as far at 1 more node of that kind" in say_kept_along(Alike(along=("n4",)))
    assert "as far at 2 more nodes of that kind" in say_kept_along(Alike(along=("n4", "n5")))
    assert say_kept_along(Alike()) == ""


def test_nodes_of_one_operator_are_one_culprit_once_a_third_fails() -> None:
    """However far apart they stand; without a third each stays a culprit of its own."""
    index = graph([(), *((n,) for n in range(7))])
    first, second = culprit(1), culprit(5)
    assert join_culprit(index, (first,), Without(second, LEFT)) == (first, second)
    others = Alike(along=("n7",), keep=(7,), why="{many} fail", earlier=first)
    found = Without(widen_culprit(second, others), LEFT, others)
    (both,) = join_culprit(index, (first,), found)
    assert (both.case, both.also) == (first.case, ("n5", "n7"))
    assert ranges.decode(both.keep) == (1, 5, 7)
    assert "2 more nodes fail" in both.evidence
    (all_four,) = join_culprit(index, (both,), Without(culprit(3), LEFT))
    assert all_four.also == ("n5", "n7", "n3"), "found later, on another sample"


def test_more_nodes_are_taken_out_in_the_way_of_the_first() -> None:
    index = graph([(), *((n,) for n in range(7))])
    made = index.nodes[5].outputs
    assert Cut((1,), righted=(1,)).widen(index, (5,)) == Cut((1, 5), righted=(1, 5))
    assert Cut((1,), keep=(2,)).widen(index, (5,)) == Cut((1, 5), keep=(2, 5))
    assert Cut((1,), patches=(0,)).widen(index, (5,)) == Cut((1, 5), patches=(0, *made))
