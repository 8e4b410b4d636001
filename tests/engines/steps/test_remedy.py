"""What the reference foretells is tried first on engines whose fresh builds are dear: cause and
workaround, then a case."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.findings import Case, Culprit, Findings, Workaround
from narrowdown.engines.graph.ranges import decode, encode
from narrowdown.engines.probe import Candidate, Measure, Score
from narrowdown.engines.steps.repeat import can_remedy
from tests.gpu import models

from .answers import PRESENT, context
from .conftest import Session, walk
from .simulated import Simulated, graph

FP16 = "emulate:precision=fp16"


@pytest.fixture
def rebuilds(open_model: Callable[..., Session]) -> Callable[..., Session]:
    """A session on an engine that says that its builds may differ."""

    def opened(model: tuple[Path, Path]) -> Session:
        s = open_model(model[0], FP16, (model[1],))
        s.info = {
            **s.info,
            "capabilities": {**s.info["capabilities"], "rebuild": {"present": True, "reason": ""}},
        }
        s.step("compare")
        return s

    return opened


@pytest.mark.parametrize(
    ("found", "given", "can"),
    [
        ({}, {}, True),
        ({"looks": 3}, {}, False),
        ({"builds": 3}, {}, False),
        ({}, {"storage": "float32"}, False),
        ({}, {"capabilities": {}}, False),
    ],
)
def test_only_what_fails_steadily_by_values_beyond_its_type_can_be_remedied(
    found: dict[str, Any], given: dict[str, Any], can: bool
) -> None:
    signature = Signature(kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5})
    findings = Findings(**{"signature": signature, **found})
    rest = {"capabilities": {"keep": PRESENT}, **given}
    ctx = context(findings, info={"storage": rest.pop("storage", "float16")}, **rest)
    assert can_remedy(ctx, findings) is can


def whole_builds(done: Any) -> list[Measure]:
    return [p for p in done.probes if isinstance(p, Measure) and p.engine == FP16]


def test_an_overflow_that_fp32_cures_is_settled_by_one_build(
    tmp_path: Path, rebuilds: Callable[..., Session]
) -> None:
    s = rebuilds(models.layernorm(tmp_path))
    done = s.step("repeat")
    outcome, found = done.finish.outcome, done.finish.findings.workaround
    assert (outcome.behaviour, outcome.cured, outcome.foretold) == ("steady", True, 1)
    assert outcome.message.startswith("block0/Pow_square (Pow) reaches")
    assert re.search(r"samples pass \(wrong by [\d.]+ % at most\)", outcome.message), (
        "a share, as everywhere"
    )
    built = whole_builds(done)
    assert [p.attempt for p in built] == [0], "one build, none of them afresh"
    assert built[0].keep
    assert found.samples_ok == found.samples_n == 8
    assert len(found.keep_names) < 23
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
    assert not any(p.candidate.severed for p in whole_builds(confirmed)), (
        "nothing is left to look for"
    )
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


def test_two_causes_are_not_taken_for_one(
    tmp_path: Path, rebuilds: Callable[..., Session], monkeypatch: Any
) -> None:
    """What is foretold is wrong, and FP32 there does not cure the rest."""
    s = rebuilds(models.layernorm(tmp_path))
    from narrowdown.engines.search import remedy

    monkeypatch.setattr(remedy, "foretell_places", _elsewhere)
    done = s.step("repeat")
    assert done.finish.outcome.foretold == 1
    assert not done.finish.outcome.cured
    assert done.finish.findings.workaround is None


def _elsewhere(ask: Any) -> Any:
    from narrowdown.engines.search.remedy import Place

    return (Place(21, 1e6, (21,)),)
    yield


def test_a_place_that_is_right_alone_is_left_to_a_search_of_the_whole_model(
    tmp_path: Path, rebuilds: Callable[..., Session]
) -> None:
    """Cut alone it passes, as weakly typed TensorRT computes it in FP32 then."""
    s = rebuilds(models.layernorm(tmp_path))
    s.step("repeat")
    answered = s.ask

    def hiding(probe: Any) -> Any:
        m = answered(probe)
        if isinstance(probe, Measure) and probe.engine == FP16 and probe.candidate.nodes != "*":
            right = tuple(
                msgspec.structs.replace(
                    r,
                    outputs=tuple(Score(x.name) for x in r.outputs),
                    effect=tuple(Score(x.name) for x in r.effect),
                )
                for r in m.results
            )
            return msgspec.structs.replace(m, results=right)
        return m

    done = walk("extract", s.context(), hiding)
    assert not done.finish.outcome.reproduced
    assert "a search of the whole model finds" in done.finish.outcome.reason
    cut = [
        p.candidate.nodes
        for p in done.probes
        if isinstance(p, Measure) and p.candidate.nodes != "*"
    ]
    assert len(cut) == 1, "reduce takes its neighbours in, around all that is foretold"
    assert done.finish.findings.workaround is not None, "what was verified stands"


def test_what_was_foretold_for_all_samples_is_trimmed_again_for_more_of_them_not_searched_anew() -> (
    None
):
    """Of what was foretold the hardest sample needs two nodes, and another one two more: these are
    looked for among what was left out, not in the whole model. Seen on a transformer on TensorRT:
    20 of 220 nodes were foretold, 16 did for one row."""
    foretold = (20, 41, 77, 130)
    added = {"real:0": dict.fromkeys(foretold[:2], 0.9), "real:1": dict.fromkeys(foretold, 0.1)}
    engine = Simulated(
        index=graph([(i - 1,) if i else () for i in range(200)]), added=added, asked={}, hiding={}
    )
    cure = Workaround(
        kind="precision", engine="e", keep=encode(foretold), samples_ok=2, samples_n=2, error=0.0
    )
    culprit = Culprit(
        Case(Candidate(), "real:0", ("n20",), "20"), "overflow", keep=encode(foretold)
    )
    found = msgspec.structs.replace(engine.findings(), workaround=cure, culprits=(culprit,))
    done = walk("workaround", engine.context(findings=found), engine)
    assert decode(done.finish.findings.workaround.keep) == foretold
    sets = {p.keep for p in done.probes if isinstance(p, Measure) and p.keep not in ("", "0-199")}
    assert all(set(decode(keep)) <= set(foretold) for keep in sets), "nothing else was tried"
    assert len(sets) <= 2**4
