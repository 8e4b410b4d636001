"""What a step prints for people: a table for each output, words and no keys."""

import msgspec
import numpy as np

from narrowdown.engines.compare.answers import answer
from narrowdown.engines.compare.judge import Criterion, badness
from narrowdown.engines.compare.metrics import score
from narrowdown.wizard.cli.shown import found

FP16 = Criterion(tolerance=0.01, precision="fp16")


def row(
    name: str, sample: str, actual: object, expected: object, rule: Criterion
) -> dict[str, object]:
    a, b = np.asarray(actual, np.float32), np.asarray(expected, np.float32)
    scored = msgspec.structs.replace(score(name, a, b), answer=answer(a, b))
    told: dict[str, object] = msgspec.json.decode(
        msgspec.json.encode(scored)
    )  # as a session's table holds it
    return {**told, "output": name, "sample": sample, "badness": badness(scored, rule)}


def test_an_output_is_a_table_on_its_worst_sample() -> None:
    rows = [
        row("logits", "a", [[1, 2, 3]], [[1, 2, 3]], FP16),
        row("logits", "real:0/4", [[1, 2.5, 2]], [[1, 2, 3]], FP16),
        row("boxes", "a", [[0, 0, 2, 2]], [[0, 0, 2, 2]], FP16),
    ]
    said = "\n".join(
        found(
            "compare",
            {"message": "long", "verdict": "fails", "failures": 1, "samples_failing": 1},
            rows,
            FP16,
        )
    )
    assert "logits  float32 1x3  on sample 4, the worst of 2 samples" in said
    assert "worst at [0, 2]: 2 where the reference has 3" in said
    assert "rel_l2 0.299; allowed: rel_l2 0.01" in said
    assert "top-1 another in 1 of 1" in said
    assert "boxes  float32 1x4  on a\n" in said
    assert "equal, bit for bit" in said
    assert "  samples that fail " in said
    for key in ("samples_failing", "long", "verdict", "failures "):
        assert key not in said


def test_element_wise_bounds_are_named_as_they_were_given() -> None:
    rule = Criterion(metric="elementwise", atol=1e-3)
    said = "\n".join(found("compare", {}, [row("y", "a", [1.01], [1.0], rule)], rule))
    assert "wrong by 10 times what is allowed; allowed: atol 0.001, rtol 1e-05" in said
    assert "tolerance" not in said


def test_a_step_without_outputs_says_its_outcome_in_words() -> None:
    said = found(
        "reduce",
        {"nodes_after": 2, "effect": 0.00215031, "minimal": True, "names": ["a", "b"], "ops": ""},
        [],
        None,
    )
    assert said == [f"  {label:30} {value}" for label, value in (
        ("nodes after", "2"), ("effect on the outputs", "0.00215"), ("proven smallest", "yes"), ("names", "a, b"))]  # fmt: skip


def test_errors_are_said_as_everywhere_and_what_only_steers_is_left_out() -> None:
    outcome = {
        "own": 0.0301,
        "effect": 0.0237,
        "looks": 1,
        "interval_high": 1.0,
        "reference_error": 2.34e-5,
        "samples": 64,
        "failure": "accuracy",
    }
    rule = Criterion("rel_l2", 0.01)
    assert found("compare", outcome, [], rule) == [
        f"  {'its own error':30} 3.01 %",
        f"  {'effect on the outputs':30} 2.37 %",
        f"  {'the reference differs by':30} 0.00234 %",
        f"  {'samples':30} 64",
    ]


def test_whole_numbers_are_told_by_how_many_are_wrong() -> None:
    outcome = {"own": 1.0, "effect": 1.0, "own_places": [1, 168], "effect_places": [0, 0]}
    assert found("extract", outcome, [], FP16) == [
        f"  {'its own error':30} wrong in 1 of 168 values",
        f"  {'effect on the outputs':30} 100 %",
    ]
