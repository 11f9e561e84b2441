"""A trained agent without its environment: from raw observations to actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.algorithms.protocol import Algorithm, Decision
from rl_training.data.transitions import Carry, carry_on
from rl_training.errors import ConfigError
from rl_training.observations import ObsSpec
from rl_training.spaces import (
    ActionSpec,
    Array,
    ContinuousActions,
    DiscreteActions,
    MultiBinaryActions,
    MultiDiscreteActions,
    UnboundedActions,
)


class Policy:
    """Chooses actions for one raw observation or a batch of them, in the environment's own units."""

    def __init__(self, algorithm: Algorithm[Any], obs: ObsSpec, actions: ActionSpec) -> None:
        self.algorithm = algorithm
        self.obs = obs
        self.actions = actions

    def predict(
        self,
        obs: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_mask: Any = None,
        reward: Any = None,
    ) -> tuple[Any, Any]:
        """Return ``(action, state)`` for one observation, or for a batch with a leading dimension.

        ``state`` is the memory returned by the last call (none: all episodes begin), ``episode_start`` says where
        to forget it, one bool or [N], and ``reward``, one number or [N], is what the last action brought, which
        only agents that take it as an input need. All three are of no consequence to memoryless algorithms.
        Without ``deterministic`` the agent explores as at the end of its training. ``action_mask`` [A], or [N, A]
        for a batch, says which actions are allowed.
        """
        batch, single = self.obs.from_user(obs)
        mask = None if action_mask is None else self._mask(action_mask, len(batch), single)
        carry = self._carry(state, episode_start, reward, len(batch))
        decision = decide(self.algorithm, batch, carry, mask, explore=not deterministic)
        action = self.actions.to_env(decision.to_play)
        # What only noise remembers is not handed out: it means nothing outside of training.
        state = None if carry is None else decision.carry
        return (action[0] if single else action), state

    def scores(self, obs: Any, state: Any = None, episode_start: Any = None, reward: Any = None) -> Any:
        """Return what ``predict`` finds the best actions by: Q-values or logits; none where actions are numbers."""
        batch, _ = self.obs.from_user(obs)
        algorithm: Any = self.algorithm
        return algorithm.scores(batch, self._carry(state, episode_start, reward, len(batch)))

    def _carry(self, state: Any, episode_start: Any, reward: Any, count: int) -> Carry | None:
        """Return the memory to act by, checked."""
        begins = _per_env("episode_start", False if episode_start is None else episode_start, count, "b")
        gained = None if reward is None else _per_env("reward", reward, count, "biuf")
        like = self.algorithm.initial_carry(count)
        if like is None or state is None:
            return like
        carry = checked_carry(state, like)
        if "action" in carry and isinstance(self.actions, DiscreteActions):
            inside = (carry["action"] >= 0) & (carry["action"] <= self.actions.n)
            if not inside.all():
                raise ConfigError(f"state: action should be from 0 to {self.actions.n}")
        if "reward" in like and gained is None and not begins.all():
            raise ConfigError("reward: this agent also needs the reward of its last action")
        return carry_on(carry, gained, begins)

    def _mask(self, given: Any, count: int, single: bool) -> Array:
        if not isinstance(self.actions, DiscreteActions):
            raise ConfigError("action_mask: only discrete actions can be forbidden")
        expected = (self.actions.n,) if single else (count, self.actions.n)
        try:
            array = np.asarray(given)
        except ValueError:
            raise ConfigError("action_mask: not an array of bools") from None
        if array.shape != expected:
            raise ConfigError(f"action_mask: expected shape {expected}, got {array.shape}")
        if array.dtype.kind not in "biu":
            raise ConfigError("action_mask: not an array of bools")
        mask: Array = array.reshape(count, self.actions.n).astype(np.bool_)
        if not mask.any(1).all():
            raise ConfigError("action_mask: forbids every action")
        return mask


def checked_carry(state: Any, like: Carry) -> Carry:
    """Return a memory that came from outside, after a look at whether it is one of this agent and this many envs."""
    if not isinstance(state, Mapping) or state.keys() != like.keys():
        raise ConfigError(f"state: expected what predict() returned, with {', '.join(like)}")
    carry: Carry = {}
    for name, own in like.items():
        try:
            array = np.asarray(state[name])
        except ValueError:
            raise ConfigError(f"state: {name} is not an array of numbers") from None
        kinds = "iuf" if own.dtype.kind == "f" else "iu"
        if array.shape[1:] != own.shape[1:] or array.ndim != own.ndim or array.dtype.kind not in kinds:
            raise ConfigError(
                f"state: {name} should be {own.dtype} {own.shape}, got {array.dtype} {array.shape}"
            )
        if len(array) != len(own):
            raise ConfigError(f"state: it is the memory of {len(array)} environments, obs is of {len(own)}")
        with np.errstate(over="ignore"):
            carry[name] = array.astype(own.dtype)
        if not np.isfinite(carry[name]).all():
            raise ConfigError(f"state: {name} contains NaN or infinity, or what is too large for {own.dtype}")
    return carry


def _per_env(name: str, given: Any, count: int, kinds: str) -> Array:
    """Return one value for all, or one for each, as an array [N]."""
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty((), object)
    if array.dtype.kind not in kinds or array.shape not in ((), (count,)) or not np.isfinite(array).all():
        what = "true or false" if kinds == "b" else "a number"
        raise ConfigError(f"{name}: expected {what}, or {count} of them, got {given!r}")
    return np.array(np.broadcast_to(array, (count,)))


def decide(
    algorithm: Algorithm[Any], obs: Array, carry: Carry | None, mask: Array | None, *, explore: bool
) -> Decision:
    """Let an algorithm act; a ``mask`` is only handed to it if there is one, as not every algorithm knows them."""
    if mask is None:
        return algorithm.act(obs, carry, explore=explore)
    return algorithm.act(obs, carry, explore=explore, mask=mask)


def spaces_to_plain(obs: ObsSpec, actions: ActionSpec) -> dict[str, Any]:
    """Return the specs as values that a checkpoint can hold."""
    plain: dict[str, Any] = {**obs.to_plain(), "action_kind": actions.kind}
    if isinstance(actions, DiscreteActions):
        return {**plain, "n": actions.n, "start": actions.start}
    if isinstance(actions, MultiDiscreteActions):
        return {**plain, "counts": list(actions.counts), "starts": list(actions.starts)}
    if isinstance(actions, MultiBinaryActions):
        return {**plain, "n": actions.n}
    return {**plain, "low": actions.low, "high": actions.high}


def spaces_from_plain(plain: Any) -> tuple[ObsSpec, ActionSpec]:
    """Return the specs that ``spaces_to_plain`` described."""
    obs = ObsSpec.from_plain(plain)
    kind = plain["action_kind"]
    if kind == "discrete":
        return obs, DiscreteActions(int(plain["n"]), int(plain["start"]))
    if kind == "multi_discrete":
        return obs, MultiDiscreteActions(*(tuple(int(n) for n in plain[key]) for key in ("counts", "starts")))
    if kind == "multi_binary":
        return obs, MultiBinaryActions(int(plain["n"]))
    box = UnboundedActions if kind == "unbounded" else ContinuousActions
    return obs, box(np.asarray(plain["low"]), np.asarray(plain["high"]))
