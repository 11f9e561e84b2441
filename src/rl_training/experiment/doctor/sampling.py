"""Steps of a user's environment under random actions, and the same steps again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.config import EnvConfig
from rl_training.envs import EnvFactory, atari, describe_spaces, make_vector_env
from rl_training.envs.factory import VectorEnv
from rl_training.envs.journal import EpisodeSeeds
from rl_training.envs.sync import SyncVectorEnv
from rl_training.observations import ObsSpec
from rl_training.runtime import closing
from rl_training.runtime.streams import seed_sequence
from rl_training.spaces import ActionSpec, Array

STEPS = 3_000
REPEATED = 200
"""Steps that are made a second time, from the same seed with the same actions."""
_HELD = 20
"""Steps after which another action may be held: what is jerked to and fro goes nowhere."""


@dataclass
class Sample:
    """What happened; arrays of S steps in the order in which they were made."""

    obs_spec: ObsSpec
    actions_spec: ActionSpec
    observation_space: gym.Space[Any]
    obs: Array  # [S, *obs]
    next_obs: Array  # [S, *obs], the last of an episode where it ended
    action: Array  # [S, *action], as the environment was given them
    reward: Array  # [S]
    terminated: Array  # [S] bool
    truncated: Array  # [S] bool
    seconds: float
    limit: int | None
    """Steps after which a wrapper cuts episodes."""
    limit_terminates: bool | None
    """Whether what is cut there is passed off as terminated; none if it could not be tried."""
    differs_at: int | None = None
    """The first step that went otherwise the second time; 0 is the reset."""
    difference: str = ""
    starts: Array = field(
        default_factory=lambda: np.empty(0)
    )  # [K, *obs], the first of episodes with other seeds
    masked: bool = False

    @property
    def done(self) -> Array:
        """Return where episodes ended [S]."""
        return np.asarray(self.terminated | self.truncated)

    def episodes(self) -> list[slice]:
        """Return the steps of each episode that was played to its end."""
        ends = np.flatnonzero(self.done)
        begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else np.empty(0, np.int64)
        return [slice(int(a), int(b) + 1) for a, b in zip(begins, ends, strict=True)]


def take_sample(
    config: EnvConfig, *, factory: EnvFactory | None = None, seconds: float = 4.0, steps: int = STEPS
) -> Sample:
    """Play one copy of an environment at random for a while, and its beginning once more."""
    envs = _one(config, factory)
    try:
        return _take(envs, seconds, steps)
    finally:
        closing.close(envs)


def _one(config: EnvConfig, factory: EnvFactory | None) -> VectorEnv:
    native = factory is None and atari.serves(config)
    alone = config.model_copy(update={"num_envs": 1, "vectorization": "native" if native else "sync"})
    return make_vector_env(alone, [EpisodeSeeds(seed_sequence(0, "doctor"))], factory)


def _take(envs: VectorEnv, seconds: float, steps: int) -> Sample:
    obs_spec, actions_spec = describe_spaces(envs.single_observation_space, envs.single_action_space)
    rng = np.random.default_rng(0)
    space = envs.single_action_space
    space.seed(0)
    obs, infos = envs.reset()
    starts = [np.array(obs[0])]
    rows: dict[str, list[Any]] = {name: [] for name in ("obs", "next", "action", "reward", "dead", "cut")}
    begun = time.monotonic()
    masked, held = "action_mask" in infos, space.sample()
    for step in range(steps):
        if step >= REPEATED and time.monotonic() - begun > seconds:
            break
        if time.monotonic() - begun > 2 * seconds:  # each step is slow
            break
        mask = infos.get("action_mask")
        if mask is not None:
            action = int(rng.choice(np.flatnonzero(mask[0])))  # counted from 0
            action += int(getattr(space, "start", 0))
        elif step // _HELD % 2 and step % _HELD:
            action = held
        else:
            action = held = space.sample()
        before = np.array(obs[0])
        obs, reward, dead, cut, infos = envs.step(np.asarray([action]))
        ended = bool(dead[0] or cut[0])
        after = np.array(infos["final_obs"][0] if ended else obs[0])
        if ended:
            starts.append(np.array(obs[0]))
        row = (before, after, np.array(action), float(reward[0]), bool(dead[0]), bool(cut[0]))
        for name, value in zip(rows, row, strict=True):
            rows[name].append(value)
    took = time.monotonic() - begun
    sample = Sample(
        obs_spec,
        actions_spec,
        envs.single_observation_space,
        obs=np.array(rows["obs"]),
        next_obs=np.array(rows["next"]),
        action=np.array(rows["action"]),
        reward=np.array(rows["reward"]),
        terminated=np.array(rows["dead"]),
        truncated=np.array(rows["cut"]),
        seconds=took,
        limit=None,
        limit_terminates=None,
        starts=np.array(starts),
        masked=masked,
    )
    sample.differs_at, sample.difference = _again(envs, sample, min(took, seconds))
    if isinstance(envs, SyncVectorEnv):
        sample.limit, sample.limit_terminates = _at_the_limit(envs, sample.action[0])
    return sample


def _again(envs: VectorEnv, sample: Sample, seconds: float) -> tuple[int | None, str]:
    """Begin again with the same seed and actions; return the first step that differs, and how."""
    envs.call_each("start_from", [(0,)])  # type: ignore[attr-defined]
    obs, _ = envs.reset()
    if not _same(obs[0], sample.obs[0]):
        return 0, _how(sample.obs[0], obs[0])
    deadline = time.monotonic() + seconds
    for step in range(min(REPEATED, len(sample.action))):
        if time.monotonic() > deadline:
            break
        obs, reward, dead, cut, infos = envs.step(sample.action[step : step + 1])
        after = infos["final_obs"][0] if dead[0] or cut[0] else obs[0]
        if not _same(after, sample.next_obs[step]):
            return step + 1, _how(sample.next_obs[step], after)
        if float(reward[0]) != sample.reward[step]:
            return step + 1, f"a reward of {sample.reward[step]:g}, then of {float(reward[0]):g}"
        if bool(dead[0]) != sample.terminated[step] or bool(cut[0]) != sample.truncated[step]:
            return step + 1, "the episode ended only once"
    return None, ""


def _same(first: Array, second: Array) -> bool:
    return np.asarray(first).tobytes() == np.asarray(second).tobytes()


def _how(first: Array, second: Array) -> str:
    one, two = (np.asarray(array, np.float64).ravel() for array in (first, second))
    at = int(np.abs(one - two).argmax())
    return f"entry {at} of the observation was {one[at]:.5g}, then {two[at]:.5g}"


def _at_the_limit(envs: SyncVectorEnv, action: Array) -> tuple[int | None, bool | None]:
    """Bring an episode to where its ``TimeLimit`` cuts it; return the limit, and whether it is called terminated."""
    env: Any = envs.envs[0]
    while isinstance(env, gym.Wrapper) and not isinstance(env, gym.wrappers.TimeLimit):
        env = env.env
    limit = getattr(env, "_max_episode_steps", None)
    if not isinstance(env, gym.wrappers.TimeLimit) or not isinstance(limit, int):
        return None, None
    envs.reset()
    cutting: Any = env
    cutting._elapsed_steps = limit - 1
    _, _, dead, cut, _ = envs.step(np.asarray([action]))
    return limit, None if not (dead[0] or cut[0]) else bool(dead[0] and not cut[0])
