"""Train C51 on CartPole-v1, and draw the distribution of returns that it has learned.

Run: python examples/c51_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path

import torch

from rl_training import C51, Callback, algorithms
from rl_training.runtime.session import Session

UPRIGHT = [0.0, 0.0, 0.0, 0.0]
FALLING = [0.0, 0.0, 0.15, 1.5]
LEFT = 0


class Histogram(Callback):
    """At the end of training, draws how returns are distributed over the support."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.C51)
        for name, obs in (("upright", UPRIGHT), ("falling", FALLING)):
            with torch.no_grad():
                probabilities = learner.online(torch.tensor([obs])).softmax(2)[0, LEFT]
            print(f"discounted return after a push to the left, pole {name}:")
            parts = (torch.split(row, 6) for row in (learner.support, probabilities))
            for values, shares in zip(*parts, strict=True):
                share = float(shares.sum())
                print(f"  {values[0]:5.0f} to {values[-1]:3.0f}  {share:4.0%} {'#' * round(50 * share)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # The support has to hold the returns: with gamma = 0.99 and a reward of 1 a step, they are from 0 to 100.
    agent = C51(config="c51/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Histogram())

    # Actions are chosen by the mean of these distributions.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    path = agent.save(agent.run_dir / "exported")
    action, _ = C51.load(path).predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
