"""SIGINT, SIGTERM and SIGHUP: the first signal asks for a checkpoint and an orderly end, the second ends at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from rl_training.errors import RLTrainingError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME = 0.2
"""Seconds within which the same signal counts once: one sent to all processes of a job reaches those that a run has
started both directly and handed on."""


class Interrupted(RLTrainingError):
    """A signal ended the run after its state was saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class SignalGuard:
    """While entered, notes signals instead of dying of them.

    It has to be entered before any environment is made: SDL (pygame) takes over both signals when its video
    system starts, but leaves alone whoever handles them already.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._when = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalGuard:
        os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
        if threading.current_thread() is threading.main_thread():
            # Under nohup, SIGHUP is ignored, and stays so.
            hung_up = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            noted = [number for number in _SIGNALS if not (hung_up and number == signal.SIGHUP)]
            self._previous = {number: signal.signal(number, self._note) for number in noted}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == self.received and time.monotonic() - self._when < SAME:
            return
        if self.received is not None:
            os._exit(128 + number)
        self.received, self._when = number, time.monotonic()
