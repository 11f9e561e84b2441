"""What results were measured with: versions, the package's own code, and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from rl_training.runtime.folder import environment_facts

_ENVIRONMENT_PACKAGES = (
    "ale-py",
    "box2d",
    "dm-control",
    "dm_control",
    "mujoco",
    "pillow",
    "pygame",
    "pygame-ce",
)


def machine_facts() -> dict[str, Any]:
    """Return versions, a hash of this package's own files, processor, cores and memory."""
    facts = environment_facts(0, "")
    plain = {name: fact for name, fact in facts.items() if name not in ("threads", "device")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    own = {"source": source_digest(), "system": platform.system(), "cores": cores()}
    return {**plain, **_environment_packages(), **own, "memory_gib": round(memory)}


def _environment_packages() -> dict[str, str]:
    """Return the versions of what packaged environments are made of, as far as it is installed."""
    return {
        found.name.lower(): found.version
        for found in distributions()
        if found.name and found.name.lower() in _ENVIRONMENT_PACKAGES
    }


def source_digest(root: Path = Path(__file__).parent.parent) -> str:
    """Return twelve characters that stand for the code in a folder, by default this package's own."""
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".c", ".h")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
