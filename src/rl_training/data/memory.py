"""How much memory there is, asked before a buffer is allocated."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from rl_training.errors import ConfigError

_CGROUP_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_SHARE = 0.9
"""Share of the free memory that a buffer may take; networks and environments need the rest."""


def available_memory() -> int | None:
    """Return the bytes this process may still use, by the system and by its container; none if unknown."""
    candidates = [value for value in (_meminfo(), *_cgroups()) if value is not None]
    return min(candidates) if candidates else None


def require_memory(
    rows: int,
    bytes_per_row: int,
    key: str,
    what: str = "transitions",
    allocated: Callable[[int], int] = lambda rows: rows,
) -> None:
    """Refuse ``rows`` that do not fit, naming the largest number that does.

    ``allocated`` says how many are allocated for so many, at least as many for more.
    """
    free = available_memory()
    if free is None:
        return
    room = int(free * _SHARE) // max(bytes_per_row, 1)
    if allocated(rows) > room:
        fits = bisect_right(range(rows), room, key=allocated) - 1
        need, have = allocated(rows) * bytes_per_row / 2**30, free / 2**30
        raise ConfigError(
            f"{key}: {rows} {what} need {need:.1f} GiB, {have:.1f} GiB are free; the largest that fits is {fits}"
        )


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return None
    except OSError:
        pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
        return pages * os.sysconf("SC_PAGE_SIZE") or None


def _cgroups() -> list[int]:
    free = []
    for limit_file, usage_file in _CGROUP_LIMITS:
        try:
            limit, usage = Path(limit_file).read_text().strip(), Path(usage_file).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            free.append(max(int(limit) - int(usage) + _reclaimable(Path(usage_file).parent), 0))
    return free


def _reclaimable(group: Path) -> int:
    """Return the bytes of file cache that count as used, but are given up as soon as somebody needs them."""
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(values.get("inactive_file", 0))
