"""Which release is asked next, and what is said of the answers: against every history of eight
releases."""

from itertools import combinations, product

from narrowdown.wizard.ladder.rungs import expect_rungs, next_rung, sentence, tell_story

N = 8
WORDS = {"f": "fails", "p": "passes", "?": "cannot tell"}


def climb(
    history: str, found: int | None = None, begun: dict[int, str] | None = None
) -> dict[int, str]:
    told = dict(begun or {})
    while (rung := next_rung(told, len(history), found)) is not None:
        assert rung not in told
        told[rung] = WORDS[history[rung]]
    return told


def test_what_is_said_was_tried_and_a_resumed_climb_ends_alike() -> None:
    for history in map("".join, product("fp?", repeat=6)):
        told = climb(history)
        for turn in tell_story(told).turns:
            assert {told[turn.before], told[turn.after]} == {"fails", "passes"}
            # Nobody between them was left untried.
            assert set(range(turn.before + 1, turn.after)) == set(turn.between)
            assert all(told[rung] == "cannot tell" for rung in turn.between)
        assert ("f" in history or "p" in history) == any(
            outcome != "cannot tell" for outcome in told.values()
        )
        asked = list(told)
        assert (
            list(climb(history, begun={rung: told[rung] for rung in asked[: len(asked) // 2]}))
            == asked
        )


def test_one_turn_among_64_is_found_in_eight_looks() -> None:
    for turn, (before, after) in product(range(1, 64), ("pf", "fp")):
        told = climb(before * turn + after * (64 - turn))
        (found,) = tell_story(told).turns
        assert (found.before, found.after) == (turn - 1, turn)
        assert len(told) <= 8


def test_what_is_expected_is_within_two_of_what_comes_for_nearly_every_stretch_of_bad_releases() -> (
    None
):
    """Each stretch of up to 12 releases, found in each of its releases."""
    tried = [
        (len(climb("p" * low + "f" * (high - low) + "p" * (n - high), found)), expect_rungs(n))
        for n in range(2, 13)
        for low, high in combinations(range(n + 1), 2)
        for found in range(low, high)
    ]
    assert len(tried) > 1300
    assert sum(
        came <= 2 * expected and expected <= 2 * came for came, expected in tried
    ) > 0.95 * len(tried)
    assert sum(expected for _, expected in tried) / sum(came for came, _ in tried) > 0.85
    assert sum(expected for _, expected in tried) / sum(came for came, _ in tried) < 1.15


def test_a_fault_that_came_and_went_is_found_from_either_end_or_where_it_was_found() -> None:
    told = climb("pppfffpp", found=4)
    assert list(told)[:3] == [7, 0, 4]
    assert [(t.change, t.before, t.after) for t in tell_story(told).turns] == [
        ("began", 2, 3),
        ("mended", 5, 6),
    ]
    assert len(climb("pppfpppp")) < N + 1
    assert tell_story(climb("pppfpppp")).turns[0].after == 3
    names = [f"1.{minor}" for minor in range(N)]
    said = sentence(names, told)
    assert said.startswith("Last good 1.2, first bad 1.3; last bad 1.5, fixed in 1.6: ")
    assert said.endswith("It came or went more than once, so what was not tried may differ.")


def test_what_could_not_tell_stands_beside_the_turn() -> None:
    assert sentence(["1", "2", "3"], climb("f?p")) == (
        "It fails in 1; last bad 1, fixed in 3 (2 could not tell): 2 of 3 were tried."
    )
    assert (
        sentence(["1", "2"], climb("??"))
        == "It cannot be told: no release ran the case to its end."
    )
    assert (
        sentence(["1", "2", "3"], climb("fff"))
        == "It fails in each that was tried from 1 to 3: 2 of 3 were tried."
    )
