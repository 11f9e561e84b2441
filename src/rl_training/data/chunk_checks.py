"""Whether the saved state of a replay of sequences is one that could have come about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.errors import CheckpointError
from rl_training.spaces import Array


def checked(state: Mapping[str, Any], name: str, own: Array) -> Array:
    """Return a saved array that has the shape and dtype of ``own``, or refuse it."""
    given = np.asarray(state[name])
    if given.shape != own.shape or given.dtype != own.dtype:
        raise CheckpointError(f"replay: {name} is {given.dtype}{given.shape}, not {own.dtype}{own.shape}")
    return given


def of_each_env(given: Any, num_envs: int, name: str, dtype: type, shape: tuple[int, ...]) -> list[Array]:
    """Return the arrays of the environments "0", "1", ..., or refuse them."""
    if not isinstance(given, Mapping) or given.keys() != {str(i) for i in range(num_envs)}:
        raise CheckpointError(f"replay: {name} are not those of {num_envs} environments")
    arrays = [np.asarray(given[str(i)]) for i in range(num_envs)]
    for array in arrays:
        if array.dtype != dtype or array.shape != shape:
            raise CheckpointError(
                f"replay: {name} are {array.dtype}{array.shape}, not {np.dtype(dtype)}{shape}"
            )
    return arrays


def checked_memories(memory: Mapping[str, Any], own: Mapping[str, Array]) -> dict[str, Array]:
    """Return saved memories that have the names, shapes and dtypes of ``own`` and are finite, or refuse them."""
    if memory.keys() != own.keys():
        raise CheckpointError(f"replay: memories hold {', '.join(memory)}, not {', '.join(own)}")
    memories = {name: checked(memory, name, array) for name, array in own.items()}
    for name, array in memories.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CheckpointError(f"replay: {name} of the memories is not finite")
    return memories


def chunks_fit(
    chunk: Mapping[str, Array],
    free: Array,
    head: Array,
    age: Array,
    share: int,
    length: int,
    period: int,
    stack: int,
) -> bool:
    """Say whether chunks lie in the rows that are kept, and those that should be under way are."""
    if not lie_in_rows(chunk, free, head, age, len(chunk["env"]), share, length):
        return False
    under_way = np.setdiff1d(np.flatnonzero(chunk["steps"] == 0), free)
    found = [chunk[name][under_way].tolist() for name in ("env", "start", "first")]
    if sorted(zip(*found, strict=True)) != begun(head, age, length, period):
        return False
    return stack == 1 or stacks_fit(chunk, free, head, age, share, period, stack)


def lie_in_rows(
    chunk: Mapping[str, Array], free: Array, head: Array, age: Array, used: int, share: int, length: int
) -> bool:
    """Say whether every chunk that is not free lies in the newest ``share`` rows of its environment."""
    counted = free.dtype == np.int64 and free.ndim == 1 and len(np.unique(free)) == len(free)
    if not counted or not ((free >= 0) & (free < used)).all() or not ((age >= 0) & (age <= head)).all():
        return False
    taken = np.ones(used, np.bool_)
    taken[free] = False
    env, start, steps = (chunk[name][taken] for name in ("env", "start", "steps"))
    if chunk["steps"][free].any() or not ((env >= 0) & (env < len(head))).all():
        return False
    newest = (head - (age == 0))[env]  # the last row that was written
    inside = (start > newest - share) & (start >= 0) & (start + steps <= newest)
    return bool((inside & (steps >= 0) & (steps <= length)).all())


def stacks_fit(
    chunk: Mapping[str, Array], free: Array, head: Array, age: Array, share: int, period: int, stack: int
) -> bool:
    """Say whether the frames before each chunk, of which its first stack consists, are kept, too."""
    taken = np.ones(len(chunk["before"]), np.bool_)
    taken[free] = False
    env, start, steps, first, before = (
        chunk[name][taken] for name in ("env", "start", "steps", "first", "before")
    )
    newest, began = (head - (age == 0))[env], (head - age)[env]
    possible = np.where(first, before == 0, (before >= min(period, stack - 1)) & (before <= stack - 1))
    known = (steps > 0) | (before == np.minimum(start - began, stack - 1))  # of those under way
    inside = (before <= start) & (start - before > newest - share)
    return bool((possible & known & inside).all())


def begun(head: Array, age: Array, length: int, period: int) -> list[tuple[int, int, bool]]:
    """Return environment, first row and whether it begins an episode of the chunks that should be under way."""
    chunks = []
    for env, (row, steps) in enumerate(zip(head.tolist(), age.tolist(), strict=True)):
        oldest = max((steps - length) // period + 1, 0) * period
        chunks += [(env, row - steps + k, k == 0) for k in range(oldest, steps, period)]
    return chunks
