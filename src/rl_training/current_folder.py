"""The current folder is on Python's path only while a name that the user typed is looked up.

Otherwise any file there that is called like an optional package of torch, ``dill.py`` for example, would be run by
every command. ``rl_training/__init__.py`` takes the folder off the path that ``python -m rl_training`` puts first.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_offered: str | None = None


def offer() -> None:
    """Let the names of this command mean modules in the current folder."""
    global _offered
    _offered = os.getcwd()


def withdraw() -> None:
    """Undo ``offer``."""
    global _offered
    _offered = None


@contextmanager
def on_path() -> Iterator[None]:
    """Have the current folder last on the path, where it shadows no package, if it was offered."""
    folder = _offered
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def within(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the current folder on the path during each call, if it was offered."""
    if _offered is None:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with on_path():
            return function(*args, **kwargs)

    return call
