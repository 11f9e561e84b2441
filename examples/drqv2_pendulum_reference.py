"""Train DrQ-v2 to swing up a pendulum that it only sees as pixels, and film what it does.

Run: python examples/drqv2_pendulum_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

from rl_training import DrQv2, load_config
from rl_training.envs import make_env


def play(agent: DrQv2, seed: int = 0) -> float:
    """Return what one episode brings, played by hand on the environment that the agent was trained on."""
    assert agent.config is not None
    env = make_env(agent.config.env)
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        action, _ = agent.predict(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    env.close()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # Pendulum-v1 rendered to 32 x 32 pixels, three frames stacked, every action done twice.
    config = load_config("drqv2/pendulum_pixels", {"evaluation.final_episodes": 0})
    env = make_env(config.env)
    print("observations:", env.observation_space)
    env.close()

    agent = DrQv2(config=config.model_dump(mode="json"), seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps)

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    assert agent.run_dir is not None
    loaded = DrQv2.load(agent.save(agent.run_dir / "exported"))
    print(f"one episode by hand: {play(loaded):.1f}")
    filmed = loaded.record(agent.run_dir / "episode.mp4")
    print(f"an episode that brought {filmed.mean:.1f} is in {agent.run_dir / 'episode.mp4'}")


if __name__ == "__main__":
    main()
