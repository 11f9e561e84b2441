"""Importing torch sooner: it takes most of the time from a command to its first step."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while modules are imported.

    Importing torch makes some hundred thousand objects, none of them garbage, and the collector walks through them
    again and again: about a fifth of the time that the import takes. Once torch is there, the collector is told to
    leave alone what exists by then, so that it does not walk through it later either.
    """
    was_enabled, had_torch = gc.isenabled(), "torch" in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if not had_torch and "torch" in sys.modules:
            gc.freeze()
        if was_enabled:
            gc.enable()
