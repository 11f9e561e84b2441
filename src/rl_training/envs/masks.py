"""Which actions are allowed: ``info["action_mask"]`` of an environment, checked, and of several in one array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.errors import EnvError
from rl_training.spaces import Array


def maskable_actions(space: gym.Space[Any]) -> int:
    """Return the number of actions A that a mask tells apart, or 0 if masks mean nothing in this space."""
    return int(space.n) if isinstance(space, gym.spaces.Discrete) else 0


def checked_mask(given: Any, num_actions: int, *, over: bool) -> Array:
    """Return a mask as bools [A] of its own; where the episode is ``over`` it may forbid everything.

    Nothing is left to choose there, so that such a mask becomes one that allows everything: nobody who takes
    the best of the allowed actions has to think of an empty choice.
    """
    try:
        mask = np.asarray(given)
    except ValueError:
        raise EnvError(f"action_mask: expected an array of {num_actions} bools, got a ragged one") from None
    if mask.shape != (num_actions,):
        raise EnvError(f"action_mask shape: expected ({num_actions},), got {mask.shape}")
    if mask.dtype.kind not in "biu":
        raise EnvError(f"action_mask dtype: expected bool or int, got {mask.dtype}")
    allowed: Array = mask.astype(np.bool_)
    if allowed.any():
        return allowed
    if not over:
        raise EnvError("action_mask: forbids every action, though this state is not terminal")
    return np.ones(num_actions, np.bool_)


def add_mask(infos: dict[str, Any], mask: Array, index: int, num_envs: int) -> None:
    """Add the mask of one environment to the infos of several; those that give none allow everything."""
    masks = infos.get("action_mask")
    if masks is None:
        masks = infos["action_mask"] = np.ones((num_envs, len(mask)), np.bool_)
    masks[index] = mask


def checked_masks(infos: Mapping[str, Any], num_actions: int, wanted: Array, over: Array) -> Array | None:
    """Return the masks [N, A] in the infos of somebody else's vector environment, or none if there are none.

    Only the rows ``wanted`` [N] are looked at; ``over`` [N] says where an episode is at its end. Gymnasium
    flags the rows that were given at all, and the others allow everything.
    """
    given = infos.get("action_mask")
    if given is None:
        return None
    masks = np.ones((len(wanted), num_actions), np.bool_)
    rows = len(given) if np.ndim(given) or isinstance(given, (list, tuple)) else 0
    if rows != len(masks):
        raise EnvError(f"action_mask: expected {len(masks)} rows, got {rows}")
    for i in np.flatnonzero(wanted & infos.get("_action_mask", True)):
        try:
            masks[i] = checked_mask(given[i], num_actions, over=bool(over[i]))
        except EnvError as error:  # noqa: PERF203 - each is to be named by its index
            raise EnvError(f"env {i}: {error}") from None
    return masks
