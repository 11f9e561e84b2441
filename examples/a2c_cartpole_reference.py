"""Train A2C on CartPole-v1, see that it is PPO with a single step on each rollout, and ask its critic.

Run: python examples/a2c_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import torch

from rl_training import A2C, Callback, algorithms
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.session import Session

STATES = {"upright": [0.0, 0.0, 0.0, 0.0], "falling": [0.0, 0.0, 0.2, 2.0]}


class Values(Callback):
    """At the end of training, shows what the critic expects: an advantage is what comes on top of that."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.A2C)
        with torch.no_grad():
            values = learner.network.value(torch.tensor(list(STATES.values())))
        for name, value in zip(STATES, values.tolist(), strict=True):
            print(f"discounted return that the critic expects of a pole that is {name}: {value:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = A2C(config="a2c/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Values())

    # The policy that is improved is exactly the one that acted, so PPO's ratio is 1 and its clipping does nothing.
    assert agent.result is not None
    assert agent.run_dir is not None
    rows = read_metrics(agent.run_dir / "metrics.jsonl")
    clipped = max(row.get("train/clip_fraction", 0.0) for row in rows)
    updates, steps = agent.result.updates, agent.result.steps
    print(f"{updates} gradient steps, one for {steps / updates:.0f} env steps; {clipped:.0%} clipped")

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    path = agent.save(agent.run_dir / "exported")
    action, _ = A2C.load(path).predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
