"""What the declarations of the value-based algorithms share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from rl_training.algorithms.building import BRINGS_ALONG, num_actions, own_network, refuse_network_options
from rl_training.algorithms.options import (
    EpsilonOptions,
    OptimizerOptions,
    PriorityOptions,
    ReplayOptions,
    Share,
    Steps,
)
from rl_training.algorithms.spec import BuildContext
from rl_training.config.schema import Count, PositiveFloat, parse_number
from rl_training.errors import ConfigError

L = TypeVar("L")
Quantiles = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=10_000)]
SMALLEST: dict[str, Any] = {
    "env": {"id": "CartPole-v1"},
    "total_timesteps": 200,
    "algo_kwargs": {"learning_starts": 50, "batch_size": 16, "buffer_size": 500, "learning_rate": 1e-3},
    "network": {"hidden_sizes": [16]},
}
"""Of a run that is over in seconds."""


class QLearningConfig(EpsilonOptions, PriorityOptions, ReplayOptions, OptimizerOptions):
    """Q-learning."""

    aliases: ClassVar[dict[str, str]] = {
        "target_network_frequency": "target_update_interval",
        "target_update_freq": "target_update_interval",
        "double_q": "double",
    }
    fixed: ClassVar[tuple[str, ...]] = ("dueling",)

    max_grad_norm: PositiveFloat | None = 10.0
    target_update_interval: Count = 500
    """Env steps between updates of the target network."""
    double: bool = True
    """Double Q-learning: the online network chooses the next action, the target network evaluates it."""
    dueling: bool = False
    """Dueling head: state value and advantages."""


class MemorylessConfig(QLearningConfig):
    """Noisy layers (Fortunato et al. 2018)."""

    aliases: ClassVar[dict[str, str]] = {"sigma_init": "noisy_sigma"}
    fixed: ClassVar[tuple[str, ...]] = ("noisy",)
    network_defaults: ClassVar[dict[str, Any]] = {"hidden_sizes": [128, 128]}

    # An update for each step and a target network that follows slowly, as in the actor-critics: with these, CartPole is
    # learned without any setting (benchmarks/defaults.py).
    learning_rate: PositiveFloat = 5e-4
    n_step_return: Steps = 3
    train_freq: Count = 1
    target_update_interval: Count = 1
    tau: Share = 0.01
    """Share of the online network that the target network takes over at each target update. With a
    ``target_update_interval`` above 1, the default is 1: a copy."""
    noisy: bool = False
    """Explore by learned noise on the weights instead of by epsilon."""
    noisy_sigma: PositiveFloat = 0.5
    """Initial size of the noise; it is divided by the square root of a layer's number of inputs."""

    @model_validator(mode="before")
    @classmethod
    def _copy_at_an_interval_of_ones_own(cls, options: Any) -> Any:
        """A slow target suits the default interval only: with 500 steps in between it would hardly move."""
        if not isinstance(options, dict) or "tau" in options:
            return options
        default = str(options.get("target_update_interval", 1)) == "1"
        return options if default else {**options, "tau": 1.0}


class QuantileConfig(MemorylessConfig):
    """Quantiles."""

    aliases: ClassVar[dict[str, str]] = {"n_quantiles": "num_quantiles"}

    adam_eps: PositiveFloat = 0.01 / 32
    double: bool = False
    num_quantiles: Quantiles
    """Quantiles of each action's return."""
    kappa: PositiveFloat = 1.0
    """Error at which the quantile Huber loss changes from quadratic to linear."""


def q_learner(
    context: BuildContext,
    learner: Callable[..., L],
    network: Any,
    width: int | None = None,
    *,
    fractions: int | None = None,
    **network_options: Any,
) -> L:
    """Build a Q-learner around the user's own network if there is one, else around the packaged one.

    ``width`` is the size of an output's third dimension, if it has one. ``fractions`` is with how many of them
    a network that takes fractions, too, is tried.
    """
    options: MemorylessConfig = context.options
    shape, count = context.config.network, num_actions(context)
    if context.network is not None:
        for name in ("dueling", "noisy"):
            if getattr(options, name):
                raise ConfigError(f"algo_kwargs.{name}: belongs to the packaged network; {BRINGS_ALONG}")
        refuse_network_options(context, f"belongs to the packaged network; {BRINGS_ALONG}")
        built = own_network(context, (count,) if width is None else (count, width), fractions)
    else:
        built = network(
            context.obs,
            count,
            hidden_sizes=shape.hidden_sizes,
            activation=shape.activation,
            dueling=options.dueling,
            normalize_obs=shape.normalize_obs,
            cnn=shape.cnn,
            layer_norm=shape.layer_norm,
            noisy_sigma=options.noisy_sigma if options.noisy else None,
            **network_options,
        )
    return learner(built, count, options, **context.for_learner())
