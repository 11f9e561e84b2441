"""Compiled code, built from the C files beside this one when the package is installed.

Where there is no C compiler, or for another system, there is no library, and what would have used it goes through
torch instead: slower, and with the same results but for rounding.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import warnings
from pathlib import Path

LIBRARY = Path(__file__).with_name("kernels.so")


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the library, or none if it was not built, cannot be loaded, or is of other sources than these."""
    from rl_training.native.build import digest  # not above: it is also run by itself

    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        loaded.sources.restype = ctypes.c_char_p
        if loaded.sources().decode() == digest(LIBRARY.parent):
            return loaded
    except (OSError, AttributeError):
        return None
    warnings.warn(
        f"{LIBRARY} is not of these sources and is left alone; compile it: python -m rl_training.native.build",
        stacklevel=2,
    )
    return None


def fingerprint() -> str:
    """Return the beginning of the library's hash, by which runs know whether they computed with the same; or none."""
    if library() is None:
        return "none"
    return hashlib.sha256(LIBRARY.read_bytes()).hexdigest()[:12]
