"""What is computed of the steps of chunks when they are drawn: n-step returns that end with the chunk."""

from __future__ import annotations

import numpy as np

from rl_training.spaces import Array


def chunk_returns(
    reward: Array, steps: Array, terminated: Array, n_step: int, powers: Array
) -> tuple[Array, Array, Array]:
    """Return ``returns``, ``discount`` and ``after`` [T, B], as in ``SequenceBatch``.

    ``reward`` [T, B] is 0 beyond the ``steps`` [B] of a chunk, ``terminated`` [B] says whether its last step ended
    the episode that way, and ``powers`` are those of gamma, from 0 to n.
    """
    length = len(reward)
    time = np.arange(length)[:, None]
    ahead = np.minimum(steps - time, n_step)  # rewards folded into each step's return
    returns = np.zeros(reward.shape)
    for k in range(min(n_step, length)):
        returns[: length - k] += powers[k] * reward[k:]
    after = np.minimum(time + n_step, steps)
    over = terminated & (after == steps)
    discount = np.where((time < steps) & ~over, powers[np.maximum(ahead, 0)], 0.0)
    return returns.astype(np.float32), discount.astype(np.float32), after


def blanked(array: Array, mask: Array) -> Array:
    """Return ``array`` [T, B, ...] with zeros where ``mask`` [T, B] is false."""
    return np.where(mask.reshape(*mask.shape, *(1,) * (array.ndim - mask.ndim)), array, 0)
