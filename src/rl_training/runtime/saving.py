"""Saving while a run goes: a disk that refuses costs a warning, and the run only at the third time in a row."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from rl_training.errors import StorageError
from rl_training.plain_files import open_plain, reason, replacing
from rl_training.runtime.archive import copy_files
from rl_training.runtime.checkpoint import (
    LATEST,
    Checkpoint,
    Saved,
    SaveFailed,
    read_hint,
    retire,
    write_checkpoint,
    write_hint,
)
from rl_training.runtime.checkpoint_format import Tree, step_name
from rl_training.runtime.console import notice
from rl_training.runtime.folder import RunFolder
from rl_training.runtime.storage import DISK

MAX_FAILED_SAVES = 3


class Saver:
    """Puts checkpoints into one folder, names them and removes old ones."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep
        self._failed = 0
        self._previous: Saved | None = None

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Let the next save link the segments of a checkpoint whose state the run has just taken over."""
        self._previous = Saved(checkpoint.path.absolute(), checkpoint.files)

    def save(self, step: int, tree: Tree, info: dict[str, Any], *, best: bool) -> Path | None:
        """Save a tree of state; return where, or none if the disk refused."""
        try:
            saved = write_checkpoint(self.folder, step, tree, info, previous=self._previous)
        except (SaveFailed, OSError) as error:
            self.refused(error)
            return None
        self._failed = 0
        self._previous = saved
        self.name(LATEST, saved.path)
        if best:
            self.name("best", saved.path)
        self._retire(saved.path)
        return saved.path

    def refused(self, error: Exception) -> None:
        """Count a save that the disk refused: a warning, or the end of the run at the third in a row."""
        self._failed += 1
        if self._failed >= MAX_FAILED_SAVES:
            raise StorageError(
                f"{MAX_FAILED_SAVES} checkpoints in a row could not be saved: {error}"
            ) from error
        notice(f"warning: {error}; training goes on, the previous checkpoint is intact")

    def name(self, hint: str, path: Path) -> None:
        """Let ``best`` or ``latest`` point at a checkpoint; a failure costs a warning only."""
        try:
            write_hint(self.folder, hint, path)
        except SaveFailed as error:
            notice(f"warning: {error}; {path.name} itself is saved")

    def _retire(self, newest: Path) -> None:
        best = read_hint(self.folder, "best")
        try:
            retire(self.folder, self._keep, {newest.name, *([best.name] if best else [])})
        except SaveFailed as error:
            notice(f"warning: {error}; training goes on")


def copy_run(checkpoint: Checkpoint, log: Path, target: Path, tree: Tree | None = None) -> None:
    """Make a new run folder of a checkpoint and the log it belongs to, whole or not at all.

    A ``tree`` takes the place of what the checkpoint holds.
    """
    # The name is the same at the next try, which so replaces what a kill has left.
    partial = target.with_name(f".{target.name}.partial")
    with RunFolder(partial) as folder:  # held against a second process that does the same
        try:
            shutil.rmtree(folder.checkpoints)
            folder.checkpoints.mkdir()
            copy = folder.checkpoints / step_name(checkpoint.step)
            if tree is None:
                copy_files(checkpoint.path, copy)
            else:
                write_checkpoint(folder.checkpoints, checkpoint.step, tree, checkpoint.info)
            if os.path.lexists(log):
                _copy_file(log, folder.metrics)
            for changed in (copy, folder.checkpoints, folder.path):
                DISK.sync_folder(changed)
            DISK.rename(partial, target)
            DISK.sync_folder(target.parent)
        except (OSError, ValueError, SaveFailed) as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise StorageError(f"{target}: not made: {reason(error)}") from error


def _copy_file(source: Path, target: Path) -> None:
    with open_plain(source) as content, replacing(target) as copy:
        shutil.copyfileobj(content, copy)
        copy.flush()
        os.fsync(copy.fileno())
