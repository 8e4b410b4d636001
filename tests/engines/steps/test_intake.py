"""Why a model or inputs cannot be taken in: whose fault it is, and what to do."""

import pytest

from narrowdown.engines.asking import StepRefused
from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measurement, SampleInfo
from narrowdown.engines.problem import Problem
from narrowdown.engines.steps import intake

TIMEOUT = Measurement(
    status="timeout", message="The probe did not finish within 3 s and was stopped."
)


@pytest.mark.parametrize(
    ("status", "sources", "code", "said"),
    [
        ("refused", ("/a/b.npz",), 2, "No."),
        ("error", ("/a/b.npz",), 4, "No."),
        ("out-of-memory", (), 4, "No."),
        ("timeout", ("/a/b.npz",), 4, "No."),
        (
            "timeout",
            ("/a/b.npz", "/a/load.py"),
            2,
            "The data loader 'load.py' gave no inputs in time. No. Mend it",
        ),
        ("crash", ("/a/load.py:other",), 2, "The data loader 'load.py' took its process down. No."),
        (
            "out-of-memory",
            ("/a/load.py", "/b/more.py"),
            2,
            "The data loader 'load.py' or 'more.py' filled the memory.",
        ),
    ],
)
def test_a_model_or_inputs_that_cannot_be_read(
    status: str, sources: tuple[str, ...], code: int, said: str
) -> None:
    refusal = intake.make_refusal(Measurement(status=status, message="No."), sources)  # type: ignore[arg-type]
    assert refusal.code == code
    assert str(refusal).startswith(said)


def test_bounds_on_outputs_that_are_not_there() -> None:
    intake.refuse_unknown_outputs(Problem(tolerance={"": 1.0, "logits": 1.0}, atol={}), ["logits"])
    intake.refuse_unknown_outputs(
        Problem(tolerance={"any": 1.0}), []
    )  # a journal of before says nothing of outputs
    with pytest.raises(
        StepRefused,
        match=r"--rtol: the model has no output 'logit'. Did you mean 'logits'\? It has 'logits'\.",
    ) as no:
        intake.refuse_unknown_outputs(Problem(rtol={"logit": 1.0}), ["logits"])
    assert no.value.code == 2
    with pytest.raises(StepRefused, match="and 4 more"):
        intake.refuse_unknown_outputs(Problem(atol={"zzz": 1.0}), [f"o{n}" for n in range(10)])


def test_what_cannot_be_judged_at_all() -> None:
    real, guessed = SampleInfo("real:0", "x.npz"), SampleInfo("random:0", "random by role")
    for fine in (
        Measurement(),
        Measurement(status="crash"),
        Measurement(facts={"started": True}),
        Measurement(assumed="fail"),
    ):
        intake.refuse_unmeasured(fine, Findings(samples=(guessed,)))
    ran = Measurement(
        status="reference-failed", message="The reference failed while it ran the model."
    )
    with pytest.raises(StepRefused, match="give them with --inputs") as no:
        intake.refuse_unmeasured(ran, Findings(samples=(guessed,)))
    assert no.value.code == 4
    shape, kind = (
        "'x' was given the shape [1, 8]: batch 1 (--input-shapes changes it).",
        "'x': an image, values from 0 to 1.",
    )
    carried = (("carry", "h:h0"),)
    with pytest.raises(StepRefused) as no:
        intake.refuse_unmeasured(
            ran, Findings(samples=(guessed,), notes=(shape, kind), suggested=carried)
        )
    assert "add --carry 'h:h0'" in str(no.value)
    assert f"sizes with --input-shapes. {shape} Outputs" in str(no.value), (
        "the names that sizes are to be given for"
    )
    for m, samples in (
        (ran, [guessed, real]),
        (Measurement(status="reference-failed", message="The model has opset 99."), [guessed]),
        (Measurement(status="refused", message="No."), [real]),
        (
            Measurement(
                status="unsupported", message="Exec format error.", facts={"started": False}
            ),
            [],
        ),
    ):
        with pytest.raises(StepRefused) as no:
            intake.refuse_unmeasured(m, Findings(samples=tuple(samples)))
        # Where it is the reference that fails, there is a way to go on without any.
        hint = " Whether the engine agrees with itself is seen without any: --flow consistency."
        told = m.message + (hint if m.status == "reference-failed" else "")
        assert (str(no.value), no.value.code) == (told, 4)


def test_what_gave_no_answer_is_not_said_to_pass() -> None:
    ran, rule = Measurement(facts={"returncode": 0, "stdout": "", "stderr": ""}), Criterion()
    intake.refuse_unresolved(ran, rule, check=True)
    intake.refuse_unresolved(Measurement(), rule, check=False)
    for m, check, said in (
        (
            Measurement(status="crash", message="The worker process died of signal 11."),
            True,
            "process died of signal 11.$",
        ),
        (Measurement(status="timeout", message="It did not finish."), False, "It did not finish.$"),
        (Measurement(facts={"signal": 11}), True, "the check died of signal 11.$"),
    ):
        with pytest.raises(
            StepRefused, match=f"^Whether the model fails cannot be told: .*{said}"
        ) as no:
            intake.refuse_unresolved(m, rule, check=check)
        assert no.value.code == 6


@pytest.mark.parametrize(
    ("stated", "reference", "told"),
    [
        ("fp16", "onnxruntime", 1),
        ("fp16", "onnxruntime:model=/a/float.onnx", 0),
        ("fp16", "golden:files=/a/out.npz", 0),
        ("", "onnxruntime", 0),
    ],
)
def test_a_half_file_against_itself_is_told_of_its_original(
    stated: str, reference: str, told: int
) -> None:
    said = intake.say_half(stated, reference)
    assert len(said) == told
    assert all("FP16" in s and "--reference onnxruntime:model=ORIGINAL.onnx" in s for s in said)
