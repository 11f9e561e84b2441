"""From options to learners and experiences. Importing this file imports no torch; calling a builder does."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from rl_training.algorithms.spec import BuildContext
from rl_training.config import (
    C51Config,
    DRQNConfig,
    DrQv2Config,
    MemorylessConfig,
    QLearningConfig,
    ReplayConfig,
)
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from rl_training.algorithms.c51 import C51
    from rl_training.algorithms.dqn import DQN
    from rl_training.algorithms.drqn import DRQN
    from rl_training.algorithms.drqv2 import DrQv2
    from rl_training.algorithms.iqn import IQN
    from rl_training.algorithms.qr_dqn import QRDQN
    from rl_training.data import ReplayExperience, SequenceExperience

Learner = TypeVar("Learner")
_BRINGS_ALONG = "set it to false with an own one, which has to bring it along"


def dqn_learner(context: BuildContext) -> DQN:
    """Build the learner of DQN."""
    from rl_training.algorithms.dqn import DQN
    from rl_training.models import MLPQNetwork

    return _learner(DQN, MLPQNetwork, context)


def c51_learner(context: BuildContext) -> C51:
    """Build the learner of C51, which is that of Rainbow, too."""
    from rl_training.algorithms.c51 import C51
    from rl_training.models import MLPC51QNetwork

    options: C51Config = context.config.algo_kwargs
    extra: dict[str, Any] = {"num_atoms": options.num_atoms, "v_min": options.v_min, "v_max": options.v_max}
    return _learner(C51, MLPC51QNetwork, context, options.num_atoms, **extra)


def qr_dqn_learner(context: BuildContext) -> QRDQN:
    """Build the learner of QR-DQN."""
    from rl_training.algorithms.qr_dqn import QRDQN
    from rl_training.models import MLPQRQNetwork

    count = context.config.algo_kwargs.num_quantiles
    return _learner(QRDQN, MLPQRQNetwork, context, count, num_quantiles=count)


def iqn_learner(context: BuildContext) -> IQN:
    """Build the learner of IQN."""
    from rl_training.algorithms.iqn import IQN
    from rl_training.models import MLPIQNQNetwork

    if not context.config.network.hidden_sizes:
        raise ConfigError("network.hidden_sizes: IQN needs at least one hidden layer")
    count = context.config.algo_kwargs.num_cosines
    return _learner(IQN, MLPIQNQNetwork, context, 3, fractions=3, num_cosines=count)


def _learner(
    learner: Callable[..., Learner],
    network: Any,
    context: BuildContext,
    width: int | None = None,
    *,
    fractions: int | None = None,
    **network_options: Any,
) -> Learner:
    """Build a Q-learner around the user's own network if there is one, else around the packaged one.

    ``width`` is the size of an output's third dimension, if it has one. ``fractions`` is with how many of them
    a network that takes fractions, too, is tried.
    """
    options: MemorylessConfig = context.config.algo_kwargs
    shape, count = context.config.network, _num_actions(context)
    if context.network is not None:
        for name in ("dueling", "noisy"):
            if getattr(options, name):
                raise ConfigError(f"algo_kwargs.{name}: belongs to the packaged network; {_BRINGS_ALONG}")
        _refuse(context, f"belongs to the packaged network; {_BRINGS_ALONG}")
        built = own_network(context, (count,) if width is None else (count, width), fractions)
    else:
        built = network(
            context.obs.shape,
            count,
            hidden_sizes=shape.hidden_sizes,
            activation=shape.activation,
            dueling=options.dueling,
            normalize_obs=shape.normalize_obs,
            layer_norm=shape.layer_norm,
            noisy_sigma=options.noisy_sigma if options.noisy else None,
            **network_options,
        )
    return _around(learner, built, context)


def _refuse(context: BuildContext, why: str, *names: str) -> None:
    """Raise an error if one of these options of the network, by default every one that normalises, is set."""
    for name in names or ("normalize_obs", "layer_norm"):
        if getattr(context.config.network, name):
            raise ConfigError(f"network.{name}: {why}")


def _num_actions(context: BuildContext) -> int:
    from rl_training.spaces import DiscreteActions

    assert isinstance(context.actions, DiscreteActions)
    return context.actions.n


def _around(learner: Callable[..., Learner], network: nn.Module, context: BuildContext) -> Learner:
    return learner(
        network,
        _num_actions(context),
        context.config.algo_kwargs,
        total_timesteps=context.config.total_timesteps,
        rng=context.stream("exploration"),
        device=context.device,
    )


def drqn_learner(context: BuildContext) -> DRQN:
    """Build the learner of DRQN, which is that of R2D2, too; an own network takes the place of the encoder."""
    from rl_training.algorithms.drqn import DRQN
    from rl_training.models.noisy import noisy_layers
    from rl_training.models.recurrent import LSTMQNetwork

    options: DRQNConfig = context.config.algo_kwargs
    shape, obs = context.config.network, context.obs.shape
    encoder, features = None, shape.hidden_sizes[-1] if shape.hidden_sizes else 0
    if context.network is not None:
        if not features:
            raise ConfigError(
                "network.hidden_sizes: the last one says how many features an own encoder gives"
            )
        _refuse(context, f"belongs to the packaged encoder; {_BRINGS_ALONG}")
        axes = ("observations", "features: the last of network.hidden_sizes")
        encoder = own_network(context, (features,), axes=axes)
        if noisy_layers(encoder):
            raise ConfigError(
                f"network: {context.config.algo} explores by epsilon; it cannot use noisy layers"
            )
    elif len(obs) != 1:
        raise ConfigError(
            f"env: {context.config.algo} remembers vectors, not observations of shape {obs}; flatten them with the "
            "wrapper FlattenObservation, give an own encoder as network.factory, or take dqn"
        )
    network = LSTMQNetwork(
        obs,
        _num_actions(context),
        shape.hidden_sizes,
        core=options.core,
        core_size=options.core_size,
        core_layers=options.core_layers,
        activation=shape.activation,
        dueling=options.dueling,
        normalize_obs=shape.normalize_obs,
        layer_norm=shape.layer_norm,
        prev_action=options.prev_action,
        prev_reward=options.prev_reward,
        encoder=encoder,
        encoder_size=features,
    )
    return _around(DRQN, network, context)


def drqv2_learner(context: BuildContext) -> DrQv2:
    """Build the learner of DrQ-v2; an own network takes the place of the encoder."""
    from rl_training.algorithms.drqv2 import DrQv2
    from rl_training.models.cnn import DrQv2Network

    options: DrQv2Config = context.config.algo_kwargs
    shape = context.config.network
    _require_images(context)
    _refuse(context, "images are not normalised by running statistics", "normalize_obs")
    _refuse(context, "not for DrQ-v2, which normalises what comes out of its encoder anyway", "layer_norm")
    if not shape.hidden_sizes:
        raise ConfigError("network.hidden_sizes: DrQ-v2 needs at least one hidden layer")
    height, width = context.obs.shape[-2:]
    if options.shift_pad >= min(height, width):
        raise ConfigError(
            f"algo_kwargs.shift_pad: shifts of up to {options.shift_pad} pixels would move images of "
            f"{height} x {width} out of sight"
        )
    encoder = None
    if context.network is not None:
        encoder = own_network(context, (options.encoder_dim,), axes=("observations", "features"))
    network = DrQv2Network(
        context.obs.shape,
        prod(context.actions.shape),
        shape.hidden_sizes,
        activation=shape.activation,
        feature_dim=options.feature_dim,
        encoder=encoder,
        encoder_size=options.encoder_dim,
    )
    return DrQv2(
        network,
        options,
        action_shape=context.actions.shape,
        total_timesteps=context.config.total_timesteps,
        rng=context.stream("exploration"),
        device=context.device,
    )


def _require_images(context: BuildContext) -> None:
    """Refuse observations that are not channel-first ``uint8`` images, or stacks of them."""
    from rl_training.models.cnn.drqv2 import MIN_SIZE

    obs, algo = context.obs, context.config.algo
    wrapper = "rl_training.envs.pixels:PixelObservation"
    if len(obs.shape) not in (3, 4):
        raise ConfigError(
            f"env: {algo} learns from images [C, H, W] or stacks [K, C, H, W] of them, not from observations of shape "
            f"{obs.shape}; the wrapper {wrapper} makes some of what an environment renders"
        )
    if obs.dtype.name != "uint8":
        raise ConfigError(f"env: {algo} learns from images of uint8, not of {obs.dtype.name}")
    if obs.shape[-1] <= 4 < obs.shape[-3]:
        raise ConfigError(
            f"env: observations of shape {obs.shape} look channel-last; {algo} takes channel-first images, as the "
            f"wrapper {wrapper} gives them"
        )
    if min(obs.shape[-2:]) < MIN_SIZE and context.network is None:
        size = f"{obs.shape[-2]} x {obs.shape[-1]}"
        raise ConfigError(f"env: images of {size} are too small for {algo}: {MIN_SIZE} x {MIN_SIZE} at least")


def image_experience(context: BuildContext) -> SequenceExperience:
    """Build replay of images with the cadence of the config."""
    from rl_training.data import ImageReplayBuffer, SequenceExperience

    options: DrQv2Config = context.config.algo_kwargs
    buffer = ImageReplayBuffer(
        options.buffer_size,
        context.obs.shape,
        context.actions.shape,
        context.actions.dtype,
        num_envs=context.config.env.num_envs,
        n_step=options.n_step_return,
        gamma=options.gamma,
        rng=context.stream("sampling"),
        device=context.device,
    )
    return SequenceExperience(buffer, **_cadence(options))


def own_network(
    context: BuildContext,
    output: tuple[int, ...],
    fractions: int | None = None,
    axes: tuple[str, ...] = ("observations", "actions", "numbers for each"),
) -> nn.Module:
    """Build a user's network and try it once, so that a mistake shows before training."""
    import numpy as np
    import torch
    from torch import nn

    assert context.network is not None
    inputs = [torch.from_numpy(np.zeros((2, *context.obs.shape), context.obs.dtype))]
    if fractions is not None:
        inputs.append(torch.full((2, fractions), 0.5))
    try:
        network = context.network(context.obs.shape, output[0])
        if not isinstance(network, nn.Module):
            raise TypeError(f"the factory gave {type(network).__name__}, not a torch.nn.Module")
        with torch.no_grad():
            shape = tuple(network.eval()(*inputs).shape)
    except Exception as error:
        raise ConfigError(f"network: {type(error).__name__}: {error}") from error
    if shape != (2, *output):
        names = ", ".join(axes[: len(output) + 1])
        raise ConfigError(f"network: expected outputs of shape {(2, *output)} ({names}), got {shape}")
    return network


def replay_experience(context: BuildContext) -> ReplayExperience:
    """Build replay, uniform or prioritized, with n-step folding and the cadence of the config."""
    from rl_training.data import NStepFolder, ReplayBuffer, ReplayExperience

    options: QLearningConfig = context.config.algo_kwargs
    obs, actions = context.obs, context.actions
    fields = (obs.shape, obs.dtype, actions.shape, actions.dtype)
    folder = NStepFolder(options.n_step_return, options.gamma, context.config.env.num_envs, *fields)
    stream = context.stream("sampling")
    if not options.prioritized:
        buffer = ReplayBuffer(options.buffer_size, *fields, rng=stream, device=context.device)
        return ReplayExperience(buffer, folder, **_cadence(options))
    from rl_training.data import PrioritizedExperience, PrioritizedReplayBuffer

    prioritized = PrioritizedReplayBuffer(
        options.buffer_size,
        *fields,
        alpha=options.alpha,
        eps=options.priority_eps,
        rng=stream,
        device=context.device,
    )
    return PrioritizedExperience(prioritized, folder, **_cadence(options), **_weighting(context))


def sequence_experience(context: BuildContext) -> SequenceExperience:
    """Build replay of sequences, uniform or prioritized, with the cadence of the config."""
    from rl_training.data import RecurrentReplayBuffer, SequenceExperience

    options: DRQNConfig = context.config.algo_kwargs
    obs, actions = context.obs, context.actions
    fields = (obs.shape, obs.dtype, actions.shape, actions.dtype)
    chunks: dict[str, Any] = {
        "length": options.sequence_length,
        "period": options.period,
        "state": _memory(options),
        "num_envs": context.config.env.num_envs,
        "n_step": options.n_step_return,
        "gamma": options.gamma,
        "rng": context.stream("sampling"),
        "device": context.device,
    }
    if not options.prioritized:
        buffer = RecurrentReplayBuffer(options.buffer_size, *fields, **chunks)
        return SequenceExperience(buffer, **_cadence(options))
    from rl_training.data import PrioritizedRecurrentReplayBuffer, PrioritizedSequenceExperience

    prioritized = PrioritizedRecurrentReplayBuffer(
        options.buffer_size, *fields, **chunks, alpha=options.alpha, eps=options.priority_eps
    )
    return PrioritizedSequenceExperience(prioritized, **_cadence(options), **_weighting(context))


def _memory(options: DRQNConfig) -> dict[str, Any]:
    """Return what a memory is made of, as ``LSTMQNetwork.initial_state`` gives it."""
    sizes = (options.core_layers, options.core_size)
    memory: dict[str, Any] = {"hidden": (sizes, "float32")}
    if options.core == "lstm":
        memory["cell"] = (sizes, "float32")
    if options.prev_action:
        memory["action"] = ((), "int64")
    if options.prev_reward:
        memory["reward"] = ((), "float32")
    return memory


def _cadence(options: ReplayConfig) -> dict[str, int]:
    return {
        "batch_size": options.batch_size,
        "learning_starts": options.learning_starts,
        "train_freq": options.train_freq,
        "gradient_steps": options.gradient_steps,
    }


def _weighting(context: BuildContext) -> dict[str, Any]:
    options: QLearningConfig = context.config.algo_kwargs
    total = context.config.total_timesteps
    return {"beta": options.beta, "beta_final": options.beta_final, "total_timesteps": total}
