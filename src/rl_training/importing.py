"""Importing torch sooner: it takes most of the time from a command to its first step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while modules are imported.

    Importing torch makes some hundred thousand objects, none of them garbage, and the collector walks through them
    again and again: about a fifth of the time that the import takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def left_alone(load: Callable[[], None]) -> Iterator[None]:
    """Load something, torch for example, and have the collector pass over all there is then until this is over."""
    with collector_paused():
        load()
        ours = gc.get_freeze_count() == 0
        if ours:
            gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()
