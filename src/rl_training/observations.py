"""Observations of any kind as plain arrays: what they are made of, and where each part lies.

Inside the package an observation is always one array of one dtype, so that collectors, replay, rollouts, checkpoints
and subprocesses need to know no more than its shape. A vector or an image stays as it is. A discrete number becomes
an array of one. A ``Dict`` or ``Tuple`` becomes a row of bytes in which every part has its own place and keeps its own
dtype; encoders take the row apart again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

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
    scalar: bool = False
    """Whether it is a single number, which comes without the dimension that it has here."""

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

    def to_plain(self) -> dict[str, Any]:
        """Return the part as plain values."""
        plain = dataclasses.asdict(self)
        listed = {name: list(plain[name]) for name in ("path", "shape", "counts", "starts")}
        return {**plain, **listed, "dtype": self.dtype.str}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ObsPart:
        """Return the part that ``to_plain`` described."""
        if plain["kind"] not in get_args(Kind):
            raise ValueError(f"{plain['kind']} is no kind of observation")
        return cls(
            tuple(key if isinstance(key, str) else int(key) for key in plain["path"]),
            plain["kind"],
            tuple(int(n) for n in plain["shape"]),
            np.dtype(plain["dtype"]),
            int(plain["offset"]),
            tuple(int(n) for n in plain["counts"]),
            tuple(int(n) for n in plain["starts"]),
            float(plain["high"]),
            bool(plain["channels_last"]),
            int(plain["stack"]),
            bool(plain["scalar"]),
        )

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

    def kinds(self) -> list[str]:
        """Return what it is made of: the kinds of its parts, and ``several`` if they lie in a row of bytes."""
        return [*(["several"] if self.packed else []), *dict.fromkeys(part.kind for part in self.parts)]

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

    # As values that a checkpoint can hold

    def to_plain(self) -> dict[str, Any]:
        """Return the spec as plain values."""
        plain: dict[str, Any] = {"obs_shape": list(self.shape), "obs_dtype": self.dtype.str}
        if self == ObsSpec(self.shape, self.dtype):
            return plain  # as it was before there were parts
        return {**plain, "obs_packed": self.packed, "obs_parts": [part.to_plain() for part in self.parts]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ObsSpec:
        """Return the spec that ``to_plain`` described."""
        shape, dtype = tuple(int(n) for n in plain["obs_shape"]), np.dtype(plain["obs_dtype"])
        parts = tuple(ObsPart.from_plain(part) for part in plain.get("obs_parts", ()))
        if not parts:
            return cls(shape, dtype)
        spec = packed_spec(list(parts)) if plain["obs_packed"] else cls(parts[0].shape, parts[0].dtype, parts)
        if (spec.shape, spec.dtype, spec.parts) != (shape, dtype, parts):
            raise ValueError("obs_parts do not fit")
        return spec

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

    def cast_from(self, obs: Any) -> str | None:
        """Return the type of floats in a raw observation that is not the one of its part, if there is any."""
        for part in self.parts:
            if part.dtype.kind == "f":
                dtype = np.asarray(_leaf(obs, part)).dtype
                if dtype.kind == "f" and dtype != part.dtype:
                    return str(dtype)
        return None

    def pack_batch(self, obs: Any, count: int) -> Array:
        """Return ``count`` raw observations, of which every leaf has a leading dimension, as an array."""
        if not self.packed:
            return _as_part(obs, self.parts[0], count)
        return self.joined([_as_part(_leaf(obs, part), part, count) for part in self.parts])

    def from_user(self, obs: Any) -> tuple[Array, bool]:
        """Return raw observations, one or a batch, as arrays [N, *shape], and whether it was one.

        Numbers of another type are taken if they fit, as lists and JSON know only two; a ``ConfigError`` says what does
        not fit.
        """
        count: int | None = None
        arrays: list[Array] = []
        for part in self.parts:
            key = f"obs.{part.name}" if part.path else "obs"
            try:
                given = _leaf(obs, part)
            except EnvError:
                holder = "dict" if isinstance(part.path[0], str) else "tuple"
                names = ", ".join(part.name for part in self.parts)
                if not isinstance(obs, (Mapping, tuple, list)):
                    raise ConfigError(f"obs: expected a {holder} with {names}") from None
                raise ConfigError(f"{key}: missing; expected a {holder} with {names}") from None
            array, single = _cast(given, part, key)
            own = None if single else len(array)
            if arrays and own != count:
                raise ConfigError(f"{key}: expected as many observations as in the other parts")
            count = own
            arrays.append(array[None] if single else array)
        return self.joined(arrays), count is None

    def joined(self, arrays: Sequence[Array]) -> Array:
        """Return the parts of N observations, each [N, *shape], as one array [N, *shape of the spec]."""
        if not self.packed:
            return arrays[0]
        rows = np.zeros((len(arrays[0]), *self.shape), np.uint8)
        for part, array in zip(self.parts, arrays, strict=True):
            flat = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
            rows[:, part.offset : part.offset + part.nbytes] = flat
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
    """Return the part that an array of this shape and dtype is."""
    pixels = dtype == np.uint8 or dtype == np.bool_
    if len(shape) <= 1 or (len(shape) == 2 and (not pixels or min(shape) < SURE_IMAGE)):
        return ObsPart(path, "vector", shape, dtype)
    return ObsPart(
        path,
        "image",
        shape,
        dtype,
        high=float(high or 255.0) if dtype == np.uint8 else 1.0,
        channels_last=len(shape) > 2 and shape[-1] <= shape[-3],
        stack=shape[0] if len(shape) == 4 else 1,
    )


def require_images(parts: Iterable[ObsPart], smallest: int = MIN_IMAGE) -> None:
    """Refuse images that convolutions cannot take, by name."""
    for part in parts:
        if part.kind != "image":
            continue
        what = f"env: observation '{part.name}'" if part.path else "env: observations"
        advice = "flatten it with the wrapper FlattenObservation"
        if 0 in part.shape:
            raise ConfigError(f"{what} of shape {part.shape}: there is nothing in it")
        if len(part.shape) > 4:
            raise ConfigError(
                f"{what} of shape {part.shape}: images have three dimensions, or four if frames are stacked; {advice}"
            )
        if part.dtype not in (np.dtype(np.uint8), np.dtype(np.bool_)):
            raise ConfigError(
                f"{what} of shape {part.shape}: an image is made of uint8, from 0 to 255, not of {part.dtype.name}; "
                f"convert it, or {advice}"
            )
        if min(part.frame[1:]) < smallest:
            raise ConfigError(
                f"{what} of shape {part.shape}: too small for an image, which has at least {smallest} x {smallest} "
                f"pixels; {advice}"
            )


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


def _cast(given: Any, part: ObsPart, key: str) -> tuple[Array, bool]:
    """Return a user's numbers as the array of a part, or several [N, *shape], and whether it is one."""
    try:
        array = np.asarray(given)
        if array.dtype == object or not np.can_cast(array.dtype, np.float64):
            raise ValueError
    except ValueError:
        raise ConfigError(f"{key}: not an array of numbers") from None
    shape = part.shape
    if part.scalar and array.ndim < 2:
        array = array[..., None]
    single = array.ndim == len(shape)
    if array.shape[0 if single else 1 :] != shape or not array.size:
        expected = () if part.scalar else shape
        raise ConfigError(f"{key}: expected shape {expected}, or a batch of them, got {np.shape(given)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ConfigError(f"{key}: contains NaN or infinity")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(part.dtype)
    if not (np.array_equal(cast, array) if part.dtype.kind in "iub" else np.isfinite(cast).all()):
        raise ConfigError(f"{key}: values do not fit {part.dtype}")
    if part.kind == "image" and array.dtype.kind == "f":
        raise ConfigError(
            f"{key}: images are {part.dtype}, from 0 to {part.high:g}, not floats; they are scaled inside the network"
        )
    if part.kind == "binary" and (cast.astype(np.int64) >> 1).any():
        raise ConfigError(f"{key}: should be zeros and ones")
    if part.kind == "discrete":
        cast = cast - np.array(part.starts).reshape(shape)
        if (cast < 0).any() or (cast >= np.array(part.counts).reshape(shape)).any():
            raise ConfigError(f"{key}: values are outside of the observation space")
    return cast, single


def cast_floats(array: Array, dtype: Any) -> Array:
    """Return floats as those of another size; what is too large for it becomes infinite, which is refused later."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = array.astype(dtype)
    return cast


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
        numbers: Array = array.reshape(shape).astype(np.int64) - np.array(part.starts).reshape(part.shape)
        if (numbers < 0).any() or (numbers >= np.array(part.counts).reshape(part.shape)).any():
            raise EnvError(f"{what}: {array.tolist()} is outside of its space")
        return numbers
    if array.shape != shape:
        raise EnvError(f"{what} shape: expected {shape}, got {array.shape}")
    if array.dtype != part.dtype:
        if part.dtype.kind != "f" or array.dtype.kind != "f":
            raise EnvError(f"{what} dtype: expected {part.dtype}, got {array.dtype}")
        array = cast_floats(array, part.dtype)
    if part.kind == "binary" and (array.astype(np.int64) >> 1).any():
        raise EnvError(f"{what}: {array.tolist()} should be zeros and ones")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise EnvError(
            f"{what}: expected finite numbers, got {int((~np.isfinite(array)).sum())} NaN or infinite"
        )
    return array
