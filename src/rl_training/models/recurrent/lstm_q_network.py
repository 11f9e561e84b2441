"""From a history of observations to Q-values."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from rl_training.models.features import Obs
from rl_training.models.mlp_q_network import duel
from rl_training.models.recurrent.body import RecurrentBody, State


class LSTMQNetwork(RecurrentBody):
    """A recurrent body (its options are those of ``RecurrentBody``) with a Q-head, plain or ``dueling``."""

    has_modes: ClassVar[bool] = False

    def __init__(self, obs: Obs, num_actions: int, *args: Any, dueling: bool = False, **options: Any) -> None:
        super().__init__(obs, num_actions, *args, **options)
        self.dueling = dueling
        self.head = nn.Linear(self.core_size, num_actions + dueling)

    def forward(self, obs: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Return the Q-values [B, A] of observations [B, *obs], and the memory that includes them."""
        q, state = self.q_values_sequence(obs[None], state)
        return q[0], state

    def act(
        self, obs: torch.Tensor, state: State, episode_start: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, State]:
        """Return Q-values [B, A], greedy actions [B], and the memory to hand in with the next observations.

        ``episode_start`` [B] says where the memory is to be forgotten before. The rewards that follow are for
        the caller to write into the memory, if it has a place for them.
        """
        if episode_start is not None:
            state = self.reset_state(state, episode_start)
        q, state = self(obs, state)
        action = q.argmax(1)
        if self.prev_action:
            state["action"] = action + 1
        return q, action, state

    def q_values_sequence(
        self,
        obs: torch.Tensor,
        state: State,
        **between: torch.Tensor | None,
    ) -> tuple[torch.Tensor, State]:
        """Return the Q-values [T, B, A] of sequences [T, B, *obs], and the memory that includes them.

        ``between`` are ``actions``, ``rewards`` and ``starts`` as ``features_sequence`` takes them.
        """
        features, after = self.features_sequence(obs, state, **between)
        return self.q_values(features.flatten(0, 1)).view(*obs.shape[:2], -1), after

    def q_values(self, features: torch.Tensor) -> torch.Tensor:
        """Return the Q-values [B, A] of what the core gives [B, core_size]."""
        q: torch.Tensor = self.head(features)
        return duel(q) if self.dueling else q
