"""Tables of results, as Markdown."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


@dataclass
class Section:
    """One table, and the numbers that it was made of."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: Any = None

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n\n".join([f"## {self.title}", table, *self.notes]) + "\n"


@dataclass
class Report:
    """All sections, and what they were measured with."""

    folder: Path
    load_before: float
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    date: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def fail(self, where: str, why: str) -> None:
        line = f"error: {where}: {why}"
        self.failures.append(line)
        print(line, flush=True)

    def add(self, name: str, section: Section) -> None:
        """Print a section and write everything so far."""
        self.sections[name] = section
        print(f"\n{section.markdown()}", flush=True)
        self.write()

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        results = {
            "date": self.date,
            "machine": machine(),
            "load_before": self.load_before,
            "versions": self.versions,
            "sections": {name: section.data for name, section in self.sections.items()},
            "failures": self.failures,
        }
        (self.folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
        (self.folder / "table.md").write_text(self.markdown())

    def markdown(self) -> str:
        used = [
            f"- {side}: {', '.join(f'{name} {number}' for name, number in names.items())}"
            for side, names in self.versions.items()
        ]
        head = (
            f"# Peers\n\n{self.date}, {machine()}, one thread a side, load {self.load_before:.1f} before.\n\n"
        )
        failures = "\n".join(f"- {line}" for line in self.failures)
        parts = [head + "\n".join(used) + "\n", *(section.markdown() for section in self.sections.values())]
        return "\n".join([*parts, *([f"## Failures\n\n{failures}\n"] if failures else [])])


def machine() -> str:
    """Say what this runs on."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} cores, {model}, {platform.system()}, Python {platform.python_version()}"


def mib(count: float) -> str:
    return f"{count / 2**20:,.0f}"
