"""PPO, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rl_training.algorithms.declared.on_policy import (
    ACTION_KINDS,
    OnPolicyConfig,
    build_network,
    build_rollout,
)
from rl_training.algorithms.options import NotNegative
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count, ExperimentConfig, PositiveFloat

if TYPE_CHECKING:
    from rl_training.algorithms.ppo import PPO


class ClippedConfig(OnPolicyConfig):
    """Clipped surrogate."""

    aliases: ClassVar[dict[str, str]] = {
        "update_epochs": "n_epochs",
        "repeat": "n_epochs",
        "minibatch_size": "batch_size",
        "clip_coef": "clip_range",
        "clip_param": "clip_range",
        "entropy_coef": "ent_coef",
        "value_coef": "vf_coef",
        "recompute_adv": "recompute_advantages",
    }

    learning_rate: PositiveFloat = 3e-4
    adam_eps: PositiveFloat = 1e-5
    max_grad_norm: PositiveFloat | None = 0.5
    batch_size: Count | None = 64
    """Samples of a minibatch; ``null`` takes the whole rollout. The last minibatch may be smaller."""
    n_epochs: Count = 10
    """Passes over a rollout."""
    clip_range: PositiveFloat = 0.2
    """Clipping range of the probability ratio."""
    clip_range_final: NotNegative | None = None
    """Value that it reaches linearly at ``schedule_timesteps``; ``null`` keeps it constant."""
    ent_coef: NotNegative = 0.0
    """Weight of the entropy bonus. Leave it at 0 for a clipped Gaussian, where entropy beyond the bounds is free."""
    vf_coef: NotNegative = 0.5
    """Weight of the value loss, a mean squared error."""
    value_clipping: Literal["none", "prediction", "maximum"] = "none"
    """``prediction`` clips the change of the value to ``clip_range_vf`` and takes the error of the result, as
    Stable-Baselines3 does; ``maximum`` takes the larger of that error and the unclipped one, as OpenAI Baselines
    does."""
    clip_range_vf: PositiveFloat | None = None
    """Clipping range of the value; needs ``value_clipping``."""
    target_kl: PositiveFloat | None = None
    """End an update early once the approximate KL divergence exceeds 1.5 times this; ``null`` never does."""
    recompute_advantages: bool = False
    """Recompute values and advantages before every epoch."""

    @property
    def kl_limit(self) -> float | None:
        """The divergence above which no further step of an update is made."""
        return None if self.target_kl is None else 1.5 * self.target_kl

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse a range without a form of clipping, and a form without a range."""
        super().check(experiment)
        if self.clip_range_vf is not None and self.value_clipping == "none":
            raise ValueError(
                "algo_kwargs.clip_range_vf: has no effect with algo_kwargs.value_clipping=none; prediction is "
                "Stable-Baselines3's form"
            )
        if self.clip_range_vf is None and self.value_clipping != "none":
            raise ValueError(
                f"algo_kwargs.value_clipping: {self.value_clipping} needs algo_kwargs.clip_range_vf, such as 0.2"
            )


class PPOConfig(ClippedConfig):
    """Hyper-parameters of PPO."""


def build_learner(context: BuildContext) -> PPO:
    """Build the learner."""
    from rl_training.algorithms.ppo import PPO

    network = build_network(context)
    return PPO(network, context.options, num_envs=context.config.env.num_envs, **context.for_learner())


SMALLEST: dict[str, Any] = {
    "env": {"id": "CartPole-v1"},
    "total_timesteps": 200,
    "algo_kwargs": {"n_steps": 32, "batch_size": 16, "n_epochs": 3, "learning_rate": 1e-2},
    "network": {"hidden_sizes": [16]},
}
SPEC = AlgorithmSpec(
    name="ppo",
    class_name="PPO",
    title="PPO",
    summary="policy gradient with a clipped objective, several passes over each rollout",
    paper="Schulman et al. 2017, Proximal policy optimization algorithms",
    url="https://arxiv.org/abs/1707.06347",
    config=PPOConfig,
    learner="rl_training.algorithms.ppo:PPO",
    build_learner=build_learner,
    build_experience=build_rollout,
    action_kinds=ACTION_KINDS,
    obs_kinds=EVERY_OBS,
    smallest=SMALLEST,
    classic=Task("CartPole-v1", 100_000),
)
