"""One PPO of Stable-Baselines3 and one of ours: equal weights, an equal rollout, and what they make of it.

Stable-Baselines3 collects a rollout with terminations and truncations and learns from it. Ours begins with its weights,
is given the same steps, and learns from them in the same order, by its compiled gradient and by autograd. What differs
should be rounding: values, probabilities, advantages and returns before the update, and every weight after it.

It runs in our environment with the extra ``bench``: the peers' has not what ``rl_training`` imports.

Run: python benchmarks/peers/cross_check.py
"""

# mypy: allow-subclassing-any

from __future__ import annotations

import functools
import sys
import warnings
from dataclasses import dataclass
from typing import Any
from unittest import mock

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO as TheirPPO
from stable_baselines3.common.vec_env import DummyVecEnv

from rl_training.algorithms.ppo import PPO
from rl_training.algorithms.spec import BuildContext
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.transitions import Transitions
from rl_training.experiment.configs import load_config
from rl_training.experiment.registry import get
from rl_training.observations import ObsSpec
from rl_training.runtime.streams import Streams
from rl_training.spaces import ActionSpec, ContinuousActions, DiscreteActions

Array = NDArray[Any]
TOLERANCE = 1e-5
ENVS, STEPS, OBS = 3, 32, 4
EPISODES = (5, 7, 9, 6)
"""Lengths of the episodes; every other one ends by a time limit."""
# The batch does not divide a rollout, and the learning rate is so high that ratios reach the clip range.
SHARED: dict[str, Any] = {
    "n_steps": STEPS,
    "batch_size": 40,
    "n_epochs": 2,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "gae_lambda": 0.9,
    "clip_range": 0.1,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "normalize_advantage": True,
}
BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)  # where their units of actions are ours


class Noise(gym.Env[Array, Any]):
    """Random observations and rewards, and a record of every step."""

    def __init__(self, actions: gym.Space[Any], seed: int) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
        self.action_space = actions
        self._rng, self._episode, self._step = np.random.default_rng(seed), seed, 0
        self.record: list[tuple[Array, float, Array, bool, bool]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        self._episode, self._step, self._obs = self._episode + 1, 0, self._new()
        return self._obs, {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        before, self._obs, self._step = self._obs, self._new(), self._step + 1
        ended, timed = self._step == EPISODES[self._episode % len(EPISODES)], self._episode % 2 == 0
        reward = float(np.float32(self._rng.normal()))
        self.record.append((before, reward, self._obs, ended and not timed, ended and timed))
        return self._obs, reward, ended and not timed, ended and timed, {}

    def _new(self) -> Array:
        return self._rng.normal(size=OBS).astype(np.float32)


@dataclass
class Theirs:
    """What Stable-Baselines3 did; arrays are [STEPS, ENVS]."""

    before: list[torch.Tensor]
    after: list[torch.Tensor]
    steps: list[Transitions]
    found: dict[str, Array]


def their_weights(model: Any) -> list[torch.Tensor]:
    """Return their parameters in the order of ours: actor, critic, standard deviation."""
    policy = model.policy
    parts = (
        policy.mlp_extractor.policy_net,
        policy.action_net,
        policy.mlp_extractor.value_net,
        policy.value_net,
    )
    found = [p.detach().clone() for part in parts for p in part.parameters()]
    return [*found, policy.log_std.detach().clone()] if hasattr(policy, "log_std") else found


def our_weights(learner: PPO) -> list[torch.Tensor]:
    network = learner.network
    found = [p.detach() for part in (network.actor, network.critic) for p in part.parameters()]
    return found if network.log_std is None else [*found, network.log_std.detach()]


def _itself(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return env


def learn_theirs(actions: gym.Space[Any], orders: list[Array]) -> Theirs:
    """Let Stable-Baselines3 collect a rollout and learn from it in these orders of the samples."""
    envs = [Noise(actions, seed) for seed in range(ENVS)]
    vector = DummyVecEnv([functools.partial(_itself, env) for env in envs])
    model: Any = TheirPPO("MlpPolicy", vector, seed=0, device="cpu", **SHARED)
    with torch.no_grad():  # its own are so small that all actions would be as likely
        model.policy.action_net.weight.normal_(0.0, 0.5)
        if hasattr(model.policy, "log_std"):
            model.policy.log_std.uniform_(-0.5, 0.5)
    before = their_weights(model)
    with mock.patch("numpy.random.permutation", side_effect=orders):
        model.learn(STEPS * ENVS, log_interval=None)
    # By now its arrays are flat, one environment after the other.
    buffer = model.rollout_buffer
    found = {
        name: _by_steps(getattr(buffer, name)) for name in ("values", "log_probs", "advantages", "returns")
    }
    taken = _by_steps(buffer.actions)
    steps = []
    for t in range(STEPS):
        obs, reward, next_obs, terminated, truncated = zip(*(env.record[t] for env in envs), strict=True)
        action = taken[t].astype(np.int64) if isinstance(actions, gym.spaces.Discrete) else taken[t]
        steps.append(
            Transitions(
                np.arange(ENVS),
                np.stack(obs),
                action,
                np.array(reward),
                np.stack(next_obs),
                np.array(terminated),
                np.array(truncated),
            )
        )
    return Theirs(before, their_weights(model), steps, found)


def _by_steps(flat: Array) -> Array:
    """Turn [ENVS * STEPS, size] into [STEPS, ENVS, size], or without the last axis if that is 1."""
    found: Array = flat.reshape(ENVS, STEPS, -1).swapaxes(0, 1).squeeze()
    return found


class Orders:
    """Our learner's random numbers: orders of the samples that were given."""

    def __init__(self, orders: list[Array]) -> None:
        self._orders = iter(orders)

    def permutation(self, count: int) -> Array:
        order = next(self._orders)
        assert len(order) == count
        return order


def make_ours(
    actions: ActionSpec, weights: list[torch.Tensor], orders: list[Array]
) -> tuple[PPO, RolloutBuffer]:
    """Build our learner and its experience as a run does, with these weights."""
    config = load_config(
        {
            "algo": "ppo",
            "env": {"id": "CartPole-v1", "num_envs": ENVS},
            "total_timesteps": 10 * STEPS * ENVS,
            "algo_kwargs": {**SHARED, "value_clipping": "none"},
        }
    )
    spaces = ObsSpec((OBS,), np.dtype(np.float32)), actions
    context = BuildContext(config, *spaces, Streams(0), torch.device("cpu"))
    learner, experience = get("ppo").build_learner(context), get("ppo").build_experience(context)
    assert isinstance(learner, PPO)
    assert isinstance(experience, RolloutBuffer)
    for own, given in zip(our_weights(learner), weights, strict=True):
        own.copy_(given)
    fixed: Any = Orders(orders)
    learner._rng = fixed
    return learner, experience


def compare(actions: ActionSpec, theirs: Theirs, orders: list[Array], *, compiled: bool) -> dict[str, float]:
    """Return the largest differences."""
    learner, experience = make_ours(actions, theirs.before, orders)
    if not compiled:
        learner._compiled = None
    elif learner._compiled is None:
        raise SystemExit("error: there is no compiled gradient here")
    for step in theirs.steps:
        experience.add(step)
    (rollout,) = experience.batches(0)
    samples = learner.samples(rollout, rollout.reward)
    ours = {
        "values": samples.value,
        "log_probs": samples.log_prob,
        "advantages": samples.advantage,
        "returns": samples.target,
    }
    differences = {
        name: float(np.abs(found.numpy() - theirs.found[name].ravel()).max()) for name, found in ours.items()
    }
    result = learner.update(rollout)
    assert result.gradient_steps == SHARED["n_epochs"] * -(-STEPS * ENVS // SHARED["batch_size"])
    pairs = list(zip(our_weights(learner), theirs.after, theirs.before, strict=True))
    differences["parameters"] = max(float((own - their).abs().max()) for own, their, _ in pairs)
    # What there is to compare with: how far the update moved them, and how often a ratio was clipped.
    differences["(moved by)"] = max(float((own - first).abs().max()) for own, _, first in pairs)
    differences["(clipped)"] = float(result.metrics["clip_fraction"])
    return differences


def main() -> int:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "You have specified a mini-batch size")  # on purpose
    rng, worst = np.random.default_rng(0), 0.0
    their_orders = [rng.permutation(STEPS * ENVS) for _ in range(SHARED["n_epochs"])]
    # Samples are numbered one environment after the other by them, one step after the other by us.
    our_orders = [order % STEPS * ENVS + order // STEPS for order in their_orders]
    cases: dict[str, tuple[gym.Space[Any], ActionSpec]] = {
        "categorical": (gym.spaces.Discrete(3), DiscreteActions(3)),
        "gaussian": (BOX, ContinuousActions(BOX.low, BOX.high)),
    }
    for name, (space, actions) in cases.items():
        theirs = learn_theirs(space, their_orders)
        ended = sum(int(step.terminated.sum()) for step in theirs.steps)
        timed = sum(int(step.truncated.sum()) for step in theirs.steps)
        print(f"{name}: {STEPS * ENVS} steps, {ended} terminations, {timed} truncations")
        assert ended
        assert timed
        for kind in ("compiled", "autograd"):
            found = compare(actions, theirs, our_orders, compiled=kind == "compiled")
            print(f"  {kind}: {', '.join(f'{key} {value:.1e}' for key, value in found.items())}")
            worst = max([worst, *(value for key, value in found.items() if not key.startswith("("))])
    print(f"largest difference {worst:.1e}, allowed {TOLERANCE:.0e}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
