"""A demo that could show nothing here is refused with what to do; the others are not asked."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from narrowdown.wizard import Missing, demo

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("here", ["1.32.0", "1.40"])
def test_what_a_release_mended_is_no_demo_of_it(
    here: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "version", lambda _name: here)
    with pytest.raises(
        Missing,
        match=rf"ONNX Runtime {here} .*1\.32 fixed.*pip install 'onnxruntime<1\.32'",
    ):
        demo.problem("shapes", tmp_path)
    assert demo.problem("sort", tmp_path).engine.startswith("emulate")


@pytest.mark.parametrize("here", ["1.9.0", "1.31.1", None])
def test_an_older_or_unknown_release_is_tried(
    here: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def version(_name: str) -> str:
        if here is None:
            raise demo.PackageNotFoundError
        return here

    monkeypatch.setattr(demo, "version", version)
    assert demo.problem("shapes", tmp_path).engine == "onnxruntime:optimization=all"


@pytest.mark.skipif(not PROJECT.exists(), reason="the suite beside an installed wheel")
def test_the_demos_extra_brings_a_release_that_shows_the_first() -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (pinned,) = (r for r in map(Requirement, extras["demo"]) if r.name == "onnxruntime")
    assert not pinned.specifier.contains(demo.DEMOS["shapes"].mended)
    assert pinned.specifier.contains("1.31.1")
