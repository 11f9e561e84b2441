"""DQN against Stable-Baselines3: the same network, batch, cadence and environment, one thread, one process.

The two take turns of a fraction of a second, so that whatever else the machine does hits both alike: while our
run trains, a callback stops our clock after every turn and lets the peer train for as many steps. Both have
warmed up before, and every step timed includes its share of updates. The ratio is that of the total times; the
spread is that of the turns.

Run: python benchmarks/dqn_speed.py [--turns N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from rl_training.experiment.configs import load_config
from rl_training.experiment.registry import train
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.session import Session

WARM_UP = 2_000


@dataclass(frozen=True)
class Job:
    name: str
    hidden: list[int]
    batch_size: int
    train_freq: int
    turn: int
    bar: float


JOBS = (
    Job("A: hidden 120-84, batch 128, an update every 10 steps", [120, 84], 128, 10, 1_000, 3.0),
    Job("B: hidden 256-256, batch 64, an update every step", [256, 256], 64, 1, 200, 2.0),
)


class Turns(Callback):
    """Measures our turns, and the peer's between them."""

    def __init__(self, peer: Any, turn: int) -> None:
        self._peer, self._turn = peer, turn
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self._start = 0.0

    def on_step(self, training: Session) -> None:
        if training.steps < WARM_UP or training.steps % self._turn:
            return
        now = perf_counter()
        if self._start:
            self.ours.append(now - self._start)
            self._peer.learn(self._turn, reset_num_timesteps=False)
            self.theirs.append(perf_counter() - now)
        self._start = perf_counter()


def measure(job: Job, turns: int) -> Turns:
    from stable_baselines3 import DQN

    total = WARM_UP + turns * job.turn
    shared: dict[str, Any] = {
        "learning_rate": 2.5e-4,
        "buffer_size": 10_000,
        "learning_starts": 1_000,
        "batch_size": job.batch_size,
        "train_freq": job.train_freq,
        "gradient_steps": 1,
        "target_update_interval": 500,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.05,
    }
    peer = DQN(
        "MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": job.hidden}, seed=0, device="cpu", **shared
    )
    peer.learn(WARM_UP)
    config = {
        "algo": "dqn",
        "env": {"id": "CartPole-v1"},
        "total_timesteps": total,
        "algo_kwargs": {**shared, "double": False},
        "network": {"hidden_sizes": job.hidden},
        "evaluation": {"frequency": 0, "final_episodes": 0},
        "checkpoint": {"frequency": 0},
        "logging": {"tensorboard": False, "csv": False, "frequency": total},  # the peer writes no log either
    }
    clock = Turns(peer, job.turn)
    with tempfile.TemporaryDirectory() as folder:
        train(load_config(config), run_dir=Path(folder) / "run", callback=clock, console=False)
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    import stable_baselines3 as sb3

    print(f"torch {torch.__version__}, stable-baselines3 {sb3.__version__}, {platform.machine()}, one thread")
    rows = []
    for job in JOBS:
        clock = measure(job, args.turns)
        steps = job.turn * len(clock.ours)
        mine, theirs = steps / sum(clock.ours), steps / sum(clock.theirs)
        low, high = np.percentile(np.divide(clock.theirs, clock.ours), [10, 90])
        print(f"{job.name}\n  rl_training {mine:8.0f} steps/s\n  sb3         {theirs:8.0f} steps/s")
        print(f"  ratio {mine / theirs:.2f} (80 % of the turns {low:.2f} to {high:.2f}; bar {job.bar})")
        rows.append(
            {"job": job.name, "rl_training": mine, "sb3": theirs, "ratio": mine / theirs, "bar": job.bar}
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
