"""docs/inputs.md: its loader scripts are run, and what its table says is read."""

import re
import wave
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.data import InputProblem, files
from narrowdown.engines.data.samples import load_feed, load_inputs
from narrowdown.engines.graph import load
from narrowdown.engines.probe import LoadInputs
from narrowdown.engines.store import Store
from narrowdown.wizard.problem_options import input_source

PAGE = Path(__file__).parents[2] / "docs" / "inputs.md"


def script(word: str) -> str:
    return next(
        code
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        if word in code
    )


def loaded(code: str) -> list[dict[str, np.ndarray]]:
    names: dict[str, object] = {}
    exec(compile(code, "load.py", "exec"), names)
    return list(names["load_data"]())  # type: ignore[operator]


def test_sound_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with wave.open("speech.wav", "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(800)
        sound.writeframes(np.full(2000, -16384, "<i2").tobytes())
    heard = loaded(script("wave"))
    assert [(a["audio"].shape, a["audio"].dtype, a["audio"].min()) for a in heard] == [
        ((1, 800), np.float32, -0.5)
    ] * 2
    Path("lines.txt").write_text("one\ntwo words\n")
    read = loaded(script("lines.txt"))
    assert [(a["ids"].shape, int(a["mask"].sum())) for a in read] == [((1, 32), 3), ((1, 32), 9)]


def made(
    tmp_path: Path, shape: list[int | str], *sources: str, **more: object
) -> list[dict[str, np.ndarray]]:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        str(path),
    )
    store = Store(tmp_path / "store")
    model = load.load(store, load.import_model(path, store).digest)
    probe = LoadInputs(model=model.digest, sources=sources, random=False, **more)  # type: ignore[arg-type]
    facts = load_inputs(probe, model, store)
    return [
        dict(load_feed(store, facts["inputs"], sample["id"]))
        for sample in msgspec.to_builtins(facts["samples"])
    ]


def test_raw_values_as_trtexec_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.arange(6, dtype=np.float32).tofile("in.bin")
    source = input_source("x:in.bin")
    assert source == f"x={tmp_path}/in.bin" == input_source("x=in.bin")
    for shape in ([2, 3], ["n", 3]):
        (fed,) = made(tmp_path, shape, source)
        assert fed["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(
        InputProblem,
        match=r"'in.bin' holds 24 bytes, and the input 'x' is float32 \[2, 4\]: give as many bytes",
    ):
        made(tmp_path, [2, 4], source)
    with pytest.raises(InputProblem, match=r"say its shape with --input-shapes x:"):
        made(tmp_path, ["n", "m"], source)
    (fed,) = made(tmp_path, ["n", "m"], source, shapes={"x": (3, 2)})
    assert fed["x"].shape == (3, 2)


def test_a_folder_of_images_is_a_feed_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for name, shade in (("b.png", 255), ("a.jpg", 0)):
        image.new("RGB", (8, 8), (shade,) * 3).save(Path("photos") / name)
    for source in (input_source("photos"), input_source("x=photos")):
        dark, light = made(tmp_path, [1, 3, 8, 8], source)
        assert (dark["x"].max(), light["x"].min()) == (0, 1)
    assert [given.source for given in files.read("photos", ["x"])] == ["a.jpg", "b.png"]


def test_what_an_application_records_is_a_sample_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(script("def record"), "record.py", "exec"), names)
    for value in (1, 2):
        names["record"]({"x": np.full((2, 3), value, np.float32)})  # type: ignore[operator]
    assert [fed["x"].tolist() for fed in made(tmp_path, ["n", 3], str(tmp_path / "recorded"))] == [
        [[1.0] * 3] * 2,
        [[2.0] * 3] * 2,
    ]
