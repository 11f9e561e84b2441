"""DrQ-v2, declared."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from rl_training.algorithms.building import own_network, refuse_network_options, replay_experience
from rl_training.algorithms.declared.actor_critic import DelayedOptions
from rl_training.algorithms.options import Share, Size, Steps
from rl_training.algorithms.spec import AlgorithmSpec, BuildContext
from rl_training.config.schema import Count, CountOrZero, PositiveFloat, parse_number
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.algorithms.drqv2 import DrQv2


class DrQv2Config(DelayedOptions):
    """Hyper-parameters of DrQ-v2; the defaults are those of the paper. A step is one of the agent's own."""

    aliases: ClassVar[dict[str, str]] = {
        "stddev_clip": "std_clip",
        "stddev_schedule": "std_initial",
    }
    fixed: ClassVar[tuple[str, ...]] = ("feature_dim", "encoder_dim", "reward_scale")
    network_defaults: ClassVar[dict[str, Any]] = {"hidden_sizes": [1024, 1024]}
    separate_critic: ClassVar[bool] = False

    learning_rate: PositiveFloat = 1e-4
    buffer_size: Count = 1_000_000
    """Observations that the replay holds, of stacked frames only the newest; an episode of k steps has k + 1."""
    learning_starts: CountOrZero = 2_000
    batch_size: Count = 256
    n_step_return: Steps = 3
    train_freq: Count = 2
    tau: Share = 0.01
    """Share of the critic that its target takes over at each update."""
    policy_delay: Count = 1
    """Updates of the critic for each update of the actor and the target."""
    std_initial: PositiveFloat = 1.0
    """Standard deviation of the noise on actions in [-1, 1] at the first step."""
    std_final: PositiveFloat = 0.1
    """Standard deviation of the noise after ``std_duration``."""
    std_duration: Count = 100_000
    """Env steps over which the noise falls linearly."""
    std_clip: PositiveFloat = 0.3
    """Largest noise on the actions of the losses; exploration noise is not clipped."""
    reward_scale: PositiveFloat = 1.0
    """Factor on the rewards that are learned from; reported returns are not scaled. Large values are slow to learn, so
    use a small factor for rewards such as -16 or 100 a step."""
    shift_pad: Annotated[int, BeforeValidator(parse_number), Field(ge=0, le=64)] = 4
    """Largest random shift of an image in pixels, in each direction; 0 turns augmentation off."""
    feature_dim: Size = 50
    """Size of the layer between the encoder and the actor, and between the encoder and the critic."""
    encoder_dim: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=1_000_000)] = 1_024
    """Features of a custom encoder (``network.factory``); the packaged one has a fixed number."""


def build_learner(context: BuildContext) -> DrQv2:
    """Build the learner; an own network takes the place of the encoder."""
    from rl_training.algorithms.drqv2 import DrQv2
    from rl_training.models.cnn.drqv2 import DrQv2Network

    options: DrQv2Config = context.options
    shape = context.config.network
    _require_images(context)
    refuse_network_options(context, "images are not normalised by running statistics", "normalize_obs")
    refuse_network_options(
        context, "not for DrQ-v2, which normalises what comes out of its encoder anyway", "layer_norm"
    )
    if shape.cnn != "auto":
        raise ConfigError(f"network.cnn: {shape.cnn} is not for DrQ-v2, which has an encoder of its own")
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
    return DrQv2(network, options, action_shape=context.actions.shape, **context.for_learner())


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


SPEC = AlgorithmSpec(
    name="drqv2",
    class_name="DrQv2",
    title="DrQ-v2",
    summary="continuous control from pixels, with randomly shifted images",
    paper="Yarats et al. 2021, Mastering visual continuous control: improved data-augmented reinforcement learning",
    url="https://arxiv.org/abs/2107.09645",
    config=DrQv2Config,
    learner="rl_training.algorithms.drqv2:DrQv2",
    build_learner=build_learner,
    build_experience=replay_experience,
    action_kinds=frozenset({"continuous"}),
    obs_kinds=frozenset({"image"}),
    smallest={
        "env": {
            "id": "Pendulum-v1",
            "kwargs": {"render_mode": "rgb_array"},
            "wrappers": [
                {"id": "rl_training.envs.pixels:PixelObservation", "kwargs": {"size": 20}},
                {"id": "FrameStackObservation", "kwargs": {"stack_size": 2}},
            ],
        },
        "total_timesteps": 200,
        "algo_kwargs": {"learning_starts": 50, "batch_size": 16, "train_freq": 4, "buffer_size": 500},
        "network": {"hidden_sizes": [16]},
    },
)
