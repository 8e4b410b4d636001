"""What runs on GPUs, rehearsed where there is none: a driver that lists two, engines that are said
to take one, and kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from campaigns.gpu.campaign import as_they_are, every, flow, killed_in_each
from narrowdown.engines.backends.tensorrt import quantization
from narrowdown.wizard.session.folder import describe
from tests.engines.workers import driver
from tests.gpu import models

SCRIPT = Path(__file__).with_name("two_gpus.py")


@pytest.mark.slow
@pytest.mark.skipif(driver.compiler() is None, reason="makes its driver with a C compiler")
def test_two_gpus_come_to_the_same_as_one(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(SCRIPT),
        "--out",
        str(tmp_path),
        "--rehearse",
        "--seconds",
        "280",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in (tmp_path / "two_gpus.jsonl").read_text().splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    compared = {row["case"]: row for row in rows if "same" in row}
    assert set(compared) == {"repeat", "reduce", "precision"}
    assert all(row["same"] for row in compared.values())
    assert set(compared["repeat"]["by_gpu"]) == {"GPU 1", "GPU 2"}
    runs = [row for row in rows if "exit" in row]
    assert all(row["exit"] == 0 for row in runs)
    assert all(row["ahead"] > 0 for row in runs if row["gpus"] == 2)


@pytest.mark.slow
def test_what_is_killed_in_each_of_its_steps_asks_nothing_twice(tmp_path: Path) -> None:
    told = killed_in_each(*models.layernorm(tmp_path), "emulate:precision=fp16")(tmp_path)
    assert told["exit"] == 0
    assert told["killed_in"].count("after") >= 5, "a step may be through before it can be killed"
    assert told["twice"] == 0
    assert told["verdict"] == "worked-around"


def test_a_case_is_found_by_its_name_in_a_folder_with_the_models_of_no_other_process(
    tmp_path: Path,
) -> None:
    real = tmp_path / "real"
    (real / "vad_in").mkdir(parents=True)
    for name in ("vad.onnx", "word.onnx", "word_in.npz", "unfed.onnx"):
        (real / name).touch()
    assert [c.name for c in as_they_are(real, "tensorrt")] == ["as-it-is-vad", "as-it-is-word"]
    names = [c.name for c in every(tmp_path / "out", None, real)]
    assert len(names) == len(set(names))
    (made,) = (tmp_path / "out" / "made").iterdir()
    assert made.name == str(os.getpid())
    assert not list((tmp_path / "out").glob("*.onnx"))


def test_a_folder_of_samples_is_fed_sample_by_sample(tmp_path: Path) -> None:
    model, inputs = models.layernorm(tmp_path)
    (tmp_path / "fed").mkdir()
    whole = np.load(inputs)["x"]
    for i in range(3):
        np.savez(tmp_path / "fed" / f"{i}.npz", x=whole[i : i + 1])
    told = flow(model, tmp_path / "fed", "onnxruntime:optimization=basic")(tmp_path)
    assert (told["exit"], told["verdict"]) == (10, "not-reproduced")
    assert [Path(p).name for p in describe(tmp_path / "session").problem.inputs] == [
        "0.npz",
        "1.npz",
        "2.npz",
    ]


def test_the_quantized_model_of_the_campaign_is_wrong_and_of_kinds_that_tensorrt_takes(
    tmp_path: Path,
) -> None:
    model, inputs = models.scaled_apart(tmp_path)
    assert quantization.say_untaken(onnx.load(model)) == ""
    feeds = dict(np.load(inputs))
    asked = [
        onnxruntime.InferenceSession(tmp_path / name).run(None, feeds)[0]
        for name in ("float.onnx", "int8.onnx")
    ]
    assert np.linalg.norm(asked[1] - asked[0]) > 0.1 * np.linalg.norm(asked[0])
