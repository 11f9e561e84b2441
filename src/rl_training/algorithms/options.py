"""Options grouped by what they are about; an algorithm's own are composed of them.

Names are as in Stable-Baselines3, and every frequency counts env steps. Importing this file imports no torch.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rl_training.config.schema import (
    AlgorithmConfig,
    Count,
    CountOrZero,
    ExperimentConfig,
    Fraction,
    PositiveFloat,
    parse_number,
)

Steps = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=1000)]
Share = Annotated[float, BeforeValidator(parse_number), Field(gt=0.0, le=1.0)]
NotNegative = Annotated[float, BeforeValidator(parse_number), Field(ge=0.0)]
Decay = Annotated[float, BeforeValidator(parse_number), Field(ge=0.0, lt=1.0)]
Size = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=65_536)]
"""Of a layer, or of what it gives."""


class OptimizerOptions(AlgorithmConfig):
    """The optimizer, Adam."""

    aliases: ClassVar[dict[str, str]] = {
        "lr": "learning_rate",
        "grad_clip": "max_grad_norm",
        "betas": "adam_betas",
    }

    learning_rate: PositiveFloat = 2.5e-4
    """Step size."""
    learning_rate_final: NotNegative | None = None
    """Value that the learning rate reaches linearly at ``schedule_timesteps``; ``null`` keeps it constant."""
    adam_eps: PositiveFloat = 1e-8
    """Added to the denominator of a step, against division by zero."""
    adam_betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and of its square."""
    max_grad_norm: PositiveFloat | None = None
    """Norm to which larger gradients are clipped; ``null`` does not clip."""


class DiscountOptions(AlgorithmConfig):
    """Discounting."""

    aliases: ClassVar[dict[str, str]] = {"discount": "gamma"}

    gamma: Fraction = 0.99
    """Discount factor per environment step."""


class RolloutOptions(DiscountOptions):
    """Rollouts."""

    aliases: ClassVar[dict[str, str]] = {"num_steps": "n_steps", "rollout_steps": "n_steps"}
    fixed: ClassVar[tuple[str, ...]] = ("n_steps",)

    n_steps: Count = 2_048
    """Steps of each environment in a rollout; the last rollout of a run may be shorter."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse a rollout that is longer than the budget."""
        super().check(experiment)
        envs, total = experiment.env.num_envs, experiment.total_timesteps
        if self.n_steps * envs > total:
            fits = f"the largest that fits is {total // envs}" if total >= envs else "take fewer environments"
            raise ValueError(
                f"algo_kwargs.n_steps: {self.n_steps} steps of {envs} environments are more than "
                f"total_timesteps={total}; {fits}"
            )


class ReplayOptions(DiscountOptions):
    """Replay, updates and targets."""

    aliases: ClassVar[dict[str, str]] = {
        "buffer_capacity": "buffer_size",
        "replay_size": "buffer_size",
        "replay_buffer_size": "buffer_size",
        "memory_size": "buffer_size",
        "train_frequency": "train_freq",
        "update_every_steps": "train_freq",
        "warmup_steps": "learning_starts",
        "num_expl_steps": "learning_starts",
        "n_step": "n_step_return",
        "n_steps": "n_step_return",
        "nstep": "n_step_return",
        "critic_target_tau": "tau",
    }
    fixed: ClassVar[tuple[str, ...]] = ("n_step_return", "buffer_size")

    buffer_size: Count = 100_000
    """Transitions that the replay holds. With images it counts observations: an episode of k steps has k + 1."""
    learning_starts: CountOrZero = 1_000
    """Env steps of uniformly random actions before the first update."""
    batch_size: Count = 64
    """Samples of each update."""
    n_step_return: Steps = 1
    """Rewards that a target adds up before it uses an estimate (n-step returns)."""
    train_freq: Count = 4
    """Env steps between rounds of updates."""
    gradient_steps: Count = 1
    """Updates per round."""
    tau: Share = 1.0
    """Share of the online network that the target network takes over at each target update; 1 copies it."""

    def pace(self) -> str:
        """Say how many updates there are for each env step, whatever the number of environments."""
        ratio = self.gradient_steps / self.train_freq
        rounds = "" if self.train_freq == 1 else f" ({self.gradient_steps} every {self.train_freq} steps)"
        return (
            f"updates: {ratio:.3g} per step of all environments together{rounds}, "
            f"after the first {self.learning_starts:,} steps"
        )

    def cadence(self) -> dict[str, int]:
        """Return the options that say how much is learned, and when."""
        return {
            "batch_size": self.batch_size,
            "learning_starts": self.learning_starts,
            "train_freq": self.train_freq,
            "gradient_steps": self.gradient_steps,
        }

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse settings under which nothing would ever be learned."""
        super().check(experiment)
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


class PriorityOptions(AlgorithmConfig):
    """Prioritized replay (Schaul et al. 2016)."""

    aliases: ClassVar[dict[str, str]] = {
        "prioritized_replay": "prioritized",
        "prioritized_replay_alpha": "alpha",
        "prioritized_replay_beta": "beta",
        "prioritized_replay_beta0": "beta",
        "prioritized_replay_eps": "priority_eps",
        "beta_start": "beta",
    }
    fixed: ClassVar[tuple[str, ...]] = ("prioritized", "alpha")

    prioritized: bool = False
    """Sample in proportion to a power of the last error instead of uniformly."""
    alpha: Fraction = 0.6
    """The power to which errors are raised; 0 is uniform replay."""
    beta: Fraction = 0.4
    """Exponent of the importance weights at the start; 1 corrects the bias completely."""
    beta_final: Fraction = 1.0
    """Its value at ``schedule_timesteps``, reached linearly."""
    priority_eps: PositiveFloat = 1e-6
    """Added to every error, so that every transition can be sampled."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse options of priorities where there are none."""
        super().check(experiment)
        if not self.prioritized:
            for name in self.changed("alpha", "beta", "beta_final", "priority_eps"):
                raise ValueError(f"algo_kwargs.{name}: has no effect without algo_kwargs.prioritized")


class EpsilonOptions(AlgorithmConfig):
    """Epsilon-greedy exploration."""

    aliases: ClassVar[dict[str, str]] = {
        "start_e": "exploration_initial_eps",
        "end_e": "exploration_final_eps",
        "epsilon_start": "exploration_initial_eps",
        "epsilon_end": "exploration_final_eps",
    }

    exploration_fraction: Fraction = 0.2
    """Share of ``schedule_timesteps`` over which epsilon falls linearly."""
    exploration_initial_eps: Fraction = 1.0
    """Epsilon, the share of random actions, at the first step."""
    exploration_final_eps: Fraction = 0.05
    """Epsilon after that."""


class MemoryOptions(AlgorithmConfig):
    """The memory."""

    aliases: ClassVar[dict[str, str]] = {
        "lstm_hidden_size": "core_size",
        "lstm_size": "core_size",
        "n_lstm_layers": "core_layers",
        "num_layers": "core_layers",
    }
    fixed: ClassVar[tuple[str, ...]] = ("core", "core_size", "core_layers", "prev_action", "prev_reward")

    core: Literal["lstm", "gru"] = "lstm"
    """Kind of recurrent layer."""
    core_size: Size = 64
    """Units of each recurrent layer."""
    core_layers: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=16)] = 1
    """Recurrent layers."""
    prev_action: bool = False
    """Feed the last action to the recurrent layers as well."""
    prev_reward: bool = False
    """Feed the last reward to the recurrent layers as well."""

    def memory(self) -> dict[str, Any]:
        """Return what a memory is made of, shapes and dtypes, as ``RecurrentBody.initial_state`` gives it."""
        sizes = (self.core_layers, self.core_size)
        memory: dict[str, Any] = {"hidden": (sizes, "float32")}
        if self.core == "lstm":
            memory["cell"] = (sizes, "float32")
        if self.prev_action:
            memory["action"] = ((), "int64")
        if self.prev_reward:
            memory["reward"] = ((), "float32")
        return memory
