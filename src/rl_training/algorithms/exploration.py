"""Noise on continuous actions in [-1, 1], for each environment by itself.

What a process remembers is part of the agent's carry: it is zero where an episode begins, and saved with the run.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from rl_training.data.transitions import Carry
from rl_training.spaces import Array

Kind = Literal["normal", "ou", "none"]


class ActionNoise:
    """Independent normal noise, Ornstein-Uhlenbeck noise, or none.

    Ornstein-Uhlenbeck noise moves by ``-theta * noise * dt + std * sqrt(dt) * normal`` at every step, so that it
    pushes the same way for a while.
    """

    def __init__(self, kind: Kind, std: float, *, theta: float = 0.15, dt: float = 0.01) -> None:
        self.kind, self.std, self.theta, self.dt = kind, std, theta, dt

    def initial(self, count: int, size: int) -> Carry | None:
        """Return what is remembered where ``count`` episodes are about to begin; none if nothing is."""
        return {"noise": np.zeros((count, size), np.float32)} if self.kind == "ou" else None

    def add(self, action: Array, carry: Carry | None, rng: np.random.Generator) -> tuple[Array, Carry | None]:
        """Return actions [N, A] with noise, cut off at -1 and 1, and what is remembered of it."""
        if self.kind == "none":
            return action, None
        fresh = rng.standard_normal(action.shape, dtype=np.float32) * np.float32(self.std)
        if self.kind == "ou":
            before = np.zeros_like(action) if carry is None else carry["noise"]
            fresh = before * np.float32(1.0 - self.theta * self.dt) + fresh * np.float32(self.dt**0.5)
            carry = {"noise": fresh}
        return np.clip(action + fresh, -1.0, 1.0), carry


class MatrixNoise:
    """The matrices of state-dependent noise: one for each environment, drawn anew every ``period`` steps.

    Without a period they are kept for a whole episode.
    """

    def __init__(self, shape: tuple[int, int], period: int | None) -> None:
        self.shape, self.period = shape, period

    def initial(self, count: int) -> Carry:
        """Return what is remembered where ``count`` episodes are about to begin."""
        return {
            "matrix": np.zeros((count, *self.shape), np.float32),
            "age": np.zeros(count, np.int64),
        }

    def draw(self, carry: Carry | None, count: int, rng: np.random.Generator) -> Carry:
        """Return the matrices [N, H, A] to act by, and their age after that."""
        before = self.initial(count) if carry is None else carry
        age = before["age"]
        old = age == 0 if self.period is None else age % self.period == 0
        matrix = before["matrix"]
        if old.any():
            matrix = matrix.copy()
            matrix[old] = rng.standard_normal((int(old.sum()), *self.shape), dtype=np.float32)
        return {"matrix": matrix, "age": age + 1}
