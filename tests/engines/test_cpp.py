"""What is printed to be pasted into C++ does there what the Python text does here.

It needs a compiler and ONNX Runtime's headers, which its wheel lacks: ``CPATH=FOLDER`` names them.
The library is the wheel's own.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from narrowdown.engines import outside
from narrowdown.engines.declaration import Cure
from narrowdown.engines.spec import parse
from narrowdown.wizard.demo import MODELS

CURES = (  # failing, then right
    ("optimization=all", "optimization=disabled"),
    ("optimization=all", "optimization=basic"),
    ("optimization=all", "optimization=extended"),
    ("optimization=all", "optimization=layout"),
    ("optimization=all", "optimization=all,disabled_optimizers=Pad_Fusion+ConstantFolding"),
    ("optimization=all", "optimization=all,prepacking=false"),
    ("optimization=all,threads=2", "optimization=all,threads=1"),
    ("optimization=all,execution=parallel", "optimization=all,execution=sequential"),
    ("optimization=all", "optimization=all,deterministic=true"),
    ("optimization=all", "optimization=all,session_config=session.set_denormal_as_zero=1"),
)
BEFORE = """
#include <cstdio>
#include <vector>
#include <onnxruntime_cxx_api.h>
"""
EACH = """
static int cure_%d(Ort::Env& env, const char* out) {
  %s
  std::vector<int64_t> shape{8, 1, 64, 64};
  std::vector<float> image(8 * 64 * 64);
  FILE* in = std::fopen("image.raw", "rb");
  if (!in || std::fread(image.data(), 4, image.size(), in) != image.size()) return 1;
  std::fclose(in);
  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  auto value = Ort::Value::CreateTensor<float>(memory, image.data(), image.size(), shape.data(), 4);
  const char *takes[] = {"image"}, *gives[] = {"logits"};
  auto made = session.Run(Ort::RunOptions{}, takes, &value, 1, gives, 1);
  FILE* to = std::fopen(out, "wb");
  std::fwrite(made[0].GetTensorData<float>(), 4, made[0].GetTensorTypeAndShapeInfo().GetElementCount(), to);
  return std::fclose(to);
}
"""


def compiled(source: str, folder: Path) -> Path:
    """The program; skips the test where there is no compiler or no header."""
    compiler = shutil.which("g++") or pytest.skip("no C++ compiler")
    header = subprocess.run(
        [compiler, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"], input=BEFORE,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if header.returncode:
        pytest.skip("ONNX Runtime's C++ headers are not on CPATH")
    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.1*"))
    (folder / "libonnxruntime.so.1").symlink_to(library)
    (folder / "cures.cpp").write_text(source, encoding="utf-8")
    made = subprocess.run(
        [compiler, "-std=c++17", "-O0", "cures.cpp", "-o", "cures", library, f"-Wl,-rpath,{folder}"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder / "cures"


def test_cpp_answers_as_the_pasted_python_does(tmp_path: Path) -> None:
    shutil.copy(MODELS / "shapes_cnn.onnx", tmp_path / "model.onnx")
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))  # fresh each time
    image = rng.random((8, 1, 64, 64), dtype=np.float32)
    image.tofile(tmp_path / "image.raw")
    told = [
        outside.apply(
            outside.found(parse(f"onnxruntime:{cures}"), ""),
            Cure(failing=outside.found(parse(f"onnxruntime:{fails}"), "")),
        )
        for fails, cures in CURES
    ]
    calls = "\n".join(f'  if (cure_{k}(env, "{k}.raw")) return 1;' for k in range(len(told)))
    source = BEFORE + "".join(EACH % (k, cpp.text) for k, (_, cpp) in enumerate(told))
    source += f"int main() {{\n  Ort::Env env;\n{calls}\n}}\n"
    ran = subprocess.run([compiled(source, tmp_path)], cwd=tmp_path, check=False)
    assert ran.returncode == 0
    answers = []
    for k, (python, _) in enumerate(told):
        pasted: dict[str, Any] = {}
        text = python.text.replace("'model.onnx'", repr(str(tmp_path / "model.onnx")))
        exec(text, pasted)
        (logits,) = pasted["session"].run(["logits"], {"image": image})
        found = np.fromfile(tmp_path / f"{k}.raw", np.float32).reshape(logits.shape)
        assert np.allclose(found, logits, rtol=1e-5, atol=1e-5), CURES[k]
        answers.append(found)
    # The model is wrong in ONNX Runtime with Pad_Fusion on: the text that switches it off is right.
    right, kept = answers[0], answers[4]
    wrong = answers[5]
    assert np.allclose(kept, right, rtol=1e-3, atol=1e-3)
    assert not np.allclose(wrong, right, rtol=1e-3, atol=1e-3)
