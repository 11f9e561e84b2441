"""What the models of the actor-critics have in common: an actor and critics on the same features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Generic, TypedDict, TypeVar

import torch
from torch import nn

from rl_training.models.actors import DeterministicActor, GaussianActor, with_noise
from rl_training.models.critics import ActionQ
from rl_training.models.mlp_q_network import Features

Actor = TypeVar("Actor", bound=nn.Module)
ContinuousActor = TypeVar("ContinuousActor", bound=DeterministicActor | GaussianActor)
Critic = TypeVar("Critic", bound=nn.Module)


class PerceptronOptions(TypedDict, total=False):
    """Keywords of ``PerceptronModel`` that the models built on it hand on."""

    hidden_sizes: Sequence[int]
    critic_hidden_sizes: Sequence[int] | None
    activation: str
    normalize_obs: bool
    layer_norm: bool
    n_critics: int
    critic_layer_norm: bool
    critic_dropout: float


class ActorCriticModel(nn.Module, Generic[Actor, Critic]):
    """An actor and critics that look at the same features of observations [B, *obs].

    ``features`` has no trainable parameters; it normalises observations if that was asked for.
    """

    has_modes: ClassVar[bool] = False

    def __init__(self, features: Features, actor: Actor, critic: Critic) -> None:
        super().__init__()
        self.features, self.actor, self.critic = features, actor, critic

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the actor's loss trains."""
        return self.actor.parameters()

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the critic's loss trains."""
        return self.critic.parameters()


class ContinuousModel(ActorCriticModel[ContinuousActor, Critic], Generic[ContinuousActor, Critic]):
    """A model of continuous actions [B, A] in [-1, 1]."""

    has_modes: ClassVar[bool] = False

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the actions [B, A] that the actor takes for the best."""
        return self.actor.mode(self.features(obs))

    def values(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return what every critic says of actions [B, A]: values [C, B, 1], or quantiles [C, B, K]."""
        value: torch.Tensor = self.critic(self.features(obs), action)
        return value


class PerceptronModel(ContinuousModel[ContinuousActor, ActionQ], Generic[ContinuousActor]):
    """Actor and critics are perceptrons; ``critic_hidden_sizes`` are those of the critics, if they differ."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_size: int,
        actor: Callable[..., ContinuousActor],
        *,
        hidden_sizes: Sequence[int] = (256, 256),
        critic_hidden_sizes: Sequence[int] | None = None,
        activation: str = "relu",
        normalize_obs: bool = False,
        layer_norm: bool = False,
        n_critics: int = 2,
        critic_layer_norm: bool = False,
        critic_dropout: float = 0.0,
        outputs: int = 1,
    ) -> None:
        features = Features(obs_shape, normalize=normalize_obs)
        super().__init__(
            features,
            actor(features.size, action_size, hidden_sizes, activation, layer_norm=layer_norm),
            ActionQ(
                features.size + action_size,
                hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes,
                outputs,
                count=n_critics,
                activation=activation,
                layer_norm=layer_norm or critic_layer_norm,
                dropout=critic_dropout,
            ),
        )


class DeterministicModel(PerceptronModel[DeterministicActor]):
    """A model whose actor gives one action for each observation."""

    has_modes: ClassVar[bool] = False

    def sample(self, obs: torch.Tensor, noise: torch.Tensor, clip: float | None = None) -> torch.Tensor:
        """Return the actor's actions with ``noise`` [B, A], clipped first if asked for, in [-1, 1]."""
        return with_noise(self.act(obs), noise, clip)
