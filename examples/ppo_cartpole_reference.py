"""Train PPO on CartPole-v1, and see how sure its policy is of what it does.

Run: python examples/ppo_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import torch

from rl_training import PPO, Callback, algorithms
from rl_training.runtime.session import Session

STATES = {
    "upright": [0.0, 0.0, 0.0, 0.0],
    "leaning to the right": [0.0, 0.0, 0.1, 0.0],
    "falling to the right": [0.0, 0.0, 0.15, 1.5],
    "falling to the left": [0.0, 0.0, -0.15, -1.5],
}


class Probabilities(Callback):
    """Before and after training, shows how likely a push to the right is in a few states."""

    def on_start(self, training: Session) -> None:
        self.before = self._right(training)

    def on_end(self, training: Session) -> None:
        for name, before, after in zip(STATES, self.before, self._right(training), strict=True):
            print(f"pole {name}: a push to the right has {before:.0%} before training, {after:.0%} after it")

    def _right(self, training: Session) -> list[float]:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.PPO)
        with torch.no_grad():
            logits = learner.network.policy(torch.tensor(list(STATES.values())))
        chances: list[float] = logits.softmax(1)[:, 1].tolist()
        return chances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = PPO(config="ppo/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Probabilities())

    # In training, actions are drawn by these probabilities; in evaluation, the likelier one is taken.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    path = agent.save(agent.run_dir / "exported")
    loaded, leaning = PPO.load(path), STATES["leaning to the right"]
    action, _ = loaded.predict(leaning)
    drawn, _ = loaded.predict([leaning] * 10, deterministic=False)
    print(f"action {action} for a pole that leans to the right, or drawn ten times {drawn}; saved in {path}")


if __name__ == "__main__":
    main()
