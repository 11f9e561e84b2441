"""A random stream of its own for networks that draw from torch's global generator, such as with dropout."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import torch

_global_generator = threading.RLock()
"""Held while torch's global generator is not the user's: runs in threads of one process share it."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have torch's global CPU generator begin with a seed, and be what it was afterwards."""
    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class TorchStream:
    """While entered, torch's global CPU generator is this stream; nobody else's numbers are touched."""

    def __init__(self, seed: int | None = None) -> None:
        """Begin with a seed, or where torch's generator is now, without drawing from it."""
        state = torch.get_rng_state() if seed is None else torch.Generator().manual_seed(seed).get_state()
        self.state = state
        self._outside = self.state

    def __enter__(self) -> None:
        _global_generator.acquire()
        self._outside = torch.get_rng_state()
        torch.set_rng_state(self.state)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.state = torch.get_rng_state()
        torch.set_rng_state(self._outside)
        _global_generator.release()
