"""The declarations. As in rl_training itself, importing them imports no torch."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.building import num_actions, replay_experience
from rl_training.algorithms.options import OptimizerOptions, ReplayOptions, RolloutOptions, Share
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext
from rl_training.config.schema import Count, CountOrZero, PositiveFloat

if TYPE_CHECKING:
    from rl_training_toys.actor_critic import ToyActorCritic
    from rl_training_toys.policy_gradient import ToyPolicyGradient
    from rl_training_toys.rollout import Rollout


class PolicyGradientConfig(RolloutOptions, OptimizerOptions):
    """Hyper-parameters of the toy on-policy algorithm."""

    learning_rate: PositiveFloat = 1e-2
    n_steps: Count = 32
    passes: Count = 2
    """Gradient steps on a rollout."""


class ActorCriticConfig(ReplayOptions, OptimizerOptions):
    """Hyper-parameters of the toy actor-critic."""

    learning_rate: PositiveFloat = 1e-3
    learning_starts: CountOrZero = 100
    tau: Share = 0.01
    noise: PositiveFloat = 0.1


def _policy_gradient(context: BuildContext) -> ToyPolicyGradient:
    from rl_training.models.mlp_q_network import MLPQNetwork
    from rl_training_toys.policy_gradient import ToyPolicyGradient

    network = MLPQNetwork(
        context.obs, num_actions(context) + 1, context.config.network.hidden_sizes, activation="tanh"
    )
    return ToyPolicyGradient(network, context.options, **context.for_learner())


def _rollout(context: BuildContext) -> Rollout:
    from rl_training_toys.rollout import Rollout

    return Rollout(context.options.n_steps * context.config.env.num_envs)


def _actor_critic(context: BuildContext) -> ToyActorCritic:
    from rl_training.models.actors import DeterministicActor
    from rl_training.models.features import Features
    from rl_training.models.mlp import MLP
    from rl_training_toys.actor_critic import ToyActorCritic

    features, actions = Features(context.obs), prod(context.actions.shape)
    hidden = context.config.network.hidden_sizes
    actor = DeterministicActor(features.size, actions, hidden)
    critic = MLP((features.size + actions, *hidden, 1))
    shape = context.actions.shape
    return ToyActorCritic(
        features, actor, critic, context.options, action_shape=shape, **context.for_learner()
    )


SMALLEST: dict[str, Any] = {"total_timesteps": 200, "network": {"hidden_sizes": [16]}}
POLICY_GRADIENT = AlgorithmSpec(
    name="toy_policy_gradient",
    class_name="ToyPolicyGradient",
    title="Toy policy gradient",
    summary="on-policy: a rollout, a few gradient steps, and the rollout is forgotten",
    paper="Williams 1992, Simple statistical gradient-following algorithms",
    url="https://doi.org/10.1007/BF00992696",
    config=PolicyGradientConfig,
    learner="rl_training_toys.policy_gradient:ToyPolicyGradient",
    build_learner=_policy_gradient,
    build_experience=_rollout,
    obs_kinds=EVERY_OBS,
    smallest={**SMALLEST, "env": {"id": "CartPole-v1"}, "algo_kwargs": {"n_steps": 24}},
    configs=Path(__file__).parent / "configs",
)
ACTOR_CRITIC = AlgorithmSpec(
    name="toy_actor_critic",
    class_name="ToyActorCritic",
    title="Toy actor-critic",
    summary="off-policy: a deterministic actor, a critic and its slow copy",
    paper="Lillicrap et al. 2015, Continuous control with deep reinforcement learning",
    url="https://arxiv.org/abs/1509.02971",
    config=ActorCriticConfig,
    learner="rl_training_toys.actor_critic:ToyActorCritic",
    build_learner=_actor_critic,
    build_experience=replay_experience,
    action_kinds=frozenset({"continuous"}),
    obs_kinds=EVERY_OBS - {"image"},  # for images its encoder would have to learn
    smallest={
        **SMALLEST,
        "env": {"id": "Pendulum-v1"},
        "algo_kwargs": {"learning_starts": 50, "batch_size": 16, "buffer_size": 500, "n_step_return": 2},
    },
)
