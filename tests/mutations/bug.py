"""What a bug is: a piece of text in a file of the package, and what stands there instead."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path("src", "rl_training")


@dataclass(frozen=True)
class Bug:
    """One mistake in one file, and where a test should notice it."""

    file: str
    """Below ``src/rl_training``."""
    old: str
    """Stands exactly once in the file."""
    new: str
    what: str
    """What is broken, in a line."""
    tests: str
    """Arguments for pytest, below ``tests``: files, nodes, ``-k EXPRESSION``; the first of them is tried first."""
    survives: str = ""
    """Why no test can notice, if that is so."""

    @property
    def module(self) -> str:
        """The package that the file lies in."""
        return self.file.partition("/")[0] if "/" in self.file else "top level"

    @property
    def key(self) -> str:
        """A name that changes whenever anything about the bug does."""
        text = "\0".join((self.file, self.old, self.new, self.tests))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def put_into(self, text: str) -> str:
        """Return the text of the file with the bug in it, or say that it no longer applies."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.file}: stands there {found} times, not once: {self.old!r} ({self.what})")
        if self.old == self.new:
            raise ValueError(f"{self.file}: changes nothing: {self.old!r}")
        return text.replace(self.old, self.new)


Change = tuple[str, str, str] | tuple[str, str, str, str] | tuple[str, str, str, str, str]
"""Old text, new text, what is broken; tests, if they are not those of the file; why no test can notice."""


def of(file: str, tests: str, *changes: Change) -> list[Bug]:
    """Return the bugs of one file, most of which the same tests should notice."""
    bugs = []
    for old, new, what, *rest in changes:
        own, survives = (*rest, "", "")[:2]
        bugs.append(Bug(file, old, new, what, own or tests, survives))
    return bugs


def stale(bugs: list[Bug], root: Path = ROOT) -> list[str]:
    """Return a line for each bug that no longer applies, or whose tests are gone."""
    problems = []
    for bug in bugs:
        try:
            bug.put_into((root / SOURCE / bug.file).read_text())
            problems += [
                f"{bug.file}: no such tests: {word}"
                for word in bug.tests.split()
                if word.startswith("test_") and not (root / "tests" / word.partition("::")[0]).is_file()
            ]
        except (OSError, ValueError) as error:  # noqa: PERF203
            problems.append(str(error))
    doubled = {bug.key for bug in bugs if bugs.count(bug) > 1}
    return problems + [f"{bug.file}: listed twice: {bug.old!r}" for bug in set(bugs) if bug.key in doubled]
