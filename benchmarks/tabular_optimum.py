"""How near a policy on FrozenLake 8x8 or Taxi is to the best there is, found by dynamic programming.

The environments are small enough to be solved: both the best return within their time limit and the return that an
agent's greedy policy can expect are computed exactly, without a single episode.

    python benchmarks/tabular_optimum.py                      the best returns
    python benchmarks/tabular_optimum.py RUN [RUN ...]        those of trained agents, beside what value iteration
                                                              finds for their discount
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import rl_training

Array = NDArray[Any]
ENVIRONMENTS: dict[str, dict[str, Any]] = {"FrozenLake8x8-v1": {"is_slippery": True}, "Taxi-v4": {}}


class Table:
    """An environment as arrays: chances [S, A, S], expected rewards [S, A] and the first state's distribution [S]."""

    def __init__(self, env_id: str, kwargs: dict[str, Any]) -> None:
        env = gym.make(env_id, **kwargs)
        assert env.spec is not None
        assert env.spec.max_episode_steps is not None
        self.limit = env.spec.max_episode_steps
        bare: Any = env.unwrapped
        states, actions = int(bare.observation_space.n), int(bare.action_space.n)
        self.chances = np.zeros((states, actions, states))
        self.rewards = np.zeros((states, actions))
        for state, by_action in bare.P.items():
            for action, outcomes in by_action.items():
                for chance, following, reward, terminated in outcomes:
                    self.rewards[state, action] += chance * reward
                    if not terminated:  # of what follows a terminal state there is nothing
                        self.chances[state, action, following] += chance
        self.first = np.asarray(bare.initial_state_distrib, np.float64)
        # Taxi says which actions do something; agents are trained by its masks, and have to be asked with them.
        masked = hasattr(bare, "action_mask")
        self.masks = np.array([bare.action_mask(s) for s in range(states)], bool) if masked else None

    def best(self) -> float:
        """Return the best expected return within the time limit, by policies that may look at the clock."""
        value = np.zeros(len(self.first))
        for _ in range(self.limit):
            value = (self.rewards + self.chances @ value).max(1)
        return float(self.first @ value)

    def of(self, policy: Array) -> float:
        """Return what a policy, an action [S] for each state, can expect within the time limit."""
        every = np.arange(len(policy))
        rewards, chances = self.rewards[every, policy], self.chances[every, policy]
        value = np.zeros(len(self.first))
        for _ in range(self.limit):
            value = rewards + chances @ value
        return float(self.first @ value)

    def greedy(self, gamma: float) -> Array:
        """Return the best policy for discounted returns without a time limit, by value iteration."""
        value = np.zeros(len(self.first))
        for _ in range(100_000):
            better = (self.rewards + gamma * self.chances @ value).max(1)
            if np.abs(better - value).max() < 1e-12:
                break
            value = better
        policy: Array = (self.rewards + gamma * self.chances @ value).argmax(1)
        return policy


def main(runs: list[str]) -> None:
    """Print the best returns, or compare trained agents with them."""
    tables = {env_id: Table(env_id, kwargs) for env_id, kwargs in ENVIRONMENTS.items()}
    best = {env_id: table.best() for env_id, table in tables.items()}
    if not runs:
        for env_id, table in tables.items():
            print(
                f"{env_id}: best within {table.limit} steps {best[env_id]:.4f}; the best policy for a discount of"
            )
            for gamma in (0.95, 0.99, 0.995, 0.999):
                print(f"    {gamma}: {table.of(table.greedy(gamma)):.4f}")
    for run in runs:
        agent = rl_training.load(run)
        assert agent.config is not None
        env_id = agent.config.env.id
        table = tables[env_id]
        policy, _ = agent.predict(np.arange(len(table.first)), action_mask=table.masks)
        found = table.of(np.asarray(policy))
        solved = table.of(table.greedy(agent.config.algo_kwargs.gamma))
        print(
            f"{run}: {env_id} {found:.4f}; value iteration {solved:.4f}, of which {found / solved:.2%}; "
            f"best {best[env_id]:.4f}, of which {found / best[env_id]:.2%}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
