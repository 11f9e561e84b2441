"""Compiling of loops by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Kernel = TypeVar("_Kernel", bound=Callable[..., object])


def compiled(signature: str, **options: Any) -> Callable[[_Kernel], _Kernel]:
    """Compile for these types at once; where numba cannot keep the result on disk, anew in every process.

    What is kept on disk follows the file of the function alone: it must not call compiled functions of other files.
    """

    def compile_now(function: _Kernel) -> _Kernel:
        try:
            return cast(_Kernel, numba.njit(signature, cache=True, **options)(function))
        except (RuntimeError, OSError):
            return cast(_Kernel, numba.njit(signature, **options)(function))

    return compile_now
