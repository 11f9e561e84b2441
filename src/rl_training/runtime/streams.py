"""Named random streams, all grown from the one seed of the run."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.errors import CheckpointError


def seed_sequence(seed: int, name: str, *indices: int) -> np.random.SeedSequence:
    """Return the root of a stream; other names, indices or seeds give independent ones."""
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), *indices))


class Streams:
    """The generators of a run by name; no part of the package uses a global generator."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __call__(self, name: str) -> np.random.Generator:
        """Return the generator of that name, always the same object."""
        if name not in self._generators:
            self._generators[name] = np.random.Generator(np.random.PCG64(seed_sequence(self._seed, name)))
        return self._generators[name]

    def state_dict(self) -> dict[str, Any]:
        """Return each generator's state as 6 words: 128 bits of state, 128 of increment, and a cached half draw."""
        return {name: torch.from_numpy(_pack(generator)) for name, generator in self._generators.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the states; the names must be the same."""
        if set(state) != set(self._generators):
            raise CheckpointError(f"rng: streams {sorted(state)} do not match {sorted(self._generators)}")
        for name, words in state.items():
            if not isinstance(words, torch.Tensor) or words.dtype != torch.uint64 or words.shape != (6,):
                raise CheckpointError(f"rng: stream '{name}' is not 6 words of 64 bits")
            _unpack(self._generators[name], words.numpy())


_MASK = 2**64 - 1


def _pack(generator: np.random.Generator) -> np.ndarray[Any, Any]:
    state: Any = generator.bit_generator.state
    value, increment = state["state"]["state"], state["state"]["inc"]
    words = [
        value & _MASK,
        value >> 64,
        increment & _MASK,
        increment >> 64,
        state["has_uint32"],
        state["uinteger"],
    ]
    return np.array(words, np.uint64)


def _unpack(generator: np.random.Generator, words: np.ndarray[Any, Any]) -> None:
    low, high, inc_low, inc_high, has_half, half = (int(word) for word in words)
    if has_half > 1 or half >= 2**32 or not inc_low & 1:
        raise CheckpointError("rng: not the state of a generator")
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": low | high << 64, "inc": inc_low | inc_high << 64},
        "has_uint32": has_half,
        "uinteger": half,
    }
