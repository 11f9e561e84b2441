"""Networks that need not be switched between training and evaluation, and those that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.models import MLPC51QNetwork, MLPIQNQNetwork, MLPQRQNetwork
from rl_training.models.mlp import ACTIVATIONS
from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.models.modes import has_modes

OPTIONS: dict[str, Any] = {"hidden_sizes": (8, 8), "dueling": True, "normalize_obs": True, "layer_norm": True}
MAKERS: dict[str, Callable[..., nn.Module]] = {
    "dqn": lambda **own: MLPQNetwork((3,), 2, **OPTIONS, noisy_sigma=0.5, **own),
    "c51": lambda **own: MLPC51QNetwork((3,), 2, num_atoms=5, v_min=0.0, v_max=1.0, **OPTIONS, **own),
    "qr_dqn": lambda **own: MLPQRQNetwork((3,), 2, num_quantiles=5, **OPTIONS, **own),
    "iqn": lambda **own: MLPIQNQNetwork((3,), 2, num_cosines=4, **OPTIONS, **own),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_packaged_networks_are_the_same_in_training_and_evaluation(name: str, activation: str) -> None:
    network = MAKERS[name](activation=activation)
    assert not has_modes(network)
    inputs = [torch.randn(4, 3), *([torch.rand(4, 5)] if name == "iqn" else [])]
    assert torch.equal(network.train()(*inputs), network.eval()(*inputs))


class Inherited(MLPQNetwork):
    """Says nothing of itself, and is not spoken for by its parent."""


class Own(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2.0 if self.training else 1.0)


@pytest.mark.parametrize(
    "part",
    [
        nn.Dropout(0.5),
        nn.BatchNorm1d(3),
        nn.RReLU(),
        nn.LSTM(3, 3),  # torch has another way through it for those that do not learn
        Own(3, 3),
        Inherited((3,), 3),
        torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
        torch.nn.utils.spectral_norm(nn.Linear(3, 3)),  # a hook: its class remains nn.Linear
    ],
    ids=lambda part: type(part).__name__,
)
def test_whatever_might_differ_is_switched(part: nn.Module) -> None:
    assert has_modes(nn.Sequential(nn.Linear(3, 3), part))
    assert not has_modes(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3)))
