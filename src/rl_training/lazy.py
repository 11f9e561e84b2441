"""Exports that are imported when first used, so that importing the package stays instant."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def export(package: str, name: str, places: dict[str, str]) -> Any:
    """Return what a package exports under ``name``, from the module that ``places`` says."""
    if name not in places:
        raise AttributeError(f"module '{package}' has no attribute '{name}'")
    return getattr(importlib.import_module(places[name]), name)


def classes_below(package: str, kind: type) -> dict[str, str]:
    """Return the public classes of a kind that the modules of a package define, with their modules; import them all."""
    found: dict[str, str] = {}
    path = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(path, f"{package}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            own = isinstance(value, type) and issubclass(value, kind) and value.__module__ == module.name
            if own and not name.startswith("_"):
                found[name] = module.name
    return found
