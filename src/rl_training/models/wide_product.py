"""Products of larger matrices by compiled code, on the CPU; see ``native/product.h``."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import Structure, byref, c_int64, c_void_p

import torch

from rl_training.native import library

MIN_SIDE = 16
"""Rows and columns from which on the compiled product is about twice as fast as torch's."""
MIN_PRODUCTS = 2**18
"""Multiplications below which its call takes longer than it saves."""


class _Factor(Structure):
    """``Factor`` in ``native/product.h``."""

    _fields_ = (("data", c_void_p), ("row", c_int64), ("column", c_int64))


@functools.cache
def _compiled() -> Callable[..., None] | None:
    native = library()
    if native is None:
        return None
    function: ctypes._NamedFuncPointer = native.wide_product
    function.argtypes = (*[c_void_p] * 4, *[c_int64] * 4)
    function.restype = None
    return function


def wide_product(a: torch.Tensor, b: torch.Tensor, start: torch.Tensor | None = None) -> torch.Tensor | None:
    """Return a @ b without a graph, ``start`` [columns] added to each row.

    None where torch is as fast, where it has an error to raise, or where there is no compiled code.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        return None
    (rows, inner), columns = a.shape, b.shape[1]
    if min(rows, columns) < MIN_SIDE or rows * inner * columns < MIN_PRODUCTS:
        return None
    compiled = _compiled()
    if compiled is None or not (_is_plain(a) and _is_plain(b)):
        return None
    if start is not None and not (_is_plain(start) and start.shape == (columns,) and start.is_contiguous()):
        return None
    out = a.new_empty((rows, columns))
    left, right = _Factor(a.data_ptr(), *a.stride()), _Factor(b.data_ptr(), *b.stride())
    first = None if start is None else start.data_ptr()
    sizes = (rows, inner, columns, torch.get_num_threads())
    compiled(byref(left), byref(right), first, out.data_ptr(), *sizes)
    return out


def _is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is one of float32 on the CPU, and torch does not only look on to export what is done."""
    if torch.jit.is_tracing() or torch.compiler.is_compiling():  # type: ignore[no-untyped-call,attr-defined]
        return False
    kind = type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter
    return kind and tensor.dtype is torch.float32 and tensor.device.type == "cpu"
