"""All bugs."""

from __future__ import annotations

from mutations.bug import Bug
from mutations.first import FIRST
from mutations.wiring import WIRING

BUGS: list[Bug] = [*FIRST, *WIRING]
