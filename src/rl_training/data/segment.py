"""Parts of a large state that never change again, so that saving them twice would be waste."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Segment:
    """A leaf of a state tree: arrays that are complete, and stay what they are under that place in the tree.

    ``content`` is only called where the arrays are needed: a checkpoint that finds them saved already does not.
    """

    content: Callable[[], Mapping[str, Any]]
