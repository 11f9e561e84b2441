"""Evaluation as Stable-Baselines3 calls it."""

from __future__ import annotations

from typing import Any

from rl_training.api.arguments import Env
from rl_training.api.managed import ManagedAlgorithm
from rl_training.errors import ConfigError


def evaluate_policy(
    model: ManagedAlgorithm,
    env: Env | None = None,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    *,
    return_episode_rewards: bool = False,
    **others: Any,
) -> tuple[Any, Any]:
    """Evaluate an agent as Stable-Baselines3's function of this name does, by ``model.evaluate``.

    Returns mean and standard deviation of the returns, or with ``return_episode_rewards`` all returns and lengths.

    :param model: The agent.
    :param env: Another environment than the agent's own.
    :param n_eval_episodes: How many episodes.
    :param deterministic: Only True is possible.
    :param return_episode_rewards: Return the values of each episode.
    """
    if not deterministic:
        raise ConfigError(
            "deterministic: evaluation is greedy; agent.predict(obs, deterministic=False) explores"
        )
    if not isinstance(model, ManagedAlgorithm):
        raise ConfigError(f"model: should be an agent of this package, not {type(model).__name__}")
    if others.keys() - {"warn"}:
        raise ConfigError(
            f"{min(others.keys() - {'warn'})}: is not here; agent.evaluate(episodes) gives all returns"
        )
    result = model.evaluate(n_eval_episodes, env=env)
    if return_episode_rewards:
        return list(result.returns), list(result.lengths)
    return result.mean, result.std
