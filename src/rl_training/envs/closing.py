"""Closing environments, whatever they do instead."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import gymnasium as gym

from rl_training.errors import EnvError, is_users_interrupt

CLOSE_SECONDS: Final = 10.0
"""Time that an environment of this process may take to close."""


class _TooLong(BaseException):
    """Raised inside of an environment that does not come to an end."""


def close_all(envs: Sequence[gym.Env[Any, Any]]) -> None:
    """Close every environment; an ``EnvError`` says what the first one raised that did not close in peace."""
    failures = [failure for index, env in enumerate(envs) if (failure := _failure(index, env)) is not None]
    if failures:
        raise failures[0]


def _failure(index: int, env: gym.Env[Any, Any]) -> EnvError | None:
    """Close an environment; return what it did instead, if it did anything else."""
    try:
        with _time_limit(CLOSE_SECONDS):
            env.close()
    except _TooLong:
        return EnvError(f"env {index}: close took longer than {CLOSE_SECONDS:g} s")
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        reason = f"env {index}: close: {type(error).__name__}: {error}"
        return EnvError(reason, details=traceback.format_exc())
    return None


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise ``_TooLong`` after so many seconds, if this is the main thread: no other can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
