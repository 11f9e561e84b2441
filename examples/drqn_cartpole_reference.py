"""Train DRQN on CartPole-v1 without velocities, and see that it is its memory that balances the pole.

Run: python examples/drqn_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

import gymnasium as gym

from rl_training import DRQN


def play(agent: DRQN, env_id: str, *, forgetful: bool, seed: int = 0) -> float:
    """Return what one episode brings, with a memory that is carried from step to step or wiped at every one."""
    env = gym.make(env_id)
    obs, _ = env.reset(seed=seed)
    state, total, over = None, 0.0, False
    while not over:
        action, state = agent.predict(obs, state, episode_start=forgetful)
        obs, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    env.close()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # The environment shows where the cart and the pole are, but not how fast they move.
    agent = DRQN(config="drqn/cartpole_no_velocity", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps)

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    assert agent.config is not None
    loaded = DRQN.load(agent.save(agent.run_dir / "exported"))
    for forgetful in (False, True):
        brought = play(loaded, agent.config.env.id, forgetful=forgetful)
        print(f"one episode {'without' if forgetful else 'with'} memory: {brought:.0f}")


if __name__ == "__main__":
    main()
