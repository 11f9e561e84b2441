"""An LSTM over whole sequences by compiled code, on the CPU; see ``native/lstm.c``.

torch's own takes a dozen operations for each step, there and back. For sequences of small batches most of that is what
happens between the operations, so the walk is one call; products that need not wait for the step before stay torch's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_int64, c_void_p
from typing import Any

import torch
from torch import nn

from rl_training.models.recurrent.packing import Packing
from rl_training.native import MAX_PRODUCTS, library


class _Lstm(Structure):
    """``Lstm`` in ``native/lstm.h``."""

    _fields_ = (
        *((name, c_int64) for name in ("steps", "size")),
        *(
            (name, c_void_p)
            for name in ("counts", "weight", "hidden", "cell", "gates", "hiddens", "cells", "work")
        ),
    )


class _Walk(torch.autograd.Function):
    """One layer: hidden states [R, H] and cells [R, H] after each step of packed sequences."""

    @staticmethod
    def forward(
        ctx: Any,
        packing: Packing,
        x: torch.Tensor,
        hidden: torch.Tensor,
        cell: torch.Tensor,
        of_x: torch.Tensor,
        of_h: torch.Tensor,
        *biases: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        native = library()
        assert native is not None
        gates = torch.addmm(biases[0] + biases[1], x, of_x.t())
        hiddens, cells = (x.new_empty(len(x), of_h.shape[1]) for _ in range(2))
        tensors, room = (of_h, hidden, cell, gates, hiddens, cells), _room(*hidden.shape)
        native.lstm_forward(ctypes.byref(_described(packing, *tensors, room)))
        ctx.save_for_backward(x, of_x, *tensors)
        ctx.packing = packing
        ctx.set_materialize_grads(False)
        return hiddens, cells

    @staticmethod
    def backward(ctx: Any, by_hiddens: torch.Tensor | None, by_cells: torch.Tensor | None) -> tuple[Any, ...]:
        native = library()
        assert native is not None
        x, of_x, of_h, hidden, cell, gates, hiddens, cells = ctx.saved_tensors
        packing: Packing = ctx.packing
        slopes, room = gates.clone(), _room(*hidden.shape)  # a clone, as a graph may be walked through twice
        described = _described(packing, of_h, hidden, cell, slopes, hiddens, cells, room)
        # The cells after the last steps are all that anybody is given of them.
        by_cell = torch.zeros_like(cell) if by_cells is None else by_cells[packing.last]
        outputs = torch.zeros_like(hiddens) if by_hiddens is None else by_hiddens.contiguous()
        given = (outputs, torch.zeros_like(hidden), by_cell)
        native.lstm_backward(ctypes.byref(described), *(c_void_p(tensor.data_ptr()) for tensor in given))
        before = torch.cat((hidden, hiddens[packing.before]))
        turned, bias = slopes.t(), slopes.sum(0)
        of_input = torch.mm(slopes, of_x) if ctx.needs_input_grad[1] else None
        return None, of_input, *given[1:], torch.mm(turned, x), torch.mm(turned, before), bias, bias


def _room(count: int, size: int) -> torch.Tensor:
    return torch.empty(4 * size * (size + size % 16 + count))


def _described(packing: Packing, *tensors: torch.Tensor) -> _Lstm:
    assert all(tensor.is_contiguous() for tensor in tensors)
    counts = packing.counts
    addresses = (counts.ctypes.data, *(tensor.data_ptr() for tensor in tensors))
    return _Lstm(len(counts), tensors[0].shape[1], *addresses)


def is_compiled(core: nn.Module, count: int) -> bool:
    """Say whether there is compiled code for this core and ``count`` sequences at a time."""
    if type(core) is not nn.LSTM or core.hidden_size % 8 or count * 4 * core.hidden_size**2 > MAX_PRODUCTS:
        return False
    if core.dropout or core.bidirectional or core.proj_size or not core.bias:
        return False
    first = core.weight_ih_l0
    return first.device.type == "cpu" and first.dtype is torch.float32 and library() is not None


def walk(
    core: nn.LSTM, packing: Packing, x: torch.Tensor, memory: Sequence[torch.Tensor], *, remember: bool = True
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the outputs [R, H] of ``core`` for inputs [R, I], and the memory after: hidden and cell [layers, S, H].

    Without ``remember``, that memory is left out.
    """
    after: list[list[torch.Tensor]] = [[], []]
    for layer, parameters in enumerate(core.all_weights):
        states = _Walk.apply(packing, x.contiguous(), *(part[layer] for part in memory), *parameters)  # type: ignore[no-untyped-call]
        x = states[0]
        for kept, state in zip(after, states, strict=True):
            if remember:
                kept.append(state[packing.last])
    return x, [torch.stack(layers) for layers in after if remember]
