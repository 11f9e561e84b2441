"""What the declarations of the actor-critics with replay share."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field

from rl_training.algorithms.options import OptimizerOptions, PriorityOptions, ReplayOptions, Share
from rl_training.algorithms.spec import BuildContext
from rl_training.config.schema import AlgorithmConfig, Count, ExperimentConfig, PositiveFloat, parse_number
from rl_training.errors import ConfigError

L = TypeVar("L")
Critics = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=64)]
Dropout = Annotated[float, BeforeValidator(parse_number), Field(ge=0.0, lt=1.0)]
NoiseSize = Annotated[float, BeforeValidator(parse_number), Field(ge=0.0, le=1.0)]
"""In units of actions from -1 to 1, whose range it must not exceed."""
SMALLEST: dict[str, Any] = {
    "env": {"id": "Pendulum-v1"},
    "total_timesteps": 200,
    "algo_kwargs": {"learning_starts": 50, "batch_size": 16, "buffer_size": 500, "train_freq": 2},
    "network": {"hidden_sizes": [16]},
}
"""Of a run that is over in seconds."""


class DelayedOptions(ReplayOptions, OptimizerOptions):
    """Order of the updates."""

    aliases: ClassVar[dict[str, str]] = {
        "policy_freq": "policy_delay",
        "policy_frequency": "policy_delay",
        "actor_update_freq": "policy_delay",
    }
    separate_critic: ClassVar[bool] = True

    policy_delay: Count = 1
    """Updates of the critics for each update of the actor."""

    def actor_rate(self) -> float | None:
        """Return the learning rate of the actor, if it is another one."""
        return None

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse a delay that the run is too short for."""
        super().check(experiment)
        learning = experiment.total_timesteps - self.learning_starts
        updates = learning // self.train_freq * self.gradient_steps
        if self.policy_delay > max(updates, 1):
            raise ValueError(
                f"algo_kwargs.policy_delay: {self.policy_delay} is more than the {updates} updates of this run, so "
                "the actor would never learn"
            )


class ActorCriticConfig(PriorityOptions, DelayedOptions):
    """Actor and critics."""

    aliases: ClassVar[dict[str, str]] = {
        "actor_lr": "actor_learning_rate",
        "policy_lr": "actor_learning_rate",
        "critic_lr": "learning_rate",
        "q_lr": "learning_rate",
        "num_critics": "n_critics",
        "num_qs": "n_critics",
        "dropout": "critic_dropout",
        "dropout_rate": "critic_dropout",
    }
    fixed: ClassVar[tuple[str, ...]] = ("n_critics", "critic_layer_norm", "critic_dropout")

    learning_rate: PositiveFloat = 3e-4
    actor_learning_rate: PositiveFloat | None = None
    """Learning rate of the actor and the temperature; ``null`` takes ``learning_rate``. It follows the schedule of
    ``learning_rate`` in proportion."""
    buffer_size: Count = 1_000_000
    batch_size: Count = 256
    train_freq: Count = 1
    tau: Share = 0.005
    """Share of the online networks that the target networks take over at each target update."""
    n_critics: Critics = 2
    """Number of critics; targets use the smallest of their values."""
    critic_layer_norm: bool = False
    """Layer normalisation in the critics; ``network.layer_norm`` applies to the actor as well."""
    critic_dropout: Dropout = 0.0
    """Dropout rate of the critics' hidden layers in training."""

    def actor_rate(self) -> float | None:
        """Return the learning rate of the actor, if it is another one."""
        return self.actor_learning_rate

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse options of hidden layers for critics that have none."""
        super().check(experiment)
        network = experiment.network
        own = network.critic_hidden_sizes
        sizes = network.hidden_sizes if own is None else own
        if self.critic_layer_norm and min(sizes, default=0) < 2:
            raise ValueError("algo_kwargs.critic_layer_norm: needs hidden layers, of two units or more each")
        if self.critic_dropout and not sizes:
            raise ValueError("algo_kwargs.critic_dropout: needs hidden layers in the critics")


class ActionNoiseOptions(AlgorithmConfig):
    """Exploration noise on actions scaled to [-1, 1]."""

    aliases: ClassVar[dict[str, str]] = {
        "exploration_noise": "action_noise_std",
        "noise_std": "action_noise_std",
    }
    fixed: ClassVar[tuple[str, ...]] = ("action_noise",)

    action_noise: Literal["normal", "ou", "none"] = "normal"
    """Kind of noise; ``ou`` is Ornstein-Uhlenbeck noise, which restarts with each episode."""
    action_noise_std: NoiseSize = 0.1
    """Standard deviation; for ``ou``, of its change per unit of time."""
    ou_theta: PositiveFloat = 0.15
    """How strongly Ornstein-Uhlenbeck noise is pulled back to zero."""
    ou_dt: PositiveFloat = 0.01
    """Time step of Ornstein-Uhlenbeck noise."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse options of one kind of noise with another."""
        super().check(experiment)
        if self.action_noise != "ou":
            for name in self.changed("ou_theta", "ou_dt"):
                raise ValueError(f"algo_kwargs.{name}: only has a meaning with algo_kwargs.action_noise=ou")
        if self.ou_theta * self.ou_dt >= 2.0:
            raise ValueError(
                f"algo_kwargs.ou_theta: {self.ou_theta:g} times algo_kwargs.ou_dt={self.ou_dt:g} is 2 or more, which "
                "makes the noise grow without end"
            )
        if self.action_noise == "none" and self.changed("action_noise_std"):
            raise ValueError("algo_kwargs.action_noise_std: has no effect with algo_kwargs.action_noise=none")


def model_options(context: BuildContext) -> dict[str, Any]:
    """Return the keywords of a model of perceptrons."""
    options: ActorCriticConfig = context.options
    shape = context.config.network
    refuse_custom_network(context)
    return {
        "hidden_sizes": shape.hidden_sizes,
        "critic_hidden_sizes": shape.critic_hidden_sizes,
        "activation": shape.activation,
        "normalize_obs": shape.normalize_obs,
        "cnn": shape.cnn,
        "layer_norm": shape.layer_norm,
        "n_critics": options.n_critics,
        "critic_layer_norm": options.critic_layer_norm,
        "critic_dropout": options.critic_dropout,
    }


def refuse_custom_network(context: BuildContext) -> None:
    """Raise an error if there is a custom network."""
    if context.network is not None:
        raise ConfigError(
            f"network: {context.config.algo} takes no custom network yet; network.hidden_sizes, "
            "network.critic_hidden_sizes and network.activation shape the packaged one"
        )


def continuous_learner(
    context: BuildContext, learner: Callable[..., L], model: Callable[..., Any], **options: Any
) -> L:
    """Build a learner for continuous actions around a model; ``options`` are those of the model."""
    built = model(context.obs, prod(context.actions.shape), **options)
    return learner(built, context.options, action_shape=context.actions.shape, **context.for_learner())
