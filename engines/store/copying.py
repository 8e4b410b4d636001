"""Copy files without writing what need not be written: shared blocks where the disk can share,
holes where there are holes."""

import contextlib
import errno
import filecmp
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from narrowdown.engines.store import atomic, regular
from narrowdown.engines.store.memory import PIECE


def tree(
    source: Path, target: Path, ignore: Callable[[str, list[str]], Iterable[str]] | None = None
) -> None:
    """Copy a folder, up to the first file that cannot be copied: ``shutil.copytree`` goes on with
    the others. ``ignore``: of a folder and the names in it those that are left out. Raises that
    file's ``OSError``."""
    names = os.listdir(source)  # noqa: PTH208
    left_out = set(ignore(str(source), names)) if ignore else set()
    target.mkdir(parents=True)
    for name in sorted(set(names) - left_out):
        if (source / name).is_dir():
            tree(source / name, target / name, ignore)
        else:
            copy(source / name, target / name)
    shutil.copystat(source, target)


def copy(source: str | Path, target: str | Path) -> None:
    """Copy a regular file with its times and mode. Raises ``OSError``."""
    with regular.opened(source) as reader, Path(target).open("wb") as writer:
        _copied(reader.fileno(), writer.fileno())
    shutil.copystat(source, target)


def link(kept: Path, other: Path) -> None:
    """Give ``kept`` a second name, ``other``; on a disk without links a copy. Raises
    ``OSError``."""
    try:
        other.hardlink_to(kept)
    except OSError:
        copy(kept, other)


def join_equal(kept: Path, other: Path) -> None:
    """Make ``other`` the same file as ``kept``, a hard link, where both hold the same bytes; else
    both stay as they are, and so they do on a disk without links."""
    with contextlib.suppress(OSError):
        if not kept.samefile(other) and filecmp.cmp(kept, other, shallow=False):
            with atomic(other, synced=False) as temporary:
                temporary.hardlink_to(kept)


def _copied(reader: int, writer: int) -> None:
    size, at = os.fstat(reader).st_size, 0
    while at < size:
        try:
            start = os.lseek(reader, at, os.SEEK_DATA)
            end = os.lseek(reader, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                break
            start, end = at, size  # a file system that knows no holes
        while start < end:
            start += _piece(reader, writer, start, end - start)
        at = end
    os.truncate(writer, size)


def _piece(reader: int, writer: int, at: int, length: int) -> int:
    """Copy some of a span of data, inside the kernel where it can, which shares the blocks on Btrfs
    and XFS; how many bytes. Raises
    ``OSError``."""
    with contextlib.suppress(OSError, AttributeError):
        if done := os.copy_file_range(reader, writer, length, at, at):
            return done
    data = os.pread(reader, min(length, PIECE), at)
    if not data:
        raise OSError(errno.EIO, "the file became shorter while it was copied")
    return os.pwrite(writer, data, at)
