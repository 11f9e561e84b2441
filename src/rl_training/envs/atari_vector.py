"""Atari games stepped by ALE in C++: each episode has its own seed, and a saved game is played back exactly."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rl_training.envs.journal import MAX_JOURNAL, EpisodeSeeds
from rl_training.envs.spaces import DescribedSpace, describe_observations
from rl_training.errors import EnvError, is_users_interrupt
from rl_training.spaces import Array

_PICTURE = 320
"""Pixels that the shorter side of a picture in a video has at most, as far as whole factors go."""
_FPS = 60.0


class AtariVector(gym.vector.VectorEnv[Any, Any, Any]):
    """A ``SAME_STEP`` vector environment around ALE's own, with what our other ones offer.

    Every game begins with a seed from its environment's stream, and the journal of an environment is that seed and the
    actions since, which lead to the same state again. With ``episodic``, a lost life ends the episode but not the
    game: the next episode goes on where the life was lost, with a stack of frames that begins anew, and journals
    span the whole game.
    """

    def __init__(
        self, games: Any, seeds: Sequence[EpisodeSeeds], longest: int, frameskip: int, *, episodic: bool
    ) -> None:
        self._games = games
        self._seeds = list(seeds)
        self._longest = longest  # steps after which ALE cuts a game
        self._episodic = episodic
        count = self.num_envs = len(self._seeds)
        space = games.single_observation_space
        self._stack = int(space.shape[0])
        spec = describe_observations(space).with_stack(self._stack)
        self.single_observation_space = DescribedSpace(spec) if spec.stack > 1 else space
        self.single_action_space = games.single_action_space
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_modes": ["rgb_array"],
            "render_fps": _FPS / frameskip,
        }
        shape, dtype = self.single_action_space.shape, self.single_action_space.dtype
        # Memory that is never written to costs nothing.
        self._actions = np.zeros((count, min(longest, MAX_JOURNAL), *(shape or ())), dtype)
        self._game_seeds = [-1] * count
        self._steps = np.zeros(count, np.int64)  # of the game
        self._ages = np.ones(count, np.int64)  # frames of the episode that there are to be seen
        self._lives = np.zeros(count, np.int64)
        self._frames = np.zeros(count, np.int64)  # of the game, as ALE counts them
        self._obs: Array = np.empty(0)
        self._ended: dict[int, Array] = {}  # last observations of the episodes that the last step ended
        self._calls: dict[str, Callable[..., Any]] = {
            "start_from": self._start_from,
            "journal": self._journal,
            "action_mask": lambda _: None,
            "take_frames": self._pictures,
        }

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a new game in every environment; seeds given here override the streams once."""
        given: Sequence[int | None]
        if seed is None or isinstance(seed, int):
            given = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            given = seed
        seeds = [next(self._seeds[i]) if one is None else one for i, one in enumerate(given)]
        self._ended = {}
        self._obs = self._begin(np.ones(self.num_envs, np.bool_), seeds)
        return self._obs, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step every environment, starting a new episode at once where one ended."""
        actions = np.ascontiguousarray(actions, self.single_action_space.dtype)
        kept = np.flatnonzero(self._steps < self._actions.shape[1])
        self._actions[kept, self._steps[kept]] = actions[kept]
        obs, reward, terminated, truncated, over = self._advance(actions)
        self._ended = {}
        infos: dict[str, Any] = {}
        done = terminated | truncated
        if done.any():
            self._ended = {int(i): obs[i] for i in np.flatnonzero(done)}
            infos = {"final_obs": _objects(self._ended, self.num_envs), "_final_obs": done.copy()}
            obs = obs.copy()
            if over.any():
                fresh = self._begin(over, [next(self._seeds[i]) for i in np.flatnonzero(over)])
                obs[over] = fresh[over]
            survivors = done & ~over
            self._ages[survivors] = 1
            obs[survivors, :-1] = 0
        self._obs = obs
        return obs, reward.astype(np.float64), terminated, truncated, infos

    def call_each(self, name: str, args: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Do for every environment what a ``JournaledEnv`` does when its method of that name is called."""
        given = [()] * self.num_envs if args is None else args
        if name == "replay_journal":
            return self._replay([one[0] for one in given])
        return [self._calls[name](i, *one) for i, one in zip(range(self.num_envs), given, strict=True)]

    def close_extras(self, **kwargs: Any) -> None:
        """Close the games."""
        self._games.close()

    def _begin(self, where: Array, seeds: Sequence[int]) -> Array:
        """Begin games in the environments ``where`` [N]; return the observations of all."""
        with _as_env_error():
            obs, info = self._games.reset(seed=np.array(seeds, np.int64), options={"reset_mask": where})
        for i, seed in zip(np.flatnonzero(where), seeds, strict=True):
            self._game_seeds[i] = seed
        self._steps[where], self._ages[where] = 0, 1
        self._lives[where] = info["lives"][where]
        self._frames[where] = info["episode_frame_number"][where]
        return self._of_this_life(obs)

    def _advance(self, actions: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Step all games; return observations, rewards, both ends of episodes, and which games are over."""
        with _as_env_error():
            obs, reward, terminated, truncated, info = self._games.step(actions)
        self._steps += 1
        self._ages += 1
        lives, frames = info["lives"].astype(np.int64), info["episode_frame_number"].astype(np.int64)
        over = terminated | truncated
        if self._episodic:
            # Some games may end with the loss of a life while others are left. That shows one step later, when ALE has
            # begun a new one: this step did nothing, and ends the episode that should not have begun.
            late = frames <= self._frames
            over &= (lives == 0) | (lives >= self._lives) | (self._steps >= self._longest)
            if late.any():
                obs[late] = np.concatenate([self._obs[late, 1:], self._obs[late, -1:]], 1)
                terminated, over = terminated | late, over | late
            obs = self._of_this_life(obs)
        self._lives, self._frames = lives, frames
        return obs, reward, terminated, truncated, over

    def _of_this_life(self, obs: Array) -> Array:
        """Return stacks without the frames from before a life was lost."""
        if self._episodic:
            for i in np.flatnonzero(self._ages < self._stack):
                obs[i, : self._stack - self._ages[i]] = 0
        return obs

    # Journals

    def _start_from(self, i: int, episode: int) -> None:
        self._seeds[i].index = episode

    def _journal(self, i: int) -> dict[str, Any] | None:
        steps = int(self._steps[i])
        if self._game_seeds[i] < 0 or steps > self._actions.shape[1]:
            return None
        actions = self._actions[i, :steps].copy()
        return {"seed": self._game_seeds[i], "next": self._seeds[i].index, "actions": actions}

    def _replay(self, journals: Sequence[dict[str, Any]]) -> list[Any]:
        """Bring all games into their journaled states, at the same step; return observations, or nones if that fails.

        ALE steps all games at once, so those with shorter journals begin later.
        """
        lengths = np.array([len(journal["actions"]) for journal in journals])
        waits = lengths.max() - lengths
        if lengths.max() > self._actions.shape[1]:
            return [None] * self.num_envs
        for stream, journal in zip(self._seeds, journals, strict=True):
            stream.index = int(journal["next"])
        seeds = [int(journal["seed"]) for journal in journals]
        for i, journal in enumerate(journals):
            self._actions[i, : lengths[i]] = journal["actions"]
        try:
            self._obs = self._begin(np.ones(self.num_envs, np.bool_), seeds)
            for step in range(lengths.max()):
                if step and (begins := waits == step).any():
                    self._obs = self._begin(begins, [seeds[i] for i in np.flatnonzero(begins)])
                begun = waits <= step
                actions = np.zeros_like(self._actions[:, 0])
                actions[begun] = self._actions[begun, step - waits[begun]]
                self._obs, _, terminated, _, over = self._advance(actions)
                if (over & begun).any():
                    return [None] * self.num_envs
                survivors = terminated & begun
                self._ages[survivors] = 1
                self._obs[survivors, :-1] = 0
            if (begins := (lengths == 0) & (waits > 0)).any():
                self._obs = self._begin(begins, [seeds[i] for i in np.flatnonzero(begins)])
        except EnvError:
            return [None] * self.num_envs
        self._ended = {}
        return list(self._obs)

    # Videos

    def _pictures(self, i: int) -> list[Array]:
        """Return what there was to see since the last step: how an episode ended, and what came after."""
        shown = [self._ended[i]] if i in self._ended else []
        return [_picture(obs[-1]) for obs in (*shown, self._obs[i])]


def _objects(rows: dict[int, Array], count: int) -> Array:
    """Return arrays of objects, the way Gymnasium hands out last observations: none where no episode ended."""
    held: Array = np.full(count, None, object)
    for i, row in rows.items():
        held[i] = row
    return held


def _picture(frame: Array) -> Array:
    """Return a frame [H, W] or [H, W, 3] as a picture of a size that one can look at."""
    factor = max(_PICTURE // min(frame.shape[:2]), 1)
    colours = frame if frame.ndim == 3 else np.repeat(frame[:, :, None], 3, 2)
    return colours.repeat(factor, 0).repeat(factor, 1)


@contextmanager
def _as_env_error() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise EnvError(f"ALE: {reason}", details=traceback.format_exc()) from error
