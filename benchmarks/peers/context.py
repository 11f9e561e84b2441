"""What every section of the benchmark needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from report import Report
from worker import Worker

LIMIT = 3_600.0
"""Seconds after which a worker that does not answer is given up."""
TITLES = {
    "ours": "rl_training",
    "sb3": "Stable-Baselines3",
    "sbx": "SBX",
    "tianshou": "Tianshou",
    "rlox": "rlox",
}
_CONTRIBUTED = ("qr", "recurrent", "trpo", "crossq")
"""Parts whose algorithm comes from sb3-contrib."""


def library(part: str, side: str) -> str:
    """Return the name of the library that is a side of a part."""
    return "sb3-contrib" if side == "sb3" and part in _CONTRIBUTED else TITLES[side]


@dataclass(frozen=True)
class Context:
    """The interpreters, the sizes, and where results go."""

    ours: Path
    peers: Path
    out: Path
    turns: int
    seeds: int
    quick: bool
    report: Report
    sides: tuple[str, ...] = tuple(TITLES)
    jobs: int = 2
    """Runs that learn at a time."""
    observations: int | None = None
    """Stored by ``dqn-images``; none for its default."""

    def among(self, sides: Sequence[str]) -> list[str]:
        """Return those of a section's sides that take part."""
        return [side for side in sides if side in self.sides]

    def start(self, side: str, name: str) -> Worker:
        """Start the worker of a side; its stderr goes to a log of that name."""
        return Worker(
            side,
            self.ours if side == "ours" else self.peers,
            self.out / "logs" / f"{name}.log",
            limit=LIMIT,
            on_versions=lambda versions: self.report.versions.update({side: versions}),
        )
