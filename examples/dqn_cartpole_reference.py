"""Train DQN on CartPole-v1, look at it, save it and load it again.

Run: python examples/dqn_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path

from rl_training import DQN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # The packaged config, also printed by `rl-training show dqn/cartpole`, with the seed of this run.
    agent = DQN(config="dqn/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps)

    # 100 fixed episodes, played greedily.
    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    # A saved agent is a plain folder; it needs no environment to predict.
    assert agent.run_dir is not None
    path = agent.save(agent.run_dir / "exported")
    loaded = DQN.load(path)
    action, _ = loaded.predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
