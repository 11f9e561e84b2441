"""Replay of sequences: which chunks there are, what they hold, how they are drawn, and that all of it is saved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from helpers.recurrent_replay import (
    ACTIONS,
    ENDS,
    MASKED,
    SEEDS,
    STATE,
    Sizes,
    World,
    assert_equal,
    assert_holds_what_it_should,
    contents,
    feed,
    keys_in,
    live,
    lived,
    sizes,
    stand,
)
from rl_training.data import RecurrentReplayBuffer, Transitions
from rl_training.errors import CheckpointError, ConfigError

# Which chunks there are and what they hold


@settings(max_examples=90)
@given(sizes(), ENDS, SEEDS, MASKED)
def test_it_holds_the_chunks_that_lists_of_episodes_give(own, ends, seed, masked):
    world, model, buffer = World(own.num_envs, ends, seed, masked), own.model(), own.buffer()
    for number in live(world, 4 * own.capacity // own.num_envs, model, buffer):
        chunks = model.chunks()
        assert len(buffer) == len(chunks)
        assert buffer.steps == sum(steps for *_, steps in chunks)
        if not chunks:
            continue
        assert sorted(keys_in(contents(buffer))) == chunks
        if number % 11 == 0:
            assert_holds_what_it_should(contents(buffer), model)
            batch = buffer.sample(5)
            assert set(keys_in(batch)) <= set(chunks)
            assert_holds_what_it_should(batch, model)


@settings(max_examples=40)
@given(sizes(), ENDS, SEEDS)
def test_every_step_that_is_kept_with_what_led_to_it_is_in_a_chunk_and_none_is_in_vain(own, ends, seed):
    world, model, buffer = World(own.num_envs, ends, seed), own.model(), own.buffer()
    for _ in live(world, 4 * own.capacity // own.num_envs, model, buffer):
        keys = keys_in(contents(buffer)) if len(buffer) else []
        for env, number, row, episode in model.walk():
            made = len(episode.actions)
            spans = [range(begin, begin + steps) for e, n, begin, steps in keys if (e, n) == (env, number)]
            assert all(0 < len(span) <= own.length and span.stop <= made for span in spans)
            assert all(row + span.start >= model.oldest(env) for span in spans), "was overwritten"
            assert not any(set(a) <= set(b) for a in spans for b in spans if a is not b)
            for step in range(made):
                first = max(0, -(-(step - own.length + 1) // own.period) * own.period)
                ready = episode.ended or first + own.length <= made
                if ready and row + step - own.length + 1 >= model.oldest(env):
                    assert any(step in span for span in spans)


def test_an_episode_is_cut_as_the_documentation_says():
    def spans(made: int, length: int, period: int, ended: bool) -> list[tuple[int, int]]:
        buffer = Sizes(1, length, period, 1, 40).buffer()
        world = World(1, ends=0.0)
        for step in range(made):
            buffer.add(world.step(terminated=ended and step == made - 1))
        return [(begin, steps) for _, _, begin, steps in keys_in(contents(buffer))] if len(buffer) else []

    assert spans(10, 4, 4, ended=False) == [(0, 4), (4, 4)]
    assert spans(10, 4, 4, ended=True) == [(0, 4), (4, 4), (8, 2)]
    assert spans(8, 4, 4, ended=True) == [(0, 4), (4, 4)]
    assert spans(3, 4, 4, ended=False) == []
    assert spans(3, 4, 1, ended=True) == [(0, 3)]
    assert spans(1, 4, 2, ended=True) == [(0, 1)]
    assert spans(6, 4, 2, ended=True) == [(0, 4), (2, 4)]  # the steps 4 and 5 are in the second
    assert spans(7, 4, 2, ended=True) == [(0, 4), (2, 4), (4, 3)]
    assert spans(5, 4, 3, ended=True) == [(0, 4), (3, 2)]
    assert spans(4, 4, 3, ended=True) == [(0, 4)]


@pytest.mark.parametrize("period", [1, 2, 3])
def test_slots_suffice_for_the_shortest_episodes(period):
    own = Sizes(3, 3, period, 1, 3 * 9)
    world, model, buffer = World(3, seed=period), own.model(), own.buffer()
    for number in range(200):
        feed(world.step(terminated=number % 40 < 25), model, buffer)
    assert sorted(keys_in(contents(buffer))) == model.chunks()


def test_observations_are_kept_once_whatever_the_overlap():
    taken = set()
    for period in (1, 4, 8):
        chunks: dict[str, Any] = {"length": 8, "period": period, "num_envs": 7, "state": {}}
        buffer = RecurrentReplayBuffer(1_000, (84, 84), obs_dtype=np.uint8, **chunks)
        needed = 1_000 * (84 * 84 + 8 + 4 + 1)
        assert 0.95 * needed <= buffer._rows.nbytes <= 1.05 * needed
        arrays = [array for array in vars(buffer).values() if isinstance(array, np.ndarray)]
        assert sum(array.nbytes for array in arrays if array.base is None) <= 1.05 * needed
        taken.add(buffer._rows.nbytes)
    assert len(taken) == 1


@pytest.mark.parametrize(
    ("shape", "dtype", "action_shape", "action_dtype"),
    [
        ((4,), np.float32, (), np.int64),
        ((), np.float64, (3,), np.float32),
        ((3, 8, 6), np.uint8, (), np.int64),
        ((17,), np.float16, (2,), np.float32),
        ((9,), np.int8, (), np.int32),
    ],
)
def test_fields_keep_shape_dtype_and_value_through_a_wrap(shape, dtype, action_shape, action_dtype):
    buffer = RecurrentReplayBuffer(
        13, shape, length=3, state={}, obs_dtype=dtype, action_shape=action_shape, action_dtype=action_dtype
    )
    plain = np.dtype(dtype).itemsize * int(np.prod(shape))
    plain += np.dtype(action_dtype).itemsize * int(np.prod(action_shape)) + 5
    assert plain <= buffer.bytes_per_observation < plain + 8
    off = np.zeros(1, bool)
    for t in range(40):
        obs, action, following = (
            np.full((1, *inner), value, kind)
            for inner, value, kind in (
                (shape, t, dtype),
                (action_shape, 2 * t, action_dtype),
                (shape, t + 1, dtype),
            )
        )
        buffer.add(Transitions(np.array([0]), obs, action, np.full(1, 0.5), following, off, off))
    batch = buffer.sample(6)
    assert batch.obs.shape == (4, 6, *shape)
    assert batch.action.shape == (3, 6, *action_shape)
    assert batch.obs.numpy().dtype == dtype
    assert batch.action.numpy().dtype == action_dtype
    times = batch.obs.reshape(4, 6, -1)[:, :, 0].long()
    assert torch.equal(times, times[0] + torch.arange(4)[:, None])
    assert set(times[0].tolist()) <= {27, 30, 33, 36}
    assert (batch.action.reshape(3, 6, -1) == 2 * times[:-1, :, None]).all()


def test_a_batch_stays_as_it_was_drawn():
    world, model, buffer = lived(40, Sizes(), masked=True)
    batch = contents(buffer)
    before = copy.deepcopy(batch)
    for _ in live(world, 60, model, buffer):
        pass
    assert_equal(batch, before)


# The memory before a chunk


def test_a_chunk_begins_with_the_memory_of_its_first_step():
    buffer = Sizes(1, 3, 2, 1, 20).buffer()
    world = World(1, ends=0.0)
    carry: dict[str, Any] = {"hidden": np.zeros((1, 2, 3), np.float32), "previous": np.zeros(1, np.int64)}
    for t in range(8):
        step = world.step(truncated=t == 7)
        carry["hidden"][:], carry["previous"][:] = t + 0.5, t  # the same arrays, written to again and again
        step.carry = carry if t != 4 else None
        buffer.add(step)
    batch = contents(buffer)
    assert keys_in(batch) == [(0, 0, 0, 3), (0, 0, 2, 3), (0, 0, 4, 3), (0, 0, 6, 2)]
    assert batch.state["previous"].tolist() == [0, 2, 0, 6]
    for chunk, value in enumerate([0.5, 2.5, 0.0, 6.5]):
        assert (batch.state["hidden"][chunk] == value).all()


def test_a_slot_that_is_used_again_forgets_its_memory():
    buffer = Sizes(1, 2, 2, 1, 3).buffer()
    world = World(1, ends=0.0)
    for _ in range(6):
        step = world.step()
        step.carry = {"hidden": np.ones((1, 2, 3)), "previous": np.ones(1, np.int64)}
        buffer.add(step)
    for _ in range(2):
        step = world.step()
        step.carry = None
        buffer.add(step)
    assert keys_in(contents(buffer)) == [(0, 0, 6, 2)]
    assert not contents(buffer).state["hidden"].any()
    assert not contents(buffer).state["previous"].any()


# What steps are worth


@pytest.mark.parametrize(
    ("ending", "after_last"), [("terminated", 0.0), ("truncated", 1.0), ("both", 0.0)], ids=str
)
def test_returns_by_hand(ending, after_last):
    buffer = Sizes(1, 3, 3, 2, 20).buffer(gamma=0.5)
    world = World(1, ends=0.0)
    for t in range(5):
        over = t == 4
        step = world.step(
            terminated=over and ending in ("terminated", "both"), truncated=over and ending != "terminated"
        )
        step.reward[:] = 10.0**t
        buffer.add(step)
    batch = contents(buffer)
    assert batch.mask.T.tolist() == [[True] * 3, [True, True, False]]
    # The first chunk ends inside the episode: its last step looks one step ahead and not two.
    assert batch.returns.T.tolist() == [[1 + 5, 10 + 50, 100], [1_000 + 5_000, 10_000, 0]]
    assert batch.discount.T.tolist() == [[0.25, 0.25, 0.5], [0.25 * after_last, 0.5 * after_last, 0.0]]
    assert batch.after.T.tolist() == [[2, 3, 3], [2, 2, 2]]
    assert batch.reward.T.tolist() == [[1, 10, 100], [1_000, 10_000, 0]]
    assert batch.obs[:, :, 2].T.tolist() == [[0, 1, 2, 3], [3, 4, 5, 5]]
    assert batch.starts.T.tolist() == [[True, False, False], [False] * 3]


def test_more_steps_ahead_than_a_chunk_has():
    buffer = Sizes(1, 3, 3, 9, 20).buffer(gamma=0.5)
    world = World(1, ends=0.0)
    for _ in range(3):
        step = world.step()
        step.reward[:] = 1.0
        buffer.add(step)
    batch = contents(buffer)
    assert batch.returns[:, 0].tolist() == [1.75, 1.5, 1.0]
    assert batch.discount[:, 0].tolist() == [0.125, 0.25, 0.5]
    assert batch.after[:, 0].tolist() == [3, 3, 3]


# Environments


def test_environments_may_step_at_unlike_times():
    own = Sizes(3, 3, 3, 1, 60)
    world, buffer = World(3, ends=0.0), own.buffer()
    for envs in ([0, 2], [2], [], [0, 1, 2], [0], [1]):
        buffer.add(world.step(envs))
    assert sorted(keys_in(contents(buffer))) == [(0, 0, 0, 3), (2, 0, 0, 3)]
    buffer.add(world.step([1], terminated=True))
    assert sorted(keys_in(contents(buffer))) == [(0, 0, 0, 3), (1, 0, 0, 3), (2, 0, 0, 3)]


@settings(max_examples=25)
@given(sizes(), SEEDS, st.integers(1, 60))
def test_an_interruption_is_a_truncation(own, seed, steps):
    worlds = [World(own.num_envs, 0.1, seed) for _ in range(2)]
    interrupted, truncated = own.buffer(), own.buffer()
    for number in range(steps):
        step, same = (world.step() for world in worlds)
        if number == steps - 1:
            same.truncated[:] = True
        interrupted.add(step)
        truncated.add(same)
    interrupted.interrupt()
    assert_equal(stand(interrupted), stand(truncated))
    interrupted.interrupt()  # nothing is under way any more
    assert_equal(stand(interrupted), stand(truncated))


# Action masks


def test_masks_take_no_memory_until_there_is_one(monkeypatch):
    world, _, buffer = lived(20, Sizes())
    assert contents(buffer).action_mask is None
    assert "masks" not in buffer.state_dict()
    world.masked = True
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 10)
    with pytest.raises(ConfigError, match="buffer_size: 30 transitions"):
        buffer.add(world.step())


def test_observations_without_a_mask_allow_every_action():
    own = Sizes(1, 4, 4, 1, 40)
    world, model, buffer = World(1, ends=0.0), own.model(), own.buffer()
    for number in range(12):
        world.masked = 6 <= number < 9
        feed(world.step(), model, buffer)
    batch = contents(buffer)
    assert batch.action_mask is not None
    assert batch.action_mask.shape == (5, 3, ACTIONS)
    assert batch.action_mask.dtype == torch.bool
    assert_holds_what_it_should(batch, model)
    shown = batch.action_mask.all(2).T.tolist()
    assert shown[0] == [True] * 5
    assert not all(shown[1])
    assert shown[2][-3:] == [True] * 3


def test_the_first_observation_of_an_episode_allows_every_action_also_where_a_mask_lay_before():
    own = Sizes(1, 2, 2, 1, 7)
    world, buffer = World(1, ends=0.0, masked=True), own.buffer()
    for number in range(30):
        step = world.step(terminated=number % 3 == 2)
        assert step.next_mask is not None
        step.next_mask[:] = np.arange(ACTIONS) == 1
        buffer.add(step)
        if len(buffer):
            batch = contents(buffer)
            assert batch.action_mask is not None
            assert batch.action_mask[0, batch.starts[0]].all()


def test_the_first_observation_of_an_episode_keeps_its_mask_where_one_is_known():
    own = Sizes(2, 2, 2, 1, 14)
    world, buffer = World(2, ends=0.0, masked=True), own.buffer()
    shown = np.arange(ACTIONS) == 2
    for number in range(30):
        step = world.step(terminated=number % 3 == 2)
        assert step.next_mask is not None
        step.next_mask[:], step.mask = np.arange(ACTIONS) == 1, np.stack([shown, ~shown])
        buffer.add(step)
    batch = contents(buffer)
    assert batch.action_mask is not None
    for mask, obs in zip(batch.action_mask[0, batch.starts[0]], batch.obs[0, batch.starts[0]], strict=True):
        assert np.array_equal(mask.numpy(), shown if obs[0] == 0 else ~shown)


# Drawing


def test_drawing_is_uniform_over_the_chunks():
    _, model, buffer = lived(150, Sizes(3, 5, 2, 1, 120), seed=3)
    chunks = model.chunks()
    assert len(chunks) > 25
    assert len({steps for *_, steps in chunks}) > 2
    keys, counts = np.unique(keys_in(buffer.sample(300 * len(chunks))), axis=0, return_counts=True)
    assert [tuple(key) for key in keys.tolist()] == chunks
    assert chisquare(counts).pvalue > 1e-3


def test_there_is_nothing_to_draw_before_a_chunk_is_complete():
    own = Sizes(1, 4, 4, 1, 5)
    world, buffer = World(1, ends=0.0), own.buffer()
    for _ in range(4):
        assert len(buffer) == buffer.steps == 0
        with pytest.raises(ValueError, match="no complete chunk"):
            buffer.sample(1)
        buffer.add(world.step())
    assert keys_in(buffer.sample(2)) == [(0, 0, 0, 4)] * 2
    buffer.add(world.step())  # overwrites its first observation
    assert len(buffer) == 0


def test_the_whole_batch_goes_to_the_device():
    own = Sizes()
    world, buffer = World(2, masked=True), own.buffer(device="meta")
    for _ in live(world, 30, buffer):
        pass
    batch = buffer.sample(3)
    tensors = [getattr(batch, part.name) for part in fields(batch)] + list(batch.state.values())
    kinds = [tensor.device.type for tensor in tensors if isinstance(tensor, torch.Tensor)]
    assert kinds == ["meta"] * (8 + 1 + 2)


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 1}, "length must be at least 2, got 1"),
        ({"length": 0, "period": None}, "length must be at least 2, got 0"),
        ({"period": 0}, "period must be from 1 to length=4, got 0"),
        ({"period": 5}, "period must be from 1 to length=4, got 5"),
        ({"capacity": 9}, "capacity 9 for 2 environments does not hold one chunk of 4 steps"),
        ({"capacity": 0}, "capacity 0 for 2"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(change, message):
    options: dict[str, Any] = {
        "capacity": 10,
        "obs_shape": (3,),
        "num_envs": 2,
        "length": 4,
        "period": 4,
        "state": STATE,
    }
    RecurrentReplayBuffer(**options)
    with pytest.raises(ValueError, match=message):
        RecurrentReplayBuffer(**{**options, **change})


def test_without_a_period_chunks_do_not_overlap():
    assert Sizes().buffer(period=None).period == 4


def test_a_buffer_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 1_000_000)
    # So large that an attempt to allocate it would end in a MemoryError.
    with pytest.raises(ConfigError, match=r"buffer_size: 10{15} .* the largest that fits is \d+$") as caught:
        RecurrentReplayBuffer(10**15, (3,), length=10, state=STATE)
    largest = int(str(caught.value).split()[-1])
    buffer = RecurrentReplayBuffer(largest, (3,), length=10, state=STATE)
    per_chunk = 2 * 3 * 4 + 8 + 3 * 8 + 1  # at worst there is one for every second observation
    assert 0.85 * 1_000_000 < buffer._rows.nbytes + largest / 2 * per_chunk <= 0.9 * 1_000_000


# The state


def as_read(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as a checkpoint gives it: with tensors for arrays."""
    return {
        name: as_read(value)
        if isinstance(value, dict)
        else torch.from_numpy(value.copy())
        if isinstance(value, np.ndarray)
        else copy.deepcopy(value)
        for name, value in state.items()
    }


@settings(max_examples=45)
@given(sizes(), ENDS, SEEDS, MASKED, MASKED, st.integers(0, 90))
def test_a_restored_buffer_goes_on_exactly_like_the_original(own, ends, seed, masked, later, steps):
    world, model, original = World(own.num_envs, ends, seed, masked), own.model(), own.buffer()
    for _ in live(world, steps, model, original):
        pass
    restored = lived(seed % 50, own, seed, masked=seed % 2 == 1)[2]  # of which no trace may remain
    restored._rng = copy.deepcopy(original._rng)
    restored.load_state_dict(as_read(original.state_dict()))
    assert_equal(stand(restored), stand(original))
    world.masked = later
    for _ in live(world, 25, model, original, restored):
        assert len(restored) == len(original)
        if len(original):
            batch = restored.sample(4)
            assert_equal(batch, original.sample(4))
            assert set(keys_in(batch)) <= set(model.chunks())
    # Rows that nobody wrote to since may hold what was there before; nobody reads them, either.
    assert_equal({**stand(restored), "rows": None}, {**stand(original), "rows": None})
    if len(restored):
        assert_holds_what_it_should(contents(restored), model)


def test_the_same_state_is_the_same_bytes():
    buffer = lived(40, Sizes())[2]
    states = []
    for filling in range(1, 6):
        states.append(copy.deepcopy(buffer.state_dict()["rows"]))
        _ = [np.full(size, filling, np.uint8) for size in range(64, 4_096, 64)]  # what was in memory before
    for state in states:
        assert_equal(state, states[0])


OWN = Sizes(2, 4, 2, 3, 30)
Damage = Callable[[dict[str, Any]], None]


@cache
def _full_state(kind: Any) -> dict[str, Any]:
    world, _, buffer = lived(60, OWN, kind=kind, masked=True)
    state = buffer.state_dict()
    while not (len(state["free"]) > 1 and len(open_slots(state)) > 2 and state["age"].min() > 2):
        feed(world.step(), buffer)
        state = buffer.state_dict()
    return state


def full_state(kind: Any = RecurrentReplayBuffer) -> dict[str, Any]:
    """A state with all there can be: masks, rows overwritten, chunks complete, under way and gone."""
    return copy.deepcopy(_full_state(kind))


def open_slots(state: Mapping[str, Any]) -> list[int]:
    return [slot for slot in np.flatnonzero(state["steps"] == 0).tolist() if slot not in state["free"]]


def put(name: str, value: Any, where: Any = 0) -> Damage:
    """Write a number into an array of the state; ``where`` may be found from the state."""

    def damage(state: dict[str, Any]) -> None:
        index = where(state) if callable(where) else where
        state[name][index] = value(state) if callable(value) else value

    return damage


def swap_of_env(name: str, change: Callable[[Any], Any], env: str = "1") -> Damage:
    """Put something else in place of what an entry of the state has for one environment."""
    return swap(name, lambda of_envs: {**of_envs, env: change(of_envs[env])})


def swap(name: str, change: Callable[[Any], Any]) -> Damage:
    """Put something else in place of an entry of the state."""

    def damage(state: dict[str, Any]) -> None:
        state[name] = change(state[name])

    return damage


def complete(state: Mapping[str, Any]) -> int:
    """The slot of the oldest chunk that is complete."""
    slots = np.flatnonzero(state["steps"])
    return int(slots[state["start"][slots].argmin()])


def drop(find: Callable[[Mapping[str, Any]], int]) -> Damage:
    """Say of a slot with a chunk that it is free."""

    def damage(state: dict[str, Any]) -> None:
        state["free"] = np.append(state["free"], find(state))

    return damage


def too_many(state: dict[str, Any]) -> None:
    for name in ("env", "start", "steps", "first"):
        state[name] = np.concatenate([state[name]] * 5)
    state["memory"] = {name: np.concatenate([array] * 5) for name, array in state["memory"].items()}


def newest(state: Mapping[str, Any], env: int = 0) -> int:
    """The last row that an environment has written."""
    return int(state["head"][env] - (state["age"][env] == 0))


def of_env_0(state: Mapping[str, Any]) -> int:
    return int(np.flatnonzero((state["steps"] > 0) & (state["env"] == 0))[0])


DAMAGES: dict[str, Damage] = {
    "capacity": swap("capacity", lambda capacity: capacity + 1),
    "no capacity": swap("capacity", lambda _: None),
    "head of another type": swap("head", lambda head: head.astype(np.int32)),
    "head of more environments": swap("head", lambda head: np.append(head, 40)),
    "negative head": put("head", -1),
    "head far back": put("head", 8),
    "head far ahead": put("head", 10**6),
    "age of another type": swap("age", lambda age: age.astype(float)),
    "age of fewer environments": swap("age", lambda age: age[:1]),
    "negative age": put("age", -1),
    "age above head": put("age", lambda state: state["head"][0] + 1),
    "rows of another type": swap_of_env("rows", lambda rows: rows.astype(np.int8)),
    "rows of more environments": swap("rows", lambda rows: {**rows, "2": rows["1"]}),
    "rows of fewer environments": swap("rows", lambda rows: {"0": rows["0"]}),
    "too few rows": swap_of_env("rows", lambda rows: rows[:-32]),
    "too many rows": swap_of_env("rows", lambda rows: np.tile(rows, 2)),
    "rows in a table": swap_of_env("rows", lambda rows: rows.reshape(2, -1)),
    "rows of nobody": swap("rows", lambda rows: rows["0"]),
    "environment that is none": put("env", 2, complete),
    "negative environment": put("env", -1, complete),
    "environments of another type": swap("env", lambda env: env.astype(np.int16)),
    "fewer environments than starts": swap("env", lambda env: env[:-1]),
    "negative start": put("start", -1, complete),
    "start ahead of the head": put("start", lambda state: int(state["head"].max()), complete),
    "start that was overwritten": put("start", lambda state: newest(state) - OWN.capacity // 2, of_env_0),
    "start far back": put("start", 0, complete),
    "starts of another type": swap("start", lambda start: start.astype(np.uint64)),
    "too many steps": put("steps", 5, complete),
    "negative steps": put("steps", -2, complete),
    "more steps than were made": put("start", lambda state: newest(state) - 3, of_env_0),
    "steps of another shape": swap("steps", lambda steps: steps[:, None]),
    "first of another type": swap("first", lambda first: first.astype(np.int8)),
    "free slots of another type": swap("free", lambda free: free.astype(float)),
    "free slots in a table": swap("free", lambda free: free[None]),
    "free slot given twice": swap("free", lambda free: np.append(free, free[-1])),
    "negative free slot": put("free", -1),
    "free slot beyond the used ones": put("free", lambda state: len(state["env"])),
    "free slot with a chunk": drop(complete),
    "memory without a part": swap("memory", lambda memory: {"hidden": memory["hidden"]}),
    "memory with one more part": swap("memory", lambda memory: {**memory, "cell": memory["hidden"]}),
    "memory of another type": swap(
        "memory", lambda memory: {**memory, "hidden": memory["hidden"].astype(np.float64)}
    ),
    "memory of another shape": swap(
        "memory", lambda memory: {**memory, "hidden": memory["hidden"].transpose(0, 2, 1)}
    ),
    "masks of another type": swap_of_env("masks", lambda masks: masks.astype(np.int8)),
    "masks of one environment": swap("masks", lambda masks: {"0": masks["0"]}),
    "masks of fewer rows": swap_of_env("masks", lambda masks: masks[1:]),
    "masks of fewer actions": swap_of_env("masks", lambda masks: masks[:, 1:]),
    "masks without actions": swap_of_env("masks", lambda masks: masks[:, 0]),
    "more slots than there are": too_many,
    # What is under way follows from the head and the age, and what is complete later follows from that.
    "age one more": put("age", lambda state: state["age"][0] + 1),
    "age one less": put("age", lambda state: state["age"][0] - 1),
    "age that says nothing is under way": put("age", 0),
    "chunk under way that is free": drop(lambda state: open_slots(state)[0]),
    "chunk under way that begins elsewhere": put(
        "start", lambda state: state["start"][open_slots(state)[0]] - 1, lambda state: open_slots(state)[0]
    ),
    "chunk under way that is none": swap("free", lambda free: free[:-1]),
    "complete chunk that is under way": put("steps", 0, complete),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    buffer = lived(33, OWN, 5)[2]
    before, state = stand(buffer), full_state()
    damage(state)
    with pytest.raises(CheckpointError, match=r"^replay: "):
        buffer.load_state_dict(state)
    assert_equal(stand(buffer), before)


@pytest.mark.parametrize(
    "name",
    ["capacity", "rows", "head", "age", "free", "env", "start", "steps", "first", "memory", "masks"],
)
def test_a_state_without_a_part_is_refused(name):
    buffer = lived(33, OWN, 5)[2]
    before, state = stand(buffer), full_state()
    del state[name]
    if name == "masks":  # then there were none
        buffer.load_state_dict(state)
        assert contents(buffer).action_mask is None
        return
    with pytest.raises((CheckpointError, KeyError)):
        buffer.load_state_dict(state)
    assert_equal(stand(buffer), before)


def test_a_chunk_from_before_the_first_row_is_refused():
    world, buffer = World(1, ends=0.0), Sizes(1, 2, 2, 1, 20).buffer()
    for _ in range(4):
        buffer.add(world.step())
    state = copy.deepcopy(buffer.state_dict())
    state["start"][0] = -1
    with pytest.raises(CheckpointError, match="chunks do not fit"):
        buffer.load_state_dict(state)


def assert_reads_only_what_is_there(buffer: RecurrentReplayBuffer) -> None:
    state = buffer.state_dict()
    for slot in buffer._drawable():
        last = newest(state, state["env"][slot])
        assert last - buffer.capacity // buffer.num_envs < state["start"][slot]
        assert state["start"][slot] + state["steps"][slot] <= last


def test_a_number_that_was_changed_is_refused_or_does_no_harm():
    rng = np.random.default_rng(0)
    states = []
    for seed in range(12):
        world, _, buffer = lived(20 + 5 * seed, OWN, seed, ends=0.15)
        states.append((world, buffer.state_dict()))
    refused = 0
    for number in range(400):
        world, state = copy.deepcopy(states[number % 12])
        name = rng.choice(["head", "age", "env", "start", "steps", "free"])
        if not len(state[name]):
            continue
        state[name][rng.integers(len(state[name]))] += rng.choice([-20, -5, -2, -1, 1, 2, 5, 20])
        buffer = OWN.buffer()
        try:
            buffer.load_state_dict(state)
        except CheckpointError:
            refused += 1
            continue
        assert_reads_only_what_is_there(buffer)
        for _ in live(world, 20, buffer):
            assert_reads_only_what_is_there(buffer)
        buffer.sample(3)
    assert refused > 200


@pytest.mark.parametrize("change", [{"length": 5}, {"length": 3}, {"period": 1}, {"period": 4}])
def test_a_state_of_another_division_does_no_harm(change):
    """Chunks that are complete are as good as ever; those under way do not go on."""
    world = lived(60, OWN, ends=0.05)
    other = OWN.buffer(**change)
    try:
        other.load_state_dict(world[2].state_dict())
    except CheckpointError:
        return
    assert_reads_only_what_is_there(other)
    for _ in live(world[0], 30, other):
        assert_reads_only_what_is_there(other)
