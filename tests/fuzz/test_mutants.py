"""Each mutant of ``make fuzz-mutants`` still breaks what it names: a change of the product cannot leave it behind in silence."""

import ast

import pytest

from .mutants import MUTANTS, ROOT, mutated
from .test_fuzz import KINDS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise)
def test_it_applies_and_is_python(mutant) -> None:
    made = mutated(mutant)
    ast.parse(made)
    assert made != (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.kind in KINDS


def test_one_that_no_longer_applies_is_told() -> None:
    with pytest.raises(ValueError, match="has 0 times, and not once: nothing of the kind"):
        mutated(MUTANTS[0]._replace(old="    nothing of the kind"))


def test_there_are_enough() -> None:
    assert len({mutant.promise for mutant in MUTANTS}) == len(MUTANTS) >= 10
