"""What all sides have to do, in numbers; standard library only, so that every worker can read it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from job_kinds import ActorCriticJob, AnyJob, AtariJob, Job, OnPolicyJob


@dataclass(frozen=True)
class Contest:
    """A job, who takes part, and how many env steps each turn has."""

    title: str
    job: AnyJob
    sides: tuple[str, ...]
    turn: int
    warm_up: int = 2_000
    """Env steps before the first turn; the DQN family begins to learn after the first half."""
    learns: bool = True
    """Without it, all turns are before the first update; of the DQN family only."""


@dataclass(frozen=True)
class Images:
    """Random images in a full replay, and a few updates from it."""

    algo: str = "drqv2"
    """``drqv2``, with continuous actions and colour, or ``dqn``; the peer of the former is TD3."""
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


@dataclass(frozen=True)
class Phased:
    """A job that fills its replay with random actions before it learns; both phases are timed by themselves."""

    title: str
    steps: int
    """Of the whole job."""
    filling: Contest
    learning: Contest

    @property
    def phases(self) -> dict[str, tuple[Contest, int]]:
        """Return the contest of each phase, and the env steps that the job spends in it."""
        before = self.filling.job
        assert isinstance(before, Job)
        return {
            "filling": (self.filling, before.learning_starts),
            "learning": (self.learning, self.steps - before.learning_starts),
        }


PONG = AtariJob()
PHASED = {
    "dqn-pong": Phased(
        "DQN, Pong, 8 environments, batch 32, an update every 4 steps; ours native",
        200_000,
        Contest("before learning starts", PONG, ("ours", "sb3"), 2_000, learns=False),
        # It would take minutes to get to the job's own first update, and a replay that is not full learns as fast.
        Contest("learning", replace(PONG, learning_starts=1_000), ("ours", "sb3"), 400),
    ),
}

DQN_IMAGES = Images(algo="dqn", observations=100_000, batch_size=32)

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
