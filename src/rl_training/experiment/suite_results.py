"""What a benchmark suite came to: the scores of each entry, held against its bar."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_training.statistics import interval_text


@dataclass(frozen=True)
class EntryResult:
    """What one entry came to: the scores of its finished seeds, and why others failed."""

    name: str
    config: str
    digest: str
    overrides: dict[str, Any]
    algo: str
    env: str
    total_timesteps: int
    episodes: int
    seeds: tuple[int, ...]
    bar: float | None
    below: float | None
    score_is: str
    finished_seeds: tuple[int, ...]
    """Those that ``scores`` and ``seconds`` are of, in this order."""
    scores: tuple[float, ...]
    seconds: tuple[float, ...]
    errors: tuple[str, ...]
    iqm: float | None = None
    interval: tuple[float, float] | None = None
    score: float | None = None
    """What is held against ``bar``; ``below_score`` against ``below``."""
    below_score: float | None = None

    @property
    def reached(self) -> bool:
        """Whether every seed ran, and the score is what it should be."""
        if self.score is None or self.below_score is None or self.errors:
            return False
        return (self.bar is None or self.score >= self.bar) and (
            self.below is None or self.below_score < self.below
        )

    @property
    def aim(self) -> str:
        """What the score should be, in words."""
        parts = [f"{self.bar:g}" if self.bar is not None else ""]
        parts.append(f"below {self.below:g}" if self.below is not None else "")
        said = ", ".join(part for part in parts if part)
        return said + (", worst seed" if said and self.score_is == "worst" else "")

    @property
    def verdict(self) -> str:
        """What became of it, in a word."""
        if self.errors:
            return "FAILED"
        if self.bar is None and self.below is not None:
            return "held" if self.reached else "EXCEEDED"
        return ("reached" if self.reached else "MISSED") if self.aim else ""

    @property
    def line(self) -> str:
        """What came out, in one line."""
        parts = []
        if self.iqm is not None:
            parts.append(f"IQM {self.iqm:.2f}, {interval_text(self.scores)}")
        if self.aim:
            parts.append(f"bar {self.aim} {self.verdict}")
        if self.errors:
            parts.append(f"{len(self.errors)} of {len(self.seeds)} seeds failed: {self.errors[0]}")
        return "; ".join(parts)


@dataclass(frozen=True)
class BenchmarkResult:
    """What a suite came to, where, and with what."""

    suite: str
    source: str
    summary: str
    folder: Path
    finished: str
    at_once: int
    facts: dict[str, Any]
    entries: tuple[EntryResult, ...]

    @property
    def reached(self) -> bool:
        """Whether every entry ran and every bar was met."""
        return all(entry.reached for entry in self.entries)

    def plain(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        plain = asdict(self)
        plain["folder"] = str(self.folder)
        for entry, held in zip(plain["entries"], self.entries, strict=True):
            entry["reached"] = held.reached
        return {**plain, "reached": self.reached}
