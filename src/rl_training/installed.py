"""What is installed: which modules belong to an installed distribution, and which plugins distributions announce.

Installed is what lies in a ``site-packages`` folder of this Python, and what was installed as editable.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import site
import sys
import sysconfig
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

OWN = __name__.partition(".")[0]


def site_folders() -> list[str]:
    """Return the folders in which this Python looks for what was installed."""
    known = [
        *site.getsitepackages(),
        site.getusersitepackages(),
        *map(sysconfig.get_path, ("purelib", "platlib")),
    ]
    on_path = {os.path.realpath(entry) for entry in sys.path if os.path.isabs(entry)}
    return [folder for folder in dict.fromkeys(map(os.path.realpath, known)) if folder in on_path]


def plugins(group: str) -> list[EntryPoint]:
    """Return the entry points of installed distributions; others, in the current folder for example, have none."""
    found: dict[str, list[EntryPoint]] = {}
    for distribution in distributions(path=site_folders()):
        points = [point for point in distribution.entry_points if point.group == group]
        found.setdefault(_plain(distribution), points)
    return [point for points in found.values() for point in points]


def is_installed(module: str) -> bool:
    """Say whether a module is part of an installed distribution; this imports the packages that it lies in."""
    parts = module.split(".")
    if not all(part.isidentifier() and part != "__main__" for part in parts):
        return False
    homes = [*site_folders(), *_editable_homes(parts[0])]
    for depth in range(1, len(parts) + 1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:depth]))
        except (ImportError, ValueError, AttributeError):
            return False
        if spec is None:
            return False
        # A namespace package has no file; what is in it has.
        inside = spec.origin is not None and any(_lies_in(spec.origin, home) for home in homes)
        if not inside and (spec.origin is not None or depth == len(parts)):
            return False
    return True


def _editable_homes(top: str) -> list[str]:
    """Return where the top-level module of an editable installation may lie."""
    if top == OWN:
        return [str(Path(__file__).parent.parent)]
    return [
        home
        for distribution in distributions(path=site_folders())
        if (home := _project(distribution)) is not None
        and top in {_plain(distribution), *(distribution.read_text("top_level.txt") or "").split()}
    ]


def _project(distribution: Distribution) -> str | None:
    """Return the folder of a project that is installed as editable."""
    try:
        said = json.loads(distribution.read_text("direct_url.json") or "{}")
        return unquote(urlsplit(said["url"]).path) if said["dir_info"]["editable"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _plain(distribution: Distribution) -> str:
    name: str | None = distribution.metadata["Name"]
    return re.sub("[-_.]+", "_", name or "").lower()


def _lies_in(file: str, folder: str) -> bool:
    return os.path.realpath(file).startswith(os.path.join(os.path.realpath(folder), ""))
