"""What builders of several algorithms share. Importing this file imports no torch; calling a builder does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_training.algorithms.spec import BuildContext
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from rl_training.data import Batch, SequenceExperience
    from rl_training.data.experience import PacedReplay

BRINGS_ALONG = "set it to false for a custom one, which has to provide it itself"


def num_actions(context: BuildContext) -> int:
    """Return how many discrete actions there are."""
    from rl_training.spaces import DiscreteActions

    assert isinstance(context.actions, DiscreteActions)
    return context.actions.n


def refuse_network_options(context: BuildContext, why: str, *names: str) -> None:
    """Raise an error if one of these options of the network, by default every one that normalises, is set."""
    for name in names or ("normalize_obs", "layer_norm"):
        if getattr(context.config.network, name):
            raise ConfigError(f"network.{name}: {why}")


def own_network(
    context: BuildContext,
    output: tuple[int, ...],
    fractions: int | None = None,
    axes: tuple[str, ...] = ("observations", "actions", "numbers for each"),
) -> nn.Module:
    """Build a user's network and try it once, so that a mistake shows before training.

    ``output`` is the shape of what it should give for one observation, ``fractions`` with how many of them a network
    that takes fractions, too, is tried.
    """
    import numpy as np
    import torch
    from torch import nn

    assert context.network is not None
    if (cnn := context.config.network.cnn) != "auto":
        raise ConfigError(f"network.cnn: {cnn} has no effect on a custom network; leave it at auto")
    inputs = [torch.from_numpy(np.zeros((2, *context.obs.shape), context.obs.dtype))]
    if fractions is not None:
        inputs.append(torch.full((2, fractions), 0.5))
    try:
        # Of a Dict or Tuple the shape says nothing: the network is told what the parts are.
        seen: Any = context.obs if context.obs.packed else context.obs.shape
        network = context.network(seen, output[0])
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


def replay_experience(context: BuildContext, *, keep_masks: bool = False) -> PacedReplay[Batch]:
    """Build replay of n-step transitions with the cadence of the config; by priority if its options say so.

    Where an observation has images, it is kept once, of stacked frames only the newest. ``keep_masks`` also keeps
    which actions were allowed in the observations acted on.
    """
    from rl_training.data import NStepFolder, ReplayBuffer, ReplayExperience

    if context.obs.images:
        return _image_experience(context, keep_masks)
    options: Any = context.options
    obs, actions = context.obs, context.actions
    fields = (obs.shape, obs.dtype, actions.shape, actions.dtype)
    folder = NStepFolder(
        options.n_step_return, options.gamma, context.config.env.num_envs, *fields, keep_masks=keep_masks
    )
    storing: dict[str, Any] = {
        "keep_masks": keep_masks,
        "rng": context.stream("sampling"),
        "device": context.device,
    }
    if not _by_priority(context):
        buffer = ReplayBuffer(options.buffer_size, *fields, **storing)
        return ReplayExperience(buffer, folder, **options.cadence())
    from rl_training.data import PrioritizedExperience, PrioritizedReplayBuffer

    prioritized = PrioritizedReplayBuffer(
        options.buffer_size, *fields, alpha=options.alpha, eps=options.priority_eps, **storing
    )
    return PrioritizedExperience(prioritized, folder, **options.cadence(), **weighting(context))


def _image_experience(context: BuildContext, keep_masks: bool) -> SequenceExperience[Batch]:
    from rl_training.data import ImageReplayBuffer, SequenceExperience

    options: Any = context.options
    obs, actions = context.obs, context.actions
    fields = (options.buffer_size, obs.shape, actions.shape, actions.dtype)
    storing: dict[str, Any] = {
        "obs_dtype": obs.dtype,
        "stack": obs.stack,
        "num_envs": context.config.env.num_envs,
        "n_step": options.n_step_return,
        "gamma": options.gamma,
        "keep_masks": keep_masks,
        "rng": context.stream("sampling"),
        "device": context.device,
    }
    if not _by_priority(context):
        return SequenceExperience(ImageReplayBuffer(*fields, **storing), **options.cadence())
    from rl_training.data import PrioritizedImageReplayBuffer, PrioritizedSequenceExperience

    buffer = PrioritizedImageReplayBuffer(*fields, alpha=options.alpha, eps=options.priority_eps, **storing)
    return PrioritizedSequenceExperience(buffer, **options.cadence(), **weighting(context))


def _by_priority(context: BuildContext) -> bool:
    from rl_training.algorithms.options import PriorityOptions

    return isinstance(context.options, PriorityOptions) and context.options.prioritized


def weighting(context: BuildContext) -> dict[str, Any]:
    """Return how the weights of prioritized replay change over the run."""
    options = context.options
    length = context.config.schedule_length
    return {"beta": options.beta, "beta_final": options.beta_final, "total_timesteps": length}
