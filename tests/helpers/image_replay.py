"""What tests of the replay of images share: a world, and a model that keeps every observation whole, in lists."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rl_training.data import ImageReplayBuffer, Transitions
from rl_training.segment import Segment

ACTIONS, GAMMA = 3, 0.9
KINDS: dict[str, dict[str, Any]] = {
    "channels_last": {"frame": (3, 4, 2)},
    "bools": {"frame": (4, 3, 2), "dtype": np.bool_},
    "grey": {"frame": (4, 5)},
    "packed": {"frame": (24,)},
    "floats": {"frame": (2, 3), "dtype": np.float32},
    "stacked_grey": {"frame": (4, 3), "stack": 4},
    "stacked_zeros": {"frame": (4, 3), "stack": 3, "padding": "zeros"},
    "stacked_channels": {"frame": (2, 2, 3), "stack": 2},
    "stacked_bools": {"frame": (3, 3, 2), "stack": 3, "dtype": np.bool_, "padding": "zeros"},
}


@dataclass
class Row:
    """One step as it was, and where a buffer should keep it."""

    fields: dict[str, Any]
    number: int
    age: int

    @property
    def ended(self) -> bool:
        return bool(self.fields["terminated"] or self.fields["truncated"])


class ImageWorld:
    """Environments that end at random, with every step that they ever made."""

    def __init__(
        self,
        num_envs: int = 2,
        *,
        frame: tuple[int, ...] = (3, 4),
        dtype: Any = np.uint8,
        stack: int = 1,
        padding: str = "reset",
        masked: bool | str = False,
        ends: float = 0.15,
        seed: int = 0,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.num_envs, self.frame, self.dtype = num_envs, frame, np.dtype(dtype)
        self.stack, self.padding, self.masked, self.ends = stack, padding, masked, ends
        self.shape = (stack, *frame) if stack > 1 else frame
        self.steps: list[list[Row]] = [[] for _ in range(num_envs)]
        self.heads = [0] * num_envs
        self.now: list[Any] = [None] * num_envs  # observation and mask, or none where an episode is to begin

    def one(self) -> Any:
        """Return a frame; now and then it is black, which tells nothing of the padding."""
        if self.rng.random() < 0.1:
            return np.zeros(self.frame, self.dtype)
        return self.rng.integers(0, 256, self.frame).astype(self.dtype)

    def mask(self) -> Any:
        given = self.masked is True or (self.masked and self.rng.random() < 0.5)
        return self.rng.random(ACTIONS) < 0.6 if given else None

    def _begin(self) -> tuple[Any, Any]:
        first = self.one()
        if self.stack > 1:
            before = np.zeros_like(first) if self.padding == "zeros" else first
            first = np.stack([*[before] * (self.stack - 1), first])
        return first, self.mask()

    def step(self, envs: Any = None, ends: float | None = None) -> Transitions:
        """Make a step of some environments (none: of all)."""
        ids = np.arange(self.num_envs) if envs is None else np.asarray(envs)
        rows = []
        for env in ids:
            obs, mask = self.now[env] if self.now[env] is not None else self._begin()
            frame = self.one()
            next_obs = np.concatenate([obs[1:], frame[None]]) if self.stack > 1 else frame
            chance = (self.ends if ends is None else ends) / 2
            terminated, truncated = (self.rng.random(2) < chance).tolist()
            fields = {
                "obs": obs,
                "action": int(self.rng.integers(ACTIONS)),
                "reward": float(np.float32(self.rng.normal())),
                "next_obs": next_obs,
                "terminated": terminated,
                "truncated": truncated,
                "mask": mask,
                "next_mask": self.mask(),
            }
            age = self.steps[env][-1].age + 1 if self.now[env] is not None else 0
            row = Row(fields, self.heads[env], age)
            rows.append(row)
            self.steps[env].append(row)
            self.heads[env] += 1 + row.ended
            self.now[env] = None if row.ended else (next_obs, fields["next_mask"])
        return _as_transitions(ids, rows)

    def stop(self) -> None:
        """Cut all episodes off where they are."""
        for env in range(self.num_envs):
            if self.now[env] is not None:
                self.steps[env][-1].fields["truncated"] = True
                self.heads[env] += 1
                self.now[env] = None

    def buffer(self, kind: Any = ImageReplayBuffer, capacity: int = 40, n: int = 1, **options: Any) -> Any:
        options = {"rng": np.random.default_rng(1), "gamma": GAMMA, "keep_masks": True, **options}
        sizes = {"obs_dtype": self.dtype, "stack": self.stack, "num_envs": self.num_envs, "n_step": n}
        return kind(capacity, self.shape, (), np.int64, **sizes, **options)

    def window(self, env: int, index: int, n: int) -> tuple[Any, ...] | None:
        """Return the n-step transition from a step on, or none if it is not complete yet."""
        steps, reward = self.steps[env], 0.0
        first = steps[index].fields
        for k, row in enumerate(steps[index : index + n]):
            reward += GAMMA**k * row.fields["reward"]
            if row.ended or k == n - 1:
                last = row.fields
                discount = 0.0 if last["terminated"] else GAMMA ** (k + 1)
                masks = [
                    np.ones(ACTIONS, bool) if m is None else m for m in (last["next_mask"], first["mask"])
                ]
                return first["obs"], first["action"], reward, discount, last["next_obs"], *masks
        return None

    def drawable(self, env: int, n: int, segment: int, slots: int) -> list[int]:
        """Return which steps of an environment should be there, by going through all of them."""
        steps = self.steps[env]
        if not steps:
            return []
        written = steps[-1].number + 1
        oldest = max(0, (written // segment - slots + 1) * segment)
        return [
            i
            for i, row in enumerate(steps)
            if self.window(env, i, n) is not None and row.number - min(row.age, self.stack - 1) >= oldest
        ]


def _as_transitions(ids: Any, rows: list[Row]) -> Transitions:
    def column(name: str) -> Any:
        return np.array([row.fields[name] for row in rows])

    def masks(name: str) -> Any:
        given = [row.fields[name] for row in rows]
        if all(mask is None for mask in given):
            return None
        return np.array([np.ones(ACTIONS, bool) if mask is None else mask for mask in given])

    return Transitions(
        ids,
        column("obs"),
        column("action"),
        column("reward"),
        column("next_obs"),
        column("terminated"),
        column("truncated"),
        next_mask=masks("next_mask"),
        mask=masks("mask"),
    )


def live(world: ImageWorld, steps: int, buffers: Any, apart: bool = True) -> Iterator[int]:
    """Feed buffers (one, or a list that may grow) and interrupt at times; steps are spoilt, as a caller may do."""
    buffers = buffers if isinstance(buffers, list) else [buffers]
    for number in range(steps):
        some = apart and world.rng.random() < 0.4
        envs = np.flatnonzero(world.rng.random(world.num_envs) < 0.6) if some else np.arange(world.num_envs)
        if len(envs):
            step = world.step(envs)
            for buffer in buffers:
                buffer.add(step)
            for array in (step.obs, step.next_obs, step.reward, step.mask, step.next_mask):
                if array is not None:
                    array[...] = 1
        if world.rng.random() < 0.02:
            world.stop()
            for buffer in buffers:
                buffer.interrupt()
        yield number


def every(buffer: Any) -> list[tuple[int, tuple[Any, ...]]]:
    """Return all transitions that can be drawn with their environments, oldest first."""
    found: list[tuple[int, tuple[Any, ...]]] = []
    for env in range(buffer.num_envs):
        numbers = np.arange(buffer._first[env], buffer._ready[env])
        heads = buffer._heads[env, numbers % buffer._ring]
        found += [(env, row) for row in rows_of(buffer.gather(np.full(len(heads), env), heads))]
    return found


def rows_of(batch: Any) -> list[tuple[Any, ...]]:
    """Return the transitions of a batch; a mask that is missing allows everything."""
    count = len(batch.reward)
    allowed = np.ones((count, ACTIONS), bool)
    masks = [allowed if m is None else m.numpy() for m in (batch.next_mask, batch.mask)]
    parts = [part.numpy() for part in (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs)]
    return [tuple(part[i] for part in (*parts, *masks)) for i in range(count)]


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    exact = all(np.array_equal(one[i], other[i]) for i in (0, 1, 4, 5, 6))
    return exact and bool(np.allclose(one[2:4], other[2:4], atol=1e-5))


def assert_holds_what_it_should(buffer: Any, world: ImageWorld) -> int:
    """Compare everything that can be drawn with the world's memory; return how much that is."""
    held = every(buffer)
    sizes = buffer.n_step, buffer._segment, buffer._rings.slots
    expected = [
        (env, world.window(env, i, buffer.n_step))
        for env in range(world.num_envs)
        for i in world.drawable(env, *sizes)
    ]
    assert len(buffer) == len(held) == len(expected)
    for (env, row), (other, window) in zip(held, expected, strict=True):
        assert env == other
        assert window is not None
        assert same(row, window)
    return len(held)


def as_saved(buffer: Any) -> dict[str, Any]:
    """Return the state as a checkpoint gives it back."""
    state = copy.deepcopy({**buffer.state_dict(), "segments": {}})
    segments = {
        name: {key: np.array(value) for key, value in segment.arrays().items()}
        for name, segment in buffer.state_dict()["segments"].items()
        if isinstance(segment, Segment)
    }
    return {**state, "segments": segments}


def contents(state: Any) -> Any:
    """Return a state with bytes for arrays, to be compared."""
    if isinstance(state, Segment):
        state = dict(state.arrays())
    if isinstance(state, dict):
        return {name: contents(value) for name, value in state.items()}
    return (state.dtype.str, state.shape, state.tobytes()) if isinstance(state, np.ndarray) else state


@st.composite
def lives(draw: Any) -> dict[str, Any]:
    """Draw a world of some kind, and the sizes of a buffer for it."""
    kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    num_envs, n = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    share = n + kind.get("stack", 1) + draw(st.sampled_from([0, 1, 5, 20, 150]))
    world = {
        **kind,
        "num_envs": num_envs,
        "masked": draw(st.sampled_from([False, True, "at times"])),
        "ends": draw(st.sampled_from([0.02, 0.15, 0.5])),
        "seed": draw(st.integers(0, 10_000)),
    }
    return {"world": world, "buffer": {"capacity": share * num_envs, "n": n}}
