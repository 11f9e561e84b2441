"""Where the time of a run goes."""

from __future__ import annotations

from time import perf_counter

TRAINING = ("environment", "inference", "replay", "learning", "other")
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
