"""The algorithms of this package. Importing this file imports no torch; the builders do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.algorithms.spec import AlgorithmSpec, BuildContext
from rl_training.config import DQNConfig
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from rl_training.algorithms.dqn import DQN
    from rl_training.data import ReplayExperience


def q_network(context: BuildContext) -> nn.Module:
    """Build the user's own network if there is one, else the MLP of the config."""
    from rl_training.models import MLPQNetwork
    from rl_training.spaces import DiscreteActions

    assert isinstance(context.actions, DiscreteActions)
    options, num_actions = context.config.network, context.actions.n
    if context.network is not None:
        if context.config.algo_kwargs.dueling:
            raise ConfigError(
                "algo_kwargs.dueling: belongs to the packaged network; an own one has to bring it along"
            )
        return own_network(context, num_actions)
    return MLPQNetwork(
        context.obs.shape,
        num_actions,
        options.hidden_sizes,
        activation=options.activation,
        dueling=context.config.algo_kwargs.dueling,
        normalize_obs=options.normalize_obs,
    )


def own_network(context: BuildContext, num_outputs: int) -> nn.Module:
    """Build a user's network and try it once, so that a mistake shows before training."""
    import numpy as np
    import torch
    from torch import nn

    assert context.network is not None
    try:
        network = context.network(context.obs.shape, num_outputs)
        if not isinstance(network, nn.Module):
            raise TypeError(f"the factory gave {type(network).__name__}, not a torch.nn.Module")
        with torch.no_grad():
            example = torch.from_numpy(np.zeros((2, *context.obs.shape), context.obs.dtype))
            shape = tuple(network.eval()(example).shape)
    except Exception as error:
        raise ConfigError(f"network: {type(error).__name__}: {error}") from error
    if shape != (2, num_outputs):
        raise ConfigError(
            f"network: for 2 observations expected outputs of shape {(2, num_outputs)}, got {shape}"
        )
    return network


def dqn_learner(context: BuildContext) -> DQN:
    """Build the DQN learner."""
    from rl_training.algorithms.dqn import DQN
    from rl_training.spaces import DiscreteActions

    assert isinstance(context.actions, DiscreteActions)
    return DQN(
        q_network(context),
        context.actions.n,
        context.config.algo_kwargs,
        total_timesteps=context.config.total_timesteps,
        rng=context.stream("exploration"),
        device=context.device,
    )


def replay_experience(context: BuildContext) -> ReplayExperience:
    """Build uniform replay with n-step folding and the cadence of the config."""
    from rl_training.data import NStepFolder, ReplayBuffer, ReplayExperience

    options: DQNConfig = context.config.algo_kwargs
    obs, actions = context.obs, context.actions
    buffer = ReplayBuffer(
        options.buffer_size,
        obs.shape,
        obs.dtype,
        actions.shape,
        actions.dtype,
        rng=context.stream("sampling"),
        device=context.device,
    )
    folder = NStepFolder(
        options.n_step_return,
        options.gamma,
        context.config.env.num_envs,
        obs.shape,
        obs.dtype,
        actions.shape,
        actions.dtype,
    )
    return ReplayExperience(
        buffer,
        folder,
        batch_size=options.batch_size,
        learning_starts=options.learning_starts,
        train_freq=options.train_freq,
        gradient_steps=options.gradient_steps,
    )


DQN_SPEC = AlgorithmSpec(
    name="dqn",
    title="DQN",
    paper="Mnih et al. 2015, Human-level control through deep reinforcement learning",
    summary="Q-learning with replay and a target network; Double, Dueling and n-step returns as options",
    config=DQNConfig,
    build_learner=dqn_learner,
    build_experience=replay_experience,
)

SPECS: tuple[AlgorithmSpec, ...] = (DQN_SPEC,)
