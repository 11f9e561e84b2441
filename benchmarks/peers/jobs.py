"""What all sides have to do, in numbers; standard library only, so that every worker can read it."""

from __future__ import annotations

import math
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


@dataclass(frozen=True)
class OnPolicyJob:
    """A run of the PPO family on a vector environment, in rollouts of ``n_steps`` steps of each environment."""

    algo: str = "ppo"
    """``ppo``, ``recurrent_ppo`` or ``trpo``."""
    env: str = "CartPole-v1"
    num_envs: int = 8
    native: bool = False
    """Ours steps the vector environment that the id registers; the peers step single ones in turn."""
    hidden: tuple[int, ...] = (64, 64)
    """Of actor and critic each, with tanh; of ``recurrent_ppo`` behind the LSTM that they share."""
    lstm: int = 64
    n_steps: int = 32
    batch_size: int = 256
    n_epochs: int = 20
    """Passes over a rollout; of ``trpo`` those of the critic."""
    learning_rate: float = 1e-3
    adam_eps: float = 1e-5
    max_grad_norm: float | None = 0.5
    gamma: float = 0.98
    gae_lambda: float = 0.8
    clip_range: float = 0.2
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    anneal: bool = False
    """Take learning rate and clip range linearly to 0."""
    target_kl: float = 0.01
    cg_max_steps: int = 15
    cg_damping: float = 1e-3

    @property
    def rollout(self) -> int:
        return self.n_steps * self.num_envs

    @property
    def minibatches(self) -> int:
        return math.ceil(self.rollout / self.batch_size)

    @property
    def updates_per_rollout(self) -> int:
        """Return the gradient steps of a rollout; the policy's own step of ``trpo`` is one more."""
        return self.n_epochs * self.minibatches + (self.algo == "trpo")

    @property
    def updates_per_step(self) -> float:
        return self.updates_per_rollout / self.rollout


@dataclass(frozen=True)
class ActorCriticJob:
    """A run of an actor-critic with replay on a vector environment; every frequency counts env steps."""

    algo: str = "sac"
    """``ddpg``, ``td3``, ``sac``, ``crossq`` or ``discrete_sac``."""
    env: str = "Pendulum-v1"
    num_envs: int = 1
    hidden: tuple[int, ...] = (256, 256)
    """Of actor and critics each, with ReLU."""
    batch_size: int = 256
    train_freq: int = 1
    gradient_steps: int = 1
    learning_rate: float = 3e-4
    buffer_size: int = 100_000
    learning_starts: int = 1_000
    gamma: float = 0.99
    tau: float = 0.005
    policy_delay: int = 1
    """Of ``td3`` and ``crossq``."""
    ent_coef: float | None = None
    """Of ``discrete_sac``: a fixed temperature; none learns it."""
    threads: int = 1
    """Of ours; the peers take what they take."""

    @property
    def updates_per_step(self) -> float:
        return self.gradient_steps / self.train_freq


AnyJob = Job | OnPolicyJob | ActorCriticJob


def read_job(data: Mapping[str, Any]) -> AnyJob:
    """Return the job that ``dataclasses.asdict`` made this of."""
    kind = OnPolicyJob if "n_steps" in data else ActorCriticJob if "tau" in data else Job
    return kind(**{**data, "hidden": tuple(data["hidden"])})


@dataclass(frozen=True)
class Contest:
    """A job, who takes part, and how many env steps each turn has."""

    title: str
    job: AnyJob
    sides: tuple[str, ...]
    turn: int
    warm_up: int = 2_000
    """Env steps before the first turn; the DQN family begins to learn after the first half."""


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

PPO = OnPolicyJob()  # the RL-Zoo's settings for CartPole-v1, but for ``anneal``
PPO_PENDULUM = OnPolicyJob(
    env="Pendulum-v1", num_envs=4, n_steps=1_024, batch_size=64, n_epochs=10, gamma=0.9, gae_lambda=0.95
)
RECURRENT = OnPolicyJob(algo="recurrent_ppo", hidden=(64,))
TRPO = OnPolicyJob(
    algo="trpo",
    num_envs=2,
    n_steps=512,
    batch_size=512,
    max_grad_norm=None,
    gamma=0.99,
    gae_lambda=0.98,
)
PPO_NATIVE = OnPolicyJob(num_envs=256, native=True, n_steps=16, batch_size=64, n_epochs=4)
PPO_NATIVE_LARGE = replace(PPO_NATIVE, batch_size=1_024)  # as ppo/cartpole_fast has them
SAC = ActorCriticJob()
TD3 = ActorCriticJob(algo="td3", learning_rate=1e-3, policy_delay=2)
DDPG = ActorCriticJob(algo="ddpg", learning_rate=1e-3)
CROSSQ = ActorCriticJob(algo="crossq", learning_rate=1e-3, policy_delay=3)
DISCRETE_SAC = ActorCriticJob(
    algo="discrete_sac", env="CartPole-v1", hidden=(64, 64), batch_size=64, learning_rate=1e-3, ent_coef=0.05
)

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
    # Turns and warm-ups are whole rollouts.
    "ppo": Contest(
        "PPO, CartPole-v1, 8 environments of 32 steps, 20 epochs of one batch of 256",
        PPO,
        ("ours", "sb3", "sbx", "rlox"),
        2_048,
        2_048,
    ),
    "ppo-pendulum": Contest(
        "PPO, Pendulum-v1, 4 environments of 1,024 steps, 10 epochs of batches of 64",
        PPO_PENDULUM,
        ("ours", "sb3", "sbx"),
        4_096,
        4_096,
    ),
    "recurrent": Contest("recurrent PPO, one LSTM of 64, else as ppo", RECURRENT, ("ours", "sb3"), 512, 512),
    "trpo": Contest(
        "TRPO, CartPole-v1, 2 environments of 512 steps, 20 epochs of the critic",
        TRPO,
        ("ours", "sb3"),
        2_048,
        2_048,
    ),
    "ppo-native": Contest(
        "PPO, CartPole-v1, 256 environments of 16 steps, 4 epochs of batches of 64; ours native",
        PPO_NATIVE,
        ("ours", "sb3"),
        16_384,
        8_192,
    ),
    "ppo-native-large": Contest(
        "PPO, CartPole-v1, 256 environments of 16 steps, 4 epochs of batches of 1,024; ours native",
        PPO_NATIVE_LARGE,
        ("ours", "sb3"),
        16_384,
        8_192,
    ),
    "sac": Contest(
        "SAC, Pendulum-v1, hidden 256-256, batch 256, an update every step",
        SAC,
        ("ours", "sb3", "sbx"),
        200,
    ),
    "sac-threads": Contest(
        "SAC, else as sac, ours with two threads; SBX takes both cores in any case",
        replace(SAC, threads=2),
        ("ours", "sbx"),
        200,
    ),
    "td3": Contest("TD3, else as sac", TD3, ("ours", "sb3", "sbx"), 200),
    "ddpg": Contest("DDPG, else as sac", DDPG, ("ours", "sb3", "sbx"), 200),
    "crossq": Contest("CrossQ with critics of 256-256, else as sac", CROSSQ, ("ours", "sb3", "sbx"), 200),
    "discrete-sac": Contest(
        "Discrete SAC, CartPole-v1, hidden 64-64, batch 64, an update every step",
        DISCRETE_SAC,
        ("ours", "tianshou"),
        500,
    ),
}

SCALING_ENVS = (1, 8, 64, 256, 1_024)
SCALING_WARM_UP, SCALING_TURN = 5_120, 10_240  # multiples of the environments and of A's train_freq
PPO_SCALING_WARM_UP, PPO_SCALING_TURN = 8_192, 16_384  # whole rollouts of PPO_NATIVE

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


@dataclass(frozen=True)
class Race:
    """A packaged config of ours against Stable-Baselines3 with the RL-Zoo's settings, to the bar."""

    title: str
    config: str
    job: AnyJob


RACES = {
    "bar": Race("DQN", "dqn/cartpole_quick", ZOO),
    "ppo-bar": Race("PPO", "ppo/cartpole_quick", replace(PPO, anneal=True)),
}
BAR, BAR_EVERY, BAR_EPISODES = 475.0, 2_500, 20

REPLAY_STEPS = 100_000
REPLAY = replace(A, buffer_size=1_000_000, learning_starts=REPLAY_STEPS - 1_000)


@dataclass(frozen=True)
class Curves:
    """Learning curves of a job, and whose they are."""

    title: str
    job: AnyJob
    steps: int
    sides: tuple[str, ...]
    every: int = 2_500
    """Env steps between two evaluations."""


def _curves(name: str, steps: int) -> Curves:
    contest = CONTESTS[name]
    return Curves(contest.title, contest.job, steps, contest.sides)


CURVES = {
    "A": _curves("A", 50_000),
    "B": _curves("B", 20_000),
    "qr": _curves("qr", 50_000),
    "per": _curves("per", 50_000),
}
LONG_CURVES = {
    "halfcheetah": Curves(
        "SAC, HalfCheetah-v5, learning rate 3e-4",
        replace(SAC, env="HalfCheetah-v5", learning_starts=10_000),
        100_000,
        ("ours", "sb3"),
        every=25_000,
    ),
}
"""Those that take an hour and more, and run only if they are asked for."""
CURVE_EPISODES, FINAL_EPISODES = 10, 100
EVALUATION_ENVS = 10
EVALUATION_SEED = 1_000_000
