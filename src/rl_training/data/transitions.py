"""What flows from the collector to the experience, and from there to the learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rl_training.spaces import Array

Carry = dict[str, Array]
"""What an agent remembers of N episodes: named arrays [N, ...], all zeros where an episode is about to begin."""


def carry_on(carry: Carry, reward: Array | None, begins: Array) -> Carry:
    """Return a memory after the step that it led to: rewards [N] noted, and forgotten where an episode ``begins`` [N].

    Rewards are only noted by agents that take the last one as an input.
    """
    if "reward" in carry and reward is not None:
        carry = {**carry, "reward": np.array(reward, np.float32)}
    if not begins.any():
        return carry
    after = {name: array.copy() for name, array in carry.items()}
    for array in after.values():
        array[begins] = 0
    return after


@dataclass(slots=True)
class Transitions:
    """One true transition of each environment in ``env_ids``; never a row that autoreset made up.

    ``next_obs`` is what the action led to, also where the episode ended there.
    """

    env_ids: Array  # [N] int64, increasing
    obs: Array  # [N, *obs]
    action: Array  # [N, *action], as learners count them
    reward: Array  # [N] float64
    next_obs: Array  # [N, *obs]
    terminated: Array  # [N] bool
    truncated: Array  # [N] bool
    next_mask: Array | None = (
        None  # [N, A] bool, the actions allowed in next_obs; none: the envs give no masks
    )
    carry: Carry | None = None  # what the agent remembered when it acted; none if nothing
    mask: Array | None = None  # [N, A] bool, the actions allowed in obs

    def __len__(self) -> int:
        return len(self.env_ids)

    def select(self, keep: Array) -> Transitions:
        """Return the rows that ``keep`` [N] says, in a new object."""
        return Transitions(
            self.env_ids[keep],
            self.obs[keep],
            self.action[keep],
            self.reward[keep],
            self.next_obs[keep],
            self.terminated[keep],
            self.truncated[keep],
            None if self.next_mask is None else self.next_mask[keep],
            None if self.carry is None else {name: array[keep] for name, array in self.carry.items()},
            None if self.mask is None else self.mask[keep],
        )


@dataclass(slots=True)
class Batch:
    """What one update learns from.

    ``discount`` is ``gamma**k * (1 - terminated)`` for the k rewards folded into ``reward``, so that a loss
    needs neither ``gamma`` nor a done flag.
    """

    obs: torch.Tensor  # [B, *obs]
    action: torch.Tensor  # [B, *action]
    reward: torch.Tensor  # [B] float32
    discount: torch.Tensor  # [B] float32
    next_obs: torch.Tensor  # [B, *obs]
    weight: torch.Tensor | None = None  # [B] importance weights, none for uniform replay
    indices: Array | None = None  # [B] the buffer's own names for the rows
    next_mask: torch.Tensor | None = None  # [B, A] bool, the actions allowed in next_obs; none: all
    mask: torch.Tensor | None = (
        None  # [B, A] bool, the actions allowed in obs; only where a buffer keeps them
    )


@dataclass(slots=True)
class SequenceBatch:
    """B chunks of up to T steps; time comes first, and what lies beyond a chunk's end is masked.

    Step t of a chunk goes from ``obs[t]`` by ``action[t]`` to ``obs[t + 1]``. What it is worth is in ``returns``,
    ``discount`` and ``after``: the rewards of the next steps, up to n, folded into one, and the observation from
    whose value on the rest is estimated. No chunk reaches beyond its episode.
    """

    obs: torch.Tensor  # [T + 1, B, *obs]; beyond the end, the last one is repeated
    action: torch.Tensor  # [T, B]
    reward: torch.Tensor  # [T, B] float32, of single steps
    returns: torch.Tensor  # [T, B] float32
    discount: torch.Tensor  # [T, B] float32, gamma**k, or 0 where the episode has terminated after k steps
    after: torch.Tensor  # [T, B] int64, t + k
    mask: torch.Tensor  # [T, B] bool, true for steps that were made
    starts: torch.Tensor  # [T, B] bool, true where obs[t] began an episode; only ever for t = 0
    state: dict[str, torch.Tensor]  # each [B, ...], the memory before obs[0] as it was when acting
    weight: torch.Tensor | None = None  # [B] float32
    indices: Array | None = None  # [B] int64
    action_mask: torch.Tensor | None = None  # [T + 1, B, A] bool, the actions allowed in obs
