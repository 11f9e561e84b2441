"""What tests of the actor-critics with replay share: small learners, batches, and control with a known answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from rl_training import load_config
from rl_training.algorithms.catalogue import packaged
from rl_training.algorithms.spec import BuildContext
from rl_training.data.transitions import Batch
from rl_training.observations import ObsSpec
from rl_training.runtime.streams import Streams
from rl_training.spaces import ContinuousActions, DiscreteActions

CONTINUOUS = ("ddpg", "td3", "sac", "tqc", "crossq")


def make_learner(
    algo: str, *, obs: int = 3, actions: int = 2, hidden: Any = (16,), seed: int = 0, **options: Any
) -> Any:
    """Build a learner from its declaration, with weights of its own for every seed."""
    torch.manual_seed(seed)
    shape = {"hidden_sizes": list(hidden), **options.pop("network", {})}
    spec = packaged(algo)
    config = load_config(
        {
            "algo": algo,
            "env": {"id": "Pendulum-v1"},
            "total_timesteps": options.pop("total_timesteps", 1_000),
            "algo_kwargs": {"learning_starts": 0, "batch_size": 16, **options},
            "network": shape,
        }
    )
    low = np.full(actions, -1.0, np.float32)
    space: Any = DiscreteActions(actions, 0) if algo == "discrete_sac" else ContinuousActions(low, -low)
    seen = ObsSpec((obs,), np.dtype(np.float32))
    return spec.build_learner(BuildContext(config, seen, space, Streams(seed), torch.device("cpu")))


def random_batch(
    algo: str, size: int = 16, *, obs: int = 3, actions: int = 2, seed: int = 0, **changes: Any
) -> Batch:
    """Return transitions of which a third has terminated."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    discrete = algo == "discrete_sac"
    action = (
        torch.from_numpy(rng.integers(actions, size=size)) if discrete else torch.tanh(normal(size, actions))
    )
    discount = torch.where(torch.arange(size) % 3 == 0, 0.0, 0.9)
    fields: dict[str, Any] = {
        "obs": normal(size, obs),
        "action": action,
        "reward": normal(size),
        "discount": discount,
        "next_obs": normal(size, obs),
    }
    return Batch(**{**fields, **changes})


def flat(module: nn.Module) -> torch.Tensor:
    """Return a copy of all parameters in one vector."""
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def seen_by(learner: Any, batch: Batch) -> Any:
    """Return what the critics make of a batch, without learning from it."""
    return learner._critic_loss(batch, *learner._see(batch))


def plain_mlp(mlp: Any, x: torch.Tensor) -> torch.Tensor:
    """Compute a perceptron by torch's own functions."""
    pairs = list(zip(mlp.flat[::2], mlp.flat[1::2], strict=True))
    for weight, bias in pairs[:-1]:
        x = torch.relu(nn.functional.linear(x, weight, bias))
    return nn.functional.linear(x, *pairs[-1])


def plain_critics(critic: Any, x: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
    """Return the outputs [B, K] of every critic, by torch's own functions."""
    return [plain_mlp(member, torch.cat((x, action), 1)) for member in critic.members]


class Recording:
    """Takes the place of a learner's generator and remembers what was drawn."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.drawn: list[Any] = []

    def standard_normal(self, *args: Any, **options: Any) -> Any:
        """Draw and remember."""
        self.drawn.append(self._rng.standard_normal(*args, **options))
        return self.drawn[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)


# Control with a known answer

A, B, COST, GAMMA = 0.9, 0.5, 0.5, 0.9


def riccati_gain() -> float:
    """Return k of the best policy u = -k x where x' = A x + B u costs x^2 + COST u^2."""
    value = 0.0
    for _ in range(1_000):
        value = 1.0 + GAMMA * A**2 * value - (GAMMA * A * B * value) ** 2 / (COST + GAMMA * B**2 * value)
    return GAMMA * A * B * value / (COST + GAMMA * B**2 * value)


def gain_learned(learner: Any, updates: int, act: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """Train on linear-quadratic control from all states and actions; return the gain of the policy."""
    generator = torch.Generator().manual_seed(0)
    rates = {name: optimizer.lr for name, optimizer in learner.optimizers.items()}
    for i in range(updates):
        x, u = (torch.rand((128, 1), generator=generator) * 2 - 1 for _ in range(2))
        reward = -(x.square() + COST * u.square())[:, 0]
        learner.update(Batch(x, u, reward, torch.full((128,), GAMMA), A * x + B * u))
        for name, optimizer in learner.optimizers.items():
            optimizer.lr = rates[name] * (1 - i / updates) + 1e-5
    x = torch.linspace(-0.8, 0.8, 9)[:, None]
    with torch.no_grad():
        u = act(x)
    return -float((x * u).sum() / x.square().sum())


def value_learned(
    learner: Any, updates: int, *, reward: float, gamma: float, bootstrap: bool
) -> torch.Tensor:
    """Train where every step pays the same; return values [C, B] that critics learn of steps cut by a time limit.

    With ``bootstrap`` false, every fourth step ends in a termination.
    """
    size, discrete = 64, learner._action_shape == ()
    generator = torch.Generator().manual_seed(0)
    ends = torch.arange(size) % 4 == 0
    discount = torch.where(ends & (not bootstrap), 0.0, gamma)
    found = torch.empty(0)
    for _ in range(updates):
        obs, following = (torch.rand((size, 3), generator=generator) for _ in range(2))
        action = torch.rand((size, 2), generator=generator) * 2 - 1
        chosen = (action[:, 0] > 0).long() if discrete else action
        batch = Batch(obs, chosen, torch.full((size,), reward), discount, following)
        found = seen_by(learner, batch).value
        learner.update(batch)
    return found


def polyak_shares(learner: Any, batches: list[Batch], slow: nn.Module, fast: nn.Module) -> list[float]:
    """Return how far a slow copy that begins at zero has gone to frozen weights, after each update."""
    online = flat(fast)
    with torch.no_grad():
        for parameter in slow.parameters():
            parameter.zero_()
    shares = []
    for batch in batches:
        learner.update(batch)
        shares.append(float((flat(slow) @ online) / (online @ online)))
    return shares


def increasing(numbers: list[float]) -> bool:
    """Say whether each number is larger than the one before."""
    return all(a < b for a, b in pairwise(numbers))


def trainer(algo: str) -> Any:
    """Return the function that trains an algorithm."""
    return getattr(importlib.import_module(f"rl_training.runtime.{algo}_trainer"), f"train_{algo}")
