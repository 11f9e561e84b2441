"""Replay of images against a model that keeps every observation whole."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rl_training.data import ImageReplayBuffer, Transitions
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.segment import Segment

FRAME = (2, 3, 4)


@dataclass
class Naive:
    """Every step as it was, with stacks made of copies."""

    stack: int
    num_envs: int
    rng: np.random.Generator
    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    obs: list[Any] = field(default_factory=list)
    frames: int = 0

    def __post_init__(self) -> None:
        self.steps = [[] for _ in range(self.num_envs)]
        self.obs = [None] * self.num_envs
        self.episode = [0] * self.num_envs

    def frame(self) -> Any:
        return self.rng.integers(0, 256, FRAME).astype(np.uint8)

    def step(self, end: float = 0.15, envs: Any = None) -> Transitions:
        """Make a random step of the environments and return it."""
        ids = np.arange(self.num_envs) if envs is None else np.array(envs)
        rows = []
        for env in ids:
            if self.obs[env] is None:
                self.obs[env] = np.stack([self.frame()] * self.stack)
            obs = self.obs[env]
            next_obs = np.concatenate([obs[1:], self.frame()[None]])
            terminated, truncated = self.rng.random(2) < end / 2
            row = {
                "obs": obs,
                "action": self.rng.normal(size=2).astype(np.float32),
                "reward": float(np.float32(self.rng.normal())),
                "next_obs": next_obs,
                "terminated": bool(terminated),
                "truncated": bool(truncated),
                "episode": self.episode[env],
            }
            rows.append(row)
            self.steps[env].append(row)
            self.obs[env] = next_obs
            if terminated or truncated:
                self.obs[env] = None
                self.episode[env] += 1
        fields = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
        columns: list[Any] = [np.array([row[name] for row in rows]) for name in fields]
        return Transitions(ids, *columns)

    def window(self, env: int, index: int, n: int, gamma: float) -> tuple[Any, ...] | None:
        """Return the n-step transition from that step on, or none if it is not complete yet."""
        first, reward = self.steps[env][index], 0.0
        for k in range(n):
            if index + k >= len(self.steps[env]):
                return None
            row = self.steps[env][index + k]
            reward += gamma**k * row["reward"]
            if row["terminated"] or row["truncated"] or k == n - 1:
                discount = 0.0 if row["terminated"] else gamma ** (k + 1)
                return first["obs"], first["action"], reward, discount, row["next_obs"]
        raise AssertionError


def filled(
    steps: int,
    *,
    stack: int = 3,
    num_envs: int = 2,
    n: int = 3,
    capacity: int = 40,
    seed: int = 0,
    **options: Any,
) -> tuple[ImageReplayBuffer, Naive]:
    naive = Naive(stack, num_envs, np.random.default_rng(seed))
    buffer = ImageReplayBuffer(
        capacity,
        (stack, *FRAME),
        (2,),
        stack=stack,
        num_envs=num_envs,
        n_step=n,
        gamma=0.9,
        rng=np.random.default_rng(seed),
        **options,
    )
    for _ in range(steps):
        buffer.add(naive.step())
    return buffer, naive


def every(buffer: ImageReplayBuffer) -> list[tuple[Any, ...]]:
    """Return all transitions that can be drawn, environment by environment, oldest first."""
    found = []
    for env in range(buffer.num_envs):
        numbers = np.arange(buffer._first[env], buffer._ready[env])
        heads = buffer._heads[env, numbers % buffer._ring]
        batch = buffer.gather(np.full(len(heads), env), heads)
        found += [tuple(np.asarray(part[i]) for part in parts(batch)) for i in range(len(heads))]
    return found


def parts(batch: Any) -> tuple[Any, ...]:
    return batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    exact = all(np.array_equal(one[i], other[i]) for i in (0, 1, 4))
    return exact and bool(np.allclose(one[2], other[2], atol=1e-5) and np.isclose(one[3], other[3]))


def assert_newest(buffer: ImageReplayBuffer, naive: Naive, at_least: int = 1) -> None:
    """See that what can be drawn is, for each environment, the newest complete transitions without a gap."""
    held = every(buffer)
    for env in range(buffer.num_envs):
        windows = [naive.window(env, i, buffer.n_step, buffer.gamma) for i in range(len(naive.steps[env]))]
        complete = [window for window in windows if window is not None]
        count = int(buffer._ready[env] - buffer._first[env])
        mine, held = held[:count], held[count:]
        assert count >= at_least
        assert all(same(a, b) for a, b in zip(mine, complete[-count:], strict=True))


@pytest.mark.parametrize("stack", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize("steps", [1, 5, 37, 200])
def test_what_can_be_drawn_is_what_happened_newest_first(stack: int, n: int, steps: int) -> None:
    """For each environment, drawable steps are the newest complete ones, without a gap."""
    buffer, naive = filled(steps, stack=stack, n=n)
    held = every(buffer)
    for env in range(2):
        windows = [naive.window(env, i, n, 0.9) for i in range(len(naive.steps[env]))]
        complete = [window for window in windows if window is not None]
        count = int(buffer._ready[env] - buffer._first[env])
        mine, held = held[:count], held[count:]
        assert all(same(a, b) for a, b in zip(mine, complete[len(complete) - count :], strict=True))
        # 20 frames each: steps, one more for each episode that ended among them, and what a stack needs before.
        ended = sum(row["terminated"] or row["truncated"] for row in naive.steps[env][-20:])
        assert count >= min(len(complete), 20 - ended - (n - 1) - (stack - 1))
        assert count <= 20 + 2 * buffer._segment


def test_draws_are_uniform_over_all_transitions() -> None:
    buffer, _ = filled(60, capacity=64)
    assert len(buffer) == len(every(buffer)) > 40
    counts: Counter[bytes] = Counter()
    for _ in range(200):
        counts.update(action.numpy().tobytes() for action in buffer.sample(256).action)
    expected = 200 * 256 / len(buffer)
    assert len(counts) == len(buffer)
    spread = sum((count - expected) ** 2 / expected for count in counts.values())
    assert abs(spread - len(buffer)) < 5 * np.sqrt(2 * len(buffer))


def test_environments_may_step_apart() -> None:
    naive = Naive(3, 3, np.random.default_rng(1))
    buffer = ImageReplayBuffer(90, (3, *FRAME), (2,), stack=3, num_envs=3, n_step=2, gamma=0.9)
    for i in range(150):
        buffer.add(naive.step(envs=[0, 1, 2] if i % 3 else [1]))
    assert_newest(buffer, naive, at_least=16)


def test_images_without_a_stack_are_kept_once_too() -> None:
    buffer = ImageReplayBuffer(10, FRAME, (1,))
    frames = np.random.default_rng(0).integers(0, 256, (5, 1, *FRAME)).astype(np.uint8)
    for i in range(4):
        yes, no = np.array([True]), np.array([False])
        buffer.add(
            Transitions(
                np.array([0]),
                frames[i],
                np.zeros((1, 1)),
                np.ones(1),
                frames[i + 1],
                yes if i == 3 else no,
                no,
            )
        )
    batch = buffer.gather(np.zeros(4, np.int64), np.arange(4))
    assert np.array_equal(batch.obs, frames[:4, 0])
    assert np.array_equal(batch.next_obs, frames[1:, 0])
    assert batch.discount.tolist() == pytest.approx([0.99, 0.99, 0.99, 0.0])
    assert batch.obs.dtype.is_floating_point is False


def test_an_interrupted_episode_is_one_that_was_truncated() -> None:
    buffer, naive = filled(30)
    naive.obs = [None, None]
    buffer.interrupt()
    for env in range(2):
        naive.steps[env][-1]["truncated"] = True
    buffer.add(naive.step(end=0.0))
    buffer.interrupt()
    for env in range(2):
        naive.steps[env][-1]["truncated"] = True
    assert_newest(buffer, naive)


def test_observations_that_are_no_stacks_are_refused() -> None:
    buffer, naive = filled(1)
    step = naive.step(end=0.0)
    step.next_obs = step.next_obs.copy()
    step.next_obs[1, 0] ^= 1
    with pytest.raises(EnvError, match=r"env 1: observations of shape .* are taken for 3 stacked frames"):
        buffer.add(step)
    naive = Naive(3, 1, np.random.default_rng(0))
    buffer = ImageReplayBuffer(40, (3, *FRAME), (2,), stack=3)
    step = naive.step()
    step.obs = step.obs.copy()
    step.obs[0, 0] = 0  # as with zeros for padding
    with pytest.raises(EnvError, match="padding_type: reset"):
        buffer.add(step)


def test_what_is_refused_leaves_no_trace() -> None:
    """The step that was refused is not in what is saved, nor those of the other environments in it."""
    buffer, naive = filled(20)
    steps = [len(rows) for rows in naive.steps]
    step = naive.step(end=0.0)
    step.next_obs = step.next_obs.copy()
    step.next_obs[1, 0] ^= 1
    with pytest.raises(EnvError):
        buffer.add(step)
    again = restored(buffer)
    again.interrupt()
    for env in range(2):
        del naive.steps[env][steps[env] :]
        naive.steps[env][-1]["truncated"] = True
    naive.obs = [None, None]
    again.add(naive.step(end=0.0))
    assert_newest(again, naive)


def test_a_ring_that_holds_no_transition_is_refused() -> None:
    for stack, n in ((4, 1), (4, 3), (1, 5)):
        with pytest.raises(ConfigError, match=f"the least is {2 * (stack + n)}"):
            filled(0, stack=stack, n=n, capacity=2 * (stack + n) - 2)
        buffer, naive = filled(60, stack=stack, n=n, capacity=2 * (stack + n))
        assert len(buffer) > 0
        assert_newest(buffer, naive)


# Memory


def test_what_does_not_fit_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_training.data import memory

    monkeypatch.setattr(memory, "available_memory", lambda: 100_000_000)
    with pytest.raises(
        ConfigError, match=r"algo_kwargs.buffer_size: \d+ frames need .* largest that fits is (\d+)"
    ) as e:
        ImageReplayBuffer(1_000_000, (3, 3, 84, 84), (2,), stack=3)
    assert "1000000 frames" in str(e.value)
    fits = int(str(e.value).rsplit(" ", 1)[1])
    assert 0.95 * 0.9e8 / 21_300 < fits < 0.9e8 / 21_168
    ImageReplayBuffer(fits, (3, 3, 84, 84), (2,), stack=3)
    with pytest.raises(ConfigError, match=f"largest that fits is {fits}"):
        ImageReplayBuffer(fits + 1, (3, 3, 84, 84), (2,), stack=3)


@pytest.mark.parametrize("num_envs", [1, 8])
def test_frames_cost_little_more_than_their_bytes(num_envs: int) -> None:
    buffer = ImageReplayBuffer(100_000, (3, 3, 84, 84), (6,), stack=3, num_envs=num_envs)
    rings = buffer._rings
    taken = rings.frames.nbytes + rings.rows.nbytes + buffer._heads.nbytes
    assert taken == buffer.nbytes <= 1.05 * 100_000 * 84 * 84 * 3


# State


def restored(buffer: ImageReplayBuffer, seed: int = 0, **options: Any) -> ImageReplayBuffer:
    again = ImageReplayBuffer(
        buffer.capacity,
        buffer._stacks.obs_shape,
        (2,),
        stack=buffer._stacks.stack,
        num_envs=buffer.num_envs,
        n_step=buffer.n_step,
        gamma=0.9,
        rng=np.random.default_rng(seed),
        **options,
    )
    again.load_state_dict(copy.deepcopy(as_saved(buffer)))
    return again


def as_saved(buffer: ImageReplayBuffer) -> dict[str, Any]:
    """Return the state as a checkpoint gives it back."""
    state = buffer.state_dict()
    segments = {name: dict(segment.arrays()) for name, segment in state["segments"].items()}
    return {**state, "segments": segments}


@pytest.mark.parametrize("steps", [0, 1, 2, 15, 16, 31, 100, 203])
@pytest.mark.parametrize("capacity", [12, 40, 300])
def test_a_restored_buffer_goes_on_like_the_one_that_was_saved(steps: int, capacity: int) -> None:
    buffer, naive = filled(steps, capacity=capacity)
    again = restored(buffer)
    for _ in range(50):
        assert len(again) == len(buffer)
        if len(buffer):
            state = np.random.default_rng(7)
            buffer._rng, again._rng = state, copy.deepcopy(state)
            one, other = buffer.sample(16), again.sample(16)
            assert all(np.array_equal(a, b) for a, b in zip(parts(one), parts(other), strict=True))
        step = naive.step()
        buffer.add(step)
        again.add(step)


def test_complete_segments_never_change() -> None:
    """Also not by an interruption, which changes the last step that was made."""
    buffer, naive = filled(1, capacity=1300)
    rng = np.random.default_rng(3)
    seen: dict[str, dict[str, bytes]] = {}
    written = 0
    for i in range(900):
        buffer.add(naive.step())
        if rng.random() < 0.02:
            buffer.interrupt()
            naive.obs = [None, None]
        if i % 7:
            continue
        state = buffer.state_dict()
        for name, segment in state["segments"].items():
            assert isinstance(segment, Segment)
            content = {key: np.asarray(value).tobytes() for key, value in segment.arrays().items()}
            assert seen.setdefault(name, content) == content
        written = max(written, *(len(part["frames"]) for part in state["newest"].values()))
    assert len(seen) > 100
    assert written <= 2 * buffer._segment + 1


def test_damaged_states_are_refused() -> None:
    buffer, _ = filled(100)
    damages: tuple[dict[str, Any], ...] = (
        {"capacity": 41},
        {"segment_frames": 7},
        {"head": np.zeros(3, np.int64)},
        {"head": np.array([5, -1])},
        {"age": buffer._head + 1},
        {"head": buffer._head + buffer._segment * 2},
        {"segments": {}},
        {"newest": {}},
    )
    for damage in damages:
        other, _ = filled(0)
        with pytest.raises((CheckpointError, KeyError)):
            other.load_state_dict({**as_saved(buffer), **damage})
    state = as_saved(buffer)
    name = next(iter(state["segments"]))
    state["segments"][name]["frames"] = state["segments"][name]["frames"][:, :, :, :2]
    with pytest.raises(CheckpointError, match="frames of"):
        filled(0)[0].load_state_dict(state)
    state = as_saved(buffer)
    rows = state["newest"]["e0"]["rows"].copy()
    rows.view(buffer._rings.rows.dtype)["age"] += 1000
    state["newest"]["e0"]["rows"] = rows
    with pytest.raises(CheckpointError, match="not those of episodes"):
        filled(0)[0].load_state_dict(state)
