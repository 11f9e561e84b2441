"""What a checkpoint says of the environments, looked at before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.data.transitions import Carry
from rl_training.envs.journal import MAX_JOURNAL
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


def like_carry(saved: Any, like: Carry | None) -> Carry | None:
    """Return a saved memory, after a look at whether it is one of this agent."""
    if like is None:
        if saved is not None:
            raise CheckpointError("envs: a memory was saved, but this agent has none")
        return None
    if saved is None:
        raise CheckpointError("envs: the agent's memory is missing")
    carry = {name: np.asarray(array) for name, array in saved.items()}
    if carry.keys() != like.keys() or any(
        carry[name].shape != array.shape or carry[name].dtype != array.dtype for name, array in like.items()
    ):
        raise CheckpointError("envs: the saved memory does not fit the config")
    for name, array in carry.items():
        if not np.isfinite(array).all() or (array.dtype.kind in "iu" and (array < 0).any()):
            raise CheckpointError(f"envs: the saved memory holds an impossible {name}")
    return carry


def check_counts(given: Array, own: Array, name: str) -> None:
    """Refuse what is not one count for each environment."""
    if given.shape != own.shape or given.dtype != own.dtype or (given < 0).any() or (given > 2**53).any():
        raise CheckpointError(f"envs: {name} are no counts of {len(own)} environments")


def check_journal(journal: Mapping[str, Any], length: int, *, of_games: bool) -> None:
    """Refuse what is not the journal of an episode that is ``length`` steps old.

    One ``of_games`` begins with the game, in which several lives may have been lost, each of them an episode.
    """
    if journal.keys() != {"seed", "next", "actions"}:
        raise CheckpointError("envs: not a journal")
    seed, following, actions = journal["seed"], journal["next"], np.asarray(journal["actions"])
    if not all(type(number) is int and 0 <= number < 2**63 for number in (seed, following)):
        raise CheckpointError(f"envs: a journal of episode seed {str(seed)[:30]}, {str(following)[:30]}")
    count = len(actions) if actions.ndim else -1
    if not (count >= length if of_games else count == length) or count > MAX_JOURNAL:
        raise CheckpointError(f"envs: a journal of {count} actions in an episode of {length} steps")


def as_arrays(journal: Mapping[str, Any]) -> dict[str, Any]:
    """Return a journal with its actions as an array."""
    return {**journal, "actions": np.asarray(journal["actions"])}
