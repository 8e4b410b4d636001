"""A program as an engine: what it is given, and what is made of each way in which it can end.
Programs of the shell: they start at once."""

import gc
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault, EngineMissing
from narrowdown.engines.contract.suite import FLOAT, small_model
from narrowdown.engines.data.arrays import write_npz

node = helper.make_node
HERE = "{model} {inputs} {outputs}"
NEG = small_model([node("Neg", ["x"], ["y"], name="neg")], {"x": (FLOAT, [2])}, ["y"])
X = {"x": np.array([1, -2], np.float32)}


def built(words: str, model: onnx.ModelProto = NEG, **more: str):
    said = ",".join(f"{key}={value}" for key, value in {"run": words, **more}.items())
    return make(f"command:{said}").build(BuildRequest(model, ""))


def shell(line: str) -> str:
    """``$0`` is the model, ``$1`` inputs, ``$2`` outputs."""
    return f"sh -c {shlex.quote(line)} {HERE}"


def fault(words: str, **more: str) -> EngineFault:
    with pytest.raises(EngineFault) as caught:
        built(words, **more).run(X)
    assert str(caught.value).endswith(".")
    return caught.value


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    path = tmp_path / "answer.npz"
    write_npz(path, {"y": np.array([7, 8], np.float32), "file": np.zeros(1)})
    return path


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("exit 0", "error", "It wrote no 'outputs.npz'. It said nothing."),
        ("echo lost my way; exit 0", "error", "It said: lost my way."),
        ("cp $1 $2", "error", "gave no output 'y'; it gave x."),
        ("echo no archive > $2", "error", "'outputs.npz' cannot be read"),
        (
            "echo bad layer >&2; exit 3",
            "build-failed",
            "The program ended with exit code 3: bad layer.",
        ),
        ("echo 'op Erf is not supported' >&2; exit 3", "unsupported", "Erf"),
        ("exit 69", "unsupported", "ended with exit code 69: it said nothing."),
        ("echo std::bad_alloc; exit 1", "out-of-memory", "bad_alloc"),
        ("kill -SEGV $$", "crash", "died of SIGSEGV"),
    ],
)
def test_every_way_to_end_without_an_answer(line: str, status: str, said: str) -> None:
    ended = fault(shell(line))
    assert (ended.status, said in str(ended)) == (status, True), str(ended)
    assert ended.signal == (11 if status == "crash" else 0)


def test_an_answer(answer: Path) -> None:
    assert built(shell(f"cp {answer} $2")).run(X)["y"].tolist() == [7, 8]


def test_where_there_is_a_compiler_it_refuses_models_and_runs_fail(
    answer: Path, tmp_path: Path
) -> None:
    run = shell(f"cp {answer} $2").replace("{model}", "{engine}")
    with pytest.raises(EngineFault, match=r"wrote no \{engine\}") as caught:
        built(run, build="true {model} {engine}")
    assert caught.value.status == "build-failed"
    made = built(run, build="cp {model} {engine}")
    assert made.run(X)["y"].tolist() == [7, 8]
    assert (made.folder / "engine").read_bytes() == (made.folder / "model.onnx").read_bytes()
    folder = made.folder
    made.close()
    assert not folder.exists()
    assert fault(shell("exit 1"), build="cp {model} {engine}").status == "error"


def test_values_travel_in_each_form(tmp_path: Path) -> None:
    model = small_model([node("Identity", ["a/b"], ["a/b2"])], {"a/b": (FLOAT, [2])}, ["a/b2"])
    value = {"a/b": np.array([1, 2], np.float32)}
    seen = tmp_path / "seen"
    named = "mkdir $2; cp $1/a%2Fb.npy $2/a%2Fb2.npy"
    assert built(shell(named), model, io="npy").run(value)["a/b2"].tolist() == [1, 2]
    assert built(shell(f"sed s:a/b:a/b2: $1 | tee {seen} > $2"), model, io="json").run(value)[
        "a/b2"
    ].tolist() == [1, 2]
    assert '"a/b2"' in seen.read_text()


def test_who_it_is(tmp_path: Path) -> None:
    """Its version is its own word, and another one is another engine; one that says none, or is not
    there, is missing."""
    spec = "command:run=true {model} {inputs} {outputs},version=echo "
    first, second = make(f"{spec}1.2").info, make(f"{spec}1.3").info
    assert (first.version, second.version) == ("1.2", "1.3")
    assert first.fingerprint != second.fingerprint
    for wrong in (
        "command",
        "command:run=no-such-program {inputs} {outputs}",
        "command:run=true,version=false",
    ):
        with pytest.raises(EngineMissing):
            make(wrong)


def test_keeping_wants_a_program_that_keeps_to_types() -> None:
    words = "command:run=true {model} {inputs} {outputs}"
    assert not make(f"{words},precision=fp16").info.capabilities["keep"].present
    engine = make(f"{words},precision=fp16,typed=true")
    assert engine.info.capabilities["keep"].present
    made = engine.build(BuildRequest(NEG, "", keep=frozenset()))
    assert TensorProto.FLOAT16 in [a.i for n in made.model.graph.node for a in n.attribute]
    with pytest.raises(ValueError, match="goes with precision=fp16"):
        make(f"{words},typed=true")


def test_a_build_that_nobody_closes_leaves_no_folder(answer: Path) -> None:
    """An error on the way drops it unclosed: 15 folders lay in /tmp after each run of the tests."""
    made = built(shell(f"cp {answer} $2"))
    folder = made.folder
    assert folder.is_dir()
    del made
    gc.collect()
    assert not folder.exists()
