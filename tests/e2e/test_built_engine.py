"""An engine that was built elsewhere: it runs as it is, the flow builds the like from the model,
and says what that shows."""

from pathlib import Path

import pytest

from . import tiny
from .conftest import Narrowdown, Walk

BAD = r"fake:fault=wrong\,ops=Sqrt"


@pytest.mark.parametrize(
    ("rebuilt", "answer", "end", "said"),
    [
        (
            BAD,
            "alike",
            "rebuilt-fails",
            "It fails alike, built from the model as fake:fault=wrong,ops=Sqrt: ",
        ),
        (
            BAD + r"\,size=40",
            "alike",
            "rebuilt-fails",
            "It fails too, but not in the same way, built from the model as fake:",
        ),
        (
            "onnxruntime",
            "passes",
            "rebuilt-right",
            "the fault is in how the engine that you have was built",
        ),
        (
            r"fake:fault=build-failed\,at=build",
            "no",
            "unresolved",
            "cannot be built from the model here",
        ),
    ],
)
def test_the_like_of_it_is_built_and_compared(
    walk: Walk, models: Path, rebuilt: str, answer: str, end: str, said: str
) -> None:
    done = walk(tiny.norm(models), "--engine", f"fake:fault=wrong,ops=Sqrt,rebuilt={rebuilt}")
    assert done.answers() == [("reproduce", "as-built"), ("rebuild", answer)]
    assert (done.ran.code, done.reading.state.end) == (6, end)
    shown = " ".join(done.ran.out.split())
    assert said in shown
    assert ("narrowdown edit SESSION --engine fake:fault=wrong,ops=Sqrt" in shown) == (
        end == "rebuilt-fails"
    )


def test_one_that_passes_is_built_again_by_nobody(walk: Walk, models: Path) -> None:
    done = walk(tiny.norm(models), "--engine", "fake:rebuilt=onnxruntime")
    assert done.answers() == [("reproduce", "no")]


@pytest.mark.parametrize("step", ["reduce", "layerwise", "sanitize", "workaround"])
def test_a_step_that_takes_it_apart_says_what_to_build(
    narrowdown: Narrowdown, models: Path, step: str
) -> None:
    refused = narrowdown(
        "step", step, tiny.norm(models), "--engine", "fake:fault=wrong,ops=Sqrt,rebuilt=onnxruntime"
    )
    assert refused.code == 4
    assert "it runs as it is. Build the like from the model: --engine onnxruntime" in refused.err


def test_rebuild_is_for_what_was_built_elsewhere(narrowdown: Narrowdown, models: Path) -> None:
    refused = narrowdown(
        "step", "rebuild", tiny.norm(models), "--engine", "fake:fault=wrong,ops=Sqrt"
    )
    assert refused.code == 2
    assert "is built from the model already" in refused.err
