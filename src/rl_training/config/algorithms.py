"""The hyper-parameters of each algorithm: names as in Stable-Baselines3, every frequency in env steps."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rl_training.config.schema import (
    AlgorithmConfig,
    Count,
    CountOrZero,
    ExperimentConfig,
    Float,
    Fraction,
    PositiveFloat,
    parse_number,
)

Steps = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=1000)]
Quantiles = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=10_000)]
_ALIASES = {
    "lr": "learning_rate",
    "discount": "gamma",
    "buffer_capacity": "buffer_size",
    "replay_size": "buffer_size",
    "memory_size": "buffer_size",
    "start_e": "exploration_initial_eps",
    "end_e": "exploration_final_eps",
    "epsilon_start": "exploration_initial_eps",
    "epsilon_end": "exploration_final_eps",
    "train_frequency": "train_freq",
    "target_network_frequency": "target_update_interval",
    "target_update_freq": "target_update_interval",
    "warmup_steps": "learning_starts",
    "n_step": "n_step_return",
    "n_steps": "n_step_return",
    "double_q": "double",
    "grad_clip": "max_grad_norm",
    "prioritized_replay": "prioritized",
    "prioritized_replay_alpha": "alpha",
    "prioritized_replay_beta": "beta",
    "prioritized_replay_beta0": "beta",
    "prioritized_replay_eps": "priority_eps",
    "beta_start": "beta",
    "n_atoms": "num_atoms",
    "n_quantiles": "num_quantiles",
    "sigma_init": "noisy_sigma",
    "lstm_hidden_size": "core_size",
    "lstm_size": "core_size",
    "n_lstm_layers": "core_layers",
    "num_layers": "core_layers",
    "seq_len": "sequence_length",
    "seq_length": "sequence_length",
    "max_seq_len": "sequence_length",
    "unroll_length": "sequence_length",
    "burn_in_length": "burn_in",
    "burnin": "burn_in",
    "replay_buffer_size": "buffer_size",
    "num_expl_steps": "learning_starts",
    "update_every_steps": "train_freq",
    "nstep": "n_step_return",
    "critic_target_tau": "tau",
    "stddev_clip": "std_clip",
    "stddev_schedule": "std_initial",
    "policy_freq": "policy_delay",
}


class ReplayConfig(AlgorithmConfig):
    """Hyper-parameters that all algorithms share which learn from a replay."""

    aliases: ClassVar[dict[str, str]] = _ALIASES
    fixed: ClassVar[tuple[str, ...]] = ("n_step_return", "buffer_size")

    learning_rate: PositiveFloat = 2.5e-4
    learning_rate_final: PositiveFloat | None = None
    """Value reached linearly at ``total_timesteps``; none keeps the learning rate constant."""
    adam_eps: PositiveFloat = 1e-8
    max_grad_norm: PositiveFloat | None = None
    """Length to which longer gradients are cut; none leaves them as they are."""
    buffer_size: Count = 100_000
    """Transitions kept."""
    learning_starts: CountOrZero = 1_000
    """Env steps of uniformly random actions before the first update."""
    batch_size: Count = 64
    gamma: Fraction = 0.99
    n_step_return: Steps = 1
    train_freq: Count = 4
    """Env steps between rounds of updates."""
    gradient_steps: Count = 1
    """Updates per round."""
    tau: Annotated[float, BeforeValidator(parse_number), Field(gt=0.0, le=1.0)] = 1.0
    """Share of the online network taken over at each target update; 1 copies it."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse settings under which nothing would ever be learned."""
        if self.batch_size > self.buffer_size:
            raise ValueError(
                f"algo_kwargs.batch_size: {self.batch_size} is larger than algo_kwargs.buffer_size={self.buffer_size}"
            )
        total = experiment.total_timesteps
        if self.learning_starts >= total:
            raise ValueError(
                f"algo_kwargs.learning_starts: {self.learning_starts} is not below "
                f"total_timesteps={total}, so nothing would be learned"
            )
        if self.learning_starts + self.train_freq > total:
            raise ValueError(
                f"algo_kwargs.train_freq: the first update would come {self.train_freq} steps after "
                f"algo_kwargs.learning_starts={self.learning_starts}, beyond total_timesteps={total}"
            )


class QLearningConfig(ReplayConfig):
    """Hyper-parameters that all value-based algorithms share."""

    fixed: ClassVar[tuple[str, ...]] = (*ReplayConfig.fixed, "prioritized", "alpha", "dueling")

    max_grad_norm: PositiveFloat | None = 10.0
    target_update_interval: Count = 500
    """Env steps between updates of the target network."""
    exploration_fraction: Fraction = 0.2
    """Share of ``total_timesteps`` over which epsilon falls linearly."""
    exploration_initial_eps: Fraction = 1.0
    exploration_final_eps: Fraction = 0.05
    double: bool = True
    """Choose the next action by the online network, value it by the target network."""
    dueling: bool = False
    """Split the head into state value and advantages."""
    prioritized: bool = False
    """Replay transitions in proportion to a power of their last error."""
    alpha: Fraction = 0.6
    """That power; 0 is uniform replay."""
    beta: Fraction = 0.4
    """How far importance weights make up for it at the start."""
    beta_final: Fraction = 1.0
    """The same at ``total_timesteps``, reached linearly."""
    priority_eps: PositiveFloat = 1e-6
    """Added to every error, so that no transition is lost for good."""


class MemorylessConfig(QLearningConfig):
    """Hyper-parameters that the value-based algorithms without a memory share."""

    fixed: ClassVar[tuple[str, ...]] = (*QLearningConfig.fixed, "noisy")

    noisy: bool = False
    """Explore by learned noise on the weights instead of epsilon."""
    noisy_sigma: PositiveFloat = 0.5
    """Initial size of the noise, before it is divided by the root of a layer's inputs."""


class DQNConfig(MemorylessConfig):
    """Hyper-parameters of DQN."""

    loss: Literal["huber", "mse"] = "huber"


class PrioritizedDQNConfig(DQNConfig):
    """Hyper-parameters of DQN with prioritized replay."""

    prioritized: Literal[True] = True


class C51Config(MemorylessConfig):
    """Hyper-parameters of C51."""

    fixed: ClassVar[tuple[str, ...]] = (*MemorylessConfig.fixed, "num_atoms", "v_min", "v_max")

    adam_eps: PositiveFloat = 0.01 / 32
    double: bool = False
    num_atoms: Annotated[int, BeforeValidator(parse_number), Field(ge=2, le=10_001)] = 51
    """Points of the support."""
    v_min: Float = -10.0
    v_max: Float = 10.0
    """Ends of the support, which has to hold all returns that can be expected."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse a support that is none, also in the single precision in which it is used."""
        super().check(experiment)
        if self.v_min >= self.v_max:
            raise ValueError(
                f"algo_kwargs.v_min: {self.v_min:g} is not below algo_kwargs.v_max={self.v_max:g}"
            )
        furthest = max(abs(self.v_min), abs(self.v_max))
        name = "v_max" if abs(self.v_max) == furthest else "v_min"
        if not 1e-30 <= furthest <= 1e30:
            raise ValueError(f"algo_kwargs.{name}: {getattr(self, name):g} is too much for single precision")
        if (self.v_max - self.v_min) / (self.num_atoms - 1) < 1e-5 * furthest:
            raise ValueError(
                f"algo_kwargs.{name}: {getattr(self, name):g} is so large that {self.num_atoms} atoms between "
                f"{self.v_min:g} and {self.v_max:g} cannot be told apart in single precision"
            )


class QRDQNConfig(MemorylessConfig):
    """Hyper-parameters of QR-DQN."""

    fixed: ClassVar[tuple[str, ...]] = (*MemorylessConfig.fixed, "num_quantiles")

    adam_eps: PositiveFloat = 0.01 / 32
    double: bool = False
    num_quantiles: Quantiles = 200
    kappa: PositiveFloat = 1.0
    """Error at which the quantile Huber loss turns from a square into a line."""


class IQNConfig(QRDQNConfig):
    """Hyper-parameters of IQN."""

    fixed: ClassVar[tuple[str, ...]] = (*MemorylessConfig.fixed, "num_cosines")

    num_quantiles: Quantiles = 64
    """Fractions drawn for the values that are learned."""
    num_target_quantiles: Quantiles = 64
    """Fractions drawn for their targets."""
    num_policy_quantiles: Quantiles = 32
    """Fractions by whose mean actions are chosen."""
    num_cosines: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=10_000)] = 64
    """Size of the embedding of a fraction."""


class RainbowConfig(C51Config):
    """Hyper-parameters of Rainbow: C51 with everything else switched on."""

    learning_rate: PositiveFloat = 6.25e-5
    adam_eps: PositiveFloat = 1.5e-4
    n_step_return: Steps = 3
    double: bool = True
    dueling: bool = True
    noisy: bool = True
    prioritized: bool = True
    alpha: Fraction = 0.5


class DRQNConfig(QLearningConfig):
    """Hyper-parameters of DRQN. A batch is made of ``batch_size`` sequences."""

    fixed: ClassVar[tuple[str, ...]] = (
        *QLearningConfig.fixed,
        "core",
        "core_size",
        "core_layers",
        "prev_action",
        "prev_reward",
        "sequence_length",
        "sequence_period",
        "burn_in",
        "value_rescaling",
    )

    batch_size: Count = 32
    buffer_size: Count = 100_000
    """Observations kept: an episode of k steps has k + 1."""
    loss: Literal["huber", "mse"] = "huber"
    core: Literal["lstm", "gru"] = "lstm"
    """What remembers."""
    core_size: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=65_536)] = 64
    core_layers: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=16)] = 1
    prev_action: bool = False
    """Let the core see the last action, too."""
    prev_reward: bool = False
    """Let the core see the last reward, too."""
    sequence_length: Annotated[int, BeforeValidator(parse_number), Field(ge=2, le=100_000)] = 20
    """Steps of a sequence, burn-in included."""
    burn_in: CountOrZero = 0
    """First steps of a sequence that only bring the memory up to date, unless it begins an episode."""
    sequence_period: Count | None = None
    """Steps from one sequence to the next; by default, as many as are learned from, so that none is left out."""
    priority_eta: Fraction = 0.9
    """Share of the largest error in the priority of a sequence; the mean one has the rest."""
    value_rescaling: bool = False
    """Learn values squashed by a fixed function, for rewards of very different sizes."""

    @property
    def period(self) -> int:
        """Steps from one sequence to the next."""
        return self.sequence_period or self.sequence_length - self.burn_in

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse sequences of which nothing, or not everything, would be learned."""
        super().check(experiment)
        length, learned = self.sequence_length, self.sequence_length - self.burn_in
        if learned < 1:
            raise ValueError(
                f"algo_kwargs.burn_in: {self.burn_in} is not below algo_kwargs.sequence_length={length}"
            )
        if self.period > learned:
            raise ValueError(
                f"algo_kwargs.sequence_period: {self.period} is more than the {learned} steps learned from a "
                "sequence, so some would never be"
            )
        if self.n_step_return > length:
            raise ValueError(
                f"algo_kwargs.n_step_return: {self.n_step_return} is more than the {length} steps of a sequence "
                "(algo_kwargs.sequence_length), with which returns end"
            )
        share = self.buffer_size // experiment.env.num_envs
        if share <= length:
            raise ValueError(
                f"algo_kwargs.buffer_size: {self.buffer_size} leaves each of {experiment.env.num_envs} environments "
                f"{share} observations, too few for algo_kwargs.sequence_length={length}"
            )


class R2D2Config(DRQNConfig):
    """Hyper-parameters of R2D2: DRQN with everything else switched on."""

    adam_eps: PositiveFloat = 1e-3
    n_step_return: Steps = 5
    dueling: bool = True
    prioritized: bool = True
    alpha: Fraction = 0.9
    beta: Fraction = 0.6
    beta_final: Fraction = 0.6
    prev_action: bool = True
    prev_reward: bool = True
    sequence_length: Annotated[int, BeforeValidator(parse_number), Field(ge=2, le=100_000)] = 80
    burn_in: CountOrZero = 40
    value_rescaling: bool = True


class DrQv2Config(ReplayConfig):
    """Hyper-parameters of DrQ-v2; the defaults are those of the paper. A step is one of the agent's own."""

    fixed: ClassVar[tuple[str, ...]] = (*ReplayConfig.fixed, "feature_dim", "encoder_dim", "reward_scale")
    network_defaults: ClassVar[dict[str, Any]] = {"hidden_sizes": [1024, 1024]}

    learning_rate: PositiveFloat = 1e-4
    buffer_size: Count = 1_000_000
    """Frames kept: an episode of k steps has k + 1."""
    learning_starts: CountOrZero = 2_000
    batch_size: Count = 256
    n_step_return: Steps = 3
    train_freq: Count = 2
    tau: Annotated[float, BeforeValidator(parse_number), Field(gt=0.0, le=1.0)] = 0.01
    """Share of the online critic taken over by its target at each update."""
    policy_delay: Count = 1
    """Updates of the critic for each of the actor and the target."""
    std_initial: PositiveFloat = 1.0
    """Standard deviation of the noise on actions in [-1, 1] at the first step."""
    std_final: PositiveFloat = 0.1
    std_duration: Count = 100_000
    """Env steps over which the noise falls linearly."""
    std_clip: PositiveFloat = 0.3
    """Largest noise on the actions that are learned from; that of exploration is not cut."""
    reward_scale: PositiveFloat = 1.0
    """Factor on the rewards that are learned from; those that are reported stay as they are. Values far from 1 are slow
    to learn, so rewards of -16 or of 100 a step want a small one."""
    shift_pad: Annotated[int, BeforeValidator(parse_number), Field(ge=0, le=64)] = 4
    """Pixels by which images are shifted at most, in each direction; 0 turns augmentation off."""
    feature_dim: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=65_536)] = 50
    """Size of what actor and critic make of the encoder's features."""
    encoder_dim: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=1_000_000)] = 1_024
    """Features that an own encoder (``network.factory``) is asked for; the built-in one has as many as it has."""
