"""Whether what a checkpoint says can be true, beyond its hashes: those only tell that nobody changed it since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rl_training.errors import CheckpointError, RLTrainingError
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.segment import Segment

SECTIONS = frozenset(
    ["model", "optimizer", "replay", "rng", "envs", "loop", "spaces", "config", "time", "session"]
)
_MOST = 2**64


@contextmanager
def sound(where: str) -> Iterator[None]:
    """Turn whatever is raised while state is taken over into a one-line ``CheckpointError``."""
    try:
        yield
    except RLTrainingError:
        raise
    except Exception as error:  # whatever a senseless number leads to
        raise CheckpointError(
            f"{where}: part missing or malformed: {type(error).__name__}: {error}"
        ) from error


def check_whole(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of a run that lacks a section, has one too many, or is of another step than it says."""
    odd = sorted(checkpoint.tree.keys() ^ SECTIONS)
    if odd:
        raise CheckpointError(f"{checkpoint.path}: section {odd[0][:60]!r} is missing or not expected")
    with sound(str(checkpoint.path)):
        _check_numbers(checkpoint.tree, "state")
        steps = checkpoint.tree["loop"]["clock"]["steps"]
        if type(steps) is not int or steps != checkpoint.step:
            raise CheckpointError(
                f"{checkpoint.path}: its clock is at step {str(steps)[:30]}, its manifest at {checkpoint.step}"
            )


def check_finite(tree: Any, where: str) -> None:
    """Refuse NaN and infinity among the tensors of a tree."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            check_finite(value, f"{where}/{key}")
        elif isinstance(value, torch.Tensor) and not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{where}/{key}: NaN or infinity")


def check_no_more(given: Any, own: Any, where: str) -> None:
    """Refuse what was saved and is not part of the state that came of it."""
    if isinstance(own, Segment) or not (isinstance(given, Mapping) and isinstance(own, Mapping)):
        return
    for key, value in given.items():
        if key not in own and value is not None:
            raise CheckpointError(f"{where}: {str(key)[:60]!r} is not expected")
        check_no_more(value, own.get(key), f"{where}/{key}")


def check_same(given: Any, own: Any, where: str) -> None:
    """Refuse a description that differs from the live one."""
    if not same(given, own):
        raise CheckpointError(f"{where}: not those of the environment that the config names")


def same(given: Any, own: Any) -> bool:
    """Say whether two descriptions are equal."""
    return bool(_comparable(given) == _comparable(own))


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _comparable(inner) for key, inner in value.items()}
    if isinstance(value, torch.Tensor | np.ndarray):
        array = np.asarray(value)
        return array.dtype.str, array.shape, array.tobytes()
    return [_comparable(inner) for inner in value] if isinstance(value, list | tuple) else value


def _check_numbers(node: Any, where: str) -> None:
    if isinstance(node, int) and abs(node) >= _MOST:
        raise CheckpointError(f"{where}: a whole number of more than 64 bits")
    for key, value in (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    ):
        _check_numbers(value, f"{where}/{str(key)[:60]}")
