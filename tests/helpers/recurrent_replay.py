"""What tests of the replay of sequences share: a world, and a model that keeps whole episodes in lists."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from rl_training.data import RecurrentReplayBuffer, SequenceBatch, Transitions
from rl_training.spaces import Array

ACTIONS, GAMMA = 5, 0.9
STATE = {"hidden": ((2, 3), np.float32), "previous": ((), np.int64)}
Key = tuple[int, int, int, int]  # environment, episode, first step, number of steps


class World:
    """Environments that end at random; an observation tells the environment, the episode and the step."""

    def __init__(
        self, num_envs: int = 1, ends: float = 0.1, seed: int = 0, masked: bool | str = False
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.obs = np.array([[env, 0, 0] for env in range(num_envs)], np.float32)
        self.ends, self.masked = ends, masked  # whether there are masks: not, always or "at times"

    def step(self, envs: Any = None, *, terminated: Any = None, truncated: Any = None) -> Transitions:
        """One step of some environments (none: of all), which ends their episodes as said (none: at random)."""
        rng, count = self.rng, len(self.obs)
        envs = np.arange(count) if envs is None else np.asarray(envs, np.int64)
        if terminated is None:
            # Together with the truncations below: either of them, or both at once.
            terminated = rng.random(count)[envs] < 0.6 * self.ends
        if truncated is None:
            truncated = rng.random(count)[envs] < 0.6 * self.ends
        terminated, truncated = (np.broadcast_to(flag, envs.shape).copy() for flag in (terminated, truncated))
        before = self.obs[envs]
        after = before + np.array([0, 0, 1], np.float32)
        done = (terminated | truncated)[:, None]
        self.obs[envs] = np.where(done, before * [1, 0, 0] + (before + 1) * [0, 1, 0], after)
        carry = {
            "hidden": rng.normal(size=(count, 2, 3)).astype(np.float32)[envs],
            "previous": rng.integers(0, ACTIONS, count)[envs],
        }
        masks = (rng.random((count, ACTIONS)) < 0.6)[envs]
        given = self.masked is True or (self.masked and rng.random() < 0.5)
        return Transitions(
            envs,
            before,
            rng.integers(0, ACTIONS, count)[envs],
            rng.normal(size=count)[envs],
            after,
            terminated,
            truncated,
            masks if given else None,
            carry if rng.random() < 0.8 else None,
        )

    def restart(self) -> None:
        """Begin new episodes wherever one is under way."""
        self.obs[self.obs[:, 2] > 0] += np.array([0, 1, 0], np.float32)
        self.obs[:, 2] = 0


@dataclass
class Episode:
    obs: list[Array]
    masks: list[Array | None]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    carries: list[dict[str, Array] | None] = field(default_factory=list)
    terminated: bool = False
    ended: bool = False


class Model:
    """Keeps all episodes as lists, and finds by plain loops what a buffer has to hold."""

    def __init__(self, capacity: int, num_envs: int, length: int, period: int, n_step: int) -> None:
        self.rows, self.length, self.period, self.n_step = capacity // num_envs, length, period, n_step
        self.episodes: list[list[Episode]] = [[] for _ in range(num_envs)]
        self.masked = False  # whether there ever was a mask

    def add(self, step: Transitions) -> None:
        step = copy.deepcopy(step)
        self.masked |= step.next_mask is not None
        for i, env in enumerate(step.env_ids):
            episodes = self.episodes[env]
            if not episodes or episodes[-1].ended:
                episodes.append(Episode([step.obs[i]], [None]))
            episode = episodes[-1]
            episode.obs.append(step.next_obs[i])
            episode.masks.append(None if step.next_mask is None else step.next_mask[i])
            episode.actions.append(step.action[i])
            episode.rewards.append(step.reward[i])
            episode.carries.append(step.carry and {name: array[i] for name, array in step.carry.items()})
            episode.terminated = bool(step.terminated[i])
            episode.ended = bool(step.terminated[i] or step.truncated[i])

    def interrupt(self) -> None:
        for episodes in self.episodes:
            if episodes:
                episodes[-1].ended = True

    def oldest(self, env: int) -> int:
        """The oldest row of an environment that is kept, counting all observations it ever showed."""
        return sum(len(episode.obs) for episode in self.episodes[env]) - self.rows

    def walk(self) -> Iterator[tuple[int, int, int, Episode]]:
        """All episodes with their environment, number and first row."""
        for env, episodes in enumerate(self.episodes):
            row = 0
            for number, episode in enumerate(episodes):
                yield env, number, row, episode
                row += len(episode.obs)

    def chunks(self) -> list[Key]:
        """The chunks that can be drawn, in order."""
        found = []
        for env, number, row, episode in self.walk():
            made = len(episode.actions)
            for begin in range(0, made, self.period):
                inside = set(range(begin, min(begin + self.length, made)))
                previous = begin - self.period
                before = set(range(previous, min(previous + self.length, made))) if begin else set()
                complete = episode.ended or len(inside) == self.length
                if complete and not inside <= before and row + begin >= self.oldest(env):
                    found.append((env, number, begin, len(inside)))
        return found

    def expected(self, key: Key) -> dict[str, Any]:
        """What a batch has to hold of a chunk."""
        env, number, begin, steps = key
        episode = self.episodes[env][number]
        out: dict[str, Any] = {
            name: [] for name in ("mask", "action", "reward", "returns", "discount", "after")
        }
        for t in range(self.length):
            made, k, total = t < steps, 0, 0.0
            while made and k < self.n_step and t + k < steps:
                total += GAMMA**k * np.float32(episode.rewards[begin + t + k])
                k += 1
            over = episode.terminated and begin + t + k == len(episode.actions)
            out["mask"].append(made)
            out["action"].append(episode.actions[begin + t] if made else 0)
            out["reward"].append(episode.rewards[begin + t] if made else 0.0)
            out["returns"].append(total)
            out["discount"].append(GAMMA**k if made and not over else 0.0)
            out["after"].append(t + k if made else steps)
        shown = [begin + min(t, steps) for t in range(self.length + 1)]
        out["obs"] = [episode.obs[i] for i in shown]
        out["action_mask"] = [
            np.ones(ACTIONS, bool) if episode.masks[i] is None else episode.masks[i] for i in shown
        ]
        out["starts"] = [begin == 0 and t == 0 for t in range(self.length)]
        for name, (shape, dtype) in STATE.items():
            carry = episode.carries[begin]
            out[name] = np.zeros(shape, dtype) if carry is None else carry[name]
        return out


@dataclass
class Sizes:
    num_envs: int = 2
    length: int = 4
    period: int = 2
    n_step: int = 3
    capacity: int = 30

    def model(self) -> Model:
        return Model(self.capacity, self.num_envs, self.length, self.period, self.n_step)

    def buffer(self, kind: type[RecurrentReplayBuffer] = RecurrentReplayBuffer, **options: Any) -> Any:
        own = {"length": self.length, "period": self.period, "n_step": self.n_step, "state": STATE}
        options = {"rng": np.random.default_rng(1), "gamma": GAMMA, **own, **options}
        return kind(self.capacity, (3,), num_envs=self.num_envs, **options)


@st.composite
def sizes(draw: Callable[[Any], int]) -> Sizes:
    num_envs, length = draw(st.integers(1, 3)), draw(st.integers(2, 7))
    share = length + draw(st.integers(1, 12))
    spare = draw(st.integers(0, num_envs - 1))  # what cannot be divided
    return Sizes(
        num_envs, length, draw(st.integers(1, length)), draw(st.integers(1, 5)), share * num_envs + spare
    )


ENDS = st.sampled_from([0.02, 0.1, 0.3, 0.7, 2.0])
SEEDS = st.integers(0, 10_000)
MASKED = st.sampled_from([False, True, "at times"])


def feed(step: Transitions, *takers: Any) -> None:
    """Hand a step to models and buffers, and spoil it afterwards, as a caller may."""
    for taker in takers:
        taker.add(step)
    carry = step.carry or {}
    for array in (step.obs, step.next_obs, step.action, step.reward, step.next_mask, *carry.values()):
        if array is not None:
            array[:] = 77
    step.terminated[:] ^= True
    step.truncated[:] ^= True


def live(world: World, steps: int, *takers: Any) -> Iterator[int]:
    """Feed steps of all or some environments, now and then none; interrupt at times."""
    rng, count = world.rng, len(world.obs)
    for number in range(steps):
        envs = np.arange(count) if rng.random() < 0.5 else np.flatnonzero(rng.random(count) < 0.6)
        feed(world.step(envs), *takers)
        if rng.random() < 0.02:
            world.restart()
            for taker in takers:
                taker.interrupt()
        yield number


def lived(steps: int, own: Sizes, seed: int = 0, kind: Any = RecurrentReplayBuffer, **options: Any) -> Any:
    """A world after some steps, and model and buffer that have seen them."""
    world, model, buffer = World(own.num_envs, seed=seed, **options), own.model(), own.buffer(kind)
    for _ in live(world, steps, model, buffer):
        pass
    return world, model, buffer


def keys_in(batch: SequenceBatch) -> list[Key]:
    begins, steps = batch.obs[0].long().tolist(), batch.mask.sum(0).tolist()
    return [(*begin, count) for begin, count in zip(begins, steps, strict=True)]


def contents(buffer: RecurrentReplayBuffer) -> SequenceBatch:
    return buffer.gather(buffer._drawable())


def assert_holds_what_it_should(batch: SequenceBatch, model: Model) -> None:
    """Compare all fields of a batch with the model's, chunk by chunk."""
    expected = [model.expected(key) for key in keys_in(batch)]
    count, length = len(expected), model.length
    assert (batch.action_mask is not None) == model.masked
    for name in (*expected[0], *STATE):
        actual = batch.state[name] if name in STATE else getattr(batch, name)
        if actual is None:
            continue
        wanted = np.stack([chunk[name] for chunk in expected], 0 if name in STATE else 1)
        if name == "action_mask":  # nobody says what is allowed when an episode begins
            known = ~(batch.starts[0].numpy() & (np.arange(length + 1)[:, None] == 0))
            assert np.array_equal(actual.numpy()[known], wanted[known])
        elif name in ("returns", "discount"):
            np.testing.assert_allclose(actual.numpy(), wanted, rtol=2e-6, atol=1e-6)
        else:
            assert np.array_equal(actual.numpy(), wanted.astype(actual.numpy().dtype)), name
    assert batch.obs.shape == (length + 1, count, 3)
    assert batch.state["hidden"].shape == (count, 2, 3)
    for name in ("action", "reward", "returns", "discount", "after", "mask", "starts"):
        assert getattr(batch, name).shape == (length, count)
    floats = {getattr(batch, name).dtype for name in ("obs", "reward", "returns", "discount")}
    assert floats == {batch.state["hidden"].dtype} == {torch.float32}
    assert batch.action.dtype == batch.after.dtype == batch.state["previous"].dtype == torch.int64
    assert batch.mask.dtype == batch.starts.dtype == torch.bool


def assert_equal(one: Any, other: Any) -> None:
    """The same, bit by bit and type by type."""
    assert type(one) is type(other)
    if isinstance(one, Mapping):
        assert one.keys() == other.keys()
        for name in one:
            assert_equal(one[name], other[name])
    elif is_dataclass(one):
        for part in fields(one):
            assert_equal(getattr(one, part.name), getattr(other, part.name))
    elif isinstance(one, (np.ndarray, torch.Tensor)):
        assert one.dtype == other.dtype
        assert np.array_equal(np.asarray(one), np.asarray(other))
    else:
        assert one == other


def stand(buffer: RecurrentReplayBuffer) -> dict[str, Any]:
    """The state of a buffer, with the fields of the rows in place of their bytes."""
    state = copy.deepcopy(buffer.state_dict())
    rows = {env: of_env.view(buffer._rows.dtype) for env, of_env in state["rows"].items()}
    return {**state, "rows": {env: {name: r[name] for name in r.dtype.names} for env, r in rows.items()}}
