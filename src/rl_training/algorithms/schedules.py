"""Values that change with the env steps made."""

from __future__ import annotations


def linear(start: float, end: float, duration: float, steps: int) -> float:
    """Return the value after ``steps`` of a straight line from ``start`` to ``end`` over ``duration``, then ``end``."""
    if steps >= duration:
        return end
    return start + (end - start) * (steps / duration)
