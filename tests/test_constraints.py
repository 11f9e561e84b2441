"""The exact versions of ``constraints.txt`` are such as ``pyproject.toml`` allows, and none stands there twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PINS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]

UNPINNED = {"trackio"}
"""It wants an older Pillow than the one that everything else is tested with."""


def test_every_requirement_has_one_pin_that_it_allows() -> None:
    tomllib = pytest.importorskip("tomllib", reason="of Python 3.11 and newer")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    pinned = {canonicalize_name(pin.name): pin for pin in PINS}
    assert UNPINNED.isdisjoint(pinned)
    assert len(pinned) == len(PINS)
    for line in asked:
        wanted = Requirement(line)
        if wanted.name == "rl_training" or canonicalize_name(wanted.name) in UNPINNED:
            continue
        pin = pinned[canonicalize_name(wanted.name)]
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert wanted.specifier.contains(exact.version), f"{line}: {pin}"


def test_the_oldest_python_is_left_a_choice_where_a_pin_needs_a_newer_one() -> None:
    markers = {str(pin.marker) for pin in PINS if pin.marker is not None}
    assert markers == {'python_version >= "3.11"'}
