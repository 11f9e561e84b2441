"""TRPO, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rl_training.algorithms.declared.on_policy import (
    ACTION_KINDS,
    OnPolicyConfig,
    build_network,
    build_rollout,
)
from rl_training.algorithms.declared.ppo import SMALLEST
from rl_training.algorithms.options import NotNegative
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count, PositiveFloat, parse_number

if TYPE_CHECKING:
    from rl_training.algorithms.trpo import TRPO


class TRPOConfig(OnPolicyConfig):
    """Hyper-parameters of TRPO; the learning rate is that of the critic."""

    aliases: ClassVar[dict[str, str]] = {
        "max_kl": "target_kl",
        "kl_target": "target_kl",
        "cg_iters": "cg_max_steps",
        "vf_iters": "n_critic_updates",
    }

    learning_rate: PositiveFloat = 1e-3
    shared_trunk: Literal[False] = False
    """Actor and critic share no layers, since the critic's updates must not move the policy."""
    batch_size: Count | None = 128
    """Samples of a minibatch of the critic; the policy step uses the whole rollout."""
    n_critic_updates: Count = 10
    """Passes of the critic over a rollout."""
    target_kl: PositiveFloat = 0.01
    """Largest KL divergence between the policies before and after a step."""
    target_kl_final: PositiveFloat | None = None
    """Value that it reaches linearly at ``schedule_timesteps``; ``null`` keeps it constant."""
    cg_max_steps: Count = 15
    """Iterations of the conjugate gradient method, at most."""
    cg_damping: NotNegative = 0.1
    """Added to the diagonal of the Fisher matrix."""
    line_search_shrinking: Annotated[float, BeforeValidator(parse_number), Field(gt=0.0, lt=1.0)] = 0.8
    """Factor by which a step is shortened while it goes too far or gains nothing."""
    line_search_steps: Count = 10
    """Step lengths that are tried before the step is given up."""


def build_learner(context: BuildContext) -> TRPO:
    """Build the learner."""
    from rl_training.algorithms.trpo import TRPO

    network = build_network(context, fused=False, separate_encoders=True)
    return TRPO(network, context.options, num_envs=context.config.env.num_envs, **context.for_learner())


SPEC = AlgorithmSpec(
    name="trpo",
    class_name="TRPO",
    title="TRPO",
    summary="policy gradient whose steps are limited in KL divergence",
    paper="Schulman et al. 2015, Trust region policy optimization",
    url="https://arxiv.org/abs/1502.05477",
    config=TRPOConfig,
    learner="rl_training.algorithms.trpo:TRPO",
    build_learner=build_learner,
    build_experience=build_rollout,
    action_kinds=ACTION_KINDS,
    obs_kinds=EVERY_OBS,
    smallest={**SMALLEST, "algo_kwargs": {"n_steps": 32, "batch_size": 16, "target_kl": 0.1}},
    classic=Task("CartPole-v1", 100_000),
)
