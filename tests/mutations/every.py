"""All bugs."""

from __future__ import annotations

from mutations.bug import Bug
from mutations.first import FIRST

BUGS: list[Bug] = [*FIRST]
