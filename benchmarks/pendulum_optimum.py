"""The best return there is on the 100 evaluation episodes of Pendulum-v1, by dynamic programming on its true state.

Values of all remaining steps on a grid of angles and speeds, from the last step back to the first, linear between the
points of the grid; then the episodes that every run is evaluated on, played by looking one step ahead. What is printed
is reached, so the optimum is that or a little more; a finer grid gets closer.

Run: python benchmarks/pendulum_optimum.py [--angles 301] [--speeds 241]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training import load_config
from rl_training.algorithms.protocol import Decision
from rl_training.runtime.evaluator import evaluate
from rl_training.spaces import ContinuousActions

Array = NDArray[Any]
STEPS, DT, FASTEST, STRONGEST = 200, 0.05, 8.0, 2.0


def move(angle: Array, speed: Array, torque: Array) -> tuple[Array, Array, Array]:
    """Return reward, angle and speed of Gymnasium's pendulum after one step."""
    around = (angle + np.pi) % (2.0 * np.pi) - np.pi
    reward = -(around**2 + 0.1 * speed**2 + 0.001 * torque**2)
    faster = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * torque) * DT, -FASTEST, FASTEST)
    return reward, angle + faster * DT, faster


def between(values: Array, angle: Array, speed: Array) -> Array:
    """Return values [angles, speeds] at any place, linear between the points of the grid; angles go round."""
    angles, speeds = values.shape
    row = (angle / (2.0 * np.pi) * angles) % angles
    column = (speed + FASTEST) / (2.0 * FASTEST) * (speeds - 1)
    r, c = np.minimum(row.astype(int), angles - 1), np.minimum(column.astype(int), speeds - 2)
    over, right = row - r, column - c
    below = (r + 1) % angles
    upper = (1.0 - right) * values[r, c] + right * values[r, c + 1]
    lower = (1.0 - right) * values[below, c] + right * values[below, c + 1]
    found: Array = (1.0 - over) * upper + over * lower
    return found


def solve(angles: int, speeds: int, torques: int = 41) -> list[Array]:
    """Return the values [angles, speeds] with 0, 1, ... steps to go."""
    angle = np.arange(angles)[:, None] * (2.0 * np.pi / angles) * np.ones((1, speeds))
    speed = np.linspace(-FASTEST, FASTEST, speeds)[None] * np.ones((angles, 1))
    moves = [move(angle, speed, np.float64(u)) for u in np.linspace(-STRONGEST, STRONGEST, torques)]
    values = [np.zeros((angles, speeds))]
    for _ in range(STEPS):
        each = [reward + between(values[-1], *after) for reward, *after in moves]
        values.append(np.max(each, axis=0))
    return values


class Planner:
    """Acts by looking one step ahead; all episodes have the same length, so it knows how many steps there are to go."""

    def __init__(self, values: list[Array]) -> None:
        self._values, self._made = values, 0
        self._torques = np.linspace(-STRONGEST, STRONGEST, 401)

    def initial_carry(self, count: int) -> None:
        """Return nothing: there is no memory."""

    def act(self, obs: Array, carry: Any = None, *, explore: bool, mask: Array | None = None) -> Decision:
        """Choose the torque that reward and value of what follows are best for, as a share of the strongest."""
        after = self._values[STEPS - self._made % STEPS - 1]
        self._made += 1
        angle, speed = np.arctan2(obs[:, 1], obs[:, 0])[:, None], obs[:, 2][:, None]
        reward, *following = move(angle, speed, self._torques[None])
        best = (reward + between(after, *following)).argmax(1)
        return Decision((self._torques[best][:, None] / STRONGEST).astype(np.float32))


def main() -> None:
    """Solve it and play."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--angles", type=int, default=301)
    parser.add_argument("--speeds", type=int, default=241)
    args = parser.parse_args()
    config = load_config("sac/pendulum")
    actions = ContinuousActions(np.full(1, -STRONGEST, np.float32), np.full(1, STRONGEST, np.float32))
    planner: Any = Planner(solve(args.angles, args.speeds))
    found = evaluate(planner, config.env, actions, config.evaluation, 100)
    print(f"{found.mean:.2f} ± {found.std:.2f} over 100 episodes, grid {args.angles} by {args.speeds}")


if __name__ == "__main__":
    main()
