"""The networks of CrossQ: perceptrons whose layers are batch-normalised."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import nn

from rl_training.models.actors import GaussianActor, OutputGaussianActor
from rl_training.models.batch_renorm import BatchRenorm
from rl_training.models.continuous import ContinuousModel
from rl_training.models.encoders import Cnn, encoder_of
from rl_training.models.features import Obs
from rl_training.models.mlp import ACTIVATIONS


class NormalizedMLP(nn.Sequential):
    """Linear layers of which each has batch-normalised inputs; activations come before the normalisation."""

    has_modes: ClassVar[bool] = False

    def __init__(self, sizes: Sequence[int], activation: str, *, momentum: float, warm_up: int) -> None:
        norms = [BatchRenorm(size, momentum=momentum, warm_up=warm_up) for size in sizes[:-1]]
        linears = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)]
        parts: list[nn.Module] = []
        for norm, linear in zip(norms, linears, strict=True):
            parts += [norm, linear, ACTIVATIONS[activation]()]
        super().__init__(*parts[:-1])
        self.sizes, self.activation, self.norms = tuple(sizes), activation, norms


class NormalizedQ(nn.Module):
    """Several such perceptrons, each with statistics of its own, from inputs and actions to values."""

    has_modes: ClassVar[bool] = False

    def __init__(self, members: Sequence[NormalizedMLP]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return the values [C, B, 1] of actions [B, A] for inputs [B, in]."""
        both = torch.cat((x, action), -1)
        return torch.stack([member(both) for member in self.members])


class MLPCrossQModel(ContinuousModel[GaussianActor, NormalizedQ]):
    """A squashed Gaussian and several critics; no copies of them are needed as targets."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs: Obs,
        action_size: int,
        *,
        hidden_sizes: Sequence[int] = (256, 256),
        critic_hidden_sizes: Sequence[int] | None = None,
        activation: str = "relu",
        normalize_obs: bool = False,
        n_critics: int = 2,
        momentum: float = 0.01,
        warm_up: int = 100_000,
        cnn: Cnn = "auto",
    ) -> None:
        features = encoder_of(obs, normalize=normalize_obs, cnn=cnn)

        def perceptron(inputs: int, hidden: Sequence[int], outputs: int) -> NormalizedMLP:
            return NormalizedMLP((inputs, *hidden, outputs), activation, momentum=momentum, warm_up=warm_up)

        critic_sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        super().__init__(
            features,
            OutputGaussianActor(perceptron(features.size, hidden_sizes, 2 * action_size)),
            NormalizedQ([perceptron(features.size + action_size, critic_sizes, 1) for _ in range(n_critics)]),
        )

    def sample(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions [B, A] of standard normal ``noise`` [B, A], and the log of their density [B]."""
        return self.actor.sample(self.features(obs), noise)
