"""Compiled code, built from the C files beside this one when the package is installed.

Where there is no C compiler, or for another system, there is no library, and what would have used it goes through
torch instead: slower, and with the same results but for rounding.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARY = Path(__file__).with_name("kernels.so")
MAX_PRODUCTS = 2**23
"""Multiplications in one layer above which torch's products, which may use threads, are the faster ones."""
NORM_EPS = 1e-5
"""What the compiled code adds to a layer's variance."""


def library() -> ctypes.CDLL | None:
    """Return the library, or none if it was not built, cannot be loaded, or is of other sources than these."""
    return _load()[0]


def problem() -> str | None:
    """Say in a line why there is no library, or return none if there is one."""
    return _load()[1]


def warning(threads: int = 1) -> dict[str, str]:
    """Return what is to be said of updates that only the library keeps from being compiled ones, or from threads."""
    loaded, reason = _load()
    if loaded is not None and threads > 1 and not loaded.has_threads():
        reason = f"the compiler that made {LIBRARY.name} has no OpenMP, so that it has one thread"
    return {} if reason is None else {"native": f"updates take longer than they need to: {reason}"}


@contextmanager
def _threads_that_sleep() -> Iterator[None]:
    """Have OpenMP, which reads its environment when it is loaded, let threads sleep soon if there is nothing to do.

    By default they spin for milliseconds, which on a busy machine takes the processor from the one that they wait for.
    """
    given = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    if not given:
        os.environ["GOMP_SPINCOUNT"] = "20000"
    try:
        yield
    finally:
        if not given:
            del os.environ["GOMP_SPINCOUNT"]


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    from rl_training.native.build import digest  # not above: it is also run by itself

    try:
        with _threads_that_sleep():
            loaded = ctypes.CDLL(str(LIBRARY))
        loaded.sources.restype = ctypes.c_char_p
        if loaded.sources().decode() == digest(LIBRARY.parent):
            return loaded, None
        reason = "is not of these sources"
    except (OSError, AttributeError):
        reason = "cannot be loaded" if LIBRARY.exists() else "was not built"
    return None, f"{LIBRARY.name} {reason}; python -m rl_training.native.build compiles it"


def fingerprint() -> str:
    """Return the beginning of the library's hash, by which runs know whether they computed with the same; or none."""
    if library() is None:
        return "none"
    return hashlib.sha256(LIBRARY.read_bytes()).hexdigest()[:12]
