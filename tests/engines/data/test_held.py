"""What is run or loaded is what was agreed to, byte for byte, whatever comes to lie in its
place."""

import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown.engines import backends
from narrowdown.engines.consent import NOTHING, Consent
from narrowdown.engines.data import InputProblem, files, held, postprocess
from narrowdown.engines.probe import Check, Inspect, LoadInputs, Measure
from narrowdown.engines.workers.operations import execute_probe

from ...consents import to_files

LOADER = "import numpy as np\ndef load_data():\n    yield {'x': np.zeros((1, 2), np.float32)}\npostprocess_outputs = dict\n"


def evil(path: Path, canary: Path) -> None:
    path.write_text(f"open({str(canary)!r}, 'w').close()\n{LOADER}", encoding="utf-8")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "loader.py"
    path.write_text(LOADER, encoding="utf-8")
    return path


def test_nothing_is_opened_without_consent(tmp_path: Path, script: Path) -> None:
    from narrowdown.engines.store import Store

    canary = tmp_path / "canary"
    evil(script, canary)
    with held.under(NOTHING):
        for use in (
            lambda: list(files.read(str(script), ["x"])),
            lambda: postprocess.apply_postprocess([str(script)], {}, "r"),
            lambda: backends.make(f"onnxruntime:custom_ops={script}"),
            lambda: backends.make(f"onnxruntime:model={script}"),
            lambda: held.copy(script),
            lambda: held.content(script),
        ):
            with pytest.raises(held.NotAgreed, match="nobody agreed"):
                use()
        measure = Measure(
            model="m", inputs="i", samples=(), engine="onnxruntime", reference="onnxruntime"
        )
        for probe in (
            Check(model="m", command=f"python {script}"),
            LoadInputs(model="m", sources=(str(script),)),
            Inspect(engine=f"onnxruntime:custom_ops={script}"),
            Measure(
                **{
                    **{n: getattr(measure, n) for n in measure.__struct_fields__},
                    "postprocess": (str(script),),
                }
            ),
        ):
            answer = execute_probe(probe, Store(tmp_path / "session"), lambda _: None)
            assert (answer.status, "nobody agreed" in answer.message) == ("refused", True), probe
    assert not canary.exists()


def test_what_was_swapped_is_refused_by_whoever_opens_it(tmp_path: Path, script: Path) -> None:
    canary, library = tmp_path / "canary", tmp_path / "ops.so"
    library.write_bytes(b"one")
    agreed = to_files(script, library)
    evil(script, canary)
    library.write_bytes(b"two")
    with held.under(agreed):
        for use in (
            lambda: list(files.read(str(script), ["x"])),
            lambda: postprocess.apply_postprocess([str(script)], {}, "r"),
            lambda: held.copy(library),
            lambda: held.content(library),
        ):
            with pytest.raises(held.NotAgreed, match="has changed since it was agreed to"):
                use()
        library.unlink()
        with pytest.raises(held.NotAgreed, match="cannot be read now"):
            held.copy(library)
    assert not canary.exists()


def test_a_private_copy_is_what_was_agreed_to_whatever_happens_to_the_file(tmp_path: Path) -> None:
    library = tmp_path / "package" / "ops.so"
    (tmp_path / "package.libs").mkdir()
    library.parent.mkdir()
    library.write_bytes(b"one")
    library.with_name("libneeded.so.2").touch()
    with held.under(to_files(library)):
        copy = held.copy(library)
        library.write_bytes(b"two")
        assert held.copy(library) == copy
    assert copy.read_bytes() == b"one"
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    assert (copy.parent / "libneeded.so.2").is_symlink(), "it may be looked for beside the library"
    assert (copy.parents[1] / "package.libs").is_symlink(), (
        "where a wheel has the libraries that it brings"
    )
    held.forget()
    assert not copy.parents[1].exists()


def test_a_neighbour_that_was_agreed_to_with_its_script_is_held_too(
    tmp_path: Path, script: Path
) -> None:
    neighbour, canary = tmp_path / "beside_this_test.py", tmp_path / "canary"
    neighbour.write_text("", encoding="utf-8")
    script.write_text(f"import beside_this_test\n{LOADER}", encoding="utf-8")
    agreed = to_files(script, neighbour)
    evil(neighbour, canary)
    with held.under(agreed), pytest.raises(held.NotAgreed, match="beside_this_test"):
        list(files.read(str(script), ["x"]))
    assert not canary.exists()


def test_compiled_python_beside_a_script_is_not_run(tmp_path: Path, script: Path) -> None:
    """Its name, its size and its time say that it was made from this very text."""
    canary, other = tmp_path / "canary", tmp_path / "other.py"
    text = f"open({str(canary)!r}, 'w').close()\n{LOADER}"
    other.write_text(text, encoding="utf-8")
    script.write_text(LOADER + "#" * (len(text) - len(LOADER)), encoding="utf-8")
    shutil.copystat(script, other)
    cached = py_compile.compile(str(other), dfile=str(script), doraise=True)
    assert cached is not None
    (script.parent / "__pycache__").mkdir(exist_ok=True)
    shutil.copyfile(
        cached, script.parent / "__pycache__" / Path(cached).name.replace("other", "loader")
    )
    with held.under(to_files(script)):
        assert len(list(files.read(str(script), ["x"]))) == 1
    assert not canary.exists()


def test_a_compiled_module_is_loaded_as_it_was_agreed_to_or_not_at_all(
    tmp_path: Path, script: Path
) -> None:
    """A ``.pyc`` without its text, and a library in place of a text: neither was digested, and each
    could be swapped."""
    canary, text = tmp_path / "canary", tmp_path / "text.py"
    lone, library, neighbour = (
        tmp_path / "lone_pyc.pyc",
        tmp_path / "lone_so.so",
        tmp_path / "lone_text.py",
    )

    def compiled(said: str) -> None:
        text.write_text(said, encoding="utf-8")
        py_compile.compile(str(text), cfile=str(lone), doraise=True)

    def load(name: str, *agreed: Path) -> None:
        script.write_text(f"import {name}\n{LOADER}", encoding="utf-8")
        sys.modules.pop(name, None)
        with held.under(to_files(script, *agreed)):
            assert len(list(files.read(str(script), ["x"]))) == 1

    compiled("")
    load("lone_pyc", lone)
    before = to_files(lone).permits
    compiled(f"open({str(canary)!r}, 'w').close()")
    with pytest.raises(held.NotAgreed, match="nobody agreed"):
        load("lone_pyc")
    sys.modules.pop("lone_pyc", None)
    both = Consent((*before, *to_files(script).permits))
    with held.under(both), pytest.raises(held.NotAgreed, match="has changed"):
        list(files.read(str(script), ["x"]))
    neighbour.write_text("", encoding="utf-8")
    load("lone_text", neighbour)
    shutil.copyfile(lone, neighbour.with_suffix(".so"))
    with pytest.raises(held.NotAgreed, match=r"lone_text\.so"):
        load("lone_text", neighbour)
    library.write_bytes(b"no library")
    with pytest.raises(InputProblem, match="held-"):  # a private copy of it is tried
        load("lone_so", library)
    assert not canary.exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_library_that_was_swapped_is_not_loaded(tmp_path: Path) -> None:
    library, canary, source = tmp_path / "ops.so", tmp_path / "canary", tmp_path / "ops.c"
    library.write_bytes(b"as it was")
    agreed = to_files(library)
    source.write_text(
        f'#include <stdio.h>\n__attribute__((constructor)) void ran(void) {{ fclose(fopen("{canary}", "w")); }}\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with held.under(agreed), pytest.raises(held.NotAgreed):
        backends.make(f"onnxruntime:custom_ops={library}")
    assert not canary.exists()
