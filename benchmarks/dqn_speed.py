"""DQN against Stable-Baselines3: the same network, batch, cadence and environment, one thread, one process.

Both train in turns, so that what else the machine does hits both, and the median of the turns is compared.
Only steps after warm-up count: one update per `train_freq` environment steps is part of every step timed.

Run: python benchmarks/dqn_speed.py [--turns N]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

WARM_UP = 1_000


@dataclass(frozen=True)
class Job:
    name: str
    hidden: list[int]
    batch_size: int
    train_freq: int
    steps: int
    bar: float


JOBS = (
    Job("A: 120-84, batch 128, an update every 10 steps", [120, 84], 128, 10, 20_000, 3.0),
    Job("B: 256-256, batch 64, an update every step", [256, 256], 64, 1, 5_000, 2.0),
)


def ours(job: Job) -> float:
    from rl_training.experiment.configs import load_config
    from rl_training.experiment.registry import train
    from rl_training.runtime.callbacks import Callback
    from rl_training.runtime.session import Session

    class Stopwatch(Callback):
        begin = end = 0.0

        def on_step(self, training: Session) -> None:
            if training.steps == WARM_UP:
                self.begin = time.perf_counter()
            elif training.steps == WARM_UP + job.steps:
                self.end = time.perf_counter()

    overrides: dict[str, Any] = {
        "total_timesteps": WARM_UP + job.steps,
        "algo_kwargs": {
            "learning_rate": 2.5e-4,
            "buffer_size": 10_000,
            "learning_starts": WARM_UP,
            "batch_size": job.batch_size,
            "train_freq": job.train_freq,
            "target_update_interval": 500,
            "exploration_fraction": 0.1,
            "exploration_final_eps": 0.05,
            "double": False,
        },
        "network.hidden_sizes": job.hidden,
        "evaluation": {"frequency": 0, "final_episodes": 0},
        "checkpoint.frequency": 0,
        "logging.tensorboard": False,
    }
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        train(
            load_config("dqn/cartpole", overrides),
            run_dir=Path(folder) / "run",
            callback=watch,
            console=False,
        )
    return job.steps / (watch.end - watch.begin)


def stable_baselines3(job: Job) -> float:
    from stable_baselines3 import DQN

    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.5e-4,
        buffer_size=10_000,
        learning_starts=WARM_UP,
        batch_size=job.batch_size,
        train_freq=job.train_freq,
        gradient_steps=1,
        target_update_interval=500,
        exploration_fraction=0.1,
        exploration_final_eps=0.05,
        policy_kwargs={"net_arch": job.hidden},
        seed=0,
        device="cpu",
    )
    model.learn(WARM_UP)
    begin = time.perf_counter()
    model.learn(job.steps, reset_num_timesteps=False)
    return job.steps / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    import stable_baselines3 as sb3

    print(f"torch {torch.__version__}, stable-baselines3 {sb3.__version__}, {platform.machine()}, one thread")
    rows = []
    for job in JOBS:
        speeds: dict[str, list[float]] = {"ours": [], "sb3": []}
        for _ in range(args.turns):
            speeds["sb3"].append(stable_baselines3(job))
            speeds["ours"].append(ours(job))
        mine, theirs = (statistics.median(speeds[name]) for name in ("ours", "sb3"))
        ratios = [own / other for own, other in zip(speeds["ours"], speeds["sb3"], strict=True)]
        print(f"{job.name}\n  rl_training {mine:8.0f} steps/s\n  sb3         {theirs:8.0f} steps/s")
        print(
            f"  ratio {mine / theirs:.2f} (by turn: {', '.join(f'{r:.2f}' for r in ratios)}; bar {job.bar})"
        )
        rows.append(
            {"job": job.name, "rl_training": mine, "sb3": theirs, "ratio": mine / theirs, "bar": job.bar}
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
