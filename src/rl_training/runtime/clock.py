"""How far a run is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Clock:
    """Counts environment steps (all environments together), updates and episodes."""

    total: int
    steps: int = 0
    updates: int = 0
    episodes: int = 0

    @property
    def finished(self) -> bool:
        """Whether the budget of env steps is used up."""
        return self.steps >= self.total

    def state_dict(self) -> dict[str, Any]:
        """Return the counters; the budget belongs to the config."""
        return {"steps": self.steps, "updates": self.updates, "episodes": self.episodes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the counters."""
        counts = [state[name] for name in ("steps", "updates", "episodes")]
        if not all(type(count) is int and 0 <= count <= 2**53 for count in counts):
            raise ValueError(f"clock: {counts} are not whole numbers from 0 to 2**53")
        self.steps, self.updates, self.episodes = counts


class Every:
    """Tells when a multiple of ``frequency`` env steps has been reached; 0 never."""

    def __init__(self, frequency: int, steps: int = 0) -> None:
        self.frequency = frequency
        self.rewind(steps)

    def rewind(self, steps: int) -> None:
        """Make the next multiple after ``steps`` the next one due."""
        self.next = (steps // self.frequency + 1) * self.frequency if self.frequency else math.inf

    def due(self, steps: int) -> bool:
        """Return true once per multiple reached."""
        if steps < self.next:
            return False
        self.rewind(steps)
        return True
