"""How sequences of different lengths lie in one block of rows, without padding."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from rl_training.spaces import Array


class Packing:
    """Rows [R] of S sequences as in torch's ``PackedSequence``: step by step, and in each step the longest first.

    ``inside`` [T, S] says which steps are steps of a sequence; what is packed are the
    true ones, in this order.
    """

    def __init__(self, lengths: Array) -> None:
        if (np.diff(lengths) > 0).any() or lengths[-1] < 1:
            raise ValueError("lengths: expected positive ones, the longest first")
        self.lengths = lengths
        self.inside: Array = np.arange(int(lengths[0]))[:, None] < lengths
        self.counts = self.inside.sum(1)
        """How many sequences [T] are under way at each step."""
        self._starts = np.cumsum(self.counts) - self.counts

    @cached_property
    def last(self) -> torch.Tensor:
        """The rows [S] of the last steps."""
        return torch.from_numpy(self._starts[self.lengths - 1] + np.arange(len(self.lengths)))

    @cached_property
    def before(self) -> torch.Tensor:
        """For every row behind the first step, that of the step before [R - S]."""
        later = self.counts[1:]
        within = np.arange(later.sum()) - np.repeat(np.cumsum(later) - later, later)
        return torch.from_numpy(np.repeat(self._starts[:-1], later) + within)

    @cached_property
    def batch_sizes(self) -> torch.Tensor:
        """``counts`` as torch wants them."""
        return torch.from_numpy(self.counts)
