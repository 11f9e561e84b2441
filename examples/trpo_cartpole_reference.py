"""Train TRPO on CartPole-v1, and see how far each update moved the policy, and how far it might have.

Run: python examples/trpo_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR] [--episodes N]
"""

import argparse
from pathlib import Path

from rl_training import TRPO, load_config
from rl_training.runtime.curves import read_metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # A row of the log for every rollout, and so for every update.
    config = load_config("trpo/cartpole")
    rollout, bound = config.algo_kwargs.n_steps * config.env.num_envs, config.algo_kwargs.target_kl
    config = load_config("trpo/cartpole", {"logging.frequency": rollout})
    agent = TRPO(config=config, seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps)

    assert agent.run_dir is not None
    rows = [row for row in read_metrics(agent.run_dir / "metrics.jsonl") if "train/kl" in row]
    for row in rows[:: max(len(rows) // 10, 1)]:
        kl, gain = row["train/kl"], row["train/surrogate_gain"]
        bar = "#" * round(40 * kl / bound)
        print(f"step {row['step']:6}: KL divergence {kl:.4f} of {bound:g}, gain {gain:.4f}  {bar}")
    refused = sum(row["train/line_search_success"] == 0 for row in rows)
    print(f"{len(rows)} updates, of which the line search refused {refused}")

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    path = agent.save(agent.run_dir / "exported")
    action, _ = TRPO.load(path).predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
