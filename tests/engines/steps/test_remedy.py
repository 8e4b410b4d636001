"""What the reference foretells is tried first on engines whose fresh builds are dear: cause and workaround, then a case."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines.graph.ranges import decode
from engines.probe import Measure
from tests.gpu import models

from .conftest import Session

FP16 = "emulate:precision=fp16"


@pytest.fixture
def rebuilds(open_model: Callable[..., Session]) -> Callable[..., Session]:
    """A session on an engine that says that its builds may differ."""

    def opened(model: tuple[Path, Path]) -> Session:
        s = open_model(model[0], FP16, (model[1],))
        s.info = {**s.info, "capabilities": {**s.info["capabilities"], "rebuild": {"present": True, "reason": ""}}}
        s.step("compare")
        return s

    return opened


def whole_builds(done: Any) -> list[Measure]:
    return [p for p in done.probes if isinstance(p, Measure) and p.engine == FP16]


def test_an_overflow_that_fp32_cures_is_settled_by_one_build(tmp_path: Path, rebuilds: Callable[..., Session]) -> None:
    s = rebuilds(models.layernorm(tmp_path))
    done = s.step("repeat")
    outcome, found = done.finish.outcome, done.finish.findings.workaround
    assert (outcome.behaviour, outcome.cured, outcome.foretold) == ("steady", True, 1)
    assert outcome.names == "block0/Pow_square"
    assert outcome.cured_error < 0.01
    built = whole_builds(done)
    assert [p.attempt for p in built] == [0], "one build, none of them afresh"
    assert built[0].keep
    assert found.samples_ok == found.samples_n == 8
    assert len(found.keep_names) == outcome.keep < 23
    assert not found.minimal, "a smaller one may be found"
    assert {row["role"] for row in done.finish.tables["bundle"]} == {"workaround"}


def test_the_case_is_cut_around_what_was_foretold_and_the_model_is_not_asked_again(
    tmp_path: Path, rebuilds: Callable[..., Session]
) -> None:
    s = rebuilds(models.layernorm(tmp_path))
    s.step("repeat")
    keep = s.findings.workaround.keep
    assert s.step("extract").finish.outcome.names == "block0/Pow_square"
    confirmed = s.step("confirm")
    assert confirmed.finish.outcome.cause == "overflow"
    assert not confirmed.finish.outcome.patched_fails
    assert not any(p.candidate.severed for p in whole_builds(confirmed)), "nothing is left to look for"
    assert s.findings.culprits[0].keep == keep
    kept = s.step("workaround").finish
    assert kept.outcome.holds
    assert set(decode(kept.findings.workaround.keep)) <= set(decode(keep))


def test_where_nothing_goes_beyond_the_type_fresh_builds_are_asked(
    tmp_path: Path, rebuilds: Callable[..., Session]
) -> None:
    s = rebuilds(models.cancelling(tmp_path))
    done = s.step("repeat")
    assert done.finish.outcome.foretold == 0
    assert not done.finish.outcome.cured
    assert done.finish.findings.workaround is None


def test_two_causes_are_not_taken_for_one(tmp_path: Path, rebuilds: Callable[..., Session], monkeypatch: Any) -> None:
    """What is foretold is wrong, and FP32 there does not cure the rest."""
    s = rebuilds(models.layernorm(tmp_path))
    from engines.search import remedy

    monkeypatch.setattr(remedy, "foretell_places", _elsewhere)
    done = s.step("repeat")
    assert done.finish.outcome.foretold == 1
    assert not done.finish.outcome.cured
    assert done.finish.findings.workaround is None


def _elsewhere(ask: Any, op: str = "") -> Any:
    from engines.search.foretold import Place

    return (Place(21, 1e6, (21,)),)
    yield
