"""Train DDPG to swing up a pendulum, and see what its critic says of every torque.

Run: python examples/ddpg_pendulum_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import torch

from rl_training import DDPG, Callback, algorithms
from rl_training.runtime.session import Session

STATES = {"hanging": [-1.0, 0.0, 0.0], "upright": [1.0, 0.0, 0.0], "falling": [0.7, 0.7, 3.0]}
"""Cosine and sine of the angle, and the speed."""


class Values(Callback):
    """After training, shows the value of a push to either side."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.DDPG)
        torques = torch.tensor([[-1.0], [0.0], [1.0]])
        for name, state in STATES.items():
            with torch.no_grad():
                values = learner.network.values(torch.tensor([state] * 3), torques)[0, :, 0]
            left, none, right = values.tolist()
            print(f"pendulum {name}: left {left:.1f}, no torque {none:.1f}, right {right:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = DDPG(config="ddpg/pendulum", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Values())

    # Exploration adds noise to the actions; an evaluation takes them as they are.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = DDPG.load(agent.save(agent.run_dir / "exported"))
    for name, state in STATES.items():
        action, _ = loaded.predict(state)
        print(f"pendulum {name}: torque {action[0]:+.2f}")


if __name__ == "__main__":
    main()
