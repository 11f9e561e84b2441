"""Train TD3 to swing up a pendulum, and see how far its two critics are apart.

Run: python examples/td3_pendulum_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import torch

from rl_training import TD3, Callback, algorithms
from rl_training.runtime.session import Session

STATES = {"hanging": [-1.0, 0.0, 0.0], "upright": [1.0, 0.0, 0.0], "falling": [0.7, 0.7, 3.0]}
"""Cosine and sine of the angle, and the speed."""


class Twins(Callback):
    """After training, shows what both critics say of the policy's own actions."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.TD3)
        obs = torch.tensor(list(STATES.values()))
        with torch.no_grad():
            first, second = learner.network.values(obs, learner.network.act(obs))[:, :, 0].tolist()
        for name, one, other in zip(STATES, first, second, strict=True):
            print(f"pendulum {name}: the critics say {one:.1f} and {other:.1f}; targets take the smaller one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = TD3(config="td3/pendulum", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Twins())

    # Exploration adds noise to the actions; an evaluation takes them as they are.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = TD3.load(agent.save(agent.run_dir / "exported"))
    for name, state in STATES.items():
        action, _ = loaded.predict(state)
        print(f"pendulum {name}: torque {action[0]:+.2f}")


if __name__ == "__main__":
    main()
