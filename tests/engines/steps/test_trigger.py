"""trigger: what counts as an answer, what is claimed of it, and what an engine that lies, flakes,
crashes or refuses leads to."""

from collections.abc import Callable

import msgspec
import pytest

from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.known.entry import Construction
from narrowdown.engines.known.factors import Factor, Level
from narrowdown.engines.known.table import read_table
from narrowdown.engines.known.varied import Place
from narrowdown.engines.probe import (
    HUGE,
    Candidate,
    Construct,
    Measure,
    Measurement,
    SampleInfo,
    SampleResult,
    Score,
    State,
)
from narrowdown.engines.search.trigger import Found, Outcome, Row
from narrowdown.engines.steps.base import Finish
from narrowdown.engines.steps.trigger import SPEC, TriggerOutcome, make_factor_row, read_declared
from narrowdown.engines.views import EngineInfo

BUG = next(bug for bug in read_table() if bug.id == "ort-gemm-identity-transpose")
assert BUG.make is not None
CASE = BUG.make
REFERENCE = "onnxruntime:optimization=disabled"
SIZES = [
    [Place("dim", "a", 0)],
    [Place("dim", "a", 1), Place("dim", "w", 0)],
    [Place("dim", "w", 1), Place("dim", "b", 0)],
]
Engine = Callable[[Construction, str, int], Measurement]


def scored(error: float, **more: object) -> Measurement:
    score = Score("y", rel_l2=error, **{"absmax": 1.0, **more})  # type: ignore[arg-type]
    return Measurement(results=(SampleResult("real:0", (score,)),))


def walk(
    engine: Engine,
    judge: Callable[[Construction], Measurement] = lambda _: scored(1e-7),
    kind: str = "accuracy",
    case: Case | None = None,
    **params: object,
) -> tuple[Finish[TriggerOutcome], list[object]]:
    """The step's end, and what it asked. ``engine``: what it answers to a case, by its spec and the
    attempt."""
    assert BUG.make is not None
    findings = Findings(
        model="m",
        inputs="i",
        sample="real:0",
        samples=(SampleInfo("real:0", "real"),),
        criterion=Criterion(tolerance=1e-3),
        signature=Signature(kind, "real:0", ("y",), {"y": 1.0}),  # type: ignore[arg-type]
        case=case,
    )
    view = EngineInfo(version="1.23.2")
    step = SPEC.run(
        StepContext("onnxruntime", REFERENCE, findings, engine_info=view, params=params)
    )
    made: dict[str, Construction] = {}
    asked: list[object] = []
    answer: Measurement | None = None
    while True:
        try:
            probe = step.send(answer)
        except StopIteration as end:
            finish: Finish[TriggerOutcome] = end.value
            return finish, asked
        answer = None
        if isinstance(probe, Note):
            continue
        asked.append(probe)
        match probe:
            case State():
                answer = Measurement(
                    facts={
                        "declared": msgspec.to_builtins(BUG.make),
                        "sizes": msgspec.to_builtins(SIZES),
                    }
                )
            case Construct():
                name = f"case {len(made)}"
                made[name] = msgspec.json.decode(probe.declared, type=Construction)
                answer = Measurement(
                    facts={"model": name, "inputs": "drawn", "samples": ["real:0"]}
                )
            case Measure(engine="onnxruntime:optimization=disabled"):
                assert (probe.reference, probe.nudge) == ("reference", "inputs")
                answer = judge(made[probe.model])
            case Measure():
                assert probe.reference == REFERENCE
                answer = engine(made[probe.model], probe.engine, probe.attempt)


def square(made: Construction, *_: object) -> Measurement:
    """The bug: wrong where the matrix is square and nothing is moved; refused where it is not
    square."""
    moved = made.nodes[0].attributes.get("perm") != [0, 1]
    rows, inner = (
        made.inputs["a"].shape[-2:] if "a" in made.inputs else made.weights["a"].shape[-2:]
    )
    if moved or len(made.inputs.get("a", made.weights.get("a")).shape) > 2:  # type: ignore[union-attr]
        return scored(1e-7)
    return (
        scored(0.9) if rows == inner else Measurement(status="error", message="dimension mismatch")
    )


def test_each_factor_that_matters_is_told_with_what_was_tried_on_both_sides() -> None:
    finish, _ = walk(square)
    outcome = finish.outcome
    assert outcome.verdict == "found"
    assert outcome.tried == outcome.fires + outcome.passes + outcome.refused
    rows = {row["factor"]: row for row in msgspec.to_builtins(finish.tables["factors"])}
    assert {name for name, row in rows.items() if row["matters"]} == {
        "a.shape[0]", "a.shape[1]", "Transpose perm",
    }  # fmt: skip
    assert "5" in rows["a.shape[0]"]["refused"].split(", ")
    assert outcome.condition.startswith("a.shape[0]: fails with 4; is refused with ")
    cases = msgspec.to_builtins(finish.tables["cases"])
    assert cases[0]["changed"] == ""
    assert len({row["changed"] for row in cases}) == len(cases)
    text = msgspec.to_builtins(finish.tables["generator"])[0]["text"]
    assert "'shape': (4, 4)" in text
    assert "'perm': [0, 1]" in text
    compile(text, "make_case.py", "exec")


def test_a_reference_that_nobody_confirms_gives_no_answer() -> None:
    """Other opsets: the evaluator says something else there."""
    finish, _ = walk(square, lambda made: scored(1e-7 if made.opset == 17 else 0.5))
    cases = msgspec.to_builtins(finish.tables["cases"])
    other = [row for row in cases if "opset" in row["changed"]]
    assert other
    assert all(row["outcome"] == "cannot tell" for row in other)
    assert "opset" not in finish.outcome.condition


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (scored(1e-2), "fires"),
        (scored(1e-7), "passes"),
        (scored(5e-4), "passes"),  # within the tolerance
        (scored(0.0, absmax=0.0), "hidden"),
        (Measurement(results=(SampleResult("real:0", (Score("y", new_nonfinite=1),)),)), "fires"),
        (Measurement(status="build-failed", message="no"), "refused"),
        (Measurement(status="crash", message="died"), "refused"),
        (Measurement(status="timeout", message="hung"), "cannot tell"),
        (Measurement(status="reference-failed", message="no"), "cannot tell"),
        (Measurement(results=()), "cannot tell"),
    ],
)
def test_what_counts_as_what(answer: Measurement, outcome: str) -> None:
    def engine(made: Construction, spec: str, attempt: int) -> Measurement:
        return answer if made.opset == 18 else scored(0.9)

    finish, _ = walk(engine)
    cases = {row["changed"]: row["outcome"] for row in msgspec.to_builtins(finish.tables["cases"])}
    assert cases["opset = 18"] == outcome


def test_of_a_factor_both_sides_are_said_numbers_by_size() -> None:
    scale = Factor("s", -0.03, (0.03, -2.0, 2.0), lambda _: CASE)
    outcomes: list[tuple[Factor | None, Level, Outcome]] = [
        (None, "", "fires"), (scale, 2.0, "passes"), (scale, -2.0, "fires"), (scale, 0.03, "passes"),
    ]  # fmt: skip
    found = Found(tuple(Row(o, factor=f, level=level) for f, level, o in outcomes))
    assert str(make_factor_row(scale, found)) == "s: fails with -2, -0.03; passes with 0.03, 2."


def test_zeros_hide_and_do_not_cure() -> None:
    def engine(made: Construction, *_: object) -> Measurement:
        weight = made.weights.get("w") or made.inputs["w"]
        return scored(1e-7 if weight.range == (0.0, 0.0) else 0.9)

    finish, _ = walk(engine, budget=60)
    assert finish.outcome.verdict == "always"


def test_an_engine_that_changes_its_mind_is_told_of() -> None:
    def engine(made: Construction, spec: str, attempt: int) -> Measurement:
        return square(made) if not attempt else scored(1e-7)

    finish, asked = walk(engine)
    assert finish.outcome.verdict == "unsteady"
    assert not finish.outcome.condition
    assert (
        sum(
            isinstance(p, Measure) and p.attempt == 1 and p.engine.startswith("onnxruntime")
            for p in asked
        )
        <= 8
    )


def test_a_neighbour_that_comes_out_otherwise_in_another_build_is_told_of() -> None:
    """The case fails each time; what passed beside it, too, once it is built once more: then
    nothing is told apart."""
    again: list[Construction] = []

    def engine(made: Construction, spec: str, attempt: int) -> Measurement:
        if attempt:
            again.append(made)
        return scored(0.9) if attempt else square(made)

    outcome = walk(engine)[0].outcome
    assert sum(square(made) != scored(0.9) for made in again) >= 2
    assert outcome.verdict == "unsteady"


def test_where_a_refusal_is_the_failure_it_is_what_fires() -> None:
    def engine(made: Construction, *_: object) -> Measurement:
        return (
            scored(1e-7)
            if made.nodes[0].attributes.get("perm") not in ([0, 1], [0, 1, 2])
            else Measurement(status="build-failed", message="no")
        )

    finish, _ = walk(engine, kind="build")
    assert finish.outcome.condition.startswith("Transpose perm: fails with [0, 1]")
    assert finish.outcome.refused == 0


def test_a_case_that_does_not_fire_when_made_anew_is_not_varied() -> None:
    finish, asked = walk(lambda *_: scored(1e-7))
    assert finish.outcome.verdict == "gone"
    assert sum(isinstance(p, Construct) for p in asked) <= 2


def test_an_engine_that_dies_of_everything_else_leads_to_no_claim() -> None:
    assert BUG.make is not None
    base = msgspec.json.encode(BUG.make.nodes)

    def engine(made: Construction, spec: str, attempt: int) -> Measurement:
        same = (
            msgspec.json.encode(made.nodes) == base
            and made.inputs == BUG.make.inputs
            and made.weights == BUG.make.weights
        )  # type: ignore[union-attr]
        return (
            scored(0.9)
            if same and made.opset == 17 and spec == "onnxruntime"
            else Measurement(status="timeout", message="hung")
        )

    finish, _ = walk(engine)
    assert finish.outcome.verdict == "always"
    assert finish.outcome.tried == 1


def test_a_case_that_fails_where_the_precision_is_an_order_is_varied_there() -> None:
    """As given it is right alone: every setting would pass."""
    there = "onnxruntime:typing=strong"
    case = Case(candidate=Candidate(), sample="real:0", engine=there)

    def ordered(made: Construction, engine: str, attempt: int) -> Measurement:
        return square(made) if "typing=strong" in engine else scored(1e-7)

    finish, asked = walk(ordered, case=case, budget=20)
    assert finish.outcome.verdict not in ("gone", "passes")
    assert {p.engine for p in asked if isinstance(p, Measure) and p.engine != REFERENCE} >= {there}
    finish, _ = walk(ordered, budget=20)
    assert finish.outcome.verdict == "gone"


def test_the_budget_is_kept() -> None:
    finish, asked = walk(square, budget=9)
    assert finish.outcome.spent
    engine = [
        p
        for p in asked
        if isinstance(p, Measure)
        and p.engine.startswith("onnxruntime")
        and p.reference == REFERENCE
    ]
    assert len(engine) <= 1 + 9 + 4


def test_the_same_answers_lead_to_the_same_questions() -> None:
    assert walk(square, budget=40)[1] == walk(square, budget=40)[1]


def test_an_error_beyond_all_bounds_is_none_in_the_table() -> None:
    finish, _ = walk(lambda *_: scored(HUGE), budget=5)
    assert msgspec.to_builtins(finish.tables["cases"])[0]["error"] is None
    rows = finish.tables["cases"]
    fired = [row for row in map(msgspec.to_builtins, rows) if row["outcome"] == "fires"]
    assert fired
    assert all(row["why"] == "Inf or NaN" for row in fired), "no cell is empty"


def test_a_case_is_read_in_one_order_however_it_was_written_down() -> None:
    """A worker's answer has its names in their own order, a journal in that of the alphabet."""
    declared = msgspec.to_builtins(BUG.make)
    turned = {**declared, "weights": dict(sorted(declared["weights"].items(), reverse=True))}
    straight = {**declared, "weights": dict(sorted(declared["weights"].items()))}
    assert len(declared["weights"]) > 1
    first, second = (read_declared(Measurement(facts={"declared": d})) for d in (turned, straight))
    assert list(first.weights) == list(second.weights) == sorted(declared["weights"])
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
