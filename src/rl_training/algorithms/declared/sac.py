"""SAC, declared."""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared.actor_critic import (
    SMALLEST,
    ActorCriticConfig,
    Critics,
    continuous_learner,
    model_options,
)
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import (
    AlgorithmConfig,
    AutoOrNumber,
    Count,
    ExperimentConfig,
    Float,
    PositiveFloat,
)
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.algorithms.sac import SAC


class TemperatureOptions(AlgorithmConfig):
    """Entropy."""

    aliases: ClassVar[dict[str, str]] = {"alpha_init": "ent_coef_init", "entropy_coef": "ent_coef"}
    fixed: ClassVar[tuple[str, ...]] = ("ent_coef", "ent_coef_init")

    ent_coef: AutoOrNumber = "auto"
    """Temperature, the weight of the entropy; ``auto`` learns it."""
    ent_coef_init: PositiveFloat = 1.0
    """Initial value of a learned temperature."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse the beginning of a temperature that is fixed."""
        super().check(experiment)
        if self.ent_coef != "auto" and self.ent_coef <= 0.0:
            raise ValueError(f"algo_kwargs.ent_coef: {self.ent_coef:g} should be auto or a number above 0")
        if self.ent_coef != "auto" and self.changed("ent_coef_init"):
            raise ValueError("algo_kwargs.ent_coef_init: has no effect on a fixed algo_kwargs.ent_coef")


class EntropyConfig(TemperatureOptions, ActorCriticConfig):
    """Entropy of continuous actions."""

    target_entropy: AutoOrNumber = "auto"
    """Entropy that a learned temperature aims at, for actions in [-1, 1]; ``auto``: minus the number of dimensions."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse a target of a temperature that is fixed."""
        super().check(experiment)
        if self.ent_coef != "auto" and self.target_entropy != "auto":
            raise ValueError("algo_kwargs.target_entropy: has no effect with a fixed algo_kwargs.ent_coef")


class SACConfig(EntropyConfig):
    """Hyper-parameters of SAC."""

    aliases: ClassVar[dict[str, str]] = {"use_gsde": "use_sde", "log_std_init": "sde_log_std_init"}
    fixed: ClassVar[tuple[str, ...]] = ("use_sde",)

    target_critics: Critics | None = None
    """Critics drawn at random for the target of each update (REDQ draws 2 of 10); the actor then follows the mean of
    all. ``null`` uses all for the target, and the actor follows the smallest."""
    use_sde: bool = False
    """Generalised state-dependent exploration (gSDE, Raffin et al. 2022)."""
    sde_sample_freq: Count | None = None
    """Steps of an environment between draws of the gSDE noise; ``null`` draws it at the start of each episode."""
    sde_log_std_init: Float = -3.0
    """Initial logarithm of the size of the gSDE noise."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse what has no effect, and ensembles of fewer critics than a target is made of."""
        super().check(experiment)
        if not self.use_sde:
            for name in self.changed("sde_sample_freq", "sde_log_std_init"):
                raise ValueError(f"algo_kwargs.{name}: has no effect without algo_kwargs.use_sde")
        if self.target_critics is not None and self.target_critics > self.n_critics:
            raise ValueError(
                f"algo_kwargs.target_critics: {self.target_critics} cannot be drawn from "
                f"algo_kwargs.n_critics={self.n_critics}"
            )


def check_target_entropy(context: BuildContext) -> None:
    """Refuse a target entropy that no policy on [-1, 1] has, or only the uniform one."""
    size, target = prod(context.actions.shape), context.options.target_entropy
    most = size * math.log(2.0)
    if target != "auto" and target >= most:
        raise ConfigError(
            f"algo_kwargs.target_entropy: {target:g} cannot be reached: the entropy of {size} actions in "
            f"[-1, 1] is below {most:.3g}; auto is {-size}"
        )
    least = -18.0 * size  # where the smallest deviation of an actor, exp(-20), has its entropy
    if target != "auto" and target <= least:
        raise ConfigError(
            f"algo_kwargs.target_entropy: {target:g} cannot be reached: the narrowest policy of {size} actions has "
            f"{least:g}; auto is {-size}"
        )


def sac_model_options(context: BuildContext) -> dict[str, Any]:
    """Return the keywords of ``MLPSACModel``."""
    options: SACConfig = context.options
    if options.use_sde and not context.config.network.hidden_sizes:
        raise ConfigError("algo_kwargs.use_sde: needs a hidden layer, network.hidden_sizes is empty")
    check_target_entropy(context)
    noise = options.sde_log_std_init if options.use_sde else None
    return {**model_options(context), "sde_log_std": noise}


def build_learner(context: BuildContext) -> SAC:
    """Build the learner."""
    from rl_training.algorithms.sac import SAC
    from rl_training.models.mlp_sac import MLPSACModel

    return continuous_learner(context, SAC, MLPSACModel, **sac_model_options(context))


SPEC = AlgorithmSpec(
    name="sac",
    class_name="SAC",
    title="SAC",
    summary="a stochastic policy that maximises reward and entropy",
    paper="Haarnoja et al. 2018, Soft actor-critic algorithms and applications",
    url="https://arxiv.org/abs/1812.05905",
    config=SACConfig,
    learner="rl_training.algorithms.sac:SAC",
    build_learner=build_learner,
    build_experience=replay_experience,
    action_kinds=frozenset({"continuous"}),
    obs_kinds=EVERY_OBS,
    smallest=SMALLEST,
    classic=Task("Pendulum-v1", 20_000),
)
