"""Train Discrete SAC on CartPole-v1, and see how sure its policy is of what it does.

Run: python examples/discrete_sac_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import torch

from rl_training import Callback, DiscreteSAC, algorithms
from rl_training.runtime.session import Session

STATES = {
    "upright": [0.0, 0.0, 0.0, 0.0],
    "falling to the right": [0.0, 0.0, 0.15, 1.5],
    "falling to the left": [0.0, 0.0, -0.15, -1.5],
}


class Probabilities(Callback):
    """After training, shows the probabilities of the actions, and the temperature."""

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.DiscreteSAC)
        for name, state in STATES.items():
            with torch.no_grad():
                right = float(learner.network.logits(torch.tensor([state])).softmax(1)[0, 1])
            print(f"pole {name}: a push to the right has {right:.0%}")
        print(f"temperature {float(learner.temperature()):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    agent = DiscreteSAC(config="discrete_sac/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Probabilities())

    # In training, actions are drawn by their probabilities; an evaluation takes the likeliest one.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = DiscreteSAC.load(agent.save(agent.run_dir / "exported"))
    drawn, _ = loaded.predict([STATES["upright"]] * 10, deterministic=False)
    print(f"drawn ten times for a pole that is upright: {drawn}")


if __name__ == "__main__":
    main()
