"""Checkpoints that do without a part of the state, and say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.runtime.checkpoint_format import LEFT_OUT

State = dict[str, Any]


def with_new_episodes(tree: Mapping[str, Any]) -> State:
    """Return the state of a run whose environments begin new episodes."""
    return {**tree, "envs": {"restore": "restarted", "started": tree["envs"]["started"]}}


def without_replay(tree: Mapping[str, Any], info: Mapping[str, Any]) -> tuple[State, State]:
    """Return state and manifest of a run that begins with an empty replay, and therefore with new episodes."""
    noted = {**info, "env_restore": "restarted", "left_out": ["replay"]}
    return {**with_new_episodes(tree), "replay": LEFT_OUT}, noted
