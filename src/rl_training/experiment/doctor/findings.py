"""What the doctor says: findings with evidence and a remedy, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any, Literal

from rl_training.errors import printable

LINE = 120
"""Characters of a line."""

Level = Literal["ok", "note", "warning", "problem"]
Cause = str
"""A short word for what is wrong, such as ``learning_rate``; stable, for machines."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. Only warnings and problems are findings in the strict sense."""

    level: Level
    check: str
    """What was looked at."""
    text: str
    """What was found, with numbers."""
    remedy: str = ""
    """What to do about it."""
    cause: Cause = ""

    @property
    def bad(self) -> bool:
        """Whether somebody should look into it."""
        return self.level in ("warning", "problem")


@dataclass
class Section:
    """Findings about one thing, under a title."""

    title: str
    findings: list[Finding] = field(default_factory=list)

    def add(self, level: Level, check: str, text: str, remedy: str = "", cause: Cause = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(level, check, text, remedy, cause))

    def lines(self) -> Iterator[str]:
        """Yield them for people: the level, what was looked at, what was found, and below it what helps."""
        yield printable(self.title)
        width = max((len(finding.check) for finding in self.findings), default=0)
        indent = " " * (width + 13)
        for finding in self.findings:
            first, *rest = wrap(finding.text, LINE - len(indent))
            yield printable(f"  {finding.level:<8} {finding.check:<{width}}  {first}")
            yield from (printable(f"{indent}{line}") for line in rest)
            for number, line in enumerate(wrap(finding.remedy, LINE - len(indent) - 3)):
                yield printable(f"{indent}{'   ' if number else '-> '}{line}")


@dataclass
class Report:
    """All that was found."""

    about: str
    sections: list[Section] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def findings(self) -> list[Finding]:
        """Return all findings, in order."""
        return [finding for section in self.sections for finding in section.findings]

    @property
    def bad(self) -> list[Finding]:
        """Return the problems, then the warnings."""
        return [
            finding for level in ("problem", "warning") for finding in self.findings if finding.level == level
        ]

    def lines(self) -> Iterator[str]:
        """Yield the report for people."""
        yield self.about
        for section in self.sections:
            yield ""
            yield from section.lines()
        yield ""
        yield self.verdict()

    def verdict(self) -> str:
        """Say in a line what came of it."""
        counts = [
            (level, sum(finding.level == level for finding in self.findings))
            for level in ("problem", "warning")
        ]
        said = [f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts if count]
        took = f"({self.seconds:.0f} s)"
        if not said:
            checks = sum(finding.level in ("ok", "note") for finding in self.findings)
            return (
                f"Nothing found in {checks} checks {took}. That is no proof that it learns, only "
                f"that no known mistake shows."
            )
        return (
            f"{' and '.join(said)}: {', '.join(dict.fromkeys(finding.check for finding in self.bad))} {took}"
        )

    def plain(self) -> dict[str, Any]:
        """Return the report for machines."""
        return {
            "about": self.about,
            "found": len(self.bad),
            "seconds": round(self.seconds, 2),
            "sections": [
                {"title": section.title, "findings": [asdict(finding) for finding in section.findings]}
                for section in self.sections
            ],
        }
