"""Train recurrent PPO on CartPole-v1 without velocities, and act in several environments at once.

Run: python examples/recurrent_ppo_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np

from rl_training import RecurrentPPO

ENVS, STEPS = 4, 500


def episodes_ended(agent: RecurrentPPO, env_id: str, *, deterministic: bool, seed: int) -> int:
    """Return how many episodes end in 500 steps of four environments, each with a memory of its own."""
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(env_id)] * ENVS, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    obs, _ = envs.reset(seed=seed)
    state, begins, ended = None, np.ones(ENVS, bool), 0
    for _ in range(STEPS):
        # What comes back is the memory of all four; where an episode begins, it is forgotten.
        action, state = agent.predict(obs, state, episode_start=begins, deterministic=deterministic)
        obs, _, terminated, truncated, _ = envs.step(action)
        begins = terminated | truncated
        ended += int(begins.sum())
    envs.close()
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # The environment shows where the cart and the pole are, but not how fast they move.
    agent = RecurrentPPO(config="recurrent_ppo/cartpole_no_velocity", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps)

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    assert agent.config is not None
    loaded = RecurrentPPO.load(agent.save(agent.run_dir / "exported"))
    for deterministic, how in ((True, "the likeliest action is taken"), (False, "actions are drawn")):
        ended = episodes_ended(loaded, agent.config.env.id, deterministic=deterministic, seed=args.seed)
        print(f"{ended} episodes ended in {STEPS} steps of {ENVS} environments if {how}")


if __name__ == "__main__":
    main()
