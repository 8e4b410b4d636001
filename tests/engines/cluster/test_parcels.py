"""Which files a probe needs elsewhere, which names may travel, which of the user's own files are
pinned."""

from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.cluster.parcels import Packer, at_home, parcel_place, pin_files
from narrowdown.engines.probe import (
    Check,
    Describe,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Sanitize,
    Unroll,
)
from narrowdown.engines.store import Store, digest_file
from narrowdown.engines.workers.operations import execute_probe
from narrowdown.wizard.demo import MODELS


def test_a_model_brings_its_weights_and_comes_last(tmp_path: Path) -> None:
    store, path = Store(tmp_path), MODELS / "shapes_cnn.onnx"
    model = str(
        execute_probe(
            Import(path=str(path), digest=digest_file(path)), store, lambda _: None
        ).facts["model"]
    )
    made = execute_probe(LoadInputs(model=model), store, lambda _: None)
    inputs = str(made.facts["inputs"])
    needs = Packer(store).needed(
        Measure(
            model=model,
            inputs=inputs,
            samples=("random:0",),
            engine="emulate",
            reference="onnxruntime",
        )
    )
    assert list(needs) == [f"models/{model}.onnx", f"inputs/{inputs}/index.json"]
    assert [parcels[-1].name for parcels in needs.values()] == list(needs)
    everything = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert {parcel.name for parcels in needs.values() for parcel in parcels} == everything
    assert any(name.startswith("models/weights/") for name in everything)
    for parcels in needs.values():
        for parcel in parcels:
            file = parcel_place(tmp_path, parcel.name)
            assert (parcel.digest, parcel.size) == (digest_file(file), file.stat().st_size)


def test_a_model_that_a_workaround_is_written_into_travels_too(tmp_path: Path) -> None:
    store, path = Store(tmp_path), MODELS / "shapes_cnn.onnx"
    user = str(
        execute_probe(
            Import(path=str(path), digest=digest_file(path)), store, lambda _: None
        ).facts["model"]
    )
    clean = str(execute_probe(Sanitize(model=user), store, lambda _: None).facts["model"])
    probe = Measure(
        model=clean, written=user, inputs="", samples=(), engine="emulate", reference="onnxruntime"
    )
    assert set(Packer(store).needed(probe)) == {f"models/{m}.onnx" for m in (user, clean)}
    assert user != clean


@pytest.mark.parametrize(
    "name",
    [
        "../etc/passwd",
        "/etc/passwd",
        "models/x.onnx",
        f"models/{'a' * 64}.onnx/../../../x",
        f"inputs/{'a' * 64}/../../session.json",
        f"inputs/{'a' * 64}/.hidden",
        f"inputs/{'a' * 64}/a/b",
        "session.json",
        f"models/{'a' * 64}.onnx\n",
    ],
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a file that travels"):
        parcel_place(tmp_path, name)


def test_what_reads_the_users_files_stays_at_home() -> None:
    opening = Unroll(model="m", inputs="i", samples=("real:0",), sample="real:0", reference="e")
    home = (
        Import(path="/m", digest="d"),
        Sanitize(model="m"),
        LoadInputs(model="m"),
        Describe(model="m"),
        opening,
    )
    away = (
        Inspect(engine="e"),
        Describe(model="m", sample="real:0"),
        Check(model="m", command="true"),
    )
    assert all(map(at_home, home))
    assert not any(map(at_home, away))


def test_scripts_and_libraries_are_pinned_by_what_they_hold(tmp_path: Path) -> None:
    for name in ("check.py", "data.bin", "lib.so"):
        (tmp_path / name).write_text(name)
    check = Check(
        model="m",
        command=f"python3 ./check.py --with=data.bin {{model}} {tmp_path}/none",
        folder=str(tmp_path),
    )
    assert pin_files(check) == {
        str(tmp_path / n): digest_file(tmp_path / n) for n in ("check.py", "data.bin")
    }
    library = tmp_path / "lib.so"
    measure = Measure(
        model="m",
        inputs="i",
        samples=(),
        engine=f"onnxruntime:custom_ops={library}+/gone.so",
        reference="onnxruntime",
    )
    assert pin_files(measure) == {str(library): digest_file(library)}
    script = tmp_path / "check.py"
    post = msgspec.structs.replace(measure, engine="emulate", postprocess=(f"{script}:f",))
    assert pin_files(post) == {str(script): digest_file(script)}
    before = pin_files(measure)
    library.write_text("another")
    assert pin_files(measure) != before
