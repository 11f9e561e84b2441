"""Saving while a run goes: a disk that refuses costs a warning, and the run only if it keeps on refusing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError, StorageError
from rl_training.plain_files import open_plain, reason, replacing
from rl_training.runtime.archive import copy_files
from rl_training.runtime.checkpoint import (
    LATEST,
    Checkpoint,
    Saved,
    SaveFailed,
    list_checkpoints,
    read_hint,
    retire,
    write_checkpoint,
    write_hint,
)
from rl_training.runtime.checkpoint_format import MANIFEST, Tree, step_name
from rl_training.runtime.console import notice
from rl_training.runtime.folder import RunFolder
from rl_training.runtime.storage import DISK

MAX_FAILED_SAVES = 3
"""So many in a row end a run, once the first of them is ``MAX_FAILING_SECONDS`` ago."""
MAX_FAILING_SECONDS = 60.0
_QUIET_SECONDS = 10.0
"""Between two warnings, after the first few in a row."""


class Saver:
    """Puts checkpoints into one folder, names them and removes old ones."""

    def __init__(self, folder: Path, keep: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self._keep = keep
        self._clock = clock
        self._failed = 0
        self._failing_since = self._warned_at = 0.0
        self._previous: Saved | None = None

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Let the next save link the segments of a checkpoint whose state the run has just taken over."""
        self._previous = Saved(checkpoint.path.absolute(), checkpoint.files)

    def save(
        self, step: int, tree: Tree, info: dict[str, Any], *, best: bool, last: bool = False
    ) -> Path | None:
        """Save a tree of state; return where, or none if the disk refused, which for the ``last`` one is an error."""
        try:
            saved = write_checkpoint(self.folder, step, tree, info, previous=self._previous)
        except (SaveFailed, OSError) as error:
            self.refused(error, last=last)
            return None
        self._failed = 0
        self._previous = saved
        self.name(LATEST, saved.path)
        if best:
            self.name("best", saved.path)
        self._retire(saved.path)
        return saved.path

    def refused(self, error: Exception, *, last: bool = False) -> None:
        """Count a save that the disk refused: a warning, or the end of the run if it keeps on refusing."""
        if last:
            raise StorageError(
                f"{_plain(error)}; {self.left()}, the checkpoint of the last step could not be saved"
            ) from error
        now = self._clock()
        if not self._failed:
            self._failing_since = now
        self._failed += 1
        seconds = now - self._failing_since
        if self._failed >= MAX_FAILED_SAVES and seconds >= MAX_FAILING_SECONDS:
            raise StorageError(
                f"{self._failed} checkpoints in a row could not be saved, for {seconds:.0f} s: "
                f"{_plain(error)}; {self.left()}"
            ) from error
        if self._failed <= MAX_FAILED_SAVES or now - self._warned_at >= _QUIET_SECONDS:
            self._warned_at = now
            notice(f"warning: {_plain(error)}; training goes on, {self.left()}")

    def left(self) -> str:
        """Say what there is to go on from: the newest checkpoint by name, unverified, or none."""
        try:
            there = [path for path in list_checkpoints(self.folder) if (path / MANIFEST).is_file()]
        except (CheckpointError, OSError):
            there = []
        if there:
            return f"{there[0].name} is the newest checkpoint"
        return "there is no checkpoint yet" if self._previous is None else "no checkpoint is left"

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


def _plain(error: Exception) -> str:
    return f"{error.filename or 'disk'}: {reason(error)}" if isinstance(error, OSError) else str(error)


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
