"""What a culprit takes along of the nodes that are like it, and how that is said."""

from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate
from narrowdown.engines.search.remedy import Alike, say_kept_along, widen_culprit
from narrowdown.engines.steps.confirm import join_culprit

from ..steps.simulated import graph


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
    (both,) = join_culprit(index, (culprit(1),), new)
    assert ranges.decode(both.keep) == (1, 2, 3, 6, 7)
    assert both.also == new.also


def test_one_node_and_several_are_spoken_of_in_the_right_number() -> None:
    assert "as far at 1 more node of that kind" in say_kept_along(Alike(along=("n4",)))
    assert "as far at 2 more nodes of that kind" in say_kept_along(Alike(along=("n4", "n5")))
    assert say_kept_along(Alike()) == ""
