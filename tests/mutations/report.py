"""The report: how many bugs of each package were noticed, and which were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mutations.bug import Bug

Found = Sequence[tuple[Bug, dict[str, Any]]]


def counts(found: Found) -> str:
    """Return the numbers of each package as a Markdown table."""
    every, red, explained = Counter[str](), Counter[str](), Counter[str]()
    for bug, row in found:
        for name in (bug.module, "all"):
            every[name] += 1
            red[name] += bool(row["red"])
            explained[name] += bool(not row["red"] and bug.survives)
    rows = [
        f"| {name} | {every[name]} | {red[name]} | {every[name] - red[name] - explained[name]} | {explained[name]} |"
        for name in [*sorted(set(every) - {"all"}), "all"]
    ]
    head = "| package | bugs | noticed | unnoticed | cannot be noticed |\n|---|---:|---:|---:|---:|"
    return "\n".join([head, *rows])


def page(found: Found) -> str:
    """Return everything as a Markdown page."""
    table = [
        f"| {'red' if row['red'] else 'GREEN'} | {row['seconds']} | `{bug.file}` | {bug.what} | "
        f"{row['test'] or bug.survives or ''} |"
        for bug, row in sorted(found, key=lambda one: (one[1]["red"], one[0].file))
    ]
    seconds = sum(row["seconds"] for _, row in found)
    head = "| | seconds | file | what is broken | noticed by |\n|---|---:|---|---|---|"
    return "\n".join(
        ["# Bugs put in", "", counts(found), "", f"{seconds:.0f} seconds.", "", head, *table, ""]
    )
