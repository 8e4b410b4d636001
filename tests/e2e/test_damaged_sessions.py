"""A session in which files are cut short, changed or gone: each is named, and a repaired copy goes
on to the same end."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from . import tiny

SCRIPT = Path(sys.executable).with_name("narrowdown")
PRODUCT = {"w": tiny.weights(64, 64, scale=0.1)}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model, session) that waits for a person behind its first step; the model keeps its weights
    in a file of their own."""
    folder = tmp_path_factory.mktemp("original")
    model = tiny.save(
        folder / "product.onnx",
        [
            tiny.helper.make_node("MatMul", ["x", "w"], ["h"]),
            tiny.helper.make_node("Tanh", ["h"], ["y"]),
        ],
        {"x": [1, 64]},
        {"y": [1, 64]},
        PRODUCT,
    )
    (folder / "answers.yaml").write_text("reproduce: ask\n")
    words = [
        "run",
        model,
        "--answers",
        folder / "answers.yaml",
        "--display",
        "none",
        "--session",
        folder / "s",
    ]
    environment = {
        **os.environ,
        "NARROWDOWN_HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    done = subprocess.run(
        [SCRIPT, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    return model, folder / "s"


@pytest.fixture
def halfway(original: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(original[1], tmp_path / "s"))


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def one(session: Path, pattern: str) -> Path:
    return max(session.glob(pattern), key=lambda p: p.stat().st_size)


WEIGHTS = f"models/weights/{'[0-9a-f]' * 64}.bin"
NEEDED = {
    "weights": (WEIGHTS, flip),
    "weights cut": (WEIGHTS, lambda p: p.write_bytes(p.read_bytes()[:-9])),
    "model": ("models/*.onnx", flip),
    "inputs": ("inputs/*/*.npy", flip),
    "index of the inputs": ("inputs/*/index.json", flip),
}


@pytest.mark.parametrize(
    "kind",
    [
        "weights",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in NEEDED if kind != "weights"),
    ],
)
def test_what_every_step_needs_is_named_and_made_again_in_a_copy(
    narrowdown, halfway: Path, kind: str
) -> None:
    pattern, hurt = NEEDED[kind]
    path = one(halfway, pattern)
    whole = path.read_bytes()
    hurt(path)
    broken, name = path.read_bytes(), str(path.relative_to(halfway))
    ran = narrowdown("resume", halfway, "--display", "none")
    assert ran.code == 4
    assert (
        f"The session's file '{name}' is damaged: its bytes are not those that were written."
        in ran.err
    )
    assert "'narrowdown resume SESSION --repair' goes on with a copy" in ran.err
    ran = narrowdown("replay", halfway)
    assert (ran.code, f"The session's file '{name}' is damaged" in ran.err) == (4, True), ran.err
    ran = narrowdown("resume", halfway, "--repair", "--display", "plain")
    assert ran.code == 10, ran.err
    assert f"narrowdown: damaged: {name}" in ran.err
    assert " gone and w" in ran.said
    assert (halfway.with_name("s-repaired-1") / name).read_bytes() == whole
    assert path.read_bytes() == broken, "the damaged session itself is left as it was"


@pytest.mark.slow
def test_what_is_gone_is_made_again_only_from_the_same_files(
    narrowdown, original: tuple[Path, Path], halfway: Path
) -> None:
    shutil.rmtree(halfway / "models")
    model = original[0]
    whole = model.read_bytes()
    copy = f"opy the whole session folder ('{halfway}') again"
    try:
        model.write_bytes(whole.replace(b"product", b"pradact"))
        for words in (["replay"], ["resume", "--display", "none"]):
            ran = narrowdown(*words, halfway)
            assert ran.code == 4
            assert f"is gone. It was made from '{model}', which is another one now." in ran.err
            assert f"c{copy}, or begin a new session." in ran.err
        model.unlink()
        for words in (["replay"], ["resume", "--display", "none"]):
            ran = narrowdown(*words, halfway)
            assert ran.code == 4
            assert "It could not be made again: There is no file" in ran.err
            assert f"C{copy}." in ran.err
    finally:
        model.write_bytes(whole)
    assert narrowdown("resume", halfway, "--display", "none").code == 10


@pytest.mark.parametrize("gone", ["inputs", "inputs/*/*.npy", "models"])
def test_a_replay_makes_again_what_is_gone(narrowdown, halfway: Path, gone: str) -> None:
    """In its own copy. Each line said that a file is gone, and not what to do."""
    for path in list(halfway.glob(gone)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    left = sorted(halfway.rglob("*"))
    ran = narrowdown("replay", halfway)
    assert ran.code == 0, ran.out + ran.err
    said = [line for line in ran.err.splitlines() if "of the session w" in line]
    assert len(said) == 1
    assert f"narrowdown: '{gone.partition('/')[0]}/" in said[0]
    assert said[0].endswith("gone and was made again.") or said[0].endswith(
        "gone and were made again."
    )
    assert sorted(halfway.rglob("*")) == left


def test_what_is_kept_for_speed_or_for_now_is_made_again(narrowdown, halfway: Path) -> None:
    """Captured values, artifacts, the lock's note and the snapshot: the session goes on, and says
    what it found."""
    damaged = [one(halfway, "captures/*/*/*.npy"), one(halfway, "artifacts/*/*")]
    for path in damaged:
        flip(path)
    (halfway / "lock").write_bytes(b"\xff{")
    (halfway / "progress.json").write_bytes(b"\xff{")
    ran = narrowdown("resume", halfway, "--display", "plain")
    assert ran.code == 10, ran.err
    for path in damaged:
        assert str(path.relative_to(halfway))[:40] in ran.out, ran.out


def test_a_journal_that_lost_its_last_lines_says_so(narrowdown, halfway: Path) -> None:
    journal = halfway / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-3]))
    ran = narrowdown("resume", halfway, "--display", "plain")
    assert ran.code == 10
    said = f"The journal ends at event {len(lines) - 3}, and {len(lines)} were written: the last 3 events of it are gone."
    assert said in ran.said


def test_the_description_and_the_flow_are_what_was_written(narrowdown, halfway: Path) -> None:
    about, flow = halfway / "session.json", halfway / "flow.yaml"
    text = about.read_text()
    about.write_text(text.replace("product.onnx", "pr0duct.onnx"))
    ran = narrowdown("show", halfway)
    assert (ran.code, f"{about} is damaged: its checksum does not match." in ran.err) == (4, True)
    about.write_text(text)
    flow.write_text(flow.read_text().replace("max_visits: 3", "max_visits: 9") + "\n")
    ran = narrowdown("show", halfway)
    assert (
        ran.code,
        f"{flow} is damaged or gone: it is not the flow that this session was begun with."
        in ran.err,
    ) == (
        4,
        True,
    )
    ran = narrowdown("resume", halfway, "--repair", "--display", "none")
    assert ran.code == 10, ran.err
    assert "narrowdown: damaged: flow.yaml" in ran.err


@pytest.mark.parametrize(
    "name",
    [
        "lock",
        "journal.jsonl",
        "flow.yaml",
        "logs/runner.log",
        "models/weights/x.bin",
        "report.html",
    ],
)
def test_a_link_in_a_session_is_not_followed(
    narrowdown, halfway: Path, tmp_path: Path, name: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (halfway / name).unlink(missing_ok=True)
    (halfway / name).symlink_to(precious)
    for words in (
        ["resume", halfway],
        ["resume", halfway, "--repair"],
        ["export", halfway, "-o", tmp_path / "c"],
        ["show", halfway],
        ["watch", halfway, "--display", "none"],
    ):
        ran = narrowdown(*words)
        assert (ran.code, f"'{halfway / name}' is a link, and no session holds any" in ran.err) == (
            4,
            True,
        ), ran.err
    assert precious.read_text() == "mine"


@pytest.mark.slow
def test_any_byte_of_any_file(narrowdown, halfway: Path, tmp_path: Path) -> None:
    """Whatever is cut or flipped: the same end, or one sentence with the file's name and a repaired
    copy with the same end."""
    assert (
        narrowdown(
            "resume", shutil.copytree(halfway, tmp_path / "straight"), "--display", "none"
        ).code
        == 10
    )
    route = narrowdown("show", tmp_path / "straight", "--canonical").out
    chance = random.Random(8)
    files = [
        p.relative_to(halfway)
        for p in sorted(halfway.rglob("*"))
        if p.is_file() and "logs" not in p.parts
    ]
    for number in range(24):
        session = Path(shutil.copytree(halfway, tmp_path / f"hurt-{number}"))
        name = chance.choice(files)
        hurt: list[Callable[[Path], object]] = [
            lambda p: flip(p, chance.randrange(p.stat().st_size)),
            lambda p: p.write_bytes(p.read_bytes()[: chance.randrange(p.stat().st_size)]),
        ]
        if (session / name).stat().st_size:
            chance.choice(hurt)(session / name)
        ran = narrowdown("resume", session, "--display", "none")
        if ran.code == 4:
            assert name.name in ran.err, (name, ran.err)
            ran = narrowdown("resume", session, "--repair", "--display", "none")
            if name.name == "session.json":
                assert ran.code == 4
                continue
            session = session.with_name(f"{session.name}-repaired-1")
        assert ran.code == 10, (name, ran.err)
        assert narrowdown("show", session, "--canonical").out == route, name
