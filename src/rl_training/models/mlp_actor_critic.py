"""A policy and a value of the state, by multilayer perceptrons."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.models.distributions import ActionHead
from rl_training.models.encoders import Cnn, encoder_of
from rl_training.models.features import Obs
from rl_training.models.mlp import ACTIVATIONS, MLP


class EncodedMLP(MLP):
    """A perceptron on what an encoder of its own makes of observations."""

    has_modes: ClassVar[bool] = False

    def __init__(self, encoder: nn.Module, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.encoder = encoder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output [B, out] for observations [B, *obs]."""
        return super().forward(self.encoder(x))


class MLPActorCritic(nn.Module):
    """From observations [B, *obs] to the outputs [B, head.size] of a policy and values [B].

    Actor and critic have layers of their own, or with ``shared`` the same ones below their last. ``orthogonal_init``
    starts with orthogonal weights, of the policy's last layer small ones. ``fused=False`` lets the actor be
    differentiated twice. ``log_std`` is a parameter of its own, and belongs to the actor.

    Images among the observations are encoded by ``cnn``, once for actor and critic, or by an encoder each with
    ``separate_encoders``. ``features`` never has anything to learn: with images it leaves observations as they are.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs: Obs,
        head: ActionHead,
        hidden_sizes: Sequence[int] = (64, 64),
        *,
        activation: str = "tanh",
        shared: bool = False,
        orthogonal_init: bool = True,
        log_std_init: float = 0.0,
        normalize_obs: bool = False,
        layer_norm: bool = False,
        fused: bool = True,
        cnn: Cnn = "auto",
        separate_encoders: bool = False,
    ) -> None:
        super().__init__()
        self.head, self.shared = head, shared and len(hidden_sizes) > 0
        first = encoder_of(obs, normalize=normalize_obs, cnn=cnn)
        self.learned = first.learned
        self.features: nn.Module = nn.Identity() if self.learned else first
        sizes, options = [first.size, *hidden_sizes], {"layer_norm": layer_norm, "fused": fused}
        below: list[nn.Module] = [first] if self.learned and not separate_encoders else []
        if self.shared:
            norm = [nn.LayerNorm(sizes[-1])] if layer_norm else []
            below += [MLP(sizes, activation, **options), *norm, ACTIVATIONS[activation]()]
            sizes = sizes[-1:]
        self.trunk: nn.Module = nn.Sequential(*below) if below else nn.Identity()
        if self.learned and separate_encoders:
            self.actor: MLP = EncodedMLP(first, [*sizes, head.size], activation, **options)
            self.critic: MLP = EncodedMLP(copy.deepcopy(first), [*sizes, 1], activation, **options)
        else:
            self.actor = MLP([*sizes, head.size], activation, **options)
            self.critic = MLP([*sizes, 1], activation, **options)
        self.log_std = nn.Parameter(torch.full((head.log_stds,), log_std_init)) if head.log_stds else None
        if orthogonal_init:
            self.apply(orthogonal)
            orthogonal(self.actor.linears[-1], 0.01)
            orthogonal(self.critic.linears[-1], 1.0)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs [B, head.size] and the values [B]."""
        x = self.trunk(self.features(obs))
        return self.actor(x), self.critic(x)[:, 0]

    def policy(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the outputs [B, head.size] alone."""
        out: torch.Tensor = self.actor(self.trunk(self.features(obs)))
        return out

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the values [B] alone."""
        out: torch.Tensor = self.critic(self.trunk(self.features(obs)))
        return out[:, 0]

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the policy's loss trains: what is shared, too."""
        own = [] if self.log_std is None else [self.log_std]
        return chain(self.trunk.parameters(), self.actor.parameters(), own)

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what only the value's loss trains."""
        return self.critic.parameters()

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the most likely actions [B, *action]."""
        chosen = self.head.choose(self.policy(obs).detach().cpu().numpy(), None, None, None)
        return torch.as_tensor(chosen, device=obs.device)

    def sample(
        self, obs: torch.Tensor, rng: np.random.Generator, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions [B, *action] drawn from ``rng``, and the logarithms of their probabilities [B]."""
        out = self.policy(obs)
        std = None if self.log_std is None else self.log_std.detach().cpu().numpy()
        allowed = None if mask is None else mask.cpu().numpy()
        action = torch.as_tensor(
            self.head.choose(out.detach().cpu().numpy(), std, allowed, rng), device=obs.device
        )
        return action, self.head.distribution(out, self.log_std, mask).log_prob(action)


def orthogonal(module: nn.Module, gain: float = math.sqrt(2.0)) -> None:
    """Give a linear layer or a convolution orthogonal weights, and biases of zero; other modules are left alone."""
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.orthogonal_(module.weight, gain)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
