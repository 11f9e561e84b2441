"""Saving an agent to a path of the user's: a folder, or one file, which may take the place of an older save."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rl_training.errors import ConfigError, StorageError
from rl_training.plain_files import reason
from rl_training.runtime.archive import copy_files, is_saved, pack, read_any, unpacked
from rl_training.runtime.checkpoint import SaveFailed, write_checkpoint
from rl_training.runtime.folder import ARCHIVE
from rl_training.runtime.left_out import without_replay
from rl_training.runtime.storage import DISK

_HERE, _EXCHANGE = -100, 2
"""Of Linux: paths are those of this process; two names change places."""


def save_copy(checkpoint: Path, target: Path, *, replay: bool = True) -> Path:
    """Copy a checkpoint to ``target``, a single file if that ends with .zip, without its ``replay`` if so asked.

    What is there already is replaced if it is a checkpoint or such a file, and only once the new one is complete.
    """
    _check_target(target)
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)  # what a killed save left
        with _source(checkpoint, partial, replay) as source:
            if target.suffix == ARCHIVE:
                pack(source, partial)
            elif source != partial:
                copy_files(source, partial)
        _put_in_place(partial, target)
    except (OSError, ValueError, SaveFailed) as error:
        raise StorageError(f"{target}: not saved: {reason(error)}") from error
    finally:
        _remove(partial)
    return target


@contextmanager
def _source(checkpoint: Path, partial: Path, replay: bool) -> Iterator[Path]:
    """Give a folder with the files to be saved; what is made for that stands beside the target."""
    if replay:
        with unpacked(checkpoint) as folder:
            yield folder
        return
    whole = read_any(checkpoint)
    tree, info = without_replay(whole.tree, whole.info)
    place = partial.with_name(f"{partial.name}-files")
    _remove(place)
    try:
        yield write_checkpoint(place, whole.step, tree, info).path
    finally:
        _remove(place)


def _check_target(target: Path) -> None:
    """Refuse to replace what no ``save`` has written, and what belongs to a run."""
    if not os.path.lexists(target):
        return
    if target.parent.name == "checkpoints" and (target.parent.parent / "config.yaml").exists():
        raise ConfigError(f"{target}: belongs to a run; save to another path")
    if not is_saved(target):
        raise ConfigError(f"{target}: exists already and is no saved agent, so it is not overwritten")
    if target.is_dir() == (target.suffix == ARCHIVE):
        raise ConfigError(f"{target}: exists already, and is no {'file' if target.is_dir() else 'folder'}")


def _put_in_place(new: Path, target: Path) -> None:
    """Give a complete save its name; an older one of that name is there until the moment that the new one is."""
    if target.is_dir() and not _exchanged(new, target):
        old = target.with_name(f".{target.name}.old")
        _remove(old)
        os.rename(target, old)
        os.rename(new, target)
        _remove(old)
    elif not target.is_dir():
        os.replace(new, target)
    DISK.sync_folder(target.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two names change places in one step; return whether this system can."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return rename is not None and not rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
