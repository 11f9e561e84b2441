"""Recurrent PPO, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from rl_training.algorithms.building import refuse_network_options
from rl_training.algorithms.declared.on_policy import ACTION_KINDS, build_head, build_rollout
from rl_training.algorithms.declared.ppo import SMALLEST, ClippedConfig
from rl_training.algorithms.options import MemoryOptions, Size
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.algorithms.recurrent_ppo import RecurrentPPO
    from rl_training.data.rollout_buffer import RolloutBuffer


class RecurrentPPOConfig(MemoryOptions, ClippedConfig):
    """Hyper-parameters of recurrent PPO. ``shared_trunk`` lets actor and critic share encoder and core."""

    fixed: ClassVar[tuple[str, ...]] = ("head_sizes",)
    network_defaults: ClassVar[dict[str, Any]] = {"hidden_sizes": [64], "activation": "tanh"}

    n_steps: Count = 128
    batch_size: Count | None = 128
    """Steps of a minibatch. It is made of whole sequences and ends with the one that reaches this many; ``null`` takes
    all."""
    sequence_length: Count | None = None
    """Longest sequence; the next one starts from the memory stored there. ``null`` cuts only where episodes begin."""
    head_sizes: Annotated[tuple[Size, ...], Field(max_length=8)] = ()
    """Units of the hidden layers between the recurrent layers and each head."""


def build_learner(context: BuildContext) -> RecurrentPPO:
    """Build the learner."""
    from rl_training.algorithms.recurrent_ppo import RecurrentPPO
    from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
    from rl_training.spaces import DiscreteActions

    options: RecurrentPPOConfig = context.options
    shape = context.config.network
    if context.network is not None:
        raise ConfigError("network: recurrent_ppo takes no custom network yet")
    discrete = isinstance(context.actions, DiscreteActions)
    if options.prev_action and not discrete:
        raise ConfigError("algo_kwargs.prev_action: only discrete actions can be an input")
    refuse_network_options(context, "not for recurrent_ppo", "layer_norm")
    network = LSTMActorCritic(
        context.obs,
        build_head(context),
        context.actions.n if isinstance(context.actions, DiscreteActions) else 0,
        shape.hidden_sizes,
        head_sizes=options.head_sizes,
        shared=options.shared_trunk,
        orthogonal_init=options.orthogonal_init,
        log_std_init=options.log_std_init,
        activation=shape.activation,
        core=options.core,
        core_size=options.core_size,
        core_layers=options.core_layers,
        normalize_obs=shape.normalize_obs,
        cnn=shape.cnn,
        prev_action=options.prev_action,
        prev_reward=options.prev_reward,
    )
    return RecurrentPPO(network, options, num_envs=context.config.env.num_envs, **context.for_learner())


def build_experience(context: BuildContext) -> RolloutBuffer:
    """Build rollouts that also keep the memory before every step."""
    options: RecurrentPPOConfig = context.options
    memory = options.memory()
    if not options.shared_trunk:
        memory.update({f"critic_{name}": memory[name] for name in ("hidden", "cell") if name in memory})
    return build_rollout(context, state=memory)


SPEC = AlgorithmSpec(
    name="recurrent_ppo",
    class_name="RecurrentPPO",
    title="Recurrent PPO",
    summary="PPO with a memory (LSTM or GRU), trained on whole sequences",
    paper="Ni et al. 2022, Recurrent model-free RL can be a strong baseline for many POMDPs",
    url="https://arxiv.org/abs/2110.05038",
    config=RecurrentPPOConfig,
    learner="rl_training.algorithms.recurrent_ppo:RecurrentPPO",
    build_learner=build_learner,
    build_experience=build_experience,
    action_kinds=ACTION_KINDS,
    obs_kinds=EVERY_OBS,
    smallest={**SMALLEST, "algo_kwargs": {**SMALLEST["algo_kwargs"], "core_size": 8}},
    classic=Task("CartPole-v1", 100_000),
)
