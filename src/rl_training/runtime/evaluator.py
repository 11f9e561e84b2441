"""Evaluation: own environments, own random streams, deterministic actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.algorithms.protocol import Algorithm
from rl_training.config import EnvConfig, EvaluationConfig, EvaluationEnvConfig, WrapperConfig
from rl_training.data.transitions import Carry, carry_on
from rl_training.envs import EnvFactory, atari, describe_spaces, make_vector_env
from rl_training.envs.factory import VectorEnv
from rl_training.envs.journal import EpisodeSeeds
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.observations import ObsSpec
from rl_training.runtime import closing
from rl_training.runtime.policy import decide, spaces_to_plain
from rl_training.runtime.soundness import same
from rl_training.runtime.streams import seed_sequence
from rl_training.spaces import ActionSpec, DiscreteActions

MAX_EPISODE_STEPS = 27_000
"""Where an episode that does not end by itself is cut: a greedy policy may walk in circles for ever."""


class EvaluationError(EnvError):
    """An environment of the evaluation failed; those of training are sound."""


class Abandoned(Exception):
    """The evaluation was cut short on request."""


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of the evaluated episodes, in the order of their seeds."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    def row(self, section: str = "eval") -> dict[str, float]:
        """Return the values that are logged."""
        return {
            f"{section}/mean_reward": self.mean,
            f"{section}/std_reward": self.std,
            f"{section}/min_reward": min(self.returns),
            f"{section}/max_reward": max(self.returns),
            f"{section}/mean_ep_length": float(np.mean(self.lengths)),
        }


def evaluate(
    algorithm: Algorithm[Any],
    env: EnvConfig,
    actions: ActionSpec,
    options: EvaluationConfig,
    episodes: int,
    factory: EnvFactory | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[VectorEnv], None] | None = None,
    obs: ObsSpec | None = None,
    tell: Callable[[int, int], None] = lambda ended, steps: None,
    max_steps: int | None = None,
) -> Evaluation:
    """Play the first ``episodes`` episodes of the evaluation stream greedily.

    The episodes are fixed by ``options.seed`` alone, so two evaluations of one policy are equal, and two
    policies are compared on the same episodes. Episode k is played by environment k modulo their number.
    Once ``stop`` returns true, ``Abandoned`` is raised. ``watch`` is shown the environments after their reset and
    after every step, and ``tell`` is told after every step how many episodes have ended, and how many env steps were
    made. Once these are ``max_steps``, no further episode begins. Environments whose observations are not as ``obs``
    says, or that take other ``actions``, are refused.
    """
    try:
        return _play(
            algorithm,
            _bounded(adapted(env, options), factory),
            actions,
            options,
            episodes,
            factory,
            stop,
            watch,
            obs,
            tell,
            max_steps,
        )
    except EnvError as error:
        raise EvaluationError(str(error), details=error.details) from error


def adapted(env: EnvConfig, options: EvaluationConfig) -> EnvConfig:
    """Return the config of the training environments with what is different in evaluation."""
    wrappers = env.wrappers if options.env.wrappers is None else options.env.wrappers
    return env.model_copy(update={"kwargs": {**env.kwargs, **options.env.kwargs}, "wrappers": wrappers})


def check_spaces(
    envs: VectorEnv, env: EnvConfig, options: EvaluationConfig, factory: EnvFactory | None = None
) -> None:
    """Refuse environments of evaluation whose spaces are not those of the training environments ``envs``."""
    if options.env == EvaluationEnvConfig():
        return
    root = seed_sequence(options.seed, "evaluation")
    played = make_vector_env(_bounded(adapted(env, options), factory), [EpisodeSeeds(root)], factory)
    try:
        for name in ("single_observation_space", "single_action_space"):
            ours, theirs = getattr(played, name), getattr(envs, name)
            if ours != theirs:
                what = name.removeprefix("single_").replace("_", " ")
                raise ConfigError(f"evaluation.env: its {what} is {ours}, that of training {theirs}")
    finally:
        closing.close(played)


def refuse_other_spaces(envs: VectorEnv, obs: ObsSpec, actions: ActionSpec) -> None:
    """Refuse environments that an agent of these observations and actions was not made for."""
    theirs = describe_spaces(envs.single_observation_space, envs.single_action_space)
    given, own = spaces_to_plain(*theirs), spaces_to_plain(obs, actions)
    if same(given, own):
        return
    here, made_for = (_in_words(*spaces) for spaces in (theirs, (obs, actions)))
    detail = "" if here != made_for else " (in detail others)"
    raise CheckpointError(f"env: has {here}{detail}, but the agent was made for {made_for}")


def _in_words(obs: ObsSpec, actions: ActionSpec) -> str:
    many = f"{actions.n} " if isinstance(actions, DiscreteActions) else ""
    shape = f" {actions.shape}" if actions.shape else ""
    return f"a {obs.describe()} and {many}{actions.kind.replace('_', '-')} actions{shape}"


def _bounded(env: EnvConfig, factory: EnvFactory | None) -> EnvConfig:
    """Return the config of evaluation environments: isolated like those of training, and bounded."""
    if factory is None and atari.serves(env):
        return atari.bounded(env, MAX_EPISODE_STEPS)
    limit = WrapperConfig(id="TimeLimit", kwargs={"max_episode_steps": MAX_EPISODE_STEPS})
    # A native vector environment could not be given the seeds of single episodes.
    kind = "sync" if env.vectorization == "native" else env.vectorization
    # Episodes that are lost would not be those that every agent is compared by.
    changed = {"vectorization": kind, "wrappers": (*env.wrappers, limit), "worker_restarts": 0}
    return env.model_copy(update=changed)


def _play(
    algorithm: Algorithm[Any],
    env: EnvConfig,
    actions: ActionSpec,
    options: EvaluationConfig,
    episodes: int,
    factory: EnvFactory | None,
    stop: Callable[[], bool],
    watch: Callable[[VectorEnv], None] | None,
    expected: ObsSpec | None,
    tell: Callable[[int, int], None],
    max_steps: int | None,
) -> Evaluation:
    count = min(options.num_envs, episodes)
    root = seed_sequence(options.seed, "evaluation")
    streams = [EpisodeSeeds(root, offset=i, stride=count) for i in range(count)]
    envs = make_vector_env(env, streams, factory)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    playing = np.arange(count)  # the episode that each env plays, beyond the last once it is through
    ended = np.zeros(episodes, np.bool_)
    steps = 0
    try:
        if expected is not None:
            refuse_other_spaces(envs, expected, actions)
        obs, infos = envs.reset()
        carry: Carry | None = None
        if watch is not None:
            watch(envs)
        while (playing < episodes).any():
            if stop():
                raise Abandoned
            decision = decide(algorithm, obs, carry, infos.get("action_mask"), explore=False)
            obs, reward, terminated, truncated, infos = envs.step(actions.to_env(decision.to_play))
            if decision.carry is not None:
                carry = carry_on(decision.carry, reward, terminated | truncated)
            active = playing < episodes
            returns[playing[active]] += reward[active]
            lengths[playing[active]] += 1
            steps += int(active.sum())
            over = terminated | truncated
            ended[playing[active & over]] = True
            playing[over] += count if max_steps is None or steps < max_steps else episodes
            tell(int(ended.sum()), steps)
            if watch is not None:
                watch(envs)
    finally:
        closing.close(envs)
    return Evaluation(tuple(returns[ended].tolist()), tuple(lengths[ended].tolist()))
