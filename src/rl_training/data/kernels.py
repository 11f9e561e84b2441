"""The loops of prioritized replay, compiled when this file is imported (numba keeps the result on disk).

Those of the sum tree go level by level over the whole batch. Within a level the items do not depend on each other,
so a processor fetches the nodes of many items from memory at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast

import numba

from rl_training.spaces import Array

SHIFT = 3
"""Children per node, as a power of two (``sum_tree.FAN_OUT``)."""

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def _compiled(signature: str) -> Callable[[_Kernel], _Kernel]:
    """Compile for these types at once; where numba cannot keep the result on disk, anew in every process."""

    def compile_now(function: _Kernel) -> _Kernel:
        try:
            return cast(_Kernel, numba.njit(signature, cache=True)(function))
        except (RuntimeError, OSError):
            return cast(_Kernel, numba.njit(signature)(function))

    return compile_now


@_compiled("float64(float64[::1], int64)")
def _sum_of_children(nodes: Array, first: int) -> float:
    left = (nodes[first] + nodes[first + 1]) + (nodes[first + 2] + nodes[first + 3])
    right = (nodes[first + 4] + nodes[first + 5]) + (nodes[first + 6] + nodes[first + 7])
    total: float = left + right
    return total


@_compiled("int64(float64[::1], int64[::1], int64, float64, int64[::1], float64[::1])")
def update(nodes: Array, levels: Array, capacity: int, limit: float, slots: Array, values: Array) -> int:
    """Set leaves one after the other, then their ancestors; return the first bad position, or -1 if all are fine."""
    for i in range(len(slots)):
        if not (0 <= slots[i] < capacity and 0.0 <= values[i] <= limit):
            return i
    for i in range(len(slots)):
        nodes[slots[i]] = values[i]
    for level in range(len(levels) - 1):
        children, parents, shift, done = levels[level], levels[level + 1], SHIFT * (level + 1), -1
        for i in range(len(slots)):
            parent = slots[i] >> shift
            if parent != done:  # batches are mostly sorted, so the same parent often comes in a row
                nodes[parents + parent] = _sum_of_children(nodes, children + (parent << SHIFT))
                done = parent
    return -1


@_compiled("void(float64[::1], int64[::1], int64, int64, float64)")
def fill(nodes: Array, levels: Array, start: int, stop: int, value: float) -> None:
    """Set the leaves from ``start`` to before ``stop``, at least one, then their ancestors."""
    for slot in range(start, stop):
        nodes[slot] = value
    for level in range(len(levels) - 1):
        start, stop = start >> SHIFT, ((stop - 1) >> SHIFT) + 1
        for parent in range(start, stop):
            first = levels[level] + (parent << SHIFT)
            nodes[levels[level + 1] + parent] = _sum_of_children(nodes, first)


@_compiled("int64(float64[::1], int64[::1], float64[::1], int64[::1])")
def find(nodes: Array, levels: Array, rest: Array, slots: Array) -> int:
    """Descend from the root with the targets in ``rest``, which is used up; return as ``update`` does."""
    root = nodes[levels[-1]]
    for i in range(len(rest)):
        if not 0.0 <= rest[i] < root:
            return i
        slots[i] = 0
    touched = 0.0
    for level in range(len(levels) - 2, -1, -1):
        children = levels[level]
        # So little work per item that a processor sees far ahead: it brings in all nodes at once.
        for i in range(len(slots)):
            touched += nodes[children + (slots[i] << SHIFT)]
        for i in range(len(slots)):
            first, target = children + (slots[i] << SHIFT), rest[i]
            child, end, before = 0, 0.0, 0.0
            for k in range(1 << SHIFT):  # without a jump that depends on the data
                end += nodes[first + k]
                if end <= target:
                    child += 1
                    before = end
            target -= before
            if (
                child == 1 << SHIFT
            ):  # rounding: the target lies at the very end, which is the last child with a value
                child -= 1
                while nodes[first + child] == 0.0:
                    child -= 1
                target = nodes[first + child]
            rest[i] = target
            slots[i] = (slots[i] << SHIFT) + child
    if len(rest):
        rest[0] = touched  # or the compiler would leave out what has no effect
    return -1


@_compiled("void(float64[::1], float64, float64)")
def stratify(shares: Array, total: float, highest: float) -> None:
    """Turn N numbers from [0, 1) into a target in each of N equal parts of ``total``, none above ``highest``."""
    part = total / max(len(shares), 1)
    for i in range(len(shares)):
        shares[i] = min((i + shares[i]) * part, highest)


@_compiled("void(float64[::1], int64[::1], float64, float32[::1])")
def weigh(values: Array, slots: Array, beta: float, weights: Array) -> None:
    """Compute (smallest value / value)**beta of slots, all of which have a value above 0."""
    smallest = math.inf
    for i in range(len(slots)):
        smallest = min(smallest, values[slots[i]])
    for i in range(len(slots)):
        weights[i] = (smallest / values[slots[i]]) ** beta


@_compiled("int64(int64, int64, float64, int64[::1], float64[::1])")
def admit(added: int, capacity: int, limit: float, numbers: Array, errors: Array) -> int:
    """Turn insertion numbers into slots, leaving out those that were overwritten and closing the gaps.

    Return how many there are, or -1 - i if number i was never given or error i is none; then nothing is changed.
    """
    for i in range(len(numbers)):
        if not (0 <= numbers[i] < added and 0.0 <= errors[i] <= limit):
            return -1 - i
    kept = 0
    for i in range(len(numbers)):
        if numbers[i] >= added - capacity:
            numbers[kept] = numbers[i] % capacity
            errors[kept] = errors[i]
            kept += 1
    return kept
