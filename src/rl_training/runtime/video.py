"""A video of what an agent does in its evaluation episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.algorithms.protocol import Algorithm
from rl_training.config import EnvConfig, EvaluationConfig, EvaluationEnvConfig, WrapperConfig
from rl_training.envs import EnvFactory, atari, rendering
from rl_training.envs.factory import VectorEnv
from rl_training.errors import ConfigError
from rl_training.observations import ObsSpec
from rl_training.runtime.evaluator import Evaluation, adapted, evaluate
from rl_training.runtime.mp4 import Mp4Writer, check_target, frame_rate
from rl_training.spaces import ActionSpec, Array

FILM = WrapperConfig(id="rl_training.envs.film:FilmedEnv")


def record(
    algorithm: Algorithm[Any],
    env: EnvConfig,
    actions: ActionSpec,
    options: EvaluationConfig,
    episodes: int,
    path: Path,
    factory: EnvFactory | None = None,
    obs: ObsSpec | None = None,
) -> Evaluation:
    """Play the first ``episodes`` evaluation episodes into an MP4 file and return how they went.

    They are the episodes of ``evaluate``. The environment runs where those of the evaluation do: OpenGL that was set up
    in this process would not work in workers that are forked afterwards.
    """
    check_target(path)
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        raise ConfigError(f"episodes: expected a whole number of at least 1, got {episodes!r}")
    filmed = _filmed(adapted(env, options), factory)
    alone = options.model_copy(update={"num_envs": 1, "env": EvaluationEnvConfig()})
    waiting: list[Array] = []
    with Mp4Writer(path) as video:

        def watch(envs: VectorEnv) -> None:
            waiting.extend(envs.call_each("take_frames")[0])  # type: ignore[attr-defined]
            # The newest waits: after the last episode it is the first of one that is not played.
            while len(waiting) > 1:
                video.add(waiting.pop(0), frame_rate(envs.metadata.get("render_fps")))

        return evaluate(algorithm, filmed, actions, alone, episodes, factory, watch=watch, obs=obs)


def _filmed(env: EnvConfig, factory: EnvFactory | None) -> EnvConfig:
    """Return the config of environments that hand over pictures of everything that happens."""
    if factory is None and atari.serves(env):
        return env  # has pictures anyway: the frames that the agent sees
    drawn = rendering(env, factory)
    return drawn.model_copy(update={"wrappers": (*drawn.wrappers, FILM)})
