"""Timings that outlive a session: read by no repetition, written by several programs at once, never
anybody else's."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import onnx
import pytest

from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.tensorrt import configure, kept_timings, network
from narrowdown.engines.backends.tensorrt.cuda import Device
from narrowdown.engines.backends.tensorrt.engine import Engine
from narrowdown.engines.backends.tensorrt.kept_timings import cache_file, keep_timings, read_timings
from narrowdown.engines.consent import NOTHING
from narrowdown.engines.data import held

from ....consents import to_files
from . import stand_in

GPU = Device("NVIDIA H200", "9.0", 1 << 37, "13.0")


class Config:
    """A configuration whose cache grows by a byte a build; ``unreadable``: it takes no cache that
    holds anything."""

    def __init__(self, unreadable: bool = False) -> None:
        self.flags: list[str] = []
        self.begun: bytes | None = None
        self._unreadable = unreadable

    def set_flag(self, flag: str) -> None:
        self.flags.append(flag)

    def create_timing_cache(self, content: bytes) -> Any:
        return None if content and self._unreadable else content

    def set_timing_cache(self, cache: bytes, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.begun = cache
        return True

    def get_timing_cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: memoryview((self.begun or b"") + b"x"))


def built(
    engine: Any, *, fresh: bool = False, whole: bool = True, config: Config | None = None
) -> Config:
    config = config or Config()
    engine._learn(config, engine._share(config, fresh), whole=whole)
    return config


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    def make() -> Any:
        made, _ = stand_in.engine({})
        made._file = tmp_path / "timings" / "here.cache"
        return made

    return make


def test_a_later_session_begins_with_what_an_earlier_one_learnt(engine: Any) -> None:
    first = engine()
    assert [built(first).begun, built(first).begun] == [b"", b"x"]
    assert built(engine()).begun == b"xx"


def test_a_repetition_reads_nothing_and_leaves_nothing(engine: Any) -> None:
    built(engine())
    later = engine()
    config = built(later, fresh=True)
    assert config.begun is None
    assert config.flags == ["DISABLE_TIMING_CACHE"]
    assert read_timings(later._file) == b"x"


@pytest.fixture
def build(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Build with these words of a request, on an engine of its own; the configuration that it was
    built with."""

    def asked(**request: Any) -> Config:
        made, config = engine(), Config()
        parsed = SimpleNamespace(network=None, skipped={}, heard={})
        monkeypatch.setattr(network, "parse_network", lambda *_: parsed)
        monkeypatch.setattr(configure, "configure_build", lambda *_: config)
        made._builder = SimpleNamespace(build_serialized_network=lambda *_: memoryview(b"1"))
        made._found.monitor = made._found.selector = False
        made.build(BuildRequest(onnx.ModelProto(), "", **request))
        return config

    return asked


@pytest.mark.parametrize(
    "asked", [{"attempt": 1}, {"force": {"a": "b"}}, {"forbid": {"a": ("b",)}}]
)
def test_no_build_that_may_choose_otherwise_is_told_what_was_timed(
    engine: Any,
    build: Callable[..., Config],
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Engine, "_chooser", lambda *_: None)
    keep_timings(engine()._file, b"earlier")
    assert build().begun == b"earlier"
    there = read_timings(engine()._file)
    config = build(**asked)
    assert (config.begun, config.flags) == (None, ["DISABLE_TIMING_CACHE"])
    assert read_timings(engine()._file) == there


@pytest.mark.parametrize(("asked", "left"), [({"part": True}, b"earlier"), ({}, b"earlierx")])
def test_what_is_left_is_of_whole_models(
    build: Callable[..., Config], engine: Any, asked: dict[str, Any], left: bytes
) -> None:
    keep_timings(engine()._file, b"earlier")
    assert build(**asked).begun == b"earlier"
    assert read_timings(engine()._file) == left


def test_the_larger_cache_stays(tmp_path: Path) -> None:
    """Another session may have learnt more meanwhile."""
    for content in (b"much more", b"less"):
        keep_timings(tmp_path / "a.cache", content)
    assert read_timings(tmp_path / "a.cache") == b"much more"


def test_parts_learn_from_it_and_leave_it_as_it_is(engine: Any) -> None:
    built(engine())
    later = engine()
    assert built(later, whole=False).begun == b"x"
    assert read_timings(later._file) == b"x"


def test_what_this_version_cannot_read_is_begun_anew(engine: Any) -> None:
    keep_timings(engine()._file, b"of another version")
    assert built(engine(), config=Config(unreadable=True)).begun == b""


def test_each_gpu_driver_and_version_has_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    other = Device("NVIDIA H200", "9.0", 1 << 37, "12.4")
    files = {cache_file("tensorrt", v, g) for v in ("10.6.0", "10.8.0") for g in (GPU, other)}
    assert len(files) == 4
    assert all(f.parent == tmp_path / "narrowdown" / "timings" and "h200" in f.name for f in files)


def test_nobody_elses_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.cache"
    keep_timings(path, b"ours")
    assert read_timings(path) == b"ours"
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link.cache").symlink_to(path)
    assert read_timings(tmp_path / "link.cache") == b""
    path.chmod(0o666)
    assert read_timings(path) == b""
    os.mkfifo(tmp_path / "pipe.cache")
    assert read_timings(tmp_path / "pipe.cache") == b""


def test_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_timings, "MOST", 10)
    keep_timings(tmp_path / "large.cache", b"x" * 11)
    assert not (tmp_path / "large.cache").exists()


def test_a_disk_that_takes_nothing_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    keep_timings(tmp_path / "file" / "a.cache", b"x")
    assert read_timings(tmp_path / "file" / "a.cache") == b""


def test_several_programs_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from narrowdown.engines.backends.tensorrt.kept_timings import keep_timings, read_timings\n"  # noqa: E501
        "path, me = Path(sys.argv[1]), sys.argv[2].encode()\n"
        "for n in range(1, 40):\n"
        "    keep_timings(path, me * 1000 * n)\n"
        "    seen = read_timings(path)\n"
        "    assert len(set(seen)) == 1 and len(seen) >= 1000 * n, (n, len(seen))\n"
    )
    path = tmp_path / "a.cache"
    all_of_them = [
        subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "abc"
    ]
    assert [p.wait(60) for p in all_of_them] == [0, 0, 0]
    assert len(read_timings(path)) == 39_000
    assert {p.name for p in tmp_path.iterdir()} == {"a.cache", ".a.cache.lock"}


def test_a_cache_that_is_named_is_begun_with_and_never_written(engine: Any, tmp_path: Path) -> None:
    named = tmp_path / "polygraphy.cache"
    named.write_bytes(b"theirs")
    made = engine()
    keep_timings(made._file, b"left by an earlier session")
    made._settings = msgspec.structs.replace(made._settings, timings=str(named))
    with held.under(to_files(named)):
        assert built(made).begun == b"theirs"
        assert built(made).begun == b"theirsx"
    assert named.read_bytes() == b"theirs"
    made._timings = b""
    with (
        held.under(to_files(named)),
        pytest.raises(EngineFault, match="does not take"),
    ):
        built(made, config=Config(unreadable=True))


def test_a_cache_that_is_named_and_gone_is_said(engine: Any, tmp_path: Path) -> None:
    made = engine()
    made._settings = msgspec.structs.replace(made._settings, timings=str(tmp_path / "gone"))
    with held.under(NOTHING), pytest.raises(held.NotAgreed, match="gone"):
        built(made)
