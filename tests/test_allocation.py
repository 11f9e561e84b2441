"""Freed memory is kept where that is asked for."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import numpy as np
import pytest

from helpers.children import Child
from rl_training.runtime import allocation

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")


def faults_of_large_arrays() -> int:
    """Return how many pages the system had to provide for arrays of 50 MB made and freed over and over."""
    np.ones(50_000_000, np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(50_000_000, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@glibc
def test_large_arrays_find_their_memory_again(tmp_path: Path) -> None:
    child = Child(tmp_path, lambda: print(allocation.keep_freed_memory(), faults_of_large_arrays()))
    assert child.wait() == 0, child.err
    kept, faults = child.out.split()
    assert kept == "True"
    assert int(faults) < 1_000, "some 60,000 without"


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.runtime.allocation.sys.platform", "darwin")
    assert allocation.keep_freed_memory() is False
