"""What tests of the value-based learners share: learners as a run builds them, batches, and tiny MDPs."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.spec import BuildContext
from rl_training.data import Batch
from rl_training.experiment.configs import load_config
from rl_training.experiment.registry import get
from rl_training.observations import ObsSpec
from rl_training.runtime.streams import Streams
from rl_training.spaces import DiscreteActions

ALGOS = ("dqn", "prioritized_dqn", "c51", "qr_dqn", "iqn", "rainbow")
HEADS = ("dqn", "c51", "qr_dqn", "iqn")
"""The algorithms that differ in more than in what is switched on."""


def make_learner(
    obs_shape=(3,),
    num_actions=2,
    hidden=(16,),
    *,
    algo="dqn",
    activation="relu",
    total=1000,
    seed=0,
    network=None,
    normalize_obs=False,
    layer_norm=False,
    **options,
):
    """Build a learner as a run does; ``options`` are its hyper-parameters."""
    config = load_config(
        {
            "algo": algo,
            "env": {"id": "CartPole-v1"},
            "total_timesteps": total,
            "algo_kwargs": {"learning_starts": 0, "tau": 1.0, **options},
            "network": {
                "hidden_sizes": list(hidden),
                "activation": activation,
                "normalize_obs": normalize_obs,
                "layer_norm": layer_norm,
            },
        }
    )
    torch.manual_seed(seed)
    spaces = ObsSpec(obs_shape, np.dtype(np.float32)), DiscreteActions(num_actions)
    return get(algo).build_learner(BuildContext(config, *spaces, Streams(seed), torch.device("cpu"), network))


def random_batch(seed=0, size=8, obs_shape=(3,), num_actions=2, **changes):
    draw = torch.Generator().manual_seed(seed)
    fields = {
        "obs": torch.randn(size, *obs_shape, generator=draw),
        "action": torch.randint(num_actions, (size,), generator=draw),
        "reward": torch.randn(size, generator=draw),
        "discount": torch.rand(size, generator=draw),
        "next_obs": torch.randn(size, *obs_shape, generator=draw),
    }
    return Batch(**{**fields, **changes})


def random_masks(seed, size, num_actions):
    """Bools [size, num_actions] of which each row allows something, and most forbid something."""
    rng = np.random.default_rng(seed)
    mask = rng.random((size, num_actions)) < 0.5
    mask[np.arange(size), rng.integers(0, num_actions, size)] = True
    return mask


def fill(module: nn.Module, value: float) -> None:
    for parameter in module.parameters():
        parameter.data.fill_(value)


def weights_of(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def set_table(network: nn.Module, table) -> None:
    """Make a network without hidden layers give ``table`` [S, A, ...] for the one-hot observations of S states."""
    (linear,) = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    linear.weight.data.copy_(torch.as_tensor(table).flatten(1).T)
    linear.bias.data.zero_()


def gradient_table(learner, *shape: int) -> torch.Tensor:
    """Return the last gradient of such a network's weights in the shape of its table."""
    return learner.optimizer.grad[: torch.Size(shape).numel()].view(-1, shape[0]).T.reshape(shape)


# MDPs, given by probabilities [S, A, S] (what is missing to 1 terminates) and rewards [S, A]


def value_iteration(transition, reward, gamma):
    q = np.zeros_like(reward)
    for _ in range(2000):
        q = reward + gamma * transition @ q.max(1)
    return q


def two_state_mdp(_rng):
    """Action 1 changes the state, which costs; staying in state 1 pays."""
    transition = np.zeros((2, 2, 2))
    transition[[0, 1], 0, [0, 1]] = transition[[0, 1], 1, [1, 0]] = 1.0
    return transition, np.array([[0.0, -0.5], [1.0, -0.5]])


def random_mdp(rng):
    transition = rng.dirichlet(np.full(5, 0.5), (5, 3)) * rng.uniform(0.5, 1.0, (5, 3, 1))
    return transition, rng.normal(size=(5, 3))


def whole_mdp(transition, reward, gamma):
    """Every possible transition once, its probability as its weight, those to the end with discount 0."""
    rows = []
    for s, a in np.ndindex(reward.shape):
        outcomes = [(p, gamma, t) for t, p in enumerate(transition[s, a]) if p > 0]
        outcomes.append((1.0 - transition[s, a].sum(), 0.0, 0))
        rows += [(s, a, reward[s, a], discount, t, p) for p, discount, t in outcomes if p > 1e-12]
    s, a, r, discount, t, weight = zip(*rows, strict=True)
    one_hot = torch.eye(len(reward))
    return Batch(
        one_hot[list(s)],
        torch.tensor(a),
        torch.tensor(r, dtype=torch.float32),
        torch.tensor(discount, dtype=torch.float32),
        one_hot[list(t)],
        weight=torch.tensor(weight, dtype=torch.float32),
    )
