"""Opening files of a folder that somebody else may have made: regular files only, no links, of bounded size.

Neither a pipe nor a device makes these functions wait, and nothing is written outside of the folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_WAYS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading; anything else is an ``OSError`` or a ``ValueError``."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def read_plain(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes; ``follow`` a link if the user named the file."""
    with os.fdopen(_opened(Path(os.path.realpath(path)) if follow else path, os.O_RDONLY), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"larger than {limit} bytes")
    return content


def open_own(path: Path, flags: int) -> int:
    """Open a regular file to write into it, made if there is none, with no other name to change it by."""
    handle = _opened(path, flags | os.O_CREAT)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise ValueError("has a second name somewhere (a hard link); copy the file to go on")
    return handle


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a new file for writing that takes the place of what is there, be it a link."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _WAYS, 0o666), "wb") as file:
        yield file


def make_folder(path: Path) -> None:
    """Make a folder unless there is one; a link to one is refused."""
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        raise ValueError("not a folder but a link to one")


def reason(error: Exception) -> str:
    """Say in a few words what was the matter."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _opened(path: Path, flags: int) -> int:
    # Before it is opened: that alone can have consequences with a device.
    try:
        known = os.lstat(path).st_mode
    except FileNotFoundError:
        known = stat.S_IFREG
    if not stat.S_ISREG(known):
        raise ValueError("not a regular file")
    handle = os.open(path, flags | _WAYS, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("not a regular file")
    return handle
