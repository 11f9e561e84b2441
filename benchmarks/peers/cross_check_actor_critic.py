"""SAC, TD3 and CrossQ of Stable-Baselines3 and sb3-contrib and ours: equal weights, batches and noise, a few updates.

Both sides learn from the same batches with the same noise. What differs should be rounding: every weight, the
temperature and, for CrossQ, the running statistics. Two known differences are kept out of it: sb3-contrib divides
variances by n - 1 rather than by n, and both peers add 1e-6 inside the logarithm of the density, which matters only for
actions near their bounds, so that the noise is kept small here.

It runs in our environment with the extra ``bench`` and, for CrossQ, sb3-contrib.

Run: python benchmarks/peers/cross_check_actor_critic.py [sac] [td3] [crossq]
"""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack
from typing import Any
from unittest import mock

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from rl_training.algorithms.spec import BuildContext
from rl_training.data.transitions import Batch
from rl_training.experiment.configs import load_config
from rl_training.experiment.registry import get
from rl_training.observations import ObsSpec
from rl_training.runtime.streams import Streams
from rl_training.spaces import ContinuousActions

TOLERANCE = 1e-5
OBS, ACTIONS, ROWS, UPDATES, GAMMA = 5, 3, 32, 6, 0.97
HIDDEN = [32, 24]
THEIRS = {"sac": "stable_baselines3:SAC", "td3": "stable_baselines3:TD3", "crossq": "sb3_contrib:CrossQ"}
SHARED: dict[str, Any] = {"learning_rate": 1e-3, "gamma": GAMMA, "batch_size": ROWS}


class Anything(gym.Env[Any, Any]):
    """Has spaces; nobody steps it."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)


class Given:
    """Our learner's random numbers: normal ones that were given."""

    def __init__(self, noise: list[torch.Tensor]) -> None:
        self._noise = iter(noise)

    def standard_normal(self, shape: Any, dtype: Any) -> Any:
        found = next(self._noise).numpy()
        assert found.shape == shape
        return found


def special(algo: str) -> dict[str, Any]:
    delay = {} if algo == "sac" else {"policy_delay": 2}
    return delay if algo == "crossq" else {**delay, "tau": 0.1}


def make_theirs(algo: str) -> Any:
    package, _, name = THEIRS[algo].partition(":")
    shape = {"net_arch": {"pi": HIDDEN, "qf": HIDDEN}}
    torch.manual_seed(0)
    options = special(algo)
    learner = getattr(importlib.import_module(package), name)
    return learner("MlpPolicy", Anything(), policy_kwargs=shape, device="cpu", **SHARED, **options)


def make_ours(algo: str) -> Any:
    config = load_config(
        {
            "algo": algo,
            "env": {"id": "Pendulum-v1"},
            "total_timesteps": 1_000,
            "algo_kwargs": {**SHARED, "learning_starts": 0, **special(algo)},
            "network": {"hidden_sizes": HIDDEN},
        }
    )
    low = np.full(ACTIONS, -1.0, np.float32)
    spaces = ObsSpec((OBS,), np.dtype(np.float32)), ContinuousActions(low, -low)
    return get(algo).build_learner(BuildContext(config, *spaces, Streams(0), torch.device("cpu")))


def linear_and_norms(*parts: torch.nn.Module) -> list[torch.Tensor]:
    """Return parameters and running statistics of their parts, layer by layer."""
    found: list[Any] = []
    for layer in (layer for part in parts for layer in part.modules()):
        if isinstance(layer, torch.nn.Linear):
            found += [layer.weight, layer.bias]
        elif hasattr(layer, "ra_mean"):
            found += [layer.scale, layer.bias, layer.ra_mean, layer.ra_var]
        elif hasattr(layer, "running_mean"):
            found += [layer.weight, layer.bias, layer.running_mean, layer.running_var]
    return [tensor.detach() for tensor in found]


def their_tensors(algo: str, model: Any) -> dict[str, list[torch.Tensor]]:
    """Return all that is compared: by parts, in our order of layers; two heads of their actor are one of ours."""

    def actor(policy: Any) -> list[torch.Tensor]:
        if algo == "td3":
            return linear_and_norms(policy.mu)
        body = linear_and_norms(policy.latent_pi)
        heads = zip(linear_and_norms(policy.mu), linear_and_norms(policy.log_std), strict=True)
        return [*body, *(torch.cat(pair) for pair in heads)]

    def critics(critic: Any) -> list[torch.Tensor]:
        return linear_and_norms(*critic.q_networks)

    found = {"actor": actor(model.actor), "critic": critics(model.critic)}
    if algo != "crossq":
        found["target critic"] = critics(model.critic_target)
    if algo == "td3":
        found["target actor"] = actor(model.actor_target)
    else:
        found["temperature"] = [model.log_ent_coef.detach()]
    return found


def our_tensors(algo: str, learner: Any) -> dict[str, list[torch.Tensor]]:
    found = {
        "actor": linear_and_norms(learner.network.actor),
        "critic": linear_and_norms(learner.network.critic),
    }
    if algo != "crossq":
        found["target critic"] = linear_and_norms(learner.target_critic)
    if algo == "td3":
        found["target actor"] = linear_and_norms(learner.target_actor)
    else:
        found["temperature"] = [learner.temperature.log_alpha.detach()]
    return found


def batches() -> list[Batch]:
    """Return batches of which a part has terminated."""
    draw = torch.Generator().manual_seed(1)
    found = []
    for _ in range(UPDATES):
        obs, following = (torch.randn(ROWS, OBS, generator=draw) for _ in range(2))
        action = torch.rand(ROWS, ACTIONS, generator=draw) * 2 - 1
        reward = torch.randn(ROWS, generator=draw)
        ended = torch.rand(ROWS, generator=draw) < 0.2
        found.append(Batch(obs, action, reward, torch.where(ended, 0.0, GAMMA), following))
    return found


def as_theirs(batch: Batch) -> ReplayBufferSamples:
    done = (batch.discount == 0).float()[:, None]
    return ReplayBufferSamples(batch.obs, batch.action, batch.next_obs, done, batch.reward[:, None])


def noise_for(algo: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what they draw and what we draw: SAC's actor draws first there, and its targets first here."""
    draw = torch.Generator().manual_seed(2)
    theirs: list[torch.Tensor] = []
    ours: list[torch.Tensor] = []
    for i in range(1, UPDATES + 1):
        here, following = (0.5 * torch.randn(ROWS, ACTIONS, generator=draw) for _ in range(2))
        acts = algo == "sac" or (algo == "crossq" and i % 2 == 0)
        ours += [following, *([here] if acts else [])]
        theirs += [here, following] if algo == "sac" else [following, *([here] if acts else [])]
    return theirs, ours


def learn_theirs(model: Any, given: list[Batch], noise: list[torch.Tensor], algo: str) -> None:
    draws, var = iter(noise), torch.Tensor.var
    model._logger = mock.MagicMock()
    model.replay_buffer.sample = mock.MagicMock(side_effect=[as_theirs(batch) for batch in given])

    def target_noise(self: torch.Tensor, mean: float, std: float) -> torch.Tensor:
        return self.copy_(next(draws) * std)

    with ExitStack() as stack:
        if algo == "td3":
            stack.enter_context(mock.patch.object(torch.Tensor, "normal_", target_noise))
        else:
            normal = "torch.distributions.normal._standard_normal"
            stack.enter_context(mock.patch(normal, side_effect=draws))
        if algo == "crossq":
            by_n = mock.patch.object(torch.Tensor, "var", lambda self, dim: var(self, dim, correction=0))
            stack.enter_context(by_n)
        model.train(UPDATES, ROWS)


def compare(algo: str) -> float:
    """Print and return the largest difference."""
    model, learner = make_theirs(algo), make_ours(algo)
    before = their_tensors(algo, model)
    for name, tensors in our_tensors(algo, learner).items():
        for own, start in zip(tensors, before[name], strict=True):
            own.copy_(start)
    before = {name: [tensor.clone() for tensor in tensors] for name, tensors in before.items()}
    given, (theirs, ours) = batches(), noise_for(algo)
    learn_theirs(model, given, theirs, algo)
    learner._rng = Given(ours)
    for batch in given:
        learner.update(batch)
    after, worst = their_tensors(algo, model), 0.0
    for name, tensors in our_tensors(algo, learner).items():
        apart = max(float((own - their).abs().max()) for own, their in zip(tensors, after[name], strict=True))
        moved = max(float((own - old).abs().max()) for own, old in zip(tensors, before[name], strict=True))
        print(f"  {algo} {name}: {apart:.1e} apart, moved by {moved:.1e}")
        assert moved > 10 * TOLERANCE
        worst = max(worst, apart)
    return worst


def main() -> int:
    torch.set_num_threads(1)
    worst = max(compare(algo) for algo in sys.argv[1:] or THEIRS)
    print(f"largest difference {worst:.1e}, allowed {TOLERANCE:.0e}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
