"""Train R2D2 on CartPole-v1 without velocities, and act in several environments at once.

Run: python examples/r2d2_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np

from rl_training import R2D2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=150_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # Each part can be left out, to see what it is good for: R2D2(config=..., prioritized=False).
    agent = R2D2(config="r2d2/cartpole_no_velocity", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps)

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    assert agent.config is not None
    loaded = R2D2.load(agent.save(agent.run_dir / "exported"))

    # One memory for each environment. This agent also wants to know what its last action brought.
    env_id = agent.config.env.id
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(env_id)] * 3, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    obs, _ = envs.reset(seed=args.seed)
    state, reward, begins = None, np.zeros(3), np.ones(3, bool)
    ended = 0
    for _ in range(200):
        action, state = loaded.predict(obs, state, episode_start=begins, reward=reward)
        obs, reward, terminated, truncated, _ = envs.step(action)
        begins = terminated | truncated
        ended += int(begins.sum())
    envs.close()
    print(f"{ended} episodes ended in 200 steps of three environments")


if __name__ == "__main__":
    main()
