"""Every small construction of a known failure, from the comparison to the named cause, on real
engines."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from narrowdown import flows
from narrowdown.engines.causes import KINDS
from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.findings import Case, Findings, Suspect
from narrowdown.engines.probe import HUGE, Candidate, Score
from narrowdown.engines.search.cause import RULES, list_proven, name_cause
from narrowdown.engines.search.evidence import Cause, Evidence, Inner

from ...here import beside

Open = Callable[..., Any]
ROOT = Path(__file__).parents[3]
CASE = Case(Candidate(), "real:0", nodes=("/y",), ops=("Exp",), own=1.0)


def cause_of(*read: Any, **more: Any) -> Cause:
    return name_cause(Evidence(*read, **more))


failures = beside(Path(__file__).with_name("failures.py"))
tiny = beside(ROOT / "tests" / "e2e" / "tiny.py")
MADE = [f for f in failures.TABLE if f.build is not None]


def open_failure(open_model: Open, folder: Path, failure: Any) -> Any:
    model, inputs = failure.build(folder, tiny)
    return open_model(model, failure.engine, (inputs,) if inputs else ())


@pytest.mark.parametrize("failure", MADE, ids=lambda f: f.what)
def test_the_cause_is_named_with_the_numbers_that_show_it(
    open_model: Open, tmp_path: Path, failure: Any
) -> None:
    if failure.engine.startswith("openvino"):
        pytest.importorskip("openvino")
    s = open_failure(open_model, tmp_path, failure)
    compared = s.step("compare").finish.outcome
    if not failure.cause:
        assert compared.verdict == "passes"
        return
    assert compared.verdict == "fails"
    assert s.step("layerwise").finish.outcome.observer == "reproduces"
    extracted = s.step("extract").finish.outcome
    assert extracted.names == failure.nodes
    confirmed = s.step("confirm").finish.outcome
    assert (confirmed.failures, confirmed.cause) == (confirmed.looks, failure.cause), (
        confirmed.evidence
    )
    assert re.search(failure.said, confirmed.evidence), confirmed.evidence


@pytest.mark.parametrize(("build", "harmless"), [("gelu", "/cube"), ("absorbed", "/masked")])
def test_a_bad_tensor_that_reaches_no_output_is_called_harmless(
    open_model: Open, tmp_path: Path, build: str, harmless: str
) -> None:
    model, inputs = getattr(failures, build)(tmp_path, tiny)
    s = open_model(model, failures.FP16, (inputs,))
    done = s.step("layerwise").finish
    rows = {row["node"]: row for row in done.tables["tensors"]}
    assert done.outcome.first_nonfinite == harmless.removeprefix("/"), (
        "it is the first that looks bad"
    )
    assert (rows[harmless]["harmless"], rows[harmless]["effect"]) == (True, None)
    assert harmless not in [suspect.name for suspect in done.findings.suspects]


def test_the_document_says_of_each_cause_what_the_catalogue_says() -> None:
    rows = "".join(f"| {kind.name} | {kind.plain} | {kind.measured} |\n" for kind in KINDS)
    assert f"|---|---|---|\n{rows}\n" in (ROOT / "docs" / "concepts.md").read_text()


def test_no_rule_names_what_is_not_in_the_catalogue() -> None:
    found = {rule.cause for group in RULES for rule in group.rules}
    found |= {name for name, _, _ in list_proven(Evidence(Findings(), CASE, [], "float32"))}
    assert found == {kind.name for kind in KINDS}


def test_what_pytorch_does_not_compute_is_the_export_whatever_the_optimizers() -> None:
    found = cause_of(Findings(optimizers=("Fusion",)), CASE, [], "float32", exported=True)
    assert found.name == "export"


@pytest.mark.parametrize(("runs", "cause"), [(1, "unknown"), (2, "nondeterminism")])
def test_what_fails_in_a_part_of_the_runs_is_said_with_its_rate(runs: int, cause: str) -> None:
    seen = Signature("accuracy", "real:0", failures=3, looks=20)
    found = cause_of(Findings(signature=seen), CASE, [], "float32", runs=runs)
    assert found.name == cause
    assert ("3 of 20" in found.evidence) == (runs > 1)


def test_the_term_of_a_cause_has_a_card() -> None:
    cards = {file.stem for file in Path(str(flows.__path__[0]), "terms").iterdir()}
    assert {kind.card for kind in KINDS if kind.card} <= cards


def test_the_document_holds_the_table() -> None:
    """Written by ``rows()``; what it names exists."""
    assert failures.rows() in (ROOT / "campaigns" / "failures.md").read_text()
    for failure in failures.TABLE:
        assert list(
            ROOT.glob(failure.check if "/" in failure.check else f"tests/engines/*/{failure.check}")
        ), failure.check


def test_numbers_are_said_as_people_say_them() -> None:
    """Neither 1e+300, which stands for infinity, nor forty digits."""
    huge = Score("y", new_nonfinite=1, absmax=3.4e38)
    inner = [Inner("Exp", "/y", huge, ("x",))]
    said = cause_of(Findings(), CASE, inner, "float16", None).evidence
    assert "reaches 3.4e+38 in the reference" in said
    zeros = Score("y", rel_l2=HUGE, absmax=1e-7, max_abs=1.0, sqnr_db=-300)
    said = cause_of(Findings(), CASE, [Inner("Exp", "/y", zeros, ())], "float16", None).evidence
    assert "an infinite amount" in said
    assert "e+300" not in said


def test_a_search_that_was_ended_early_leaves_no_list_of_all_optimizers() -> None:
    """With --budget 1s the cause of a case named 68 optimizers, twice on its last page."""
    told_by_many = {
        1: "only it on makes it fail.",
        6: "only these on makes it fail.",
        7: "Fewer may do",
        68: "Fewer may do",
    }
    for many, told in told_by_many.items():
        names = tuple(f"Fusion{i}" for i in range(many))
        said = cause_of(Findings(optimizers=names), CASE, [], "float32", None).evidence
        assert told in said
        assert len(said) < 250
        assert (f"{many} optimizers" in said) == (many > 6)


def test_a_fusion_names_the_nodes_that_were_joined() -> None:
    case = Case(Candidate(), "real:0", nodes=("/pad", "/pool"), ops=("Pad", "MaxPool"), own=0.5)
    found = cause_of(Findings(), case, [], "float32", None, watched=0.0)
    assert (found.name, "/pad (Pad) and /pool (MaxPool)" in found.evidence) == ("fusion", True)
    many = Case(
        Candidate(), "real:0", nodes=tuple(f"/n{i}" for i in range(12)), ops=("Add",) * 12, own=0.5
    )
    assert (
        "/n5 (Add) and 6 more"
        in cause_of(Findings(), many, [], "float32", None, watched=0.0).evidence
    )


@pytest.mark.parametrize(("weight", "name"), [(1.02, "overflow"), (1e9, "mask-constant")])
def test_no_mask_is_named_where_its_weights_were_measured_and_none_is_huge(
    weight: float, name: str
) -> None:
    """A norm's square of 2.7e8."""
    inner = [
        Inner("", "", Score("x", absmax=16500.0)),
        Inner("Mul", "/square", Score("s", absmax=2.7e8, new_nonfinite=1), ("x", "w")),
    ]
    found = cause_of(Findings(), CASE, inner, "float16", None, weights={"w": weight})
    assert found.name == name


def test_what_an_engine_flushes_is_told_from_what_no_type_holds() -> None:
    flushed = Score("y", vanished=3, vanished_max=1e-6, absmax=1e-6, rel_l2=1.0)
    said = cause_of(Findings(), CASE, [Inner("Mul", "/y", flushed, ())], "float16", None)
    assert (said.name, "still holds, as subnormals" in said.evidence) == ("underflow", True)
    gone = Score("y", vanished=3, vanished_max=1e-8, absmax=1e-8, rel_l2=1.0)
    assert cause_of(Findings(), CASE, [Inner("Mul", "/y", gone, ())], "float16", None).name == (
        "epsilon-underflow"
    )
    fed = Inner("", "", Score("x", vanished=3, vanished_max=1e-10, absmax=1e-10, rel_l2=1.0))
    root = Score("y", vanished=3, vanished_max=1e-5, absmax=1e-5, rel_l2=1.0)
    said = cause_of(Findings(), CASE, [fed, Inner("Sqrt", "/y", root, ("x",))], "float16", None)
    assert (said.name, "reads values up to 1e-10, and float16 makes 0 of" in said.evidence) == (
        "epsilon-underflow",
        True,
    )
    # 1e-4 is no value that the type lacks: who divides by it was told so, with the limit of 3e-8
    # beside it.
    fed = Inner("", "", Score("v", vanished=1, vanished_max=1e-8, absmax=4.0, actual_absmax=4.0))
    root = Inner(
        "Sqrt",
        "/s",
        Score("s", vanished=1, vanished_max=1e-4, absmax=2.0, actual_absmax=2.0),
        ("v",),
    )
    broken = Inner("Div", "/y", Score("y", new_nonfinite=1, absmax=3.0), ("x", "s"))
    said = cause_of(Findings(), CASE, [fed, root, broken], "float16", None)
    assert (said.name, said.evidence.endswith("s, up to 0.0001, became 0.")) == (
        "epsilon-underflow",
        True,
    )
    # A Max that hands on what a difference has lost gives 0 for the same values that it reads; a
    # few of them below the type are no reason: of magika's LayerNorm_0 that was said, whose
    # variance is lost to cancellation.
    one = Score(
        "y", vanished=32, vanished_max=2.1e-6, absmax=4e-4, actual_absmax=4e-4, rel_l2=0.004
    )
    few = Inner(
        "", "", Score("x", vanished=2, vanished_max=1.2e-8, absmax=4e-4, actual_absmax=4e-4), ()
    )
    for op in ("Max", "Sqrt"):
        said = cause_of(Findings(), CASE, [few, Inner(op, "/y", one, ("x",))], "float16", None)
        assert said.name != "epsilon-underflow", "other values come through"


@pytest.mark.parametrize(
    ("reads", "weights", "name"),
    [
        ({"x": 16_500.0}, {}, "overflow"),  # squared
        ({"x": 3e4}, {"w": 1e4}, "overflow"),
        ({"x": 1.0}, {"w": 1e9}, "mask-constant"),
        ({"x": 2e8}, {}, "mask-constant"),
        ({}, {}, "mask-constant"),  # nothing is known of what it reads
    ],
)
def test_a_mask_is_told_from_a_product_that_is_as_large(
    reads: dict[str, float], weights: dict[str, float], name: str
) -> None:
    fed = [Inner("", "", Score(tensor, absmax=top), ()) for tensor, top in reads.items()]
    made = Inner("Mul", "/y", Score("y", absmax=2.7e8, new_nonfinite=1), ("x", *weights))
    said = cause_of(Findings(), CASE, [*fed, made], "float16", None, weights=weights)
    assert (said.name, said.beyond) == (name, "/y")


@pytest.mark.parametrize(
    ("op", "reached", "storage", "named"),
    [
        ("Mul", 7e4, "float16", True),
        ("BatchNormalization", 9.8e7, "float16", True),
        ("BatchNormalization", 9.8e7, "bfloat16", False),
        ("BatchNormalization", 6.5e4, "float16", False),
        ("Add", 1e9, "float16", False),  # a mask has a rule of its own
    ],
)
def test_a_weight_beyond_the_storage_type(
    op: str, reached: float, storage: str, named: bool
) -> None:
    inner = [Inner(op, "/y", Score("y", rel_l2=1.0, absmax=1.0, max_abs=1.0), ("x", "w"))]
    found = cause_of(Findings(), CASE, inner, storage, None, weights={"w": reached})
    assert (found.name == "weight-overflow") is named


@pytest.mark.parametrize(
    ("op", "least", "name"),
    [
        ("Mul", 0.6, "weight-overflow"),  # 1 / (a + 1e-9) of a codec's Snake, where one a is 0
        ("Mul", 1e9, "mask-constant"),
        ("Add", 0.6, "mask-constant"),  # a bias by distance is added together with its mask
    ],
)
def test_what_is_huge_among_ordinary_factors_is_no_mask(op: str, least: float, name: str) -> None:
    inner = [Inner(op, "/y", Score("y", absmax=0.5, new_nonfinite=1), ("x", "w"))]
    said = cause_of(
        Findings(), CASE, inner, "float16", None, weights={"w": 1e9}, least={"w": least}
    )
    assert said.name == name


def test_a_small_error_that_becomes_another_code_is_a_jump_and_no_cancellation() -> None:
    """A bias before it made that "the difference of nearly equal values"."""
    bias = Score("t", rel_l2=2e-4, max_abs=2e-4, absmax=0.8)
    codes = Score(
        "y", dtype="uint8", shape=(1, 168), exact=True, mismatched=1 / 168, rel_l2=6e-4, max_abs=1.0
    )
    inner = [Inner("Add", "/bias", bias, ("x",)), Inner("QuantizeLinear", "/q", codes, ("t",))]
    case = Case(CASE.candidate, CASE.sample, own=1.0, needs_higher_inputs=True)
    found = cause_of(Findings(), case, inner, "float16", None)
    assert (found.name, found.evidence) == (
        "rounding",
        "/bias (Add) loses 0.02 % in float16. /q (QuantizeLinear) makes 0.595 % other results of values that are wrong by "
        "0.02 %: it jumps.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reads", "name"), [(("a", "b"), "overflow"), (("a", "unseen"), "epsilon-underflow")]
)
def test_a_divisor_that_was_seen_not_to_be_0_became_none(reads: tuple[str, ...], name: str) -> None:
    """Of a divisor that was clipped to 1e-5 it was said that it became 0."""
    a, b = Score("a", absmax=1.0), Score("b", absmax=1.0, max_abs=2e-4)
    lost = Score("y", absmax=4240.0, new_nonfinite=1, max_abs=1e5)
    inner = [Inner("", "", a), Inner("", "", b), Inner("Div", "/inv/Div", lost, reads)]
    assert cause_of(Findings(), CASE, inner, "float16", None).name == name


@pytest.mark.parametrize(
    ("outer", "inner_off", "loser"),
    [(2e-4, 2e-4, "/phase (MatMul)"), (2e-4, 2e-2, "/bias (Add)"), (0.0, 2e-4, "/bias (Add)")],
)
def test_who_lost_what_a_node_amplifies_is_named_first(
    outer: float, inner_off: float, loser: str
) -> None:
    """By what was measured: what the sum before it reads is as wrong as the sum, or it is not; the
    node that made what a part is fed, behind nodes that only move values."""
    fed = Score("x", rel_l2=outer, max_abs=1.0, absmax=5000.0)
    bias = Score("t", rel_l2=inner_off, max_abs=1.0, absmax=5000.0)
    moved = Score("u", rel_l2=inner_off, max_abs=1.0, absmax=5000.0)
    made = Score("y", rel_l2=0.3, max_abs=1.0, absmax=1.0)
    inner = [
        Inner("", "", fed),
        Inner("Add", "/bias", bias, ("x",)),
        Inner("Concat", "/both", moved, ("t",)),
        Inner("Cos", "/cos", made, ("u",)),
    ]
    case = Case(CASE.candidate, CASE.sample, own=0.3, needs_higher_inputs=True)
    suspect = Suspect(0, 0, "0", 0.3, 1.0, "/cos", added_exact=1e-4)
    makers = {"x": "/phase (MatMul)"}
    evidence = Evidence(Findings(), case, inner, "float16", suspect, makers=makers)
    said = name_cause(evidence).evidence
    assert said.startswith(f"{loser} makes values up to 5,000, which are rounded by up to 1. ")


@pytest.mark.parametrize(
    ("added", "name"), [(0.3, "cancellation"), (1.14e-3, "cancellation"), (1.9e-4, "unknown")]
)
def test_what_rounding_its_inputs_does_to_any_node_explains_no_failure(
    added: float, name: str
) -> None:
    """Of a product wrong by 0.0193 % of rounded inputs it was said that it takes the difference of
    nearly equal values."""
    suspect = Suspect(0, 0, "0", added, 1.0, "/m", added_exact=0.0)
    product = Score("t", rel_l2=2e-4, max_abs=2e-4, absmax=0.8)
    inner = [Inner("MatMul", "/m", product, ("x",)), Inner("Add", "/a", product, ("t",))]
    assert cause_of(Findings(), CASE, inner, "float16", suspect).name == name


@pytest.mark.parametrize(
    ("op", "off", "name", "said"),
    [
        ("Exp", 0.1, "rounding", "it reads values up to 8, which are rounded by up to 0.0039"),
        (
            "LayerNormalization",
            0.1,
            "cancellation",
            "takes the mean off values up to 8, which are wrong by 0.03 %, and",
        ),
        (
            "Conv",
            0.1,
            "cancellation",
            "adds up terms that nearly cancel, of values up to 8, which are wrong by 0.03 %, and",
        ),
        ("Conv", 0.0011, "rounding", "it reads values up to 8"),
        ("ReduceL2", 0.1, "rounding", "it reads values up to 8"),
    ],
)
@pytest.mark.parametrize("accused", [False, True])
def test_what_cancels_is_said_of_what_was_seen_to(
    op: str, off: float, name: str, said: str, accused: bool
) -> None:
    """A bias before an exponent made that "the difference of nearly equal values"."""
    case = Case(CASE.candidate, CASE.sample, own=off, needs_higher_inputs=not accused)
    suspect = Suspect(0, 0, "0", off, 1.0, "/y", added_exact=0.0) if accused else None
    bias = Score("t", rel_l2=3e-4, max_abs=4e-3, absmax=8.0)
    made = Score("y", rel_l2=off, max_abs=0.5, absmax=3.0)
    fed = Score("x", rel_l2=3e-4, max_abs=3.9e-3, absmax=8.0)
    inner = [Inner("", "", fed), Inner("Add", "/bias", bias, ("x",)), Inner(op, "/y", made, ("t",))]
    found = cause_of(Findings(), case, inner, "float16", suspect)
    assert (found.name, said in found.evidence) == (name, True), found.evidence


def test_what_a_part_reads_is_what_it_is_fed() -> None:
    """MarbleNet in BF16, 29 nodes from the sound to the scores: "values up to 0.93, which are
    rounded by up to 0.025" of what its last node reads, to which all the others have added."""
    case = Case(CASE.candidate, CASE.sample, own=0.06, needs_higher_inputs=True)
    fed, inside = (
        Score("x", rel_l2=1e-3, max_abs=0.0016, absmax=0.9),
        Score("t", rel_l2=0.03, max_abs=0.025, absmax=0.93),
    )
    made = Score("y", rel_l2=0.06, max_abs=0.02, absmax=0.4)
    inner = [
        Inner("", "", fed),
        Inner("Exp", "/e", inside, ("x",)),
        Inner("Softmax", "/y", made, ("t",)),
    ]
    found = cause_of(Findings(), case, inner, "bfloat16", None)
    assert found.name == "rounding"
    assert found.evidence.endswith("it reads values up to 0.9, which are rounded by up to 0.0016.")


@pytest.mark.parametrize(
    ("op", "emulated", "emulating", "off", "name"),
    [
        ("Gemm", None, True, 0.1, "cancellation"),
        ("Gemm", 0.09, False, 0.1, "cancellation"),
        ("Gemm", 0.03, False, 0.1, "unknown"),  # the precision explains a third of it
        ("Gemm", None, False, 0.1, "unknown"),  # nobody knows what it explains
        (
            "Gemm",
            None,
            True,
            0.005,
            "unknown",
        ),  # four times what rounding makes of terms that do not cancel: 0.0059
        ("ReduceSumSquare", None, True, 0.1, "unknown"),
    ],
)
def test_a_sum_cancels_where_rounding_alone_makes_more_of_it_than_of_its_terms(
    op: str, emulated: float | None, emulating: bool, off: float, name: str
) -> None:
    findings = Findings(
        emulated=emulated, signature=Signature(kind="accuracy", sample="real:0", errors={"y": 0.1})
    )
    inner = [
        Inner("", "", Score("x", absmax=8.0)),
        Inner(op, "/y", Score("y", rel_l2=off, absmax=1.0), ("x",)),
    ]
    found = cause_of(findings, CASE, inner, "float16", None, emulating=emulating)
    assert found.name == name, found.evidence


def test_of_a_pair_it_is_said_how_far_its_codes_reach() -> None:
    codes = Inner("", "", Score("q", equal=True))
    given = Score("d", absmax=9.42, actual_absmax=0.94, max_abs=8.5, sqnr_db=3.0)
    inner = [codes, Inner("DequantizeLinear", "/d", given, ("q", "scale", "zero"))]
    found = cause_of(Findings(), CASE, inner, "float32", None, weights={"scale": 0.004})
    assert found.name == "quantization"
    assert "largest value is 9.42, its codes end at 0.94, one step is 0.004." in found.evidence


def test_against_the_same_pairs_nothing_is_lost_to_quantization() -> None:
    """FP16 of a quantized model rounds what a pair gives: the reference computes the same pair."""
    given = Score("d", absmax=9.42, actual_absmax=9.42, max_abs=2e-3, rel_l2=2e-4, sqnr_db=74.0)
    inner = [
        Inner("", "", Score("q", equal=True)),
        Inner("DequantizeLinear", "/d", given, ("q", "scale", "zero")),
    ]
    names = [
        cause_of(Findings(), CASE, inner, "float16", None, against_float=b).name
        for b in (True, False)
    ]
    assert names == ["quantization", "unknown"]
