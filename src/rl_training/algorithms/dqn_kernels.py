"""The gradient of DQN's loss through a small perceptron, compiled as a whole.

For networks of this size, an update by separate operations is mostly what happens between them. The products of
matrices are loops of our own: a BLAS would use the widest registers of the processor, which then lowers its clock for
milliseconds, and everything that follows an update in Python would be slower by half.

Parameters and their gradient are flat vectors: weight, bias, weight, bias, ... of the layers, of which ``sizes`` gives
the widths from the input to the output. Samples lie side by side, in the last dimension: [width, B].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl_training.compiling import compiled
from rl_training.spaces import Array

_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
# Sums in any order and in one rounding with their products, but what is not finite stays so.
_OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}


@compiled("void(float32[:,:], float32[:,::1], float32[:,::1])", **_OPTIONS)
def add_product(a: Array, b: Array, out: Array) -> None:
    """Add ``a @ b`` to ``out``, four rows of ``a`` and four of ``b`` at a time.

    Of each, four are few enough for the registers and enough to keep the processor multiplying, not loading.
    """
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
    whole, whole_inner = rows - rows % 4, inner - inner % 4
    for r in range(0, whole, 4):
        out0, out1, out2, out3 = out[r], out[r + 1], out[r + 2], out[r + 3]
        for k in range(0, whole_inner, 4):
            a00, a01, a02, a03 = a[r, k], a[r, k + 1], a[r, k + 2], a[r, k + 3]
            a10, a11, a12, a13 = a[r + 1, k], a[r + 1, k + 1], a[r + 1, k + 2], a[r + 1, k + 3]
            a20, a21, a22, a23 = a[r + 2, k], a[r + 2, k + 1], a[r + 2, k + 2], a[r + 2, k + 3]
            a30, a31, a32, a33 = a[r + 3, k], a[r + 3, k + 1], a[r + 3, k + 2], a[r + 3, k + 3]
            b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
            for j in range(columns):
                v0, v1, v2, v3 = b0[j], b1[j], b2[j], b3[j]
                out0[j] += a00 * v0 + a01 * v1 + a02 * v2 + a03 * v3
                out1[j] += a10 * v0 + a11 * v1 + a12 * v2 + a13 * v3
                out2[j] += a20 * v0 + a21 * v1 + a22 * v2 + a23 * v3
                out3[j] += a30 * v0 + a31 * v1 + a32 * v2 + a33 * v3
        for k in range(whole_inner, inner):
            for i in range(r, r + 4):
                factor = a[i, k]
                for j in range(columns):
                    out[i, j] += factor * b[k, j]
    for i in range(whole, rows):
        for k in range(0, whole_inner, 4):
            a0, a1, a2, a3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            for j in range(columns):
                out[i, j] += a0 * b[k, j] + a1 * b[k + 1, j] + a2 * b[k + 2, j] + a3 * b[k + 3, j]
        for k in range(whole_inner, inner):
            factor = a[i, k]
            for j in range(columns):
                out[i, j] += factor * b[k, j]


@compiled("void(float32[:,::1], float32[:,::1], float32[:,::1])", **_OPTIONS)
def product_of_rows(a: Array, b: Array, out: Array) -> None:
    """Write ``a @ b.T`` to ``out``: the product of each row of ``a`` with each of ``b``, four by four."""
    rows, others, length = len(a), len(b), a.shape[1]
    whole, whole_others = rows - rows % 4, others - others % 4
    for r in range(0, whole, 4):
        a0, a1, a2, a3 = a[r], a[r + 1], a[r + 2], a[r + 3]
        for i in range(0, whole_others, 4):
            b0, b1, b2, b3 = b[i], b[i + 1], b[i + 2], b[i + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = _ZERO
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = _ZERO
            for k in range(length):
                v0, v1, v2, v3 = a0[k], a1[k], a2[k], a3[k]
                w0, w1, w2, w3 = b0[k], b1[k], b2[k], b3[k]
                s00, s01, s02, s03 = s00 + v0 * w0, s01 + v0 * w1, s02 + v0 * w2, s03 + v0 * w3
                s10, s11, s12, s13 = s10 + v1 * w0, s11 + v1 * w1, s12 + v1 * w2, s13 + v1 * w3
                s20, s21, s22, s23 = s20 + v2 * w0, s21 + v2 * w1, s22 + v2 * w2, s23 + v2 * w3
                s30, s31, s32, s33 = s30 + v3 * w0, s31 + v3 * w1, s32 + v3 * w2, s33 + v3 * w3
            out[r, i], out[r, i + 1], out[r, i + 2], out[r, i + 3] = s00, s01, s02, s03
            out[r + 1, i], out[r + 1, i + 1], out[r + 1, i + 2], out[r + 1, i + 3] = s10, s11, s12, s13
            out[r + 2, i], out[r + 2, i + 1], out[r + 2, i + 2], out[r + 2, i + 3] = s20, s21, s22, s23
            out[r + 3, i], out[r + 3, i + 1], out[r + 3, i + 2], out[r + 3, i + 3] = s30, s31, s32, s33
    for r in range(rows):
        for i in range(whole_others if r < whole else 0, others):
            total = _ZERO
            for k in range(length):
                total += a[r, k] * b[i, k]
            out[r, i] = total


@compiled("float32[:,::1](float32[::1], int64[::1], boolean, float32[:,:], float32[::1])", **_OPTIONS)
def forward(flat: Array, sizes: Array, tanh: bool, x: Array, work: Array) -> Array:
    """Write inputs [B, in] and every layer's outputs [width, B], one after the other, to ``work``; return the last."""
    count, last = len(x), len(sizes) - 2
    at, end = 0, count * sizes[0]
    below = work[:end].reshape((sizes[0], count))
    for k in range(sizes[0]):
        for j in range(count):
            below[k, j] = x[j, k]
    for i in range(last + 1):
        inputs, outputs = sizes[i], sizes[i + 1]
        weight = flat[at : at + outputs * inputs].reshape((outputs, inputs))
        at += outputs * inputs
        out = work[end : end + outputs * count].reshape((outputs, count))
        end += outputs * count
        for k in range(outputs):
            for j in range(count):
                out[k, j] = flat[at + k]
        at += outputs
        add_product(weight, below, out)
        if i < last and tanh:
            for k in range(outputs):
                for j in range(count):
                    out[k, j] = math.tanh(out[k, j])
        elif i < last:
            for k in range(outputs):
                for j in range(count):
                    out[k, j] = _ZERO if out[k, j] < _ZERO else out[k, j]  # what is not a number stays so
        below = out
    return below


@compiled(
    "void(float32[::1], int64[::1], boolean, float32[::1], float32[:,::1], float32[::1], float32[:,::1])",
    **_OPTIONS,
)
def backward(
    flat: Array, sizes: Array, tanh: bool, work: Array, grad: Array, out: Array, scratch: Array
) -> None:
    """Write the gradient of the parameters to ``out``, given that of the last layer, and what ``forward`` wrote.

    ``scratch`` is two rows with room for the widest layer's output.
    """
    count = grad.shape[1]
    at, end = len(flat), 0
    for i in range(len(sizes) - 1):
        end += count * sizes[i]
    for i in range(len(sizes) - 2, -1, -1):
        inputs, outputs = sizes[i], sizes[i + 1]
        at -= outputs
        for k in range(outputs):
            total = _ZERO
            for j in range(count):
                total += grad[k, j]
            out[at + k] = total
        at -= outputs * inputs
        end -= count * inputs
        below = work[end : end + inputs * count].reshape((inputs, count))
        product_of_rows(grad, below, out[at : at + outputs * inputs].reshape((outputs, inputs)))
        if i == 0:
            return
        down = scratch[i % 2, : inputs * count].reshape((inputs, count))
        for k in range(inputs):
            for j in range(count):
                down[k, j] = _ZERO
        add_product(flat[at : at + outputs * inputs].reshape((outputs, inputs)).T, grad, down)
        for k in range(inputs):
            if tanh:
                for j in range(count):
                    down[k, j] *= _ONE - below[k, j] * below[k, j]
            else:
                for j in range(count):
                    down[k, j] = _ZERO if below[k, j] <= _ZERO else down[k, j]
        grad = down


@compiled("float32[:,::1](float32[:,::1], boolean)", **_OPTIONS)
def q_values(out: Array, dueling: bool) -> Array:
    """Return Q-values [A, B] of an output, in a place of their own; with ``dueling``, V + A - mean(A)."""
    q: Array = (out[1:] if dueling else out).copy()
    if not dueling:
        return q
    actions, count = q.shape
    for j in range(count):
        mean = _ZERO
        for a in range(actions):
            mean += q[a, j]
        mean /= np.float32(actions)
        for a in range(actions):
            q[a, j] += out[0, j] - mean
    return q


@compiled("float32[:,::1](float32[:,::1], boolean)", **_OPTIONS)
def through_q_values(grad: Array, dueling: bool) -> Array:
    """Return the gradient by an output, given that by its Q-values [A, B]."""
    if not dueling:
        return grad
    actions, count = grad.shape
    out: Array = np.zeros((actions + 1, count), np.float32)
    for j in range(count):
        for a in range(actions):
            out[0, j] += grad[a, j]
        for a in range(actions):
            out[1 + a, j] = grad[a, j] - out[0, j] / np.float32(actions)
    return out


@compiled("int64(float32[:,::1], boolean[:,:], int64)", **_OPTIONS)
def best_action(q: Array, mask: Array, j: int) -> int:
    """Return the action of the highest Q-value of a sample among those that ``mask`` [B, A] allows, or 0.

    An empty mask allows all.
    """
    best = -1
    for a in range(len(q)):
        allowed = len(mask) == 0 or mask[j, a]
        if allowed and (best < 0 or q[a, j] > q[best, j]):
            best = a
    return max(best, 0)


@compiled(
    "void(float32[:,::1], float32[:,::1], float32[:,::1], int64[:], float32[:], float32[:], float32[:],"
    " boolean[:,:], boolean, float32[:,::1], float32[:,::1])",
    **_OPTIONS,
)
def head(
    q: Array,
    next_q: Array,
    choosing: Array,
    action: Array,
    reward: Array,
    discount: Array,
    weight: Array,
    next_mask: Array,
    huber: bool,
    grad: Array,
    facts: Array,
) -> None:
    """Add the gradient of the loss by ``q`` [A, B] to ``grad``; write value, target, error, loss to ``facts`` [4, B].

    ``choosing`` are the Q-values by which the next action is chosen, ``next_q`` those by which it is valued. An
    empty ``weight`` or ``next_mask`` is none; the loss is the weighted one.
    """
    count = q.shape[1]
    share = _ONE / np.float32(count)
    for j in range(count):
        target = reward[j] + discount[j] * next_q[best_action(choosing, next_mask, j), j]
        value = q[action[j], j]
        error = value - target
        # Huber's slope is the error cut off at 1, that of the square is twice the error.
        slope = error + error
        loss = error * error
        if huber:
            slope = error
            if error > _ONE:
                slope = _ONE
            elif error < -_ONE:
                slope = -_ONE
            loss = slope * (error - _HALF * slope)
        factor = _ONE if len(weight) == 0 else weight[j]
        grad[action[j], j] += factor * slope * share
        facts[0, j], facts[1, j], facts[2, j], facts[3, j] = value, target, error, factor * loss


@compiled(
    "void(float32[::1], float32[::1], int64[::1], boolean, boolean, boolean, boolean, float32[:,:], int64[:],"
    " float32[:], float32[:], float32[:,:], float32[:], boolean[:,:], float32[::1], float32[::1],"
    " float32[:,::1], float32[:,::1])",
    **_OPTIONS,
)
def gradient(
    online: Array,
    target: Array,
    sizes: Array,
    tanh: bool,
    dueling: bool,
    double: bool,
    huber: bool,
    obs: Array,
    action: Array,
    reward: Array,
    discount: Array,
    next_obs: Array,
    weight: Array,
    next_mask: Array,
    out: Array,
    work: Array,
    scratch: Array,
    facts: Array,
) -> None:
    """Write the gradient of the loss by the parameters ``online`` to ``out``, and to ``facts`` what ``head`` does.

    ``work`` has room for the input and the outputs of all layers, ``scratch`` is that of ``backward``.
    """
    next_q = q_values(forward(target, sizes, tanh, next_obs, work), dueling)
    choosing = q_values(forward(online, sizes, tanh, next_obs, work), dueling) if double else next_q
    q = q_values(forward(online, sizes, tanh, obs, work), dueling)
    grad = np.zeros_like(q)
    head(q, next_q, choosing, action, reward, discount, weight, next_mask, huber, grad, facts)
    backward(online, sizes, tanh, work, through_q_values(grad, dueling), out, scratch)
