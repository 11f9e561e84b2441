"""What the models of the actor-critics have in common: an actor and critics on the same features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Generic, TypedDict, TypeVar

import torch
from torch import nn
from typing_extensions import Unpack

from rl_training.models.actors import DeterministicActor, GaussianActor, with_noise
from rl_training.models.critics import ActionQ
from rl_training.models.encoders import Cnn, ImageEncoder, encoder_of
from rl_training.models.features import Features, Obs

Actor = TypeVar("Actor", bound=nn.Module)
ContinuousActor = TypeVar("ContinuousActor", bound=DeterministicActor | GaussianActor)
Critic = TypeVar("Critic", bound=nn.Module)


class PerceptronOptions(TypedDict, total=False):
    """Keywords of ``PerceptronModel`` that the models built on it hand on."""

    hidden_sizes: Sequence[int]
    critic_hidden_sizes: Sequence[int] | None
    activation: str
    normalize_obs: bool
    cnn: Cnn
    layer_norm: bool
    n_critics: int
    critic_layer_norm: bool
    critic_dropout: float


DEFAULTS: PerceptronOptions = {
    "hidden_sizes": (256, 256),
    "critic_hidden_sizes": None,
    "activation": "relu",
    "normalize_obs": False,
    "cnn": "auto",
    "layer_norm": False,
    "n_critics": 2,
    "critic_layer_norm": False,
    "critic_dropout": 0.0,
}


def critics_of(kind: Callable[..., Critic], inputs: int, outputs: int, given: PerceptronOptions) -> Critic:
    """Build the critics that a complete set of options asks for."""
    own = given["critic_hidden_sizes"]
    return kind(
        inputs,
        given["hidden_sizes"] if own is None else own,
        outputs,
        count=given["n_critics"],
        activation=given["activation"],
        layer_norm=given["layer_norm"] or given["critic_layer_norm"],
        dropout=given["critic_dropout"],
    )


class ActorCriticModel(nn.Module, Generic[Actor, Critic]):
    """An actor and critics that look at the same features of observations [B, *obs].

    ``features`` normalises observations if that was asked for. It has nothing to learn, unless there are images:
    then it is an encoder that the critics' loss trains, and that the actor only uses.
    """

    has_modes: ClassVar[bool] = False

    def __init__(self, features: Features | ImageEncoder, actor: Actor, critic: Critic) -> None:
        super().__init__()
        self.features, self.actor, self.critic = features, actor, critic

    def trained_by_critic(self) -> nn.Module:
        """Return what the critics' loss trains, the critics last."""
        return nn.ModuleList([self.features, self.critic]) if self.features.learned else self.critic

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the actor's loss trains."""
        return self.actor.parameters()

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the critic's loss trains."""
        return self.trained_by_critic().parameters()


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
        obs: Obs,
        action_size: int,
        actor: Callable[..., ContinuousActor],
        *,
        outputs: int = 1,
        **options: Unpack[PerceptronOptions],
    ) -> None:
        given: PerceptronOptions = {**DEFAULTS, **options}
        features = encoder_of(obs, normalize=given["normalize_obs"], cnn=given["cnn"])
        sizes, activation = given["hidden_sizes"], given["activation"]
        super().__init__(
            features,
            actor(features.size, action_size, sizes, activation, layer_norm=given["layer_norm"]),
            critics_of(ActionQ, features.size + action_size, outputs, given),
        )


class DeterministicModel(PerceptronModel[DeterministicActor]):
    """A model whose actor gives one action for each observation."""

    has_modes: ClassVar[bool] = False

    def sample(self, obs: torch.Tensor, noise: torch.Tensor, clip: float | None = None) -> torch.Tensor:
        """Return the actor's actions with ``noise`` [B, A], clipped first if asked for, in [-1, 1]."""
        return with_noise(self.act(obs), noise, clip)
