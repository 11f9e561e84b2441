"""Discrete SAC, declared."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rl_training.algorithms.building import num_actions, replay_experience
from rl_training.algorithms.declared.actor_critic import SMALLEST, ActorCriticConfig, model_options
from rl_training.algorithms.declared.sac import TemperatureOptions
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count, ExperimentConfig, PositiveFloat, parse_number

if TYPE_CHECKING:
    from rl_training.algorithms.discrete_sac import DiscreteSAC

Ratio = Annotated[float, BeforeValidator(parse_number), Field(gt=0.0, lt=1.0)]


class DiscreteSACConfig(TemperatureOptions, ActorCriticConfig):
    """Hyper-parameters of Discrete SAC."""

    aliases: ClassVar[dict[str, str]] = {
        "target_entropy": "target_entropy_ratio",
        "target_entropy_scale": "target_entropy_ratio",
    }
    network_defaults: ClassVar[dict[str, Any]] = {"hidden_sizes": [64, 64]}

    learning_rate: PositiveFloat = 1e-3
    batch_size: Count = 64
    target_entropy_ratio: Ratio = 0.7
    """Entropy that a learned temperature aims at, as a share of the largest possible one, the logarithm of the number
    of allowed actions. Near 1 an improving policy cannot reach it, and the temperature grows without bound."""
    critic_entropy: bool = False
    """Include future entropy in the values; the actor's loss includes its entropy in any case."""
    target: Literal["min", "mean"] = "min"
    """How the values of the critics are combined, for targets and for the actor."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse a target of a temperature that is fixed."""
        super().check(experiment)
        if self.ent_coef != "auto" and self.changed("target_entropy_ratio"):
            raise ValueError(
                "algo_kwargs.target_entropy_ratio: has no effect with a fixed algo_kwargs.ent_coef"
            )


def build_learner(context: BuildContext) -> DiscreteSAC:
    """Build the learner."""
    from rl_training.algorithms.discrete_sac import DiscreteSAC
    from rl_training.models.mlp_discrete_sac import MLPDiscreteSACModel

    model = MLPDiscreteSACModel(context.obs, num_actions(context), **model_options(context))
    return DiscreteSAC(model, context.options, action_shape=(), **context.for_learner())


SPEC = AlgorithmSpec(
    name="discrete_sac",
    class_name="DiscreteSAC",
    title="Discrete SAC",
    summary="SAC for discrete actions",
    paper="Christodoulou 2019, Soft actor-critic for discrete action settings",
    url="https://arxiv.org/abs/1910.07207",
    config=DiscreteSACConfig,
    learner="rl_training.algorithms.discrete_sac:DiscreteSAC",
    build_learner=build_learner,
    build_experience=functools.partial(replay_experience, keep_masks=True),
    obs_kinds=EVERY_OBS,
    smallest={**SMALLEST, "env": {"id": "CartPole-v1"}},
    classic=Task("CartPole-v1", 50_000),
)
