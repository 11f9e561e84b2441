"""Prioritized replay of sequences: how often, with which weights, which feedback counts, and what is saved."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from helpers.recurrent_replay import (
    ENDS,
    SEEDS,
    Key,
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
from rl_training.data import PrioritizedRecurrentReplayBuffer, SequenceBatch
from rl_training.errors import CheckpointError
from rl_training.spaces import Array
from test_recurrent_replay_buffer import (
    DAMAGES,
    OWN,
    Damage,
    as_read,
    complete,
    full_state,
    open_slots,
    put,
    swap,
)

ALPHA, EPS = 0.7, 0.5  # an eps this large shows where it stands
ERRORS = np.random.default_rng(5).gamma(0.5, 2.0, 23)


def make(own: Sizes, **options: Any) -> PrioritizedRecurrentReplayBuffer:
    return own.buffer(PrioritizedRecurrentReplayBuffer, **{"alpha": ALPHA, "eps": EPS, **options})


def filled(count: int, **options: Any) -> tuple[World, PrioritizedRecurrentReplayBuffer]:
    """A buffer with ``count`` chunks of two steps, and room for two more, and its world."""
    world, buffer = World(1, ends=0.0), make(Sizes(1, 2, 2, 1, 2 * count + 5), **options)
    for _ in range(2 * count):
        buffer.add(world.step())
    return world, buffer


def numbers_of(batch: SequenceBatch) -> Array:
    """Which of the chunks of ``filled`` are in a batch, counted from the first."""
    return batch.obs[0, :, 2].long().numpy() // 2


def indices_of(batch: SequenceBatch) -> Array:
    assert batch.indices is not None
    return batch.indices


def with_errors(errors: Any, **options: Any) -> tuple[World, PrioritizedRecurrentReplayBuffer, Array]:
    """A buffer whose chunks have these errors; return also their indices."""
    world, buffer = filled(len(errors), **options)
    batch = buffer.sample(len(errors))  # new ones are alike, so that each comes once
    assert numbers_of(batch).tolist() == list(range(len(errors)))
    buffer.update_priorities(indices_of(batch), np.asarray(errors, float))
    return world, buffer, indices_of(batch)


def powers(errors: Any, alpha: float = ALPHA, eps: float = EPS) -> Array:
    return (np.asarray(errors, float) + eps) ** alpha


def shares(buffer: PrioritizedRecurrentReplayBuffer) -> Array:
    """The probabilities of all chunks, by their numbers."""
    slots = buffer._drawable()
    order = np.argsort(numbers_of(buffer.gather(slots)))
    return buffer.priorities.tree.values[slots[order]] / buffer.priorities.tree.total


# How often and with which weights


@pytest.mark.parametrize(("alpha", "eps"), [(0.7, 0.5), (1.0, 0.01), (0.0, 0.5)])
def test_probabilities_are_the_powers_of_error_plus_eps(alpha, eps):
    _, buffer, _ = with_errors(ERRORS, alpha=alpha, eps=eps)
    expected = powers(ERRORS, alpha, eps)
    assert shares(buffer) == pytest.approx(expected / expected.sum(), rel=1e-12)


def test_single_draws_occur_as_often_as_their_probabilities():
    _, buffer, _ = with_errors(ERRORS)
    draws = np.concatenate([numbers_of(buffer.sample(1)) for _ in range(4_000)])
    expected = powers(ERRORS) / powers(ERRORS).sum()
    assert chisquare(np.bincount(draws, minlength=23), 4_000 * expected).pvalue > 1e-3


@pytest.mark.parametrize("size", [2, 16, 64])
def test_a_batch_holds_each_chunk_as_often_as_it_should_to_within_two(size):
    _, buffer, _ = with_errors(ERRORS)
    expected = size * powers(ERRORS) / powers(ERRORS).sum()
    for _ in range(100):
        counts = np.bincount(numbers_of(buffer.sample(size)), minlength=23)
        assert (np.abs(counts - expected) < 2.0).all()


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_the_paper_s_divided_by_the_largest_of_the_batch(beta):
    _, buffer, _ = with_errors(ERRORS)
    batch = buffer.sample(8, beta=beta)
    plain = (23 * powers(ERRORS) / powers(ERRORS).sum())[numbers_of(batch)] ** -beta
    assert batch.weight is not None
    assert batch.weight.dtype == torch.float32
    assert batch.weight.shape == (8,)
    assert batch.weight.numpy() == pytest.approx(plain / plain.max(), rel=1e-6)
    assert (len(set(batch.weight.tolist())) == 1) == (beta == 0.0)


def test_a_new_chunk_gets_the_largest_priority_there_ever_was():
    world, buffer, indices = with_errors([0.1, 0.2, 9.0, 0.3])
    buffer.update_priorities(indices, np.full(4, 0.01))  # the largest is history now
    buffer.add(world.step())
    assert len(buffer) == 4
    buffer.add(world.step())
    expected = powers([0.01, 0.01, 0.01, 0.01, 9.0])
    assert shares(buffer) == pytest.approx(expected / expected.sum())


def test_the_first_priority_is_one_and_small_errors_do_not_lower_it():
    world, buffer, _ = with_errors([0.1, 0.1])
    feed(world.step(), buffer)
    feed(world.step(), buffer)
    expected = np.array([0.6**ALPHA, 0.6**ALPHA, 1.0])
    assert shares(buffer) == pytest.approx(expected / expected.sum())


# Which feedback counts


@settings(max_examples=40)
@given(sizes(), ENDS, SEEDS)
def test_whatever_happens_it_agrees_with_a_table(own, ends, seed):
    world, model, buffer = World(own.num_envs, ends, seed), own.model(), make(own)
    table: dict[Key, float] = {}
    names: dict[int, Key] = {}  # all that were ever drawn
    largest, rng, tree = 1.0, np.random.default_rng(seed), buffer.priorities.tree
    for _ in live(world, 4 * own.capacity // own.num_envs, model, buffer):
        chunks = model.chunks()
        for key in chunks:
            table.setdefault(key, largest)
        assert len(buffer) == len(chunks)
        assert np.array_equal(np.flatnonzero(tree.values), buffer._drawable()), "others are never drawn"
        if not chunks:
            continue
        values = [table[key] for key in keys_in(contents(buffer))]
        assert tree.values[buffer._drawable()] == pytest.approx(values, rel=1e-12)

        batch = buffer.sample(12, beta=0.6)
        drawn = keys_in(batch)
        assert set(drawn) <= set(chunks)
        weight = np.array([table[key] for key in drawn]) ** -0.6
        assert batch.weight is not None
        assert batch.weight.numpy() == pytest.approx(weight / weight.max(), rel=1e-6)
        for index, key in zip(indices_of(batch).tolist(), drawn, strict=True):
            assert names.setdefault(index, key) == key
        assert len(set(names.values())) == len(names), "an index names one chunk, a chunk has one index"

        given = rng.choice(list(names), 6)
        errors = rng.gamma(0.5, 2.0, 6)
        buffer.update_priorities(given, errors)
        for index, error in zip(given.tolist(), errors, strict=True):
            if names[index] in chunks:
                table[names[index]] = float(powers(error))
                largest = max(largest, table[names[index]])
    if len(buffer):
        assert_holds_what_it_should(buffer.sample(20), model)


@pytest.mark.parametrize("more", range(1, 12))
def test_a_priority_that_comes_too_late_is_ignored(more):
    world, buffer, indices = with_errors([1.0, 2.0, 3.0, 4.0])
    for _ in range(more):
        buffer.add(world.step())
    before = dict(zip(numbers_of(contents(buffer)).tolist(), buffer._drawable().tolist(), strict=True))
    values = buffer.priorities.tree.values.copy()
    buffer.update_priorities(indices, np.full(4, 1e6))
    changed = np.flatnonzero(values != buffer.priorities.tree.values).tolist()
    kept = [number for number in range(4) if number in before]
    assert sorted(changed) == sorted(before[number] for number in kept)
    assert (buffer.priorities.largest > 1_000) == bool(kept), "nor does it count for new ones"
    assert kept == [number for number in range(4) if 2 * number > more - 5]


def test_of_an_index_that_comes_twice_the_last_priority_counts_and_tensors_will_do():
    _, buffer, indices = with_errors([1.0, 1.0, 1.0])
    errors = torch.tensor([50.0, 3.0, 7.0], requires_grad=True)
    buffer.update_priorities(torch.from_numpy(indices[[2, 0, 2]]), errors)
    expected = powers([3.0, 1.0, 7.0])
    assert shares(buffer) == pytest.approx(expected / expected.sum())


def test_indices_are_those_of_the_chunks_also_where_slots_were_asked_for():
    world, buffer, _ = with_errors([1.0, 2.0, 3.0, 4.0])
    for _ in range(20):
        buffer.add(world.step())
    drawn = buffer.sample(40)
    names = dict(zip(numbers_of(drawn).tolist(), indices_of(drawn).tolist(), strict=True))
    batch = contents(buffer)
    assert [names[number] for number in numbers_of(batch).tolist()] == indices_of(batch).tolist()


# What is refused


@pytest.mark.parametrize("bad", [-1e-9, -3.0, np.nan, np.inf, -np.inf, 1e300])
def test_a_bad_priority_is_named_and_nothing_changes(bad):
    _, buffer, indices = with_errors(ERRORS)
    before = stand(buffer)
    with pytest.raises(ValueError, match=re.escape(f"priority {bad} (number 1 of the batch)")):
        buffer.update_priorities(indices[[3, 7, 9]], np.array([60.0, bad, np.nan]))
    assert_equal(stand(buffer), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda indices: indices + 10**6, r"index 10\d+: no chunk ever had it"),
        (lambda indices: indices - 10**6, r"index -\d+: no chunk ever had it"),
        (lambda indices: indices.astype(float), r"whole numbers \[N\], got float64\(4,\)"),
        (lambda indices: indices[None], r"whole numbers \[N\], got int64\(1, 4\)"),
        (lambda indices: indices[:3], r"\(3,\) indices and \(4,\) priorities"),
    ],
    ids=["not yet", "negative", "dtype", "dimensions", "count"],
)
def test_indices_that_name_nothing_are_refused(change, message):
    _, buffer, indices = with_errors([1.0, 2.0, 3.0, 4.0])
    before = stand(buffer)
    with pytest.raises(ValueError, match=message):
        buffer.update_priorities(change(indices), np.full(4, 5.0))
    assert_equal(stand(buffer), before)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_alpha_beta_and_eps_have_their_ranges(value):
    with pytest.raises(ValueError, match=f"alpha must be from 0 to 1, got {value}"):
        make(OWN, alpha=value)
    with pytest.raises(ValueError, match=f"beta must be from 0 to 1, got {value}"):
        filled(3)[1].sample(2, beta=value)
    if value != 1.1:
        with pytest.raises(ValueError, match=f"eps must be .* at least 0, got {value}"):
            make(OWN, eps=value)


def test_where_there_is_nothing_to_draw_that_is_said():
    with pytest.raises(ValueError, match="no complete chunk"):
        make(OWN).sample(2)
    _, buffer, _ = with_errors(np.zeros(4), eps=0.0)
    with pytest.raises(ValueError, match="has priority 0"):
        buffer.sample(2)


def test_a_chunk_without_a_priority_is_not_drawn():
    _, buffer, _ = with_errors([1.0, 0.0, 2.0, 0.0], eps=0.0)
    assert set(numbers_of(buffer.sample(100)).tolist()) == {0, 2}


def test_the_weights_come_along_to_the_device():
    _, buffer = filled(3, device="meta")
    batch = buffer.sample(2)
    assert batch.weight is not None
    assert batch.weight.device.type == batch.obs.device.type == "meta"


# The state


@settings(max_examples=40)
@given(sizes(), ENDS, SEEDS, st.integers(0, 90))
def test_a_restored_buffer_goes_on_exactly_like_the_original(own, ends, seed, steps):
    world, model, original = World(own.num_envs, ends, seed, seed % 2 == 1), own.model(), make(own)
    errors = np.random.default_rng(seed)

    def learn(batch: SequenceBatch, *buffers: PrioritizedRecurrentReplayBuffer) -> None:
        found = errors.gamma(0.5, 2.0, len(indices_of(batch)))
        for buffer in buffers:
            buffer.update_priorities(indices_of(batch), found)

    late = None
    for _ in live(world, steps, model, original):
        if len(original):
            late = original.sample(6)
            learn(late, original)
    restored = make(own)
    for _ in live(World(own.num_envs, ends, seed + 1), seed % 50, restored):  # of which no trace may remain
        if len(restored):
            restored.update_priorities(indices_of(restored.sample(3)), np.full(3, 1e6))
    restored._rng = copy.deepcopy(original._rng)
    restored.load_state_dict(as_read(original.state_dict()))
    assert_equal(stand(restored), stand(original))
    for _ in live(world, 20, model, original, restored):
        assert np.array_equal(original.priorities.tree._nodes, restored.priorities.tree._nodes)
        if late is not None:  # from before the restore
            learn(late, original, restored)
        if len(original):
            batch, same = original.sample(4), restored.sample(4)
            assert_equal(batch, same)
            learn(batch, original, restored)
            assert set(keys_in(batch)) <= set(model.chunks())
    # Of rows and numbers that nobody reads, some may be of the life before.
    ends_at = [stand(buffer) for buffer in (original, restored)]
    for state in ends_at:
        state["serial"][state["steps"] == 0] = 0
        del state["rows"]
    assert_equal(*ends_at)


def test_a_state_can_be_taken_over_again_whatever_was_there_before():
    used = lived(60, Sizes(1, 2, 2, 1, 20), kind=PrioritizedRecurrentReplayBuffer)[2]
    fresh = make(Sizes(1, 2, 2, 1, 20))
    used.load_state_dict(fresh.state_dict())
    used.add(World(1, ends=0.0).step())  # a chunk is under way, none was ever complete
    fresh.load_state_dict(used.state_dict())
    assert len(fresh) == 0


PRIORITY_DAMAGES: dict[str, Damage] = {
    "priorities of another type": swap("priorities", lambda values: values.astype(np.float32)),
    "fewer priorities": swap("priorities", lambda values: values[:-1]),
    "priority that is no number": put("priorities", np.nan, complete),
    "negative priority": put("priorities", -1.0, complete),
    "priority above the largest": put("priorities", lambda state: 1.1 * state["largest_priority"], complete),
    "priority of a free slot": put("priorities", 0.5, lambda state: state["free"][0]),
    "priority of a chunk under way": put("priorities", 0.5, lambda state: open_slots(state)[0]),
    "largest priority that is no number": swap("largest_priority", lambda _: float("nan")),
    "infinite largest priority": swap("largest_priority", lambda _: float("inf")),
    "largest priority of zero": swap("largest_priority", lambda _: 0.0),
    "numbers of another type": swap("serial", lambda serial: serial.astype(np.int32)),
    "fewer numbers": swap("serial", lambda serial: serial[:-1]),
    "negative number": put("serial", -1, complete),
    "number that was not given yet": put("serial", lambda state: state["finished"], complete),
    "fewer chunks ever complete than numbers": swap("finished", lambda finished: finished - 1),
    "negative count of chunks": swap("finished", lambda _: -1),
}


@pytest.mark.parametrize(
    "damage", [*PRIORITY_DAMAGES.values(), *DAMAGES.values()], ids=[*PRIORITY_DAMAGES, *DAMAGES]
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    other = lived(33, OWN, 5, PrioritizedRecurrentReplayBuffer)[2]
    before, state = stand(other), full_state(PrioritizedRecurrentReplayBuffer)
    damage(state)
    with pytest.raises(CheckpointError, match=r"^replay: "):
        other.load_state_dict(state)
    assert_equal(stand(other), before)
    assert np.array_equal(np.flatnonzero(other.priorities.tree.values), other._drawable())


@pytest.mark.parametrize("name", ["priorities", "largest_priority", "serial", "finished"])
def test_a_state_without_a_part_is_refused(name):
    buffer = lived(33, OWN, 5, PrioritizedRecurrentReplayBuffer)[2]
    before, state = stand(buffer), full_state(PrioritizedRecurrentReplayBuffer)
    del state[name]
    with pytest.raises((CheckpointError, KeyError)):
        buffer.load_state_dict(state)
    assert_equal(stand(buffer), before)


def test_a_state_of_uniform_replay_is_refused():
    with pytest.raises(CheckpointError, match="of uniform replay and holds no priorities"):
        make(OWN).load_state_dict(full_state())
