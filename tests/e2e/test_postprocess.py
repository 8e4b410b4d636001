"""``--postprocess``: the same script and the same top-K in Polygraphy and here; and what they
decide in a whole session."""

import argparse
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.consent import POSTPROCESS, Consent, Permit
from narrowdown.engines.data import held
from narrowdown.engines.data.postprocess import apply_postprocess
from narrowdown.engines.store import digest_file
from narrowdown.wizard.report.read import read

from . import tiny
from .conftest import check

FP16 = "emulate:precision=fp16"
# Raw scores beyond FP16 for the rows' first column; the order of the others is plain.
SCRIPT = """
import numpy as np

def postprocess_outputs(iter_result):
    for name, output in iter_result.items():
        iter_result[name] = output.argmax(-1)
    return iter_result


class Clipped:
    def __call__(self, iter_result):
        made = type(iter_result)({"clipped": np.minimum(iter_result["y"], 1000.0)}, runner_name=iter_result.runner_name)
        return made
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x * 1000 + 300: large numbers, rounded in FP16 by far more than the tolerance of FP32
    allows; their order stays."""
    nodes = [
        helper.make_node("Mul", ["x", "gain"], ["loud"]),
        helper.make_node("Add", ["loud", "shift"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(np.float32([1000]), "gain"), numpy_helper.from_array(np.float32([300]), "shift")],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    x = np.random.default_rng(0).permuted(np.tile(np.linspace(0.1, 1.7, 8), (2, 1)), axis=1)
    np.savez(tmp_path / "in.npz", x=x.astype(np.float32))
    (tmp_path / "post.py").write_text(SCRIPT)
    return tmp_path / "m.onnx"


STRICT = ("--engine", FP16, "--inputs", "in.npz", "--tolerance", "1e-7")


@pytest.mark.filterwarnings("ignore:SelectableGroups:DeprecationWarning")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("--postprocess-func-script", "post.py"), ("post.py",)),
        (("--postprocess-func-script", "post.py:Clipped"), ("post.py:Clipped",)),
        (("--postprocess", "top-3"), ("top-3",)),
        (("--postprocess", "y:top-2,axis=0"), ("y:top-2,axis=0",)),
    ],
    ids=" ".join,
)
def test_the_same_arrays_as_polygraphy(theirs, ours, model, tmp_path, monkeypatch) -> None:
    comparator = pytest.importorskip("polygraphy.comparator")
    from polygraphy.backend.common import InvokeFromScript
    from polygraphy.tools.args import ComparatorPostprocessArgs

    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(1).permuted(np.arange(64, dtype=np.float32)).reshape(4, 16) * 50
    # Polygraphy's own reading of its own words, and its own call.
    parser = argparse.ArgumentParser()
    words = ComparatorPostprocessArgs()
    words.add_parser_args(parser)
    words.parse(parser.parse_args(theirs))
    function = (
        InvokeFromScript(words.postprocess_func_script, words.postprocess_func_name)
        if words.postprocess_func_script
        else comparator.TopKPostprocessFunc(words.postprocess)
    )
    results = comparator.RunResults(
        [("r", [comparator.IterationResult({"y": values.copy()}, runner_name="r")])]
    )
    right = dict(comparator.Comparator.postprocess(results, function)["r"][0].items())
    script = tmp_path / "post.py"
    files = {"post.py": digest_file(script)} if script.is_file() else {}
    with held.under(Consent((Permit(POSTPROCESS, "post.py", files=files),))):
        made = apply_postprocess(ours, {"y": values}, "r", folder=str(tmp_path))
    assert made.keys() == right.keys()
    for name, value in right.items():
        assert (made[name].dtype, made[name].shape) == (value.dtype, value.shape)
        assert np.array_equal(made[name], value)


@pytest.mark.slow
def test_raw_outputs_differ_and_their_order_does_not(model, narrowdown) -> None:
    raw = narrowdown("step", "compare", model, *STRICT, "--json")
    assert raw.json()["verdict"] == "fails", raw.err
    for chosen in (("post.py",), ("y:top-1", "top-2,axis=1")):
        said = narrowdown("step", "compare", model, *STRICT, "--postprocess", *chosen, "--json")
        assert said.json()["verdict"] == "passes", (chosen, said.out, said.err)
        assert said.json()["error"] == 0


@pytest.mark.slow
def test_a_failure_of_what_the_script_names_is_narrowed_down(narrowdown, tmp_path) -> None:
    """The output that fails is none of the model's own; the same part is found; report, bundle and
    replay work."""
    (tmp_path / "post.py").write_text(
        "def renamed(r):\n    return {'score': r['y'] * 2, 'rest': r['z']}\n"
    )
    words = ("run", tiny.two_norms(tmp_path), "--inputs", tiny.rows(tmp_path), "--engine", FP16)
    narrowdown(*words, "--session", "raw")
    ran = narrowdown(*words, "--postprocess", "post.py:renamed", "--session", "s")
    assert ran.code == 0, ran.out + ran.err
    raw, ours = (read(tmp_path / name).state.findings for name in ("raw", "s"))
    assert ours.signature.outputs == ("score",)
    assert (
        [(c.case.ops, c.cause) for c in ours.culprits]
        == [(c.case.ops, c.cause) for c in raw.culprits]
        != []
    )
    assert ours.workaround.keep_names == raw.workaround.keep_names
    assert "compared after --postprocess" in narrowdown("report", "s", "--format", "md").out
    bundled = narrowdown("export", "s", "-o", "case")
    assert bundled.code == 0, bundled.err
    assert check(tmp_path / "case").returncode == 1, "the case fails by its own check"
    replayed = narrowdown("replay", "s")
    assert replayed.code == 0, replayed.out + replayed.err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return r['absent']", "'bad.py', line 3, stopped with KeyError"),
        ("os._exit(7)", "The postprocess script did not come to an end."),
    ],
    ids=["it fails", "it ends its process"],
)
def test_a_script_that_fails_is_the_users_to_mend_and_no_crash_of_the_engine(
    model, narrowdown, tmp_path, body, said
) -> None:
    (tmp_path / "bad.py").write_text(f"import os\ndef postprocess_outputs(r):\n    {body}\n")
    ran = narrowdown("step", "compare", model, *STRICT, "--postprocess", "bad.py")
    assert ran.code == 2, ran.out + ran.err
    assert said in ran.err + ran.out


def test_a_strangers_script_is_not_run(model, narrowdown, tmp_path, surroundings) -> None:
    (tmp_path / "loud.py").write_text(
        "open('ran', 'w')\ndef postprocess_outputs(r):\n    return r\n"
    )
    made = narrowdown(
        "step", "compare", model, *STRICT, "--postprocess", "loud.py", "--session", "s"
    )
    assert made.code in (0, 10), made.err
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    shutil.rmtree(Path(surroundings["XDG_STATE_HOME"]))  # now it is somebody else's
    refused = narrowdown("replay", "s")
    assert refused.code == 3, refused.out + refused.err
    assert "postprocess script" in refused.err
    assert not (tmp_path / "ran").exists()
    agreed = narrowdown("replay", "s", "--yes-run-scripts", "all")
    assert agreed.code == 0, agreed.out + agreed.err
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--postprocess", "absent.py"), "There is no postprocess script 'absent.py'"),
        (("--postprocess", "post.txt"), "neither SCRIPT.py[:function] nor"),
        (("--postprocess", "top-0"), "neither SCRIPT.py[:function] nor"),
        (("--postprocess", "post.py", "--postprocess", "top-1"), "one script, or top-K"),
        (("--postprocess", "top-1", "top-2"), "given twice for all"),
        (
            ("--postprocess", "top-1", "--check", "true"),
            "--check takes the place of the comparison, so --postprocess",
        ),
    ],
)
def test_words_that_are_refused(words, said, model, narrowdown) -> None:
    ran = narrowdown("step", "compare", model, *words)
    assert ran.code == 2
    assert said in ran.err


def test_a_bound_on_what_is_not_given_is_refused(model, narrowdown) -> None:
    words = (
        "step",
        "compare",
        model,
        "--engine",
        FP16,
        "--inputs",
        "in.npz",
        "--postprocess",
        "post.py:Clipped",
    )
    ran = narrowdown(*words, "--tolerance", "clipped:1", "--tolerance", "y:1e-7")
    assert ran.code == 2
    assert "no output 'y'" in ran.err + ran.out
    assert "It has 'clipped'" in ran.err + ran.out
