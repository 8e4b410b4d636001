"""Sessions that are damaged, of another version, in part, closed to us, or on a full disk: one
sentence each, and a session that resumes to the same end once the cause is gone."""

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from narrowdown.wizard.session.events import ProbeFinished
from narrowdown.wizard.session.journal import read

from . import tiny

SCRIPT = Path(sys.executable).with_name("narrowdown")
LOOKS = (
    ["show"],
    ["report"],
    ["resume"],
    ["watch"],
    ["replay"],
    ["replay", "--dry"],
    ["export", "-o", "case"],
)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A session at its end (not reproduced), and the environment that it was made in."""
    folder = tmp_path_factory.mktemp("walked")
    model = tiny.faultless(folder)
    environment = {
        **os.environ,
        "NARROWDOWN_HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    words = [SCRIPT, "run", model, "--display", "none", "--session", folder / "s"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 10, done.stderr
    return folder / "s", environment


@pytest.fixture
def session(walked: tuple[Path, dict[str, str]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(walked[0], tmp_path / "copy"))


def every_look(narrowdown, session: Path, code: int, said: str) -> None:
    before = (
        (session / "journal.jsonl").read_bytes() if (session / "journal.jsonl").is_file() else b""
    )
    for command, *rest in LOOKS:
        display = ["--display", "none"] if command in ("resume", "watch") else []
        ran = narrowdown(command, session, *rest, *display)
        assert ran.code == code, (command, ran.out, ran.err)
        assert said in ran.err, (command, ran.err)
        assert ran.err.count("\n") == 1
    if before:
        assert (session / "journal.jsonl").read_bytes() == before, "looking changes nothing"


def newer(line: bytes) -> bytes:
    event = json.loads(line)
    del event["crc"]
    body = json.dumps({**event, "v": 99}, separators=(",", ":")).encode()
    return b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def test_a_journal_of_a_newer_version(narrowdown, session: Path) -> None:
    journal = session / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], newer(lines[3]), *lines[4:]]))
    every_look(
        narrowdown,
        session,
        4,
        "was written by a newer narrowdown (format 99; this one reads up to 1). Install that version",
    )
    ran = narrowdown("resume", session, "--repair", "--display", "none")
    assert ran.code == 4
    assert f"{session}/journal.jsonl was written by a newer" in ran.err
    assert not session.with_name("copy-repaired-1").exists(), "nothing to repair, so no copy"


def test_a_description_of_a_newer_version_or_damaged(narrowdown, session: Path) -> None:
    about = session / "session.json"
    text = about.read_text()
    about.write_text(json.dumps({**json.loads(text), "format": 9}))
    every_look(
        narrowdown,
        session,
        4,
        "session.json was written by a newer narrowdown (format 9; this one reads up to 1)",
    )
    for data in (b"{", b"[]", b"\xff", b"{}"):
        about.write_bytes(data)
        ran = narrowdown("show", session)
        assert (ran.code, f"{about} is damaged: " in ran.err) == (4, True), ran.err
    about.write_text(text)
    assert narrowdown("resume", session, "--display", "none").code == 10


def test_a_journal_that_is_damaged_in_its_middle(narrowdown, session: Path) -> None:
    journal = session / "journal.jsonl"
    data = bytearray(journal.read_bytes())
    data[sum(map(len, bytes(data).splitlines(keepends=True)[:5])) + 10] ^= 1
    journal.write_bytes(data)
    every_look(
        narrowdown,
        session,
        4,
        f"{journal} is damaged at line 6: its checksum does not match. Nothing was changed; 'narrowdown resume",
    )
    ran = narrowdown("resume", session, "--repair", "--display", "none")
    assert ran.code == 10, "a copy goes on to the same end"
    copy = session.with_name("copy-repaired-1")
    assert f"working on a repaired copy in {copy}" in ran.err
    assert (copy / "journal.lost").stat().st_size
    assert journal.read_bytes() == bytes(data)


def test_a_journal_with_a_torn_tail(narrowdown, session: Path) -> None:
    journal = session / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    ran = narrowdown("resume", session, "--display", "plain")
    assert ran.code == 10
    assert "it was set aside as journal.torn-1" in ran.said
    assert (session / "journal.torn-1").read_bytes()


def test_a_journal_that_is_gone(narrowdown, session: Path) -> None:
    journal = session / "journal.jsonl"
    journal.write_bytes(b"")
    assert "The session has only begun" in narrowdown("show", session).out
    journal.unlink()
    ran = narrowdown("resume", session, "--display", "none")
    assert ran.code == 10, "it begins anew"
    assert f"the journal of '{session}' is gone or empty" in ran.err


def test_a_flow_that_is_gone(narrowdown, session: Path) -> None:
    flow = session / "flow.yaml"
    flow.rename(session / "aside")
    every_look(narrowdown, session, 4, f"{flow} is damaged or gone: ")
    (session / "aside").rename(flow)
    assert narrowdown("show", session).code == 0


def test_a_folder_that_is_taken(
    narrowdown, session: Path, tmp_path: Path, walked: tuple[Path, dict[str, str]]
) -> None:
    model = walked[0].parent / "faultless.onnx"
    other = tmp_path / "other.onnx"
    shutil.copy(model, other)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("x")
    for place, given, said in (
        (session, other, "holds a session of another problem (model differs); name a new folder"),
        (tmp_path / "full", model, "is not empty and holds no session; name a new folder."),
        (other, model, "is a file and no folder; name a new folder."),
    ):
        ran = narrowdown("run", given, "--session", place)
        assert (ran.code, f"'{place}' {said}" in ran.err) == (2, True), ran.err
    assert (tmp_path / "full/mine").read_text() == "x"


def test_a_home_that_is_no_folder(narrowdown, tmp_path: Path, surroundings: dict[str, str]) -> None:
    (tmp_path / "file").write_text("")
    model = tiny.faultless(tmp_path)
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        surroundings["NARROWDOWN_HOME"] = str(home)
        for words, code in ((["sessions"], 4), (["run", model], 4), (["show", "abc"], 2)):
            ran = narrowdown(*words)
            assert (
                ran.code,
                f"'{home}' is a file, or below one. Set NARROWDOWN_HOME" in ran.err,
            ) == (code, True), ran.err


# -- what the system refuses: in a process of its own, which may not do what root may


# Drops what lets root pass over modes (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH), and becomes the
# command behind it.
WITHOUT_RIGHTS = """
import ctypes, os, sys
for capability in (1, 2):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Callable[[Path, int], Path]]:
    """Close a path to everyone; opened again at the end, so that it can be cleaned away."""
    shut: list[tuple[Path, int]] = []

    def close(path: Path, mode: int) -> Path:
        shut.append((path, path.stat().st_mode))
        path.chmod(mode)
        return path

    yield close
    for path, mode in reversed(shut):
        path.chmod(mode)


def refused(environment: dict[str, str], *words: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WITHOUT_RIGHTS, SCRIPT, *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_what_there_is_no_permission_for(
    session: Path, tmp_path: Path, closed, surroundings: dict[str, str]
) -> None:
    model = tiny.faultless(tmp_path)
    secret = closed(tiny.feeds(tmp_path / "secret.npz"), 0)
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    closed(shelf, 0o555)
    for words, place in (
        (["run", model, "--inputs", secret], secret),
        (["run", model, "--session", shelf / "s"], shelf / "s"),
        (["report", session, "-o", shelf / "r.html"], shelf),
        (["step", "sanitize", model, "-o", shelf / "x.onnx"], shelf),
    ):
        code, said = refused(surroundings, *words)
        assert code == 4, said
        assert f"'{place}'" in said
        assert "permission" in said
    code, said = refused({**surroundings, "NARROWDOWN_HOME": str(shelf / "home")}, "run", model)
    assert (code, f"No session can be made in '{shelf}/home': there is no permission" in said) == (
        4,
        True,
    ), said
    closed(session / "logs" / "runner.log", 0o444)
    closed(session / "logs", 0o555)
    code, said = refused(surroundings, "resume", session, "--display", "none")
    told = f"no permission to write into the session '{session}'. Copy its folder to where you may write, and resume the copy"
    assert (code, told in said) == (4, True), said
    assert refused(surroundings, "show", session)[0] == 0, "looking needs no right to write"
    closed(model, 0)
    code, said = refused(surroundings, "run", model)
    assert (code, f"There is no permission for '{model}'" in said) == (4, True), said


def in_a_small_disk(place: Path) -> list[str]:
    """The words before a command that give it a disk of 600 KiB at ``place``, in a namespace of its
    own."""
    return [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=600k none "{place}" && "$0" "$@"',
    ]


def small_disks() -> bool:
    if not shutil.which("unshare"):
        return False
    place = Path("/mnt") if Path("/mnt").is_dir() else Path("/tmp")
    return (
        subprocess.run(
            [*in_a_small_disk(place), "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.skipif(not small_disks(), reason="this machine mounts no tmpfs for us")
@pytest.mark.parametrize(
    ("left", "begun"),
    [(8, False), pytest.param(64, True, marks=pytest.mark.slow)],
    ids=["at creation", "in a step"],
)
def test_a_full_disk_that_becomes_free_again(
    tmp_path: Path, surroundings: dict[str, str], left: int, begun: bool
) -> None:
    model, disk, said = tiny.faultless(tmp_path), tmp_path / "disk", tmp_path / "said"
    disk.mkdir()
    (tmp_path / "walk.sh").write_text(
        f'dd if=/dev/zero of="{disk}/ballast" bs=1k count=$((600 - {left})) 2>/dev/null\n'
        f'"{SCRIPT}" run "{model}" --session "{disk}/s" --display none 2>"{said}"; echo $?\n'
        f'ls "{disk}"; rm "{disk}/ballast"\n'
        f'test -d "{disk}/s" || exit 0\n'
        f'"{SCRIPT}" resume "{disk}/s" --display none; echo $?\n'
    )
    words = [*in_a_small_disk(disk), "sh", str(tmp_path / "walk.sh")]
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False)
    # A session that could not begin leaves nothing in the way; one that had begun goes on to its
    # end.
    assert done.stdout.split() == (["4", "ballast", "s", "10"] if begun else ["4", "ballast"]), (
        done.stdout + done.stderr
    )
    assert re.search(
        rf"The disk of '{disk}/s[\w./]*' is full. Make room there", said.read_text()
    ), "the session, or what of it was being written"


@pytest.mark.slow
@pytest.mark.skipif(not small_disks(), reason="this machine mounts no tmpfs for us")
def test_a_disk_that_is_too_small_for_the_next_step(
    tmp_path: Path, surroundings: dict[str, str]
) -> None:
    """A model of one MiB is to be taken in where 0.9 are free: that is said, and goes on later."""
    product = tiny.helper.make_node("MatMul", ["x", "w"], ["y"])
    model = tiny.save(
        tmp_path / "wide.onnx",
        [product],
        {"x": [1, 512]},
        {"y": [1, 512]},
        {"w": tiny.weights(512, 512)},
    )
    disk, said = tmp_path / "disk", tmp_path / "said"
    disk.mkdir()
    words = f'--session "{disk}/s" --display none --engine fake:fault=wrong,size=1'
    (tmp_path / "walk.sh").write_text(
        f'mount -o remount,size=12m "{disk}"\n'
        f'dd if=/dev/zero of="{disk}/ballast" bs=1k count=11396 2>/dev/null\n'
        f'"{SCRIPT}" run "{model}" {words} 2>"{said}"; echo $?\n'
        f'"{SCRIPT}" resume "{disk}/s" --display none 2>>"{said}"; echo $?\n'
        f'rm "{disk}/ballast"\n'
        f'"{SCRIPT}" resume "{disk}/s" --display none; echo $?\n'
        f'"{SCRIPT}" show "{disk}/s"\n'
    )
    done = subprocess.run(
        [*in_a_small_disk(disk), "sh", str(tmp_path / "walk.sh")],
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split()[:3] == ["4", "4", "0"], done.stdout + done.stderr + said.read_text()
    assert said.read_text().count(f"The disk of '{disk}/s' is full. Make room there") == 2
    assert "Traceback" not in said.read_text() + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not small_disks(), reason="this machine mounts no tmpfs for us")
def test_a_disk_that_becomes_read_only_and_writable_again(
    tmp_path: Path, surroundings: dict[str, str]
) -> None:
    model, disk, said = tiny.faultless(tmp_path), tmp_path / "disk", tmp_path / "said"
    disk.mkdir()
    (tmp_path / "answers.yaml").write_text("reproduce: ask\n")
    (tmp_path / "walk.sh").write_text(
        f'mount -o remount,size=50m "{disk}"\n'
        f'"{SCRIPT}" run "{model}" --answers "{tmp_path}/answers.yaml" --session "{disk}/s" --display none; echo $?\n'
        # The runner may be a moment behind the command.
        f'for i in $(seq 100); do mount -o remount,ro "{disk}" 2>/dev/null && break; sleep 0.1; done\n'
        f'"{SCRIPT}" show "{disk}/s" >/dev/null; echo $?\n'
        f'"{SCRIPT}" resume "{disk}/s" --display none 2>"{said}"; echo $?\n'
        f'mount -o remount,rw "{disk}"\n'
        f'"{SCRIPT}" resume "{disk}/s" --display none; echo $?\n'
    )
    words = [*in_a_small_disk(disk), "sh", str(tmp_path / "walk.sh")]
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3", "0", "4", "10"], (
        done.stdout + done.stderr + said.read_text()
    )
    assert "is read-only" in said.read_text()
    assert "Traceback" not in said.read_text() + done.stderr


@pytest.mark.slow
def test_a_worker_that_finds_the_disk_full_says_nothing_of_the_candidate(
    narrowdown, tmp_path: Path, surroundings: dict[str, str]
) -> None:
    """A limit on the size of files stands in for the disk: the worker's model does not fit, the
    journal's lines do."""
    product = tiny.helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = {"w": tiny.weights(256, 256)}
    model = tiny.save(tmp_path / "wide.onnx", [product], {"x": [1, 256]}, {"y": [1, 256]}, weights)
    session = tmp_path / "s"
    limited = [
        "sh",
        "-c",
        'ulimit -f 200; exec "$0" "$@"',
        str(SCRIPT),
        "run",
        str(model),
        "--session",
        str(session),
    ]
    done = subprocess.run(limited, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert f"The file of '{session}" in done.stderr
    assert "may not grow any further (a limit of the shell, see ulimit -f)" in done.stderr
    finished = [
        event for event in read(session / "journal.jsonl") if isinstance(event, ProbeFinished)
    ]
    assert all(event.measurement is None or event.measurement.status == "ok" for event in finished)
    assert narrowdown("resume", session, "--display", "none").code == 10
