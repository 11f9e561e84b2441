"""A disk that refuses checkpoints: what is said, and when a run gives up."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.errors import StorageError
from rl_training.runtime import saving
from rl_training.runtime.checkpoint import newest_checkpoint
from rl_training.runtime.saving import Saver
from rl_training.runtime.storage import DiskStorage

TREE: dict[str, Any] = {"model": {"w": np.arange(3.0)}, "loop": {"steps": 1}}


class Disk:
    """A file system that is full while ``full`` is true, and a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.now = False, 1000.0
        write = DiskStorage.write

        def some(storage: DiskStorage, handle: int, data: memoryview) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(storage, handle, data)

        monkeypatch.setattr(DiskStorage, "write", some)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def saver(disk: Disk, tmp_path: Path) -> Saver:
    return Saver(tmp_path / "checkpoints", 2, lambda: disk.now)


def save(saver: Saver, step: int, **options: Any) -> Path | None:
    return saver.save(step, TREE, {}, best=False, **options)


def test_many_failures_within_a_minute_cost_warnings_only(disk: Disk, saver: Saver) -> None:
    assert save(saver, 1) is not None
    disk.full = True
    for step in range(2, 500):
        disk.now += 0.1
        assert save(saver, step) is None
    disk.full = False
    assert save(saver, 500) is not None


def test_failures_for_a_minute_end_the_run_and_say_what_is_left(disk: Disk, saver: Saver) -> None:
    save(saver, 1)
    disk.full = True
    save(saver, 2)
    disk.now += saving.MAX_FAILING_SECONDS / 2
    save(saver, 3)
    disk.now += saving.MAX_FAILING_SECONDS / 2
    message = (
        r"3 checkpoints in a row .* for 60 s: .*No space left.*; step-000000001 is the newest checkpoint"
    )
    with pytest.raises(StorageError, match=message):
        save(saver, 4)


def test_two_failures_far_apart_do_not_end_a_run(disk: Disk, saver: Saver) -> None:
    save(saver, 1)
    disk.full = True
    for step in (2, 3):
        disk.now += 1e6
        assert save(saver, step) is None


def test_a_save_that_succeeds_begins_the_count_anew(disk: Disk, saver: Saver) -> None:
    for step in range(1, 30, 3):
        disk.full = True
        assert save(saver, step) is None
        disk.now += 50.0
        assert save(saver, step + 1) is None
        disk.full = False
        disk.now += 50.0
        assert save(saver, step + 2) is not None


def test_warnings_become_rare(disk: Disk, saver: Saver, capsys: pytest.CaptureFixture[str]) -> None:
    disk.full = True
    for step in range(1, 501):
        disk.now += 0.1
        save(saver, step)
    said = capsys.readouterr().err.splitlines()
    assert 3 < len(said) < 12
    assert all(line.endswith("training goes on, there is no checkpoint yet") for line in said)


def test_what_is_gone_is_not_promised(
    disk: Disk, saver: Saver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(saver, 1)
    shutil.rmtree(tmp_path / "checkpoints" / "step-000000001")
    (tmp_path / "checkpoints" / "step-000000007").mkdir()  # holds nothing
    disk.full = True
    save(saver, 2)
    assert capsys.readouterr().err.endswith("training goes on, no checkpoint is left\n")


def test_the_last_checkpoint_is_never_given_up_in_silence(disk: Disk, saver: Saver) -> None:
    save(saver, 1)
    disk.full = True
    message = "step-000000001 is the newest checkpoint, the checkpoint of the last step could not be saved"
    with pytest.raises(StorageError, match=message):
        save(saver, 2, last=True)
    assert newest_checkpoint(saver.folder)[0].step == 1
