"""An experience that keeps a rollout, deals it out once, and is empty again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rl_training.algorithms.protocol import UpdateResult
from rl_training.data.transitions import Transitions

_FIELDS = ("env_ids", "obs", "action", "reward", "next_obs", "terminated", "truncated")


class Rollout:
    """Collects ``size`` transitions of all environments together."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._steps: list[Transitions] = []

    def add(self, step: Transitions) -> None:
        """Keep one step of the environments."""
        self._steps.append(step)

    def batches(self, env_steps: int) -> Iterator[list[Transitions]]:
        """Return the rollout if it is complete, and forget it."""
        if sum(map(len, self._steps)) < self._size:
            return iter(())
        rollout, self._steps = self._steps, []
        return iter([rollout])

    def actions(self) -> Iterator[Any]:
        """Yield the actions of the rollout so far."""
        for step in self._steps:
            yield step.action

    def feedback(self, batch: list[Transitions], result: UpdateResult) -> None:
        """Do nothing: what was learned from is gone."""

    def begin_at(self, env_steps: int) -> None:
        """Do nothing: a rollout begins anywhere."""

    def interrupt(self, envs: np.ndarray[Any, Any] | None = None) -> None:
        """End the episodes of these environments, or of all, as a truncation would."""
        going_on = set() if envs is None else {env for step in self._steps for env in step.env_ids.tolist()}
        seen: set[int] = going_on - set([] if envs is None else envs.tolist())
        for step in reversed(self._steps):
            newest = np.array([env not in seen for env in step.env_ids.tolist()])
            step.truncated = step.truncated | (newest & ~step.terminated)
            seen.update(step.env_ids.tolist())

    def state_dict(self) -> dict[str, Any]:
        """Return the rollout so far."""
        lengths = np.array([len(step) for step in self._steps], np.int64)
        rows = {
            name: np.concatenate([getattr(step, name) for step in self._steps])
            for name in _FIELDS
            if self._steps
        }
        return {"lengths": lengths, "rows": rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a rollout that is not complete yet."""
        ends = np.cumsum(np.asarray(state["lengths"]))
        rows: dict[str, list[Any]] = {
            name: np.split(np.asarray(array), ends[:-1]) for name, array in state["rows"].items()
        }
        self._steps = [Transitions(*(rows[name][i] for name in _FIELDS)) for i in range(len(ends))]
