"""Train DQN on MinAtar's Breakout, which it sees as small boolean images, and show an image and the values it is given.

Needs the extra minatar. Run: python examples/dqn_minatar_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from rl_training import DQN, Callback, algorithms, load_config
from rl_training.envs import make_env
from rl_training.runtime.session import Session

ACTIONS = ["stay", "left", "right"]
SYMBOLS = "=o.#"  # a channel each: the paddle, the ball, where it was before, the bricks


def drawn(image: Any) -> str:
    """Return an image [10, 10, 4] of bools as text."""
    cells = [
        [next((s for s, there in zip(SYMBOLS, c, strict=True) if there), " ") for c in row] for row in image
    ]
    return "\n".join(f"|{''.join(row)}|" for row in cells)


class Values(Callback):
    """At the end of training, prints the values of the actions in one observation."""

    def __init__(self, obs: Any) -> None:
        self.obs = obs

    def on_end(self, training: Session) -> None:
        learner = training.run.algorithm
        assert isinstance(learner, algorithms.DQN)
        # Bools as they are: the network has the convolution, and turns the image into numbers.
        with torch.no_grad():
            values = learner.online(torch.from_numpy(self.obs[None]))[0].tolist()
        print(
            "values:", ", ".join(f"{name} {value:.2f}" for name, value in zip(ACTIONS, values, strict=True))
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # The packaged config; a short run needs a shorter warm-up.
    warm_up = min(5_000, args.total_timesteps // 4)
    config = load_config("dqn/minatar_breakout", {"algo_kwargs.learning_starts": warm_up})
    env = make_env(config.env)
    obs, _ = env.reset(seed=args.seed)
    env.close()
    print(drawn(obs))

    agent = DQN(config=config, seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=Values(obs))

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = DQN.load(agent.save(agent.run_dir / "exported"))
    action, _ = loaded.predict(obs)
    print(f"action: {ACTIONS[int(action)]}")


if __name__ == "__main__":
    main()
