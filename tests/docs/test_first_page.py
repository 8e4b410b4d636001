"""The first page: what is asked most is found by its words and in two clicks; its badges are
true."""

import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

from .shown import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
# What people ask, and a word of the answer.
QUESTIONS = {
    "recipes.md#two-inputs-from-pytorch-tensors": "np.savez",
    "recipes.md#the-reference-is-suspect-now-what": "reference:precision=fp64",
    "recipes.md#dynamic-axes-dynamic-shapes": "min_shapes",
    "recipes.md#i-only-have-a-plan-tensorrt-engine": "tensorrt:plan",
    "recipes.md#a-gpu-machine-over-ssh": "--detach",
    "recipes.md#how-much-disk-does-it-take": "--capture-bytes",
    "recipes.md#github-actions": "check.py",
    "recipes.md#keep-layers-in-fp32-on-tensorrt": "--layerPrecisions",
    "recipes.md#c": "AddConfigEntry",
    "recipes.md#docker-nvidias-container": "docker run",
}
SEARCHED = (
    "dynamic", "ssh", "disk", "NaN", "Inf", "batch", "Docker", "GitHub Actions", "C++", "PyTorch", "numpy", ".plan", "FP32",
    "INT8", "Polygraphy", "images", "Kubernetes", "Jetson", "exit code", "quantized", "keys", "JSON",
)  # fmt: skip


def links(page: Path) -> dict[Path, set[str]]:
    """Page -> the anchors in it that this page leads to."""
    found: dict[Path, set[str]] = {}
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        place, _, part = link.partition("#")
        if "://" not in place:
            found.setdefault((page.parent / place).resolve() if place else page, set()).add(part)
    return found


def section(page: Path, anchor: str) -> str:
    """A page, or the part of it below one heading."""
    text = page.read_text(encoding="utf-8")
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:] if anchor else ():
        if re.sub(r"[^\w -]", "", part.splitlines()[0][3:].lower()).replace(" ", "-") == anchor:
            return part
    return "" if anchor else text


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_two_clicks_from_the_first_page(question: str) -> None:
    name, _, anchor = question.partition("#")
    page = (ROOT / "docs" / name).resolve()
    first = links(ROOT / "README.md")
    second = [links(near) for near in first if near.suffix == ".md"]
    assert any(anchor in found.get(page, ()) for found in (first, *second))
    assert QUESTIONS[question] in section(page, anchor)


@pytest.mark.parametrize("word", SEARCHED)
def test_a_word_that_people_search_for_finds_its_page(word: str) -> None:
    """A row of the index has it, and what that row leads to as well."""
    index = ROOT / "docs" / "README.md"
    rows = [row for row in index.read_text(encoding="utf-8").splitlines() if row.startswith("|")]
    targets = [link for row in rows if word.lower() in row.lower() for link in LINK.findall(row)]
    texts = [
        section(index.parent / place, part)
        for place, _, part in (t.partition("#") for t in targets)
    ]
    assert any(word.lower() in text.lower() for text in texts)


def test_the_badges_are_true() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [
        line.rpartition(" ")[2]
        for line in project["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    badges = [unquote(b) for b in re.findall(r"img\.shields\.io/badge/([^)]+)", text)]
    assert badges == [
        f"python-{'_|_'.join(versions)}-blue",
        f"licence-{project['license'].replace('-', '--')}-blue",
        "platform-Linux-blue",
    ]
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    assert len(text.split()) <= 700, "it is read in half a minute"
