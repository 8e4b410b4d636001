"""Each mutant of ``make fuzz-mutants`` still breaks what it names: a change of the product cannot
leave it behind in silence."""

import ast
from pathlib import Path

import pytest

from narrowdown import wizard

from .mutants import MUTANTS, mutated
from .test_fuzz import KINDS

PRODUCT = Path(str(wizard.__path__[0])).parent  # the checkout, or where the wheel is installed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise)
def test_it_applies_and_is_python(mutant) -> None:
    made = mutated(mutant, PRODUCT)
    ast.parse(made)
    assert made != (PRODUCT / mutant.file).read_text(encoding="utf-8")
    assert mutant.kind in KINDS


def test_one_that_no_longer_applies_is_told() -> None:
    with pytest.raises(ValueError, match="has 0 times, and not once: nothing of the kind"):
        mutated(MUTANTS[0]._replace(old="    nothing of the kind"), PRODUCT)


def test_there_are_enough() -> None:
    assert len({mutant.promise for mutant in MUTANTS}) == len(MUTANTS) >= 10
