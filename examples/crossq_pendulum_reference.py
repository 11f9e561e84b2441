"""Train CrossQ to swing up a pendulum, and look into its batch normalisation.

Run: python examples/crossq_pendulum_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

from rl_training import Callback, CrossQ, algorithms
from rl_training.models import BatchRenorm
from rl_training.runtime.session import Session

STATES = {"hanging": [-1.0, 0.0, 0.0], "upright": [1.0, 0.0, 0.0], "falling": [0.7, 0.7, 3.0]}
"""Cosine and sine of the angle, and the speed."""


class Statistics(Callback):
    """After training, shows the statistics by which the actor normalises observations."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.CrossQ)
        first = next(part for part in learner.network.actor.modules() if isinstance(part, BatchRenorm))
        names = ("cosine", "sine", "speed")
        for name, mean, var in zip(
            names, first.running_mean.tolist(), first.running_var.tolist(), strict=True
        ):
            print(f"{name}: {mean:+.2f} ± {var**0.5:.2f} in the actor's batches")
        print(f"{int(first.calls)} batches of the actor, no target network")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = CrossQ(config="crossq/pendulum", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Statistics())

    # Running statistics take the place of a batch's own, so one observation is enough.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = CrossQ.load(agent.save(agent.run_dir / "exported"))
    for name, state in STATES.items():
        action, _ = loaded.predict(state)
        print(f"pendulum {name}: torque {action[0]:+.2f}")


if __name__ == "__main__":
    main()
