"""What an agent computes when it acts greedily, in operations of torch alone, so that it can be exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from rl_training.models.features import Apart

Observed = torch.Tensor | Apart
"""Observations [B, *obs], or of a ``Dict`` or ``Tuple`` their parts."""
Memory = dict[str, torch.Tensor]
# Networks say that they take a tensor; their encoders take parts as well.
Step = Callable[[Any, Memory], tuple[torch.Tensor, Memory]]
ScoreName = Literal["q_values", "logits", "action"]


class Scorer(nn.Module):
    """Maps observations and a memory to what the greedy choice is made of, and to the memory that includes them.

    These scores are ``q_values`` or ``logits`` [B, ...], of which the largest are chosen, or, where actions are
    continuous, the ``action`` itself [B, A], in the learner's units. ``network`` holds the weights that ``step``
    uses. ``memory`` is that of one episode that is about to begin, all zeros, as in ``Learner.initial_carry``.
    What is done is for the caller to write into ``memory["action"]``, and what it brought into ``memory["reward"]``.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self, network: nn.Module, name: ScoreName, step: Step, memory: Mapping[str, torch.Tensor]
    ) -> None:
        super().__init__()
        self.network, self.name = network, name
        self.memory = {name: tensor.cpu() for name, tensor in memory.items()}
        self._step = step

    def forward(self, obs: Observed, memory: Memory) -> tuple[torch.Tensor, Memory]:
        """Return the scores, and the memory to hand in with the next observations."""
        return self._step(obs, memory)


def memoryless(network: nn.Module, name: ScoreName, score: Callable[[Any], torch.Tensor]) -> Scorer:
    """Return the scorer of an agent without a memory."""
    return Scorer(network, name, lambda obs, memory: (score(obs), memory), {})
