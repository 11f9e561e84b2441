"""From vector environments to true transitions: the only place that knows Gymnasium's autoreset modes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from rl_training.algorithms.protocol import Algorithm
from rl_training.data.transitions import Carry, Transitions, carry_on
from rl_training.envs.atari_vector import AtariVector
from rl_training.envs.masks import add_mask, checked_masks
from rl_training.envs.spaces import describe_observations
from rl_training.envs.subprocess import SubprocessVectorEnv, WorkerLost
from rl_training.envs.sync import SyncVectorEnv
from rl_training.errors import CheckpointError, EnvError, is_users_interrupt
from rl_training.observations import cast_floats
from rl_training.runtime.console import notice
from rl_training.runtime.saved_envs import as_arrays, check_counts, check_journal, like_carry
from rl_training.runtime.timing import Timer
from rl_training.spaces import ActionSpec, Array, DiscreteActions

_OWN = (SyncVectorEnv, SubprocessVectorEnv, AtariVector)  # vector environments whose members keep a journal

_NOBODY = np.zeros(0, np.int64)
_NOBODY.flags.writeable = False
Episode = tuple[float, int]
"""Return and length of a finished episode."""


class Collector:
    """Asks the algorithm for actions, steps the environments, and emits what really happened.

    Every row of the result is one environment step: ``next_obs`` is the observation that the action led to,
    never that of the next episode, and the row that ``NEXT_STEP`` autoreset makes up is left out. Where the
    environments say which actions they allow, the algorithm is told, and ``next_mask`` belongs to ``next_obs``.
    """

    def __init__(
        self,
        envs: gym.vector.VectorEnv[Any, Any, Any],
        actions: ActionSpec,
        root: np.random.SeedSequence | None = None,
        timer: Timer | None = None,
    ) -> None:
        self.envs = envs
        self._root = root if root is not None else np.random.SeedSequence()
        self._actions = actions
        self._timer = timer if timer is not None else Timer()
        self._mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._next_step = self._mode is AutoresetMode.NEXT_STEP
        self._maskable = actions.n if isinstance(actions, DiscreteActions) else 0
        self._spec = describe_observations(envs.single_observation_space)
        count = envs.num_envs
        self._own = isinstance(envs, _OWN)
        self._all = np.arange(count)
        self._obs: Array | None = None
        self._mask: Array | None = None  # [N, A] bool, the actions allowed in these; none: all
        self._carry: Carry | None = None
        self._cast_from: str | None = (
            None  # of foreign environments: what their floats were before they were cast
        )
        self._told = False
        self._resetting = np.zeros(count, np.bool_)  # NEXT_STEP: the coming step is the reset of these
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)
        self._ones = np.ones(count, np.int64)
        self._started = np.zeros(count, np.int64)  # episodes begun in each env, over all resumes
        self.lost = _NOBODY
        """The environments that had to begin a new episode in the last step, because their workers were lost."""
        self.episodes_lost = 0

    @property
    def obs(self) -> Array:
        """The observations to act on next [N, *obs]."""
        if self._obs is None:
            self._obs, self._mask = self._begin()
        return self._obs

    def _begin(self) -> tuple[Array, Array | None]:
        """Reset all environments and return the first observations and masks."""
        if isinstance(self.envs, _OWN):
            self.envs.call_each("start_from", [(int(k),) for k in self._started])
            obs, infos = self.envs.reset()
            mask = infos.get("action_mask")
        else:
            # A foreign vector environment seeds itself; after a restart it must not repeat its first episodes.
            key = (*self._root.spawn_key, int(self._started.sum()))
            sequence = np.random.SeedSequence(self._root.entropy, spawn_key=key)
            everywhere = np.ones(len(self._all), np.bool_)
            obs, mask = self._foreign_reset(everywhere, seed=int(sequence.generate_state(1)[0] >> 1))
        self._started += 1
        return obs, mask

    def step(self, algorithm: Algorithm[Any], *, explore: bool = True) -> tuple[Transitions, list[Episode]]:
        """Make one step of every environment; return its transitions and the episodes that ended."""
        obs, carry = self._obs if self._obs is not None else self.obs, self._carry
        mask = self._mask
        lap = self._timer.lap
        lap("other")
        if explore:
            self._observe(algorithm, obs)
        if mask is None:
            decision = algorithm.act(obs, carry, explore=explore)
        else:
            decision = algorithm.act(obs, carry, explore=explore, mask=mask)
        lap("inference")
        played = decision.action if decision.played is None else decision.played
        actions = self._actions.to_env(played)
        if self._own:
            next_obs, reward, terminated, truncated, infos = self.envs.step(actions)
            any_done = "final_obs" in infos
            if len(self.lost) or "lost" in infos:
                self.lost = self._replace_lost(infos, next_obs)
        else:
            next_obs, reward, terminated, truncated, infos = self._foreign_step(actions)
            any_done = bool(np.count_nonzero(terminated | truncated))
        self._obs = next_obs
        self._mask = next_mask = infos.get("action_mask") if infos else None
        if any_done:
            next_obs, next_mask = self._turn_over(next_obs, next_mask, terminated | truncated, infos)
        lap("environment")

        step = Transitions(
            self._all, obs, decision.action, reward, next_obs, terminated, truncated, next_mask, carry, mask
        )
        if decision.carry is not None:
            # With NEXT_STEP, the observation to act on next is the first of an episode one step later.
            begins = self._resetting if self._next_step else terminated | truncated
            if len(self.lost):
                begins = begins.copy()
                begins[self.lost] = True
            self._carry = carry_on(decision.carry, reward, begins)
        if self._next_step:
            step = _without(step, self._resetting)
            self._resetting = (terminated | truncated) & ~self._resetting
        if len(self.lost):
            step = step.select(~np.isin(self._all, self.lost))
            self._returns[self.lost], self._lengths[self.lost] = 0.0, 0
        return step, self._count_episodes(step, any_done)

    def _replace_lost(self, infos: dict[str, Any], obs: Array) -> Array:
        """Replace the workers that were lost in a step, put their first observations into ``obs``; return which."""
        lost: dict[int, WorkerLost] = infos.pop("lost", {})
        envs = self.envs
        for i, error in sorted(lost.items()):
            assert isinstance(envs, SubprocessVectorEnv)
            first, info, episode = envs.replace(i, error, int(self._started[i]) + error.resetting)
            obs[i] = first
            if info:
                add_mask(infos, info["action_mask"], i, len(self._all))
            self._started[i] = episode + 1
            self.episodes_lost += 1
            notice(
                f"warning: {error}; its episode is lost and a new one begins (worker {envs.replaced} of at most "
                f"{envs.restarts} that are replaced); such a run does not repeat bit for bit"
            )
        return np.array(sorted(lost), np.int64) if lost else _NOBODY

    def _observe(self, algorithm: Algorithm[Any], obs: Array) -> None:
        """Show the algorithm the observations that are acted on: not the last of an episode that is being reset."""
        if self._next_step and self._resetting.any():
            obs = obs[~self._resetting]
        if len(obs):
            algorithm.observe(obs)

    def _turn_over(
        self, obs: Array, mask: Array | None, done: Array, infos: Mapping[str, Any]
    ) -> tuple[Array, Array | None]:
        """See to it that new episodes begin; return the observations and masks with which the old ones ended."""
        if self._mode is AutoresetMode.SAME_STEP:
            final_mask = infos.get("final_info", {}).get("action_mask")
            return _with_final_obs(obs, done, infos), _with_masks_of(mask, done, final_mask)
        if self._mode is AutoresetMode.DISABLED:
            self._obs, first_mask = self._foreign_reset(done, options={"reset_mask": done.copy()})
            self._mask = _with_masks_of(mask, done, first_mask)
        return obs, mask

    def _foreign_step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step environments that are not ours, checking what ours check by themselves.

        What they give is copied, because the next step may overwrite it.
        """
        with _as_env_error():
            obs, reward, terminated, truncated, infos = self.envs.step(actions)
        if not np.isfinite(reward).all():
            raise EnvError("rewards: expected finite numbers, got NaN or infinity")
        if infos.get("final_obs") is not None:
            infos = {**infos, "final_obs": self._final_obs(infos["final_obs"], terminated | truncated)}
        infos = self._as_own_infos(infos, terminated, terminated | truncated)
        return self._checked_copy(obs), np.array(reward), np.array(terminated), np.array(truncated), infos

    def _as_own_infos(self, infos: dict[str, Any], terminated: Array, done: Array) -> dict[str, Any]:
        """Return of the infos of a step what our own environments would give, masks checked."""
        if "action_mask" not in infos and "final_info" not in infos:
            return infos
        own = {"final_obs": infos.get("final_obs")}
        if not self._maskable:
            return own
        everywhere, nowhere = np.ones_like(done), np.zeros_like(done)
        if self._mode is not AutoresetMode.SAME_STEP:
            return {**own, "action_mask": checked_masks(infos, self._maskable, everywhere, terminated)}
        final_info = infos.get("final_info")
        given = final_info if isinstance(final_info, Mapping) else {}
        return {
            **own,
            "action_mask": checked_masks(infos, self._maskable, everywhere, nowhere),
            "final_info": {"action_mask": checked_masks(given, self._maskable, done, terminated)},
        }

    def _foreign_reset(self, where: Array, **options: Any) -> tuple[Array, Array | None]:
        """Reset environments that are not ours; only the masks ``where`` [N] they are reset mean something."""
        with _as_env_error():
            obs, infos = self.envs.reset(**options)
        over = np.zeros_like(where)
        mask = checked_masks(infos, self._maskable, where, over) if self._maskable else None
        return self._checked_copy(obs), mask

    def _final_obs(self, given: Any, done: Array) -> Array:
        """Return the last observations of the episodes that ended, as arrays; none where none did."""
        final: Array = np.full(len(done), None, object)
        for i in np.flatnonzero(done):
            final[i] = self._spec.pack(_row(given, int(i)))
        return final

    def _checked_copy(self, obs: Any) -> Array:
        """Check observations, and copy them because the next step may overwrite them."""
        if not self._spec.plain:
            return np.array(self._spec.pack_batch(obs, len(self._all)))
        expected = self.envs.observation_space
        if (
            obs.dtype != expected.dtype
            and obs.dtype.kind == "f"
            and np.issubdtype(expected.dtype, np.floating)
        ):
            self._cast_from = obs.dtype.name
            obs = cast_floats(obs, expected.dtype)
        if obs.shape != expected.shape or obs.dtype != expected.dtype:
            raise EnvError(
                f"observations: expected {expected.dtype} {expected.shape}, got {obs.dtype} {obs.shape}"
            )
        if not np.isfinite(obs).all():
            raise EnvError("observations: expected finite numbers, got NaN or infinity")
        return np.array(obs)

    def _count_episodes(self, step: Transitions, any_done: bool) -> list[Episode]:
        if step.env_ids is self._all:
            # New arrays, because adding in place takes twice as long for so few numbers.
            self._returns = self._returns + step.reward
            self._lengths = self._lengths + self._ones
        else:
            self._returns[step.env_ids] += step.reward
            self._lengths[step.env_ids] += 1
        if not any_done:
            return []
        if not self._told:
            self._tell_of_casts()
        ended = step.env_ids[step.terminated | step.truncated]
        episodes = [(float(self._returns[i]), int(self._lengths[i])) for i in ended]
        self._started[ended] += 1
        self._returns[ended] = 0.0
        self._lengths[ended] = 0
        return episodes

    def _tell_of_casts(self) -> None:
        """Say once if observations are of another type of floats than their space, which costs a little time."""
        self._told = True
        found: list[str | None] = [self._cast_from]
        if isinstance(self.envs, SyncVectorEnv | SubprocessVectorEnv):
            found = self.envs.call_each("cast_from")
        for name in [name for name in found if name is not None][:1]:
            notice(f"warning: observations are {name}, but their space is not; they are cast at every step")

    def state_dict(self, *, lost: bool = False) -> dict[str, Any]:
        """Return observations, statistics and the journal of every environment (none if the envs are ``lost``)."""
        count = {"lost": self.episodes_lost} if self.episodes_lost else {}
        journals: list[Any] | None = None
        if not lost and isinstance(self.envs, _OWN) and self._obs is not None:
            journals = self.envs.call_each("journal")
        if self._obs is None or journals is None or any(journal is None for journal in journals):
            return {"restore": "restarted", "started": self._started.copy(), **count}
        return {
            "restore": "replayed",
            "started": self._started.copy(),
            "obs": self._obs.copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "carry": self._carry,
            "journals": {str(i): journal for i, journal in enumerate(journals)},
            **count,
        }

    def load_state_dict(self, state: Mapping[str, Any], initial_carry: Carry | None = None) -> str:
        """Bring the environments back; return ``replayed``, or ``restarted`` if that was not possible.

        ``initial_carry`` is what a memory of the agent looks like, if it has one.
        """
        started = np.asarray(state["started"])
        if started.shape != self._started.shape:
            raise CheckpointError(f"envs: {len(started)} were saved, the config says {len(self._started)}")
        check_counts(started, self._started, "started")
        self._started[:] = started
        if state["restore"] not in ("replayed", "restarted"):
            raise CheckpointError("envs: neither replayed nor restarted")
        names = ("restore", "started", "obs", "returns", "lengths", "carry", "journals", "lost")
        if odd := state.keys() - {*names}:
            raise CheckpointError(f"envs: {min(odd)[:60]!r} is not expected")
        episodes_lost = state.get("lost", 0)
        if type(episodes_lost) is not int or not 0 <= episodes_lost <= 2**53:
            raise CheckpointError("envs: the number of lost episodes makes no sense")
        self.episodes_lost = episodes_lost
        if state["restore"] == "restarted":
            return "restarted"
        if not isinstance(self.envs, _OWN):
            raise CheckpointError("envs: journals were saved, but these environments cannot replay them")
        returns, lengths = np.asarray(state["returns"]), np.asarray(state["lengths"])
        check_counts(lengths, self._lengths, "lengths")
        if returns.shape != self._returns.shape or returns.dtype != self._returns.dtype:
            raise CheckpointError(f"envs: returns are {returns.dtype}{returns.shape}")
        if len(state["journals"]) != self.envs.num_envs:
            raise CheckpointError(
                f"envs: {len(state['journals'])} journals of {self.envs.num_envs} environments"
            )
        journals = [state["journals"][str(i)] for i in range(self.envs.num_envs)]
        for journal, length in zip(journals, lengths, strict=True):
            check_journal(journal, int(length), of_games=isinstance(self.envs, AtariVector))
        replayed = self.envs.call_each("replay_journal", [(as_arrays(journal),) for journal in journals])
        if any(obs is None for obs in replayed):
            return "restarted"
        obs = np.stack(replayed)
        saved = np.asarray(state["obs"])
        if obs.dtype != saved.dtype or obs.shape != saved.shape:
            raise CheckpointError(f"envs: obs is {saved.dtype}{saved.shape}, not {obs.dtype}{obs.shape}")
        if obs.tobytes() != saved.tobytes():
            return "restarted"  # not deterministic under reset(seed): the journal does not lead to the saved state
        self._carry = like_carry(state.get("carry"), initial_carry)
        self._obs = obs
        self._mask = self._masks_of_envs()
        self._returns[:] = returns
        self._lengths[:] = lengths
        return "replayed"

    def _masks_of_envs(self) -> Array | None:
        assert isinstance(self.envs, _OWN)
        infos: dict[str, Any] = {}
        for i, mask in enumerate(self.envs.call_each("action_mask")):
            if mask is not None:
                add_mask(infos, mask, i, self.envs.num_envs)
        return infos.get("action_mask")


def _row(given: Any, i: int) -> Any:
    """Return what belongs to one environment: Gymnasium gives an array of them, or of a Dict a Dict of arrays."""
    if isinstance(given, Mapping):
        # Beside each name, Gymnasium has put a mask of who has it.
        masks = {f"_{name}" for name in given}
        return {name: _row(inner, i) for name, inner in given.items() if name not in masks}
    if isinstance(given, tuple):
        return tuple(_row(inner, i) for inner in given)
    return given[i]


@contextmanager
def _as_env_error() -> Iterator[None]:
    try:
        yield
    except EnvError:
        raise
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise EnvError(f"vector environment: {reason}", details=traceback.format_exc()) from error


def _with_final_obs(obs: Array, done: Array, infos: Mapping[str, Any]) -> Array:
    true_next: Array = obs.copy()
    for i in np.flatnonzero(done):
        true_next[i] = infos["final_obs"][i]
    return true_next


def _with_masks_of(masks: Array | None, rows: Array, others: Array | None) -> Array | None:
    """Return masks whose ``rows`` [N] come from ``others``; where there are none, everything is allowed."""
    if masks is None:
        if others is None:
            return None
        masks = np.ones_like(others)
    mixed: Array = masks.copy()
    mixed[rows] = True if others is None else others[rows]
    return mixed


def _without(step: Transitions, dropped: Array) -> Transitions:
    if not dropped.any():
        return step
    return step.select(~dropped)
