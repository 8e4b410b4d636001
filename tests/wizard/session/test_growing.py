"""A mapping that grows without being copied: at every moment it is what a dict would be, and
earlier ones stay as they were."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from narrowdown.wizard.session.growing import Growing


@given(
    st.dictionaries(st.integers(0, 30), st.integers()),
    st.lists(st.tuples(st.integers(0, 30), st.integers())),
)
def test_it_is_what_a_dict_would_be(start: dict[int, int], added: list[tuple[int, int]]) -> None:
    made, plain = Growing(start), dict(start)
    moments = [(made, dict(plain))]
    for key, value in added:
        made = made.plus(key, value)
        plain[key] = value
        moments.append((made, dict(plain)))
    for now, then in moments:
        assert now == then
        assert then == now
        assert list(now.items()) == list(then.items())
        assert list(now) == list(then)
        assert len(now) == len(then)
        assert bool(now) == bool(then)
        assert [now.get(key) for key in range(32)] == [then.get(key) for key in range(32)]
        assert pickle.loads(pickle.dumps(now)) == now


@given(st.lists(st.dictionaries(st.integers(0, 30), st.integers())))
def test_many_at_once_are_what_a_dict_would_be(added: list[dict[int, int]]) -> None:
    made: Growing[int, int] = Growing()
    plain: dict[int, int] = {}
    for entries in added:
        made = made.plus_all(entries)
        plain |= entries
        assert list(made.items()) == list(plain.items())
        assert len(made) == len(plain)


def test_the_many_are_copied_seldom() -> None:
    made: Growing[int, int] = Growing()
    largest = []
    for number in range(4000):
        made = made.plus(number, number)
        if not largest or largest[-1] is not made._layers[0]:
            largest.append(made._layers[0])
    assert len(made) == 4000
    assert len(made._layers) <= 12
    assert sum(map(len, largest)) < 4 * 4000, (
        "each time that it is made anew it is at least half as large again"
    )
