"""Observations of any kind as plain arrays: what they are made of, and where each part lies.

Inside the package an observation is always one array of one dtype, so that collectors, replay, rollouts, checkpoints
and subprocesses need to know no more than its shape. A vector or an image stays as it is. A discrete number becomes
an array of one. A ``Dict`` or ``Tuple`` becomes a row of bytes in which every part has its own place and keeps its own
dtype; encoders take the row apart again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from rl_training.errors import ConfigError, EnvError
from rl_training.spaces import Array

Kind = Literal["vector", "image", "discrete", "binary"]
Path = tuple[str | int, ...]
ALIGNMENT = 8
"""Bytes at whose multiples the parts of a row begin, so that each can be viewed as its dtype."""
MIN_IMAGE = 5
"""Pixels below which a convolution makes no sense."""
SURE_IMAGE = 10
"""Pixels from which on two-dimensional bytes are taken for an image, not for a table."""
MAX_ONE_HOT = 65_536


@dataclass(frozen=True)
class ObsPart:
    """One array of an observation."""

    path: Path
    """Keys and indices that lead to it; empty if it is the whole observation."""
    kind: Kind
    shape: tuple[int, ...]
    """As the environment gives it; a single discrete number has the shape (1,)."""
    dtype: np.dtype[Any]
    offset: int = 0
    """Where it begins in a row of bytes."""
    counts: tuple[int, ...] = ()
    """Of discrete numbers: how many values each of them has."""
    starts: tuple[int, ...] = ()
    """Of discrete numbers: the smallest value of each."""
    high: float = 1.0
    """Of images: the largest value, by which they are scaled to [0, 1]."""
    channels_last: bool = False
    stack: int = 1
    """Of images: how many frames are stacked along the first axis, the newest last."""

    @property
    def name(self) -> str:
        """What the part is called in messages and in the names of modules."""
        return ".".join(str(key) for key in self.path)

    @property
    def nbytes(self) -> int:
        """Bytes of one such array."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Numbers that the part is made of once it is a vector; of an image, before it is encoded."""
        return sum(self.counts) if self.kind == "discrete" else prod(self.shape)

    @property
    def frame(self) -> tuple[int, int, int]:
        """Channels, height and width of an image, stacked frames counted as channels."""
        *outer, last = self.shape
        if self.channels_last:
            *stacked, height, width = outer
            return prod(stacked) * last, height, width
        *stacked, height = outer
        return prod(stacked), height, last

    def describe(self) -> str:
        """Say in a few words what was recognised."""
        if self.kind == "image":
            channels, height, width = self.frame
            stacked = f", {self.stack} frames" if self.stack > 1 else ""
            return f"image {channels} x {height} x {width} ({self.dtype.name}{stacked})"
        if self.kind == "discrete":
            what = f"{len(self.counts)} discrete numbers" if len(self.counts) > 1 else "discrete number"
            return f"{what}, {self.size} one-hot inputs"
        return f"{'bits' if self.kind == 'binary' else 'vector'} of {self.size}"


@dataclass(frozen=True)
class ObsSpec:
    """How one observation looks inside the package: its shape and dtype, and the parts it is made of."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: tuple[ObsPart, ...] = ()
    packed: bool = False
    """Whether it is a row of bytes with several parts."""

    def __post_init__(self) -> None:
        if not self.parts:
            part = array_part((), self.shape, self.dtype)
            object.__setattr__(self, "parts", (part,))

    @property
    def images(self) -> bool:
        """Whether any part is an image, which takes a learned encoder."""
        return any(part.kind == "image" for part in self.parts)

    @property
    def stack(self) -> int:
        """How many frames are stacked along the first axis; 1 if the whole observation is no stack of images."""
        return 1 if self.packed else self.parts[0].stack

    @property
    def plain(self) -> bool:
        """Whether it is an array that needs neither packing nor one-hot numbers."""
        return not self.packed and self.parts[0].kind in ("vector", "image")

    def describe(self) -> str:
        """Say in a line what was recognised."""
        if not self.packed:
            return self.parts[0].describe()
        return ", ".join(f"{part.name}: {part.describe()}" for part in self.parts)

    def with_stack(self, stack: int) -> ObsSpec:
        """Return the same with a whole image known to be so many stacked frames."""
        part = self.parts[0]
        if self.packed or part.kind != "image" or part.stack == stack or part.shape[0] != stack:
            return self
        # Of [K, H, W] the frames are the channels, whatever the sizes look like.
        last = part.channels_last and len(part.shape) == 4
        return dataclasses.replace(self, parts=(dataclasses.replace(part, stack=stack, channels_last=last),))

    # From what an environment or a user gives to arrays

    def pack(self, obs: Any) -> Array:
        """Return one raw observation as an array; an ``EnvError`` names the part that does not fit."""
        if not self.packed:
            return _as_part(obs, self.parts[0])
        row = np.zeros(self.shape, np.uint8)
        for part in self.parts:
            array = _as_part(_leaf(obs, part), part)
            row[part.offset : part.offset + part.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        return row

    def pack_batch(self, obs: Any, count: int) -> Array:
        """Return ``count`` raw observations, of which every leaf has a leading dimension, as an array."""
        if not self.packed:
            return _as_part(obs, self.parts[0], count)
        rows = np.zeros((count, *self.shape), np.uint8)
        for part in self.parts:
            array = np.ascontiguousarray(_as_part(_leaf(obs, part), part, count))
            rows[:, part.offset : part.offset + part.nbytes] = array.reshape(count, -1).view(np.uint8)
        return rows

    def take(self, rows: Array, part: ObsPart) -> Array:
        """Return one part [B, *shape] of observations [B, *shape of the spec]."""
        if not self.packed:
            return rows
        raw = np.ascontiguousarray(rows[:, part.offset : part.offset + part.nbytes])
        return raw.view(part.dtype).reshape(len(rows), *part.shape)


def array_part(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], high: float | None = None
) -> ObsPart:
    """Return the part that an array of this shape and dtype is; refuse what can be neither a vector nor an image."""
    what = f"observation '{'.'.join(map(str, path))}'" if path else "observations"
    pixels = dtype == np.uint8 or dtype == np.bool_
    if len(shape) <= 1 or (len(shape) == 2 and (not pixels or min(shape) < SURE_IMAGE)):
        return ObsPart(path, "vector", shape, dtype)
    advice = "as a vector they can be learned from by the wrapper FlattenObservation"
    if len(shape) > 4:
        raise ConfigError(
            f"env: {what} of shape {shape}: images have three dimensions, or four if frames are stacked; {advice}"
        )
    if not pixels:
        raise ConfigError(
            f"env: {what} of shape {shape} look like images of {dtype.name}; images are uint8, from 0 to 255; {advice}"
        )
    last = len(shape) > 2 and shape[-1] <= shape[-3]
    part = ObsPart(
        path,
        "image",
        shape,
        dtype,
        high=1.0 if dtype == np.bool_ else float(high or 255.0),
        channels_last=last,
        stack=shape[0] if len(shape) == 4 else 1,
    )
    if min(part.frame[1:]) < MIN_IMAGE:
        raise ConfigError(
            f"env: {what} of shape {shape}: an image has at least {MIN_IMAGE} x {MIN_IMAGE} pixels; {advice}"
        )
    return part


def packed_spec(parts: list[ObsPart]) -> ObsSpec:
    """Lay parts out in a row of bytes."""
    placed, end = [], 0
    for part in parts:
        placed.append(dataclasses.replace(part, offset=end))
        end += -(-part.nbytes // ALIGNMENT) * ALIGNMENT
    return ObsSpec((end,), np.dtype(np.uint8), tuple(placed), packed=True)


def _leaf(obs: Any, part: ObsPart) -> Any:
    for key in part.path:
        held = isinstance(obs, Mapping) if isinstance(key, str) else isinstance(obs, (tuple, list))
        if not held or (key not in obs if isinstance(key, str) else key >= len(obs)):
            raise EnvError(f"observation: part '{part.name}' is missing")
        obs = obs[key]
    return obs


def _as_part(value: Any, part: ObsPart, count: int | None = None) -> Array:
    """Return a value as the array of a part, or ``count`` of them; discrete numbers are counted from 0."""
    what = f"observation '{part.name}'" if part.path else "observation"
    array = np.asarray(value)
    shape = part.shape if count is None else (count, *part.shape)
    if part.kind == "discrete":
        if array.dtype.kind not in "iu" or array.size != prod(shape):
            raise EnvError(
                f"{what}: expected whole numbers of shape {shape}, got {array.dtype} {array.shape}"
            )
        numbers = array.reshape(shape).astype(np.int64) - np.array(part.starts).reshape(part.shape)
        if (numbers < 0).any() or (numbers >= np.array(part.counts).reshape(part.shape)).any():
            raise EnvError(f"{what}: {array.tolist()} is outside of its space")
        return numbers
    if array.shape != shape:
        raise EnvError(f"{what} shape: expected {shape}, got {array.shape}")
    if array.dtype != part.dtype:
        raise EnvError(f"{what} dtype: expected {part.dtype}, got {array.dtype}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise EnvError(
            f"{what}: expected finite numbers, got {int((~np.isfinite(array)).sum())} NaN or infinite"
        )
    return array
