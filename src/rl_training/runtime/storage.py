"""The few file operations through which checkpoints are written, so that a test can fail any one of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol


class Storage(Protocol):
    """Where checkpoints are written; every method raises ``OSError`` on failure."""

    def make_folder(self, path: Path) -> None:
        """Create a folder that must not exist, inside one that does."""

    def create(self, path: Path) -> int:
        """Create a file that must not exist and return a handle for writing."""

    def write(self, handle: int, data: memoryview) -> int:
        """Write some of ``data`` and return how many bytes were taken, which may be fewer than given."""

    def sync(self, handle: int) -> None:
        """Return once the file's content is on the disk."""

    def close(self, handle: int) -> None:
        """Release the handle."""

    def sync_folder(self, path: Path) -> None:
        """Return once the folder's entries are on the disk."""

    def link(self, source: Path, target: Path) -> None:
        """Give the file ``source`` a second name, which must not exist; symlinks are not followed."""

    def rename(self, source: Path, target: Path) -> None:
        """Give ``source`` a new name in one step; a file of that name is replaced."""

    def list(self, path: Path) -> list[str]:
        """Return the names of a folder's entries, sorted."""

    def unlink(self, path: Path) -> None:
        """Remove one file or symlink."""

    def remove_folder(self, path: Path) -> None:
        """Remove one empty folder."""


class DiskStorage:
    """The file system itself."""

    def make_folder(self, path: Path) -> None:
        """Create a folder that must not exist, inside one that does."""
        os.mkdir(path)

    def create(self, path: Path) -> int:
        """Create a file that must not exist and return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, data: memoryview) -> int:
        """Write some of ``data`` and return how many bytes were taken."""
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """Flush the file's content to the disk."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close the descriptor."""
        os.close(handle)

    def sync_folder(self, path: Path) -> None:
        """Flush the folder's entries to the disk."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def link(self, source: Path, target: Path) -> None:
        """Make a hard link within one file system."""
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically within one file system."""
        os.rename(source, target)

    def list(self, path: Path) -> list[str]:
        """Return the names of a folder's entries, sorted."""
        return sorted(os.listdir(path))

    def unlink(self, path: Path) -> None:
        """Remove one file or symlink."""
        os.unlink(path)

    def remove_folder(self, path: Path) -> None:
        """Remove one empty folder."""
        os.rmdir(path)


DISK: Final = DiskStorage()
"""The storage used unless a caller brings another."""
