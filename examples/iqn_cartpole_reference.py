"""Train IQN on CartPole-v1, and ask it what a cautious agent would do.

Run: python examples/iqn_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from rl_training import IQN, Callback, algorithms
from rl_training.runtime.session import Session

WORST = 0.25
"""A cautious agent goes by the mean of this share of the returns, the lowest ones."""


class Caution(Callback):
    """At the end of training, compares the choices by all returns with those by the worst of them."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.IQN)
        states = np.random.default_rng(0).normal(0.0, [0.5, 0.5, 0.1, 0.5], (1000, 4)).astype(np.float32)
        # The network knows the quantile at any fraction: here 50 that are spread evenly over the worst quarter.
        fractions = WORST * (torch.arange(50) + 0.5) / 50
        with torch.no_grad():
            worst = learner.online(torch.from_numpy(states), fractions.expand(1000, 50)).mean(2)
        neutral = learner.act(states, explore=False).action
        differing = (worst.argmax(1).numpy() != neutral).mean()
        print(f"caution changes the action in {differing:.1%} of 1000 states")
        value, low = learner.q_values(states).max(1).mean(), worst.amax(1).mean()
        print(f"mean return {value:.1f} in all, {low:.1f} in the worst {WORST:.0%} of cases")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = IQN(config="iqn/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Caution())

    # The agent itself is neutral: it goes by the mean over evenly spaced fractions.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    path = agent.save(agent.run_dir / "exported")
    action, _ = IQN.load(path).predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
