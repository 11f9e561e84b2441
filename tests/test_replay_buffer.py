"""The replay buffer: a ring of whole transitions, sampled uniformly, saved exactly, within memory."""

from __future__ import annotations

import copy
from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from rl_training.data import Batch, ReplayBuffer
from rl_training.errors import CheckpointError, ConfigError
from rl_training.spaces import Array


def numbered(
    ids, shape=(2,), dtype=np.float32, action_shape=(), action_dtype=np.int64
) -> tuple[Array, Array, Array, Array, Array]:
    """Transitions of which every field tells the number, each in its own way."""
    ids = np.asarray(ids, np.int64)

    def spread(values, inner, kind):
        return np.broadcast_to(values.reshape(-1, *[1] * len(inner)), (len(ids), *inner)).astype(kind)

    return (
        spread(ids, shape, dtype),
        spread(2 * ids, action_shape, action_dtype),
        3.0 * ids,
        4.0 * ids,
        spread(ids + 1, shape, dtype),
    )


def ids_in(batch: Batch) -> list[int]:
    """The numbers of the rows, after checking that all fields of a row agree on it."""
    ids = (batch.reward / 3).long()
    assert torch.equal(batch.reward, 3.0 * ids)
    assert torch.equal(batch.discount, 4.0 * ids)
    for field, value in ((batch.obs, ids), (batch.action, 2 * ids), (batch.next_obs, ids + 1)):
        assert torch.equal(field.long(), value.reshape(-1, *[1] * (field.ndim - 1)).expand(field.shape))
    return ids.tolist()


def contents(buffer: ReplayBuffer) -> list[int]:
    return ids_in(buffer.gather(np.arange(len(buffer))))


def filled(count, capacity=10, seed=0, **kwargs) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, (2,), rng=np.random.default_rng(seed), **kwargs)
    buffer.add(*numbered(range(count)))
    return buffer


@given(capacity=st.integers(1, 8), counts=st.lists(st.integers(0, 20), max_size=12))
def test_ring_holds_the_newest_rows_as_a_list_would(capacity, counts):
    buffer = ReplayBuffer(capacity, (2,))
    model: deque[int] = deque(maxlen=capacity)
    number = 0
    for count in counts:
        ids = range(number, number + count)
        buffer.add(*numbered(ids))
        model.extend(ids)
        number += count
        assert len(buffer) == len(model)
        assert sorted(contents(buffer)) == list(model)


@given(capacity=st.integers(1, 8), counts=st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_samples_are_whole_rows_that_are_still_kept(capacity, counts):
    buffer = ReplayBuffer(capacity, (2,), rng=np.random.default_rng(0))
    for start, count in zip(np.cumsum([0, *counts]), counts, strict=False):
        buffer.add(*numbered(range(start, start + count)))
    newest = range(max(0, sum(counts) - capacity), sum(counts))
    assert set(ids_in(buffer.sample(32))) <= set(newest)


@pytest.mark.parametrize(
    ("shape", "dtype", "action_shape", "action_dtype"),
    [
        ((), np.float32, (), np.int64),
        ((5,), np.float64, (3,), np.float32),
        ((3, 8, 6), np.uint8, (), np.int64),
        ((2, 3), np.int8, (2,), np.float32),
        ((7,), np.float16, (1,), np.float32),
    ],
)
def test_fields_keep_shape_and_dtype_through_a_wrap(shape, dtype, action_shape, action_dtype):
    buffer = ReplayBuffer(6, shape, dtype, action_shape, action_dtype)
    for start in (0, 4, 8):
        rows = numbered(range(start, start + 4), shape, dtype, action_shape, action_dtype)
        buffer.add(*rows)
    batch = buffer.sample(3)
    assert batch.obs.shape == batch.next_obs.shape == (3, *shape)
    assert batch.action.shape == (3, *action_shape)
    assert batch.reward.shape == batch.discount.shape == (3,)
    assert batch.obs.numpy().dtype == batch.next_obs.numpy().dtype == dtype
    assert batch.action.numpy().dtype == action_dtype
    assert batch.reward.dtype == batch.discount.dtype == torch.float32
    assert sorted(contents(buffer)) == [6, 7, 8, 9, 10, 11]


def test_images_are_stored_as_bytes_and_come_back_unchanged():
    rng = np.random.default_rng(0)
    obs, next_obs = rng.integers(0, 256, (2, 5, 3, 16, 16), dtype=np.uint8)
    buffer = ReplayBuffer(5, (3, 16, 16), np.uint8)
    buffer.add(obs, np.arange(5), np.zeros(5), np.ones(5), next_obs)
    batch = buffer.gather(np.arange(5))
    assert batch.obs.dtype == torch.uint8
    assert np.array_equal(batch.obs.numpy(), obs)
    assert np.array_equal(batch.next_obs.numpy(), next_obs)
    assert buffer.bytes_per_transition < 2 * obs[0].nbytes + 20


def test_a_batch_does_not_change_when_its_rows_are_overwritten():
    buffer = filled(10)
    batch = buffer.gather(np.arange(10))
    buffer.add(*numbered(range(10, 20)))
    assert ids_in(batch) == list(range(10))


@pytest.mark.parametrize("count", [20, 33, 50, 95])
def test_sampling_is_uniform_over_the_rows_kept(count):
    buffer = filled(count, capacity=50)
    kept = min(count, 50)
    drawn = np.array(ids_in(buffer.sample(200 * kept))) - (count - kept)
    assert chisquare(np.bincount(drawn, minlength=kept)).pvalue > 1e-3


def test_an_empty_buffer_has_nothing_to_sample():
    with pytest.raises(ValueError, match="empty"):
        ReplayBuffer(3, (2,)).sample(1)


@pytest.mark.parametrize("count", [0, 4, 10, 17])
def test_a_restored_buffer_goes_on_exactly_like_the_original(count):
    original = filled(count, seed=7)
    restored = ReplayBuffer(10, (2,), rng=np.random.default_rng(7))
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    assert contents(restored) == contents(original)
    for start in (100, 103, 110):
        for buffer in (original, restored):
            buffer.add(*numbered(range(start, start + 3)))
        assert contents(restored) == contents(original)
        assert ids_in(restored.sample(16)) == ids_in(original.sample(16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": 11}, "capacity is 11, the config says 10"),
        ({"rows": torch.zeros(4, 8, dtype=torch.uint8)}, "rows of 32 bytes expected"),
        ({"rows": torch.zeros(4, 32)}, "rows of 32 bytes expected"),
        ({"rows": torch.zeros(11, 32, dtype=torch.uint8)}, "11 rows and position 4 do not fit"),
        ({"next": 7}, "4 rows and position 7 do not fit"),
        ({"next": -1}, "4 rows and position -1 do not fit"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, message):
    buffer = filled(4)
    with pytest.raises(CheckpointError, match=message):
        buffer.load_state_dict({**buffer.state_dict(), **change})
    assert contents(buffer) == [0, 1, 2, 3]


def test_a_buffer_beyond_memory_is_refused_with_the_largest_capacity_that_fits(monkeypatch):
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 1_000_000)
    # So large that an attempt to allocate it would end in a MemoryError.
    with pytest.raises(
        ConfigError, match=r"algo_kwargs\.buffer_size: 10{16} .* the largest that fits is \d+$"
    ) as caught:
        ReplayBuffer(10**16, (2,))
    largest = int(str(caught.value).split()[-1])
    assert 0 < largest * filled(0).bytes_per_transition <= 1_000_000
    assert len(ReplayBuffer(largest, (2,)).storage) == largest
    with pytest.raises(ConfigError, match=f"fits is {largest}$"):
        ReplayBuffer(largest + 1, (2,))


@pytest.mark.parametrize(
    ("shape", "dtype", "action_shape", "action_dtype"),
    [
        ((4,), np.float32, (), np.int64),
        ((8,), np.float32, (), np.int64),
        ((3,), np.float32, (1,), np.float32),
        ((17,), np.float64, (6,), np.float32),
        ((84, 84, 1), np.uint8, (), np.int64),
        ((9, 84, 84), np.uint8, (2,), np.float32),
    ],
)
def test_a_transition_takes_hardly_more_than_the_bytes_of_its_fields(
    shape, dtype, action_shape, action_dtype
):
    buffer = ReplayBuffer(4, shape, dtype, action_shape, action_dtype)
    obs, action, _, _, next_obs = numbered([0], shape, dtype, action_shape, action_dtype)
    fields = obs.nbytes + next_obs.nbytes + action.nbytes + 4 + 4
    assert fields <= buffer.bytes_per_transition <= 1.05 * fields
    assert buffer.storage.nbytes == 4 * buffer.bytes_per_transition


# Action masks

ACTIONS = 5


def masks_of(ids) -> np.ndarray:
    """A mask per number, telling it in binary."""
    return (np.asarray(ids, np.int64)[:, None] >> np.arange(ACTIONS)) % 2 == 1


def add_masked(buffer: ReplayBuffer, ids) -> None:
    buffer.add(*numbered(ids), masks_of(ids))


def assert_masks_follow_their_rows(batch: Batch) -> None:
    assert batch.next_mask is not None
    assert batch.next_mask.dtype == torch.bool
    assert np.array_equal(batch.next_mask.numpy(), masks_of(ids_in(batch)))


@given(capacity=st.integers(1, 8), counts=st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_masks_follow_their_rows_around_the_ring(capacity, counts):
    buffer = ReplayBuffer(capacity, (2,), rng=np.random.default_rng(0))
    for start, count in zip(np.cumsum([0, *counts]), counts, strict=False):
        add_masked(buffer, range(start, start + count))
        assert_masks_follow_their_rows(buffer.gather(np.arange(len(buffer))))
    if len(buffer):
        assert_masks_follow_their_rows(buffer.sample(32))


def test_masks_take_no_memory_until_there_is_one(monkeypatch):
    buffer = filled(4)
    assert buffer.gather(np.arange(4)).next_mask is None
    assert "next_masks" not in buffer.state_dict()
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 10)
    with pytest.raises(ConfigError, match="buffer_size: 10 transitions"):
        add_masked(buffer, [4])
    assert contents(buffer) == [0, 1, 2, 3]


def test_rows_without_a_mask_allow_every_action():
    buffer = filled(4)

    def next_masks() -> Array:
        batch = buffer.gather(np.arange(len(buffer)))
        assert batch.next_mask is not None
        return batch.next_mask.numpy()

    add_masked(buffer, [4, 5])
    expected = np.concatenate([np.ones((4, ACTIONS), bool), masks_of([4, 5])])
    assert np.array_equal(next_masks(), expected)
    add_masked(buffer, range(6, 10))
    buffer.add(*numbered(range(10, 17)))
    expected = np.concatenate([np.ones((7, ACTIONS), bool), masks_of([7, 8, 9])])
    assert np.array_equal(next_masks(), expected)


@pytest.mark.parametrize("count", [0, 4, 10, 17])
def test_masks_are_restored_exactly(count):
    original, restored = (ReplayBuffer(10, (2,), rng=np.random.default_rng(7)) for _ in range(2))
    add_masked(original, range(count))
    state = original.state_dict()
    as_read = {"next_masks": torch.from_numpy(state["next_masks"].copy())}  # as a checkpoint gives it
    restored.load_state_dict({**copy.deepcopy(state), **as_read})
    for start in (18, 21, 28):
        for buffer in (original, restored):
            add_masked(buffer, range(start, start + 3))
        batch = restored.sample(16)
        assert_masks_follow_their_rows(batch)
        assert ids_in(batch) == ids_in(original.sample(16))


def test_a_state_without_masks_takes_them_away():
    buffer = ReplayBuffer(10, (2,))
    add_masked(buffer, range(4))
    buffer.load_state_dict(filled(4).state_dict())
    assert buffer.gather(np.arange(4)).next_mask is None


@pytest.mark.parametrize(
    "masks",
    [torch.ones(4, ACTIONS), torch.ones(3, ACTIONS, dtype=torch.bool), torch.ones(4, dtype=torch.bool)],
    ids=["dtype", "rows", "dimensions"],
)
def test_masks_that_do_not_fit_are_refused(masks):
    buffer = filled(4)
    with pytest.raises(CheckpointError, match=r"masks are .*, not bool with 4 rows"):
        buffer.load_state_dict({**buffer.state_dict(), "next_masks": masks})
    assert contents(buffer) == [0, 1, 2, 3]
    assert buffer.gather(np.arange(4)).next_mask is None


def test_the_whole_batch_goes_to_the_device():
    buffer = ReplayBuffer(4, (2,), device="meta")
    add_masked(buffer, range(4))
    batch = buffer.sample(3)
    assert batch.next_mask is not None
    tensors = (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs, batch.next_mask)
    keeping = ReplayBuffer(4, (2,), device="meta", keep_masks=True)
    keeping.add(*numbered(range(4)), masks_of(range(4)), masks_of(range(4)))
    kept = keeping.sample(3).mask
    assert kept is not None
    assert kept.device.type == "meta"
    assert [tensor.device.type for tensor in tensors] == ["meta"] * 6


def test_masks_of_obs_are_kept_only_where_that_is_asked_for():
    keeping, plain = (ReplayBuffer(6, (2,), keep_masks=keep) for keep in (True, False))
    for buffer in (keeping, plain):
        buffer.add(*numbered(range(9)), masks_of(range(9)), masks_of(range(10, 19)))
    batch = keeping.gather(np.arange(6))
    assert_masks_follow_their_rows(batch)
    assert batch.mask is not None
    assert np.array_equal(batch.mask.numpy(), masks_of([number + 10 for number in ids_in(batch)]))
    assert plain.gather(np.arange(6)).mask is None
    assert "masks" not in plain.state_dict()
    restored = ReplayBuffer(6, (2,), keep_masks=True)
    restored.load_state_dict(copy.deepcopy(keeping.state_dict()))
    again = restored.gather(np.arange(6))
    assert again.mask is not None
    assert np.array_equal(again.mask.numpy(), batch.mask.numpy())
    with pytest.raises(CheckpointError, match=r"masks are .*, not bool with 6 rows"):
        keeping.load_state_dict({**keeping.state_dict(), "masks": np.ones((6, ACTIONS))})
