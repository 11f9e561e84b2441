"""Train TQC to swing up a pendulum, and see the returns that it expects.

Run: python examples/tqc_pendulum_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import torch

from rl_training import TQC, Callback, algorithms
from rl_training.runtime.session import Session

STATES = {"hanging": [-1.0, 0.0, 0.0], "upright": [1.0, 0.0, 0.0], "falling": [0.7, 0.7, 3.0]}
"""Cosine and sine of the angle, and the speed."""


class Quantiles(Callback):
    """After training, shows how returns are distributed by what the critics say."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.TQC)
        obs = torch.tensor(list(STATES.values()))
        with torch.no_grad():
            quantiles = learner.network.values(obs, learner.network.act(obs)).mean(0).sort(1).values
        for name, row in zip(STATES, quantiles.tolist(), strict=True):
            low, middle, high = row[0], row[len(row) // 2], row[-1]
            print(f"pendulum {name}: returns from {low:.1f} over {middle:.1f} to {high:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = TQC(config="tqc/pendulum", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Quantiles())

    # In training, actions are drawn from the policy; an evaluation takes their mode.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = TQC.load(agent.save(agent.run_dir / "exported"))
    for name, state in STATES.items():
        action, _ = loaded.predict(state)
        print(f"pendulum {name}: torque {action[0]:+.2f}")


if __name__ == "__main__":
    main()
