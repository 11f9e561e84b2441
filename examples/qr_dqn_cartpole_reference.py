"""Train QR-DQN on CartPole-v1, and print the quantiles of the return that it has learned.

Run: python examples/qr_dqn_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path

import torch

from rl_training import QRDQN, Callback, algorithms
from rl_training.runtime.session import Session

STATES = {"upright": [0.0, 0.0, 0.0, 0.0], "leaning": [0.0, 0.0, 0.1, 0.5], "falling": [0.0, 0.0, 0.15, 1.5]}


class Quantiles(Callback):
    """At the end of training, prints a few of the quantiles of each action."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.QRDQN)
        shown = torch.linspace(0, len(learner.fractions) - 1, 5).round().long()
        heads = "".join(f"{fraction:8.0%}" for fraction in learner.fractions[shown].tolist())
        print(f"{'quantiles of the return':24}{heads}    mean")
        for name, obs in STATES.items():
            with torch.no_grad():
                quantiles = learner.online(torch.tensor([obs]))[0]
            for action, values in zip(("left", "right"), quantiles, strict=True):
                numbers = "".join(f"{value:8.1f}" for value in values[shown].tolist())
                print(f"{f'{name}, pushed {action}':24}{numbers}{values.mean():8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # No support to choose here: quantiles go wherever the returns are.
    agent = QRDQN(config="qr_dqn/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Quantiles())

    # Actions are chosen by the mean, the last column.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    path = agent.save(agent.run_dir / "exported")
    action, _ = QRDQN.load(path).predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
