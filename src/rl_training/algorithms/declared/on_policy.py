"""What the declarations of the on-policy algorithms share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rl_training.algorithms.options import OptimizerOptions, RolloutOptions
from rl_training.algorithms.spec import BuildContext
from rl_training.config.schema import Float, Fraction
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.data.rollout_buffer import RolloutBuffer
    from rl_training.models.distributions import ActionHead
    from rl_training.models.mlp_actor_critic import MLPActorCritic

ACTION_KINDS = frozenset({"discrete", "continuous", "unbounded", "multi_discrete", "multi_binary"})


class OnPolicyConfig(RolloutOptions, OptimizerOptions):
    """Policy and advantages."""

    aliases: ClassVar[dict[str, str]] = {
        "lambda": "gae_lambda",
        "lam": "gae_lambda",
        "norm_adv": "normalize_advantage",
        "reward_normalization": "normalize_reward",
        "norm_reward": "normalize_reward",
    }
    fixed: ClassVar[tuple[str, ...]] = ("action_distribution", "shared_trunk", "normalize_reward")
    network_defaults: ClassVar[dict[str, Any]] = {"hidden_sizes": [64, 64], "activation": "tanh"}

    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation: 0 relies on the values, 1 on the rewards (Schulman et al. 2016)."""
    normalize_advantage: bool = True
    """Standardise advantages within each minibatch."""
    normalize_reward: bool = False
    """Divide rewards by the running standard deviation of discounted returns; reported returns are not scaled."""
    action_distribution: Literal["auto", "gaussian", "tanh_gaussian"] = "auto"
    """Distribution of continuous actions: a Gaussian clipped to the bounds (``auto``), or one squashed into them."""
    log_std_init: Float = 0.0
    """Initial logarithm of the standard deviation, for actions scaled to [-1, 1]."""
    shared_trunk: bool = False
    """Let actor and critic share their hidden layers."""
    orthogonal_init: bool = True
    """Initialise weights orthogonally."""


def build_head(context: BuildContext) -> ActionHead:
    """Return the distribution of actions that the options and the action space ask for."""
    from rl_training.models import distributions
    from rl_training.spaces import DiscreteActions, MultiBinaryActions, MultiDiscreteActions

    options: OnPolicyConfig = context.options
    actions, wanted = context.actions, options.action_distribution
    if actions.kind in ("continuous", "unbounded"):
        if wanted == "tanh_gaussian" and actions.kind == "unbounded":
            raise ConfigError(
                "algo_kwargs.action_distribution: tanh_gaussian needs bounds to squash actions into, and this action "
                "space has none in some dimension; take gaussian, or give it bounds with the wrapper RescaleAction"
            )
        kind = distributions.TanhGaussianHead if wanted == "tanh_gaussian" else distributions.GaussianHead
        return kind(actions.shape)
    if wanted != "auto":
        raise ConfigError(
            f"algo_kwargs.action_distribution: {wanted} is for continuous actions, these are "
            f"{actions.kind.replace('_', '-')} ones; leave it at auto"
        )
    if isinstance(actions, DiscreteActions):
        return distributions.CategoricalHead(actions.n)
    if isinstance(actions, MultiDiscreteActions):
        return distributions.MultiCategoricalHead(actions.counts)
    assert isinstance(actions, MultiBinaryActions)
    return distributions.BernoulliHead(actions.n)


def build_network(context: BuildContext, **options_of_model: bool) -> MLPActorCritic:
    """Build the policy and the value; further options are those of the model."""
    from rl_training.models.mlp_actor_critic import MLPActorCritic

    options: OnPolicyConfig = context.options
    shape = context.config.network
    if context.network is not None:
        raise ConfigError(
            f"network: {context.config.algo} takes no custom network yet; network.hidden_sizes and activation shape "
            "the packaged one"
        )
    return MLPActorCritic(
        context.obs,
        build_head(context),
        shape.hidden_sizes,
        activation=shape.activation,
        shared=options.shared_trunk,
        orthogonal_init=options.orthogonal_init,
        log_std_init=options.log_std_init,
        normalize_obs=shape.normalize_obs,
        layer_norm=shape.layer_norm,
        cnn=shape.cnn,
        **options_of_model,
    )


def build_rollout(context: BuildContext, **state: Any) -> RolloutBuffer:
    """Build the experience of an on-policy algorithm."""
    from rl_training.data.rollout_buffer import RolloutBuffer

    return RolloutBuffer(
        context.options.n_steps,
        context.config.env.num_envs,
        context.obs.shape,
        context.obs.dtype,
        action_shape=context.actions.shape,
        action_dtype=context.actions.dtype,
        total_timesteps=context.config.total_timesteps,
        **state,
    )
