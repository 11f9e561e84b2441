"""How freed memory is treated, which decides much of the speed of updates on large tensors."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGE = 2**30
_MOST_OF_OLD_VERSIONS = 2**25


def keep_freed_memory() -> bool:
    """Let this process keep memory that large tensors free, and say whether it does.

    The GNU C library gives such memory back at once, and the system has to clear it page by page when the next
    update asks for the same again: a quarter of the time of an update on images. Elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    kept = mallopt(_M_MMAP_THRESHOLD, _LARGE) or mallopt(_M_MMAP_THRESHOLD, _MOST_OF_OLD_VERSIONS)
    return bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)) and bool(kept)
