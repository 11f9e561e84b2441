"""Replay of sequences that keeps the newest frame of each stack, against the one that keeps stacks whole."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.image_replay import GAMMA, ImageWorld, live
from helpers.recurrent_replay import assert_equal
from rl_training.data import PrioritizedRecurrentReplayBuffer, RecurrentReplayBuffer, Transitions
from rl_training.errors import CheckpointError, ConfigError, EnvError

STATE = {"hidden": ((2,), np.float32)}


class Remembering:
    """Hands steps on with a memory, the same to all."""

    def __init__(self, world: ImageWorld, *buffers: Any) -> None:
        self.world, self.buffers = world, list(buffers)

    def add(self, step: Transitions) -> None:
        step.carry = {"hidden": self.world.rng.normal(size=(len(step), 2)).astype(np.float32)}
        for buffer in self.buffers:
            buffer.add(copy.deepcopy(step))

    def interrupt(self) -> None:
        for buffer in self.buffers:
            buffer.interrupt()


def pair(own: dict[str, Any], kind: Any = RecurrentReplayBuffer) -> tuple[ImageWorld, Any, Any]:
    """Return a world, and the buffers with newest frames and with whole stacks."""
    world = ImageWorld(**own["world"])
    options = {"state": STATE, "num_envs": world.num_envs, "obs_dtype": world.dtype, "gamma": GAMMA}
    options = {**options, **own["chunks"]}
    stacked = kind(own["capacity"], world.shape, stack=world.stack, rng=np.random.default_rng(1), **options)
    whole = kind(own["capacity"], world.shape, rng=np.random.default_rng(1), **options)
    return world, stacked, whole


@st.composite
def lives(draw: Any) -> dict[str, Any]:
    num_envs, length, stack = draw(st.integers(1, 3)), draw(st.integers(2, 6)), draw(st.integers(2, 4))
    share = length + stack + draw(st.integers(0, 25))
    world = {
        "num_envs": num_envs,
        "stack": stack,
        "frame": draw(st.sampled_from([(2, 3), (2, 2, 2)])),
        "dtype": draw(st.sampled_from([np.uint8, np.bool_])),
        "padding": draw(st.sampled_from(["reset", "zeros"])),
        "ends": draw(st.sampled_from([0.02, 0.15, 0.5])),
        "masked": draw(st.sampled_from([False, "at times"])),
        "seed": draw(st.integers(0, 10_000)),
    }
    chunks = {"length": length, "period": draw(st.integers(1, length)), "n_step": draw(st.integers(1, 3))}
    return {"world": world, "chunks": chunks, "capacity": share * num_envs}


OWN = {
    "world": {"num_envs": 2, "stack": 3, "padding": "zeros", "seed": 4},
    "chunks": {"length": 4, "period": 2, "n_step": 3},
    "capacity": 40,
}


@settings(max_examples=80, deadline=None)
@given(lives())
def test_chunks_are_bit_for_bit_those_with_whole_stacks(own: dict[str, Any]) -> None:
    world, stacked, whole = pair(own)
    most = 0
    for _ in live(world, 90, Remembering(world, stacked, whole)):
        mine, theirs = places(stacked), places(whole)
        lost = stacked._head - (stacked._age == 0) - stacked._share  # the newest row that is overwritten
        expected = set()
        for env, start in theirs:
            age = next(row.age for row in world.steps[env] if row.number == start)
            if start - min(age, world.stack - 1) > lost[env]:
                expected.add((env, start))
        assert mine.keys() == expected
        most = max(most, len(mine))
        if mine:
            slots = np.array([theirs[key] for key in mine])
            one, other = stacked.gather(np.array([*mine.values()])), whole.gather(slots)
            one.indices = other.indices = None
            assert_equal(one, other)
    assert most > 0


def places(buffer: Any) -> dict[tuple[int, int], int]:
    """Return the slots of the chunks that can be drawn, by environment and first row."""
    return {(int(buffer._env[s]), int(buffer._start[s])): int(s) for s in buffer._drawable()}


@pytest.mark.parametrize("kind", [RecurrentReplayBuffer, PrioritizedRecurrentReplayBuffer])
@settings(max_examples=30, deadline=None)
@given(own=lives())
def test_a_restored_buffer_goes_on_exactly_like_the_original(kind: Any, own: dict[str, Any]) -> None:
    world, original, _ = pair(own, kind)
    everyone = Remembering(world, original)
    for number in live(world, 70, everyone):
        if number % 17 == 0:
            other, restored, _ = pair(own, kind)
            for _ in live(other, 9, Remembering(other, restored)):  # of which no trace may remain
                pass
            restored.load_state_dict(copy.deepcopy(original.state_dict()))
            everyone.buffers.append(restored)
        if len(original):
            for buffer in everyone.buffers:
                buffer._rng = np.random.default_rng(number)
            one, *others = [buffer.sample(3) for buffer in everyone.buffers]
            for same in others:
                assert_equal(same, one)
    for buffer in everyone.buffers:
        assert_equal({**buffer.state_dict(), "rows": None}, {**original.state_dict(), "rows": None})


def test_it_takes_a_fraction_of_the_memory() -> None:
    chunks: dict[str, Any] = {"length": 8, "state": {}, "obs_dtype": np.uint8}
    stacked = RecurrentReplayBuffer(1_000, (4, 84, 84), stack=4, **chunks)
    whole = RecurrentReplayBuffer(1_000, (4, 84, 84), **chunks)
    assert stacked._rows.nbytes <= 0.26 * whole._rows.nbytes
    assert stacked.bytes_per_observation == stacked._rows.nbytes // 1_000


def test_the_memory_of_stacked_chunks_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 1_000_000)
    per_chunk = 3 * 8 + 1 + 8  # where each lies, and how many frames before it are needed

    def buffer(capacity: int) -> RecurrentReplayBuffer:
        return RecurrentReplayBuffer(capacity, (2, 4, 4), stack=2, length=4, state={}, obs_dtype=np.uint8)

    with pytest.raises(ConfigError, match=r"the largest that fits is \d+$") as caught:
        buffer(10**9)
    largest = int(str(caught.value).split()[-1])
    taken = buffer(largest)._rows.nbytes + largest / 2 * per_chunk
    assert 0.88 * 1_000_000 < taken <= 0.9 * 1_000_000


def test_stacks_that_are_none_are_refused_without_a_trace() -> None:
    world, stacked, _ = pair(OWN)
    for _ in live(world, 9, Remembering(world, stacked)):
        pass
    before = copy.deepcopy(stacked.state_dict())
    step = world.step()
    step.next_obs[1, 0] ^= 1
    with pytest.raises(EnvError, match=r"env 1: observations of shape .* are taken for 3 stacked frames"):
        stacked.add(step)
    assert_equal(stacked.state_dict(), before)


def test_a_share_that_holds_no_chunk_with_its_first_stack_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algo_kwargs.buffer_size: 13 for 2 .* the least is 14"):
        pair({**OWN, "capacity": 13})
    world, stacked, _ = pair({**OWN, "capacity": 14})
    for _ in live(world, 60, Remembering(world, stacked)):
        pass
    assert len(stacked) > 0


def test_the_state_holds_nothing_of_stacks_where_there_are_none() -> None:
    _, stacked, whole = pair(OWN)
    assert stacked.state_dict().keys() - whole.state_dict().keys() == {"before"}


def test_states_that_do_not_fit_are_refused() -> None:
    world, stacked, _ = pair(OWN)
    everyone = Remembering(world, stacked)
    for _ in live(world, 60, everyone):
        pass
    while not (stacked._age > 2).all():
        everyone.add(world.step(ends=0.0))
    good = stacked.state_dict()
    taken = np.setdiff1d(np.arange(len(good["env"])), good["free"])
    later = [s for s in taken if not good["first"][s] and good["steps"][s]]
    under_way = [s for s in taken if not good["first"][s] and not good["steps"][s]]
    begin = [s for s in taken if good["first"][s]]
    assert later
    assert under_way
    assert begin
    for slot, value in ((later[0], 3), (later[0], -1), (later[0], 1), (under_way[0], 1), (begin[0], 1)):
        before = good["before"].copy()
        before[slot] = value
        with pytest.raises(CheckpointError, match="chunks do not fit"):
            pair(OWN)[1].load_state_dict({**good, "before": before})
    with pytest.raises(CheckpointError, match="before is "):
        pair(OWN)[1].load_state_dict({**good, "before": good["before"][1:]})
    with pytest.raises(CheckpointError, match="padding 'mirror'"):
        pair(OWN)[1].load_state_dict({**good, "padding": "mirror"})
    again = pair(OWN)[1]
    again.load_state_dict(good)
    assert torch.equal(again.gather(np.array(later)).obs, stacked.gather(np.array(later)).obs)
