"""The hyper-parameters of each algorithm: names as in Stable-Baselines3, every frequency in env steps."""

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
}


class DQNConfig(AlgorithmConfig):
    """Hyper-parameters of DQN."""

    aliases: ClassVar[dict[str, str]] = _ALIASES

    learning_rate: PositiveFloat = 2.5e-4
    learning_rate_final: PositiveFloat | None = None
    """Value reached linearly at ``total_timesteps``; none keeps the learning rate constant."""
    adam_eps: PositiveFloat = 1e-8
    buffer_size: Count = 100_000
    """Transitions kept."""
    learning_starts: CountOrZero = 1_000
    """Env steps of uniformly random actions before the first update."""
    batch_size: Count = 64
    gamma: Fraction = 0.99
    n_step_return: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=1000)] = 1
    train_freq: Count = 4
    """Env steps between rounds of updates."""
    gradient_steps: Count = 1
    """Updates per round."""
    target_update_interval: Count = 500
    """Env steps between updates of the target network."""
    tau: Annotated[float, BeforeValidator(parse_number), Field(gt=0.0, le=1.0)] = 1.0
    """Share of the online network taken over at each target update; 1 copies it."""
    exploration_fraction: Fraction = 0.2
    """Share of ``total_timesteps`` over which epsilon falls linearly."""
    exploration_initial_eps: Fraction = 1.0
    exploration_final_eps: Fraction = 0.05
    double: bool = True
    """Choose the next action by the online network, value it by the target network."""
    dueling: bool = False
    """Split the head into state value and advantages."""
    loss: Literal["huber", "mse"] = "huber"
    max_grad_norm: PositiveFloat | None = 10.0

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse settings under which nothing would ever be learned."""
        if self.batch_size > self.buffer_size:
            raise ValueError(
                f"algo_kwargs.batch_size: {self.batch_size} is larger than algo_kwargs.buffer_size={self.buffer_size}"
            )
        if self.learning_starts >= experiment.total_timesteps:
            raise ValueError(
                f"algo_kwargs.learning_starts: {self.learning_starts} is not below "
                f"total_timesteps={experiment.total_timesteps}, so nothing would be learned"
            )
