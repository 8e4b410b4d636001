"""Is a part refused for the reason that the whole was? On messages as OpenVINO and TensorRT give
them."""

import pytest

from narrowdown.engines.compare.judge import Criterion, Signature, judge
from narrowdown.engines.compare.refusal import is_same, words
from narrowdown.engines.probe import Measurement

RESHAPE = (
    "OpenVINO could not compile the model: Unexpected: CPU plug-in doesn't support {} operation with dynamic rank. Operation "
    "name: {}."
)
PARSER = "TensorRT-RTX's parser refuses the model: node '{}' (ScatterND): scatterND with reduction is not supported; at {}."
INVALID = (
    "TensorRT-RTX's parser refuses the model: node 'a' (ScatterND): invalid dimensions [1, 2]."
)


@pytest.mark.parametrize(
    ("whole", "part", "same"),
    [
        (RESHAPE.format("Reshape", "/encoder/reshape"), RESHAPE.format("Reshape", "out"), True),
        (RESHAPE.format("Squeeze", "/encoder/squeeze"), RESHAPE.format("Reshape", "out"), False),
        (PARSER.format("scatter one", "line 12"), PARSER.format("scatter", "line 900"), True),
        (PARSER.format("a", "1"), INVALID, False),
        # Of several reasons a part has one.
        ("no kernel for Foo 3; no kernel for Bar 7 (2 more errors)", "no kernel for Bar 1", True),
        ("no kernel for Foo 3", "no kernel for Foo 3; no kernel for Bar 7", False),
        ("", "anything", True),
    ],
)  # fmt: skip
def test_less_names_and_numbers(whole: str, part: str, same: bool) -> None:
    assert is_same(words(whole, {"out", "/encoder/reshape"}), words(part, {"out"})) is same


def test_names_of_the_model_are_no_words_and_operators_are() -> None:
    assert words("cannot build logits after Squeeze", {"logits"}) == (
        "after",
        "build",
        "cannot",
        "squeeze",
    )


@pytest.mark.parametrize(
    ("refusal", "status", "kind", "reason"),
    [
        (["no", "kernel"], "build-failed", "fail", ""),
        (["no", "kernel"], "unsupported", "fail", ""),
        (["no", "shape"], "build-failed", "unresolved", "refused-otherwise"),
        ([], "ok", "pass", ""),
        (["no", "kernel"], "out-of-memory", "unresolved", "out-of-memory"),
    ],
)
def test_a_part_that_is_refused_otherwise_is_neither_pass_nor_fail(
    refusal: list[str], status: str, kind: str, reason: str
) -> None:
    signature = Signature(kind="build", sample="random:0", refusal=("kernel", "no"))
    verdict = judge(Measurement(status=status, facts={"refusal": refusal}), Criterion(), signature)  # type: ignore[arg-type]
    assert (verdict.kind, verdict.reason) == (kind, reason)


def test_a_signature_of_an_older_session_takes_any_refusal() -> None:
    answer = Measurement(status="build-failed", facts={"refusal": ["other"]})
    assert judge(answer, Criterion(), Signature(kind="build", sample="random:0")).failed
