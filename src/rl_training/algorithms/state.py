"""Taking over saved tensors: all of them, exactly as they are expected, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.errors import CheckpointError


def require_like(given: Mapping[str, Any], own: Mapping[str, torch.Tensor], where: str) -> None:
    """Refuse saved tensors whose names, shapes or dtypes are not those of ``own``."""
    if given.keys() != own.keys():
        odd = sorted(given.keys() ^ own.keys())
        raise CheckpointError(
            f"{where}: does not fit the config: {', '.join(odd[:3])} missing or not expected"
        )
    for name, tensor in own.items():
        saved = given[name]
        if not isinstance(saved, torch.Tensor) or saved.shape != tensor.shape or saved.dtype != tensor.dtype:
            got = (
                f"{saved.dtype} {tuple(saved.shape)}"
                if isinstance(saved, torch.Tensor)
                else type(saved).__name__
            )
            expected = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise CheckpointError(f"{where}: {name}: expected {expected}, got {got}")
