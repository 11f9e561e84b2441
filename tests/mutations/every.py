"""All bugs."""

from __future__ import annotations

from mutations.bug import Bug
from mutations.control import CONTROL
from mutations.data import DATA
from mutations.envs import ENVS
from mutations.first import FIRST
from mutations.models import MODELS
from mutations.on_policy import ON_POLICY
from mutations.rest import REST
from mutations.runtime import RUNTIME
from mutations.value_based import VALUE_BASED
from mutations.wiring import WIRING

WRITTEN: list[Bug] = [*FIRST, *VALUE_BASED, *CONTROL, *ON_POLICY, *DATA, *MODELS, *ENVS, *RUNTIME, *REST]
"""By hand."""
BUGS: list[Bug] = [*WRITTEN, *WIRING]


def sample(count: int | None) -> list[Bug]:
    """Return all bugs that were written by hand, and ``count`` of those of wiring, evenly spread (none: all)."""
    if count is None or count >= len(WIRING):
        return BUGS
    return [*WRITTEN, *(WIRING[i * len(WIRING) // count] for i in range(count))]
