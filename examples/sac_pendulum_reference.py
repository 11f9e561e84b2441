"""Train SAC to swing up a pendulum, and watch its temperature.

Run: python examples/sac_pendulum_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

from rl_training import SAC, Callback, algorithms
from rl_training.runtime.session import Session

STATES = {"hanging": [-1.0, 0.0, 0.0], "upright": [1.0, 0.0, 0.0], "falling": [0.7, 0.7, 3.0]}
"""Cosine and sine of the angle, and the speed."""


class Temperature(Callback):
    """Shows how much entropy is worth while it learns."""

    def on_step(self, training: Session) -> None:
        if training.steps % 1_000 == 0:
            learner = training.run.algorithm
            assert isinstance(learner, algorithms.SAC)
            alpha, target = float(learner.temperature()), learner.target_entropy
            print(f"step {training.steps:>6}: temperature {alpha:.3f}, which keeps an entropy of {target:g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = SAC(config="sac/pendulum", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Temperature())

    # In training, actions are drawn from the policy; an evaluation takes their mode.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = SAC.load(agent.save(agent.run_dir / "exported"))
    for name, state in STATES.items():
        action, _ = loaded.predict(state)
        print(f"pendulum {name}: torque {action[0]:+.2f}")


if __name__ == "__main__":
    main()
