"""Where the time of a run goes."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

TRAINING = ("environment", "inference", "replay", "learning", "other")
_MOST = 1e12
"""Seconds, about 30,000 years."""
ACCOUNTS = (*TRAINING, "evaluation", "checkpoint")


class Timer:
    """Charges the time since the last lap to a named account."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(ACCOUNTS, 0.0)
        self._last = perf_counter()

    def lap(self, account: str) -> None:
        """Charge the time since the last call to ``account``."""
        now = perf_counter()
        self.seconds[account] += now - self._last
        self._last = now

    def load(self, seconds: Mapping[str, float]) -> None:
        """Take over the accounts of a run that goes on."""
        if seconds.keys() != self.seconds.keys():
            raise ValueError("time: not the accounts of a run")
        for name, value in seconds.items():
            if isinstance(value, bool) or not 0.0 <= value < _MOST:
                raise ValueError(f"time: {name} is {value}")
            self.seconds[name] = float(value)

    @property
    def total(self) -> float:
        """Seconds charged so far."""
        return sum(self.seconds.values())

    @property
    def training(self) -> float:
        """Seconds of training proper, without evaluation and checkpoints."""
        return sum(self.seconds[name] for name in TRAINING)

    def split(self) -> str:
        """Return the shares as one line."""
        total = max(self.total, 1e-9)
        shares = [
            f"{name} {self.seconds[name] / total:.0%}"
            for name in ACCOUNTS
            if self.seconds[name] / total >= 0.005
        ]
        return ", ".join(shares)
