"""What a culprit takes along of the nodes that are like it, and how that is said."""

from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate
from narrowdown.engines.search.alike import Alike, say_kept_along, widen_culprit
from narrowdown.engines.search.foretold import Place
from narrowdown.engines.steps.confirm import culprit_folder, join_culprit

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
    others = Alike(along=(Place(6, 1e6, (6, 7)),), own=(3,))
    new = widen_culprit(index, culprit(2), others)
    assert ranges.decode(new.keep) == (2, 3, 6, 7)
    assert new.also == (index.nodes[6].name,)
    (both,) = join_culprit(index, (culprit(1),), new)
    assert ranges.decode(both.keep) == (1, 2, 3, 6, 7)
    assert both.also == new.also


def test_one_node_and_several_are_spoken_of_in_the_right_number() -> None:
    one, two = Place(4, 1e6, (4,)), Place(5, 1e6, (5,))
    said = say_kept_along(Alike(along=(one,)))
    assert (
        "1 more node of that kind goes as far in the reference; it has no case of its own" in said
    )
    said = say_kept_along(Alike(along=(one, two)))
    assert "2 more nodes of that kind go as far in the reference; they have no cases" in said
    assert say_kept_along(Alike()) == ""


def test_the_first_culprit_lies_in_the_case_itself() -> None:
    """Whoever has had a bundle before knows it there; the others lie below."""
    assert [culprit_folder(n) for n in (1, 2, 3)] == ["case", "case/culprit-2", "case/culprit-3"]
