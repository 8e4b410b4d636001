"""A session whose artifacts have a budget: what goes is missed by nobody."""

from pathlib import Path

import pytest


def files(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_session_that_keeps_next_to_nothing_finds_the_same(
    narrowdown, shapes, tmp_path: Path
) -> None:
    """Each candidate leaves what the checker has printed. A budget of one byte: it goes, is said to
    go, and the case is found."""
    check = "sh -c 'wc -c < {model}; grep -q Pad {model}'"
    words = ["step", "reduce", shapes[0], "--check", check, "--fail-code", "0", "--jobs", "1"]
    whole, small = tmp_path / "whole", tmp_path / "small"
    assert narrowdown(*words, "--session", whole).code == 0
    ran = narrowdown(*words, "--artifact-bytes", "1", "--session", small)
    assert ran.code == 0, ran.out
    assert (
        "artifacts and logs were over 1 bytes (--artifact-bytes), so these are gone: " in ran.said
    )
    assert "outputs of checkers" in ran.said
    assert len(files(small / "artifacts")) < len(files(whole / "artifacts"))
    assert (
        narrowdown("show", small, "--canonical").out == narrowdown("show", whole, "--canonical").out
    )
    assert (small / "reduce.onnx").read_bytes() == (whole / "reduce.onnx").read_bytes()
    assert narrowdown("replay", small, "--dry").code == 0


@pytest.mark.slow
def test_files_that_are_gone_are_made_again_on_the_way(narrowdown, shapes, tmp_path: Path) -> None:
    """Back to the first question with no artifact left, and walked again: what the bundle needs is
    made again, what was measured is not measured again, and nothing is decided otherwise."""
    model, inputs = shapes
    place = tmp_path / "s"
    words = ["--tolerance", "1e-3", "--jobs", "1"]
    assert narrowdown("run", model, "--inputs", inputs, *words, "--session", place).code == 0
    before, bundle = narrowdown("show", place, "--canonical").out, files(place / "case")
    for path in (place / "artifacts").glob("*/*"):
        path.unlink()
    ran = narrowdown("resume", place, "--rewind", "reproduce")
    assert ran.code == 0, ran.out + ran.err
    assert narrowdown("show", place, "--canonical").out == before
    assert files(place / "case") == bundle
    assert narrowdown("replay", place, "--dry").code == 0
    assert narrowdown("replay", place).code == 0
