"""Train Rainbow on CartPole-v1, and see how much noise it has kept to explore with.

Run: python examples/rainbow_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path

from rl_training import Callback, Rainbow, algorithms
from rl_training.models.noisy import noisy_layers
from rl_training.runtime.session import Session


class NoiseLeft(Callback):
    """Compares the size of the learned noise before and after training."""

    def on_start(self, training: Session) -> None:
        self.before = self._sizes(training)

    def on_end(self, training: Session) -> None:
        for i, (before, after) in enumerate(zip(self.before, self._sizes(training), strict=True)):
            print(f"noise of noisy layer {i}: {before:.4f} at the start, {after:.4f} at the end")

    def _sizes(self, training: Session) -> list[float]:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.Rainbow)
        return [float(layer.weight_sigma.detach().abs().mean()) for layer in noisy_layers(learner.online)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # Each part can be left out, to see what it is good for: Rainbow(config=..., noisy=False).
    agent = Rainbow(config="rainbow/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=NoiseLeft())

    # Evaluation and prediction use the means of the weights: without noise, the same each time.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    path = agent.save(agent.run_dir / "exported")
    action, _ = Rainbow.load(path).predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
