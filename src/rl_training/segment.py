"""A part of a run's state that is complete, so that a checkpoint need not write it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    Content: TypeAlias = Mapping[str, torch.Tensor | npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Segment:
    """Arrays that are complete: in this place of the tree a run, resumed or not, never saves other ones.

    ``content`` may be a function, which is called only if the arrays have to be written. It should give views,
    since the arrays of all segments of a save are held together. A loaded tree has a plain dict in this place.
    """

    content: Content | Callable[[], Content]

    def arrays(self) -> Content:
        """Return the content."""
        return self.content() if callable(self.content) else self.content
