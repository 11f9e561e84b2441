"""A policy and a value of a history of observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.models.distributions import ActionHead
from rl_training.models.features import Obs
from rl_training.models.mlp import MLP
from rl_training.models.mlp_actor_critic import orthogonal
from rl_training.models.recurrent.body import RecurrentBody, State
from rl_training.models.recurrent.packing import Packing

CRITIC = "critic_"
"""What the names of the critic's own memory begin with."""


class LSTMActorCritic(nn.Module):
    """A recurrent body for the actor and one for the critic, or with ``shared`` one for both, and heads on them.

    ``num_actions`` is only needed where the last action is an input. ``head_sizes`` are hidden layers between a core
    and its head. Further options are those of ``RecurrentBody``. A memory holds the actor's state and, under names that
    begin with ``critic_``, that of the critic.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs: Obs,
        head: ActionHead,
        num_actions: int = 0,
        hidden_sizes: Sequence[int] = (64,),
        *,
        head_sizes: Sequence[int] = (),
        shared: bool = False,
        orthogonal_init: bool = True,
        log_std_init: float = 0.0,
        activation: str = "tanh",
        **body: Any,
    ) -> None:
        super().__init__()
        self.head, self.shared = head, shared

        def make() -> RecurrentBody:
            return RecurrentBody(obs, num_actions, hidden_sizes, activation=activation, **body)

        self.body = make()
        self.critic_body = self.body if shared else make()
        size = self.body.core_size
        self.actor = MLP([size, *head_sizes, head.size], activation)
        self.critic = MLP([size, *head_sizes, 1], activation)
        self.log_std = nn.Parameter(torch.full((head.log_stds,), log_std_init)) if head.log_stds else None
        if orthogonal_init:
            self.apply(orthogonal)
            orthogonal(self.actor.linears[-1], 0.01)
            orthogonal(self.critic.linears[-1], 1.0)

    def initial_state(self, batch_size: int = 1) -> State:
        """Return the memory of ``batch_size`` episodes that are about to begin."""
        state = self.body.initial_state(batch_size)
        if not self.shared:
            own = self.critic_body.initial_state(batch_size)
            state.update({CRITIC + name: own[name] for name in ("hidden", "cell") if name in own})
        return state

    def sequence(
        self, obs: torch.Tensor, state: State, **between: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, State]:
        """Return outputs [T, B, head.size] and values [T, B] of sequences [T, B, *obs], and the memory after them.

        ``state`` is the memory before them; ``between`` as in ``RecurrentBody.features_sequence``.
        """
        actor, after = self.body.features_sequence(obs, _of_actor(state), **between)
        critic = actor
        if not self.shared:
            critic, own = self.critic_body.features_sequence(obs, _of_critic(state), **between)
            after = {**after, **{CRITIC + name: own[name] for name in ("hidden", "cell") if name in own}}
        steps = obs.shape[:2]
        out = self.actor(actor.flatten(0, 1)).view(*steps, -1)
        return out, self.critic(critic.flatten(0, 1)).view(steps), after

    def packed(
        self, obs: torch.Tensor, state: State, packing: Packing, past: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs [R, head.size] and values [R] of packed sequences; see ``RecurrentBody.features_packed``."""
        actor = self.body.features_packed(obs, _of_actor(state), packing, past)
        critic = actor
        if not self.shared:
            critic = self.critic_body.features_packed(obs, _of_critic(state), packing, past)
        return self.actor(actor), self.critic(critic)[:, 0]

    def forward(self, obs: torch.Tensor, state: State) -> tuple[torch.Tensor, torch.Tensor, State]:
        """Return outputs [B, head.size] and values [B] of observations [B, *obs], and the memory after them."""
        out, value, after = self.sequence(obs[None], state)
        return out[0], value[0], after

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the policy's loss trains: what is shared, too."""
        own = [] if self.log_std is None else [self.log_std]
        return chain(self.body.parameters(), self.actor.parameters(), own)

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what only the value's loss trains."""
        return chain([] if self.shared else self.critic_body.parameters(), self.critic.parameters())

    def act(self, obs: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Return the most likely actions [B, *action], and the memory after the observations."""
        out, _, after = self(obs, state)
        chosen = self.head.choose(out.detach().cpu().numpy(), None, None, None)
        return torch.as_tensor(chosen, device=obs.device), after

    def sample(
        self, obs: torch.Tensor, state: State, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor, State]:
        """Return actions [B, *action] drawn from ``rng``, the logs of their probabilities [B], and the memory."""
        out, _, after = self(obs, state)
        std = None if self.log_std is None else self.log_std.detach().cpu().numpy()
        drawn = self.head.choose(out.detach().cpu().numpy(), std, None, rng)
        action = torch.as_tensor(drawn, device=obs.device)
        return action, self.head.distribution(out, self.log_std).log_prob(action), after


def _of_actor(state: State) -> State:
    return {name: tensor for name, tensor in state.items() if not name.startswith(CRITIC)}


def _of_critic(state: State) -> State:
    own = {name.removeprefix(CRITIC): state[name] for name in state if name.startswith(CRITIC)}
    return {**_of_actor(state), **own}
