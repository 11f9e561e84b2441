"""What all sides have to do, in numbers; standard library only, so that every worker can read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Job:
    """A run of the DQN family on a vector environment; every frequency counts env steps."""

    algo: str = "dqn"
    """``dqn``, ``qr_dqn`` or ``prioritized_dqn``."""
    env: str = "CartPole-v1"
    num_envs: int = 1
    hidden: tuple[int, ...] = (120, 84)
    batch_size: int = 128
    train_freq: int = 10
    gradient_steps: int = 1
    learning_rate: float = 2.5e-4
    adam_eps: float = 1e-8
    max_grad_norm: float = 10.0
    buffer_size: int = 10_000
    learning_starts: int = 1_000
    target_update_interval: int = 500
    gamma: float = 0.99
    exploration_fraction: float = 0.1
    exploration_initial_eps: float = 1.0
    exploration_final_eps: float = 0.05
    loss: str = "huber"
    """Of ``dqn`` and ``prioritized_dqn``: ``huber`` or ``mse``."""
    num_quantiles: int = 51
    alpha: float = 0.6
    beta: float = 0.4

    @property
    def updates_per_step(self) -> float:
        return self.gradient_steps / self.train_freq

    def epsilon(self, steps: int, total: int) -> float:
        """Return the share of random actions after ``steps`` of a run of ``total``."""
        progress = min(steps / (self.exploration_fraction * total), 1.0)
        return self.exploration_initial_eps + progress * (
            self.exploration_final_eps - self.exploration_initial_eps
        )


def read_job(data: Mapping[str, Any]) -> Job:
    """Return the job that ``dataclasses.asdict`` made this of."""
    return Job(**{**data, "hidden": tuple(data["hidden"])})


@dataclass(frozen=True)
class Contest:
    """A job, who takes part, and how many env steps each turn has."""

    title: str
    job: Job
    sides: tuple[str, ...]
    turn: int


@dataclass(frozen=True)
class Images:
    """Random images in a full replay, and a few updates from it."""

    observations: int = 60_000
    updates: int = 5
    batch_size: int = 64


A = Job()
B = Job(hidden=(256, 256), batch_size=64, train_freq=1)
QR = Job(algo="qr_dqn")
# With Huber loss Tianshou leaves the weights of the replay out, so both sides learn by squares.
PER = Job(algo="prioritized_dqn", loss="mse")

CONTESTS = {
    "A": Contest(
        "DQN, hidden 120-84, batch 128, an update every 10 steps",
        A,
        ("ours", "sb3", "sbx", "tianshou"),
        2_000,
    ),
    "B": Contest(
        "DQN, hidden 256-256, batch 64, an update every step", B, ("ours", "sb3", "sbx", "tianshou"), 400
    ),
    "qr": Contest("QR-DQN, 51 quantiles, else as A", QR, ("ours", "sb3", "tianshou"), 1_000),
    "per": Contest("DQN with prioritized replay, else as A", PER, ("ours", "tianshou"), 2_000),
}
WARM_UP = 2_000
"""Env steps before the first turn; learning begins after the first half."""

SCALING_ENVS = (1, 8, 64, 256, 1_024)
SCALING_WARM_UP, SCALING_TURN = 5_120, 10_240  # multiples of the environments and of A's train_freq

# The RL-Zoo's settings of SB3's DQN for CartPole-v1, made for 50,000 steps: exploration ends after 0.16 of those.
ZOO_STEPS, BAR_STEPS = 50_000, 100_000
ZOO = Job(
    hidden=(256, 256),
    batch_size=64,
    train_freq=256,
    gradient_steps=128,
    learning_rate=2.3e-3,
    buffer_size=100_000,
    target_update_interval=10,
    exploration_fraction=0.16 * ZOO_STEPS / BAR_STEPS,
    exploration_final_eps=0.04,
)
OUR_CONFIG = "dqn/cartpole_quick"
BAR, BAR_EVERY, BAR_EPISODES = 475.0, 2_500, 20

REPLAY_STEPS = 100_000
REPLAY = replace(A, buffer_size=1_000_000, learning_starts=REPLAY_STEPS - 1_000)

CURVES = {
    "A": (50_000, ("ours", "sb3", "sbx", "tianshou")),
    "B": (20_000, ("ours", "sb3", "sbx", "tianshou")),
    "qr": (50_000, ("ours", "sb3", "tianshou")),
    "per": (50_000, ("ours", "tianshou")),
}
"""Env steps of the learning curves of a contest's job, and whose they are."""
CURVE_EVERY, CURVE_EPISODES, FINAL_EPISODES = 2_500, 10, 100
EVALUATION_ENVS = 10
EVALUATION_SEED = 1_000_000
