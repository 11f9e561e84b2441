"""Prioritized replay: how often, with which weights, and which feedback counts."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from rl_training.data import Batch, PrioritizedReplayBuffer, ReplayBuffer
from rl_training.errors import CheckpointError, ConfigError
from rl_training.spaces import Array

ALPHA, EPS = 0.7, 0.5  # an eps this large shows where it stands


def rows(numbers):
    """Transitions whose every field tells the number."""
    numbers = np.asarray(list(numbers), np.int64)
    obs = np.stack([numbers, numbers], 1).astype(np.float32)
    return obs, numbers, numbers.astype(float), numbers.astype(float), obs + 1


def make(capacity=10, seed=0, alpha=ALPHA, eps=EPS) -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(capacity, (2,), alpha=alpha, eps=eps, rng=np.random.default_rng(seed))


def filled(count, capacity=10, **kwargs) -> PrioritizedReplayBuffer:
    buffer = make(capacity, **kwargs)
    for start in range(0, count, 3):
        buffer.add(*rows(range(start, min(start + 3, count))))
    return buffer


def with_errors(errors, capacity=None, **kwargs) -> PrioritizedReplayBuffer:
    buffer = filled(len(errors), capacity or len(errors), **kwargs)
    buffer.update_priorities(np.arange(len(errors)), np.asarray(errors, float))
    return buffer


def expected_probabilities(errors, alpha=ALPHA, eps=EPS):
    powers = (np.asarray(errors, float) + eps) ** alpha
    return powers / powers.sum()


def indices_of(batch: Batch) -> Array:
    assert batch.indices is not None
    return batch.indices


def weight_of(batch: Batch) -> torch.Tensor:
    assert batch.weight is not None
    return batch.weight


def assert_rows_are_their_numbers(batch: Batch) -> None:
    indices = indices_of(batch)
    assert indices.dtype == np.int64
    assert np.array_equal(batch.action.numpy(), indices)
    assert np.array_equal(batch.reward.numpy(), indices)
    assert np.array_equal(batch.obs.numpy()[:, 1], indices)


ERRORS = np.random.default_rng(5).gamma(0.5, 2.0, 23)


# How often


@pytest.mark.parametrize(("alpha", "eps"), [(0.7, 0.5), (1.0, 0.01), (0.3, 2.0), (0.0, 0.5)])
def test_probabilities_are_the_powers_of_error_plus_eps(alpha, eps):
    buffer = with_errors(ERRORS, alpha=alpha, eps=eps)
    expected = expected_probabilities(ERRORS, alpha, eps)
    assert buffer.probabilities(np.arange(23)) == pytest.approx(expected, rel=1e-12)


def test_single_draws_occur_as_often_as_their_probabilities():
    buffer = with_errors(ERRORS)
    draws = np.concatenate([indices_of(buffer.sample(1)) for _ in range(20_000)])
    counts = np.bincount(draws, minlength=23)
    assert chisquare(counts, 20_000 * expected_probabilities(ERRORS)).pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 2, 16, 64])
def test_a_stratified_batch_holds_each_transition_as_often_as_it_should_to_within_two(size):
    buffer = with_errors(ERRORS)
    expected, total, batches = expected_probabilities(ERRORS) * size, np.zeros(23), 1_000
    for _ in range(batches):
        counts = np.bincount(indices_of(buffer.sample(size)), minlength=23)
        assert (np.abs(counts - expected) < 2.0).all()
        total += counts
    # Whole parts are certain; at most two broken ones toss a coin, so the variance per batch is at most 1/2.
    assert (np.abs(total - batches * expected) <= 5 * np.sqrt(batches / 2)).all()


def test_one_draw_falls_into_each_part_of_the_sum():
    buffer = with_errors(np.zeros(64))  # equal priorities: one part for each transition
    orders = [indices_of(buffer.sample(64)).tolist() for _ in range(50)]
    assert orders == [list(range(64))] * 50
    halves = np.stack([indices_of(buffer.sample(32)) for _ in range(200)])
    assert (halves // 2 == np.arange(32)).all()
    assert len(np.unique(halves[:, 7])) == 2


def test_without_alpha_it_is_uniform_replay():
    buffer = with_errors(ERRORS * 100, alpha=0.0)
    assert (buffer.probabilities(np.arange(23)) == 1 / 23).all()
    draws = np.concatenate([indices_of(buffer.sample(1, beta=1.0)) for _ in range(10_000)])
    assert chisquare(np.bincount(draws, minlength=23)).pvalue > 1e-3
    assert (weight_of(buffer.sample(64, beta=1.0)) == 1.0).all()
    without_eps = with_errors(np.zeros(5), alpha=0.0, eps=0.0)
    assert (without_eps.probabilities(np.arange(5)) == 0.2).all()


@pytest.mark.parametrize("count", [1, 9, 10, 11, 25])
def test_only_written_transitions_with_a_priority_are_drawn(count):
    buffer = filled(count, eps=0.0)
    kept = np.arange(max(0, count - 10), count)
    assert set(indices_of(buffer.sample(500))) == set(kept)
    if count > 1:
        buffer.update_priorities(kept[::2], np.zeros(len(kept[::2])))
        batch = buffer.sample(500)
        assert set(indices_of(batch)) == set(kept[1::2])
        assert torch.isfinite(weight_of(batch)).all()


def test_when_no_transition_has_a_priority_that_is_said():
    buffer = with_errors(np.zeros(4), eps=0.0)
    with pytest.raises(ValueError, match="every transition has priority 0"):
        buffer.sample(2)
    with pytest.raises(ValueError, match="empty"):
        make().sample(2)


class Ceiling:
    """A generator that gives the largest number below 1."""

    def random(self, count):
        return np.full(count, np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("size", [1, 3, 255, 256])
def test_the_last_target_stays_below_the_sum(size):
    for seed in range(50):
        buffer = with_errors(np.random.default_rng(seed).random(23), 30)
        buffer._rng = Ceiling()  # type: ignore[assignment]
        assert indices_of(buffer.sample(size))[-1] == 22


# With which weights


@pytest.mark.parametrize("beta", [0.0, 0.4, 0.75, 1.0])
@pytest.mark.parametrize("capacity", [23, 40])
def test_weights_are_the_paper_s_divided_by_the_largest_of_the_batch(beta, capacity):
    buffer = with_errors(ERRORS, capacity)
    batch = buffer.sample(8, beta=beta)
    plain = (23 * expected_probabilities(ERRORS)[indices_of(batch)]) ** -beta
    weight = weight_of(batch)
    assert weight.dtype == torch.float32
    assert weight.shape == (8,)
    assert weight.numpy() == pytest.approx(plain / plain.max(), rel=1e-6)
    assert weight.max() == 1.0
    assert (len(set(weight.tolist())) == 1) == (beta == 0.0)


@pytest.mark.parametrize("scale", [1e-250, 1e-12, 1.0, 1e12, 1e280])
def test_weights_are_sound_at_any_scale_and_the_largest_is_exactly_one(scale):
    buffer = with_errors(ERRORS * scale, alpha=1.0, eps=0.0)
    for _ in range(20):
        weight = weight_of(buffer.sample(16, beta=0.9))
        assert weight.max() == 1.0
        assert (weight > 0.0).all()


def test_with_full_correction_the_weighted_mean_is_the_uniform_one():
    buffer = with_errors(ERRORS)
    values = np.random.default_rng(8).normal(size=23) + ERRORS  # so that it depends on the priority
    batches = [buffer.sample(32, beta=1.0) for _ in range(3_000)]
    estimates = []
    for batch in batches:
        indices, weight = indices_of(batch), weight_of(batch).numpy()
        largest = 1 / (23 * buffer.probabilities(indices).min())  # undoes the division
        estimates.append((weight * largest * values[indices]).mean())
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - values.mean()) < 4 * error
    raw = np.mean([values[indices_of(batch)].mean() for batch in batches])
    assert abs(raw - values.mean()) > 40 * error, "without the weights it would show"


# New ones


def test_a_new_transition_gets_the_largest_priority_there_ever_was():
    buffer = filled(4, capacity=6)
    assert (buffer.probabilities(np.arange(4)) == 0.25).all()
    buffer.update_priorities(np.array([1]), np.array([9.0]))
    buffer.add(*rows([4]))
    chances = buffer.probabilities(np.arange(5))
    assert chances[4] == chances[1] == chances.max() > 2 * chances[0]
    buffer.update_priorities(np.arange(5), np.full(5, 0.01))  # the largest is history now
    buffer.add(*rows([5]))
    chances = buffer.probabilities(np.arange(6))
    assert chances[5] / chances[0] == pytest.approx((9.5 / 0.51) ** ALPHA)
    assert chances[5] > 5 * chances[0]


def test_the_first_priority_is_one_and_small_errors_do_not_lower_it():
    buffer = filled(1)
    buffer.update_priorities(np.array([0]), np.array([0.1]))
    buffer.add(*rows([1]))
    chances = buffer.probabilities(np.arange(2))
    assert chances[1] / chances[0] == pytest.approx((1.0 / 0.6) ** ALPHA)


def test_an_overwritten_slot_forgets_its_priority():
    buffer = with_errors([0.0, 100.0, 0.0, 0.0])
    buffer.add(*rows([4]))
    chances = buffer.probabilities(np.arange(1, 5))
    assert chances[3] == chances[0] > 30 * chances[1]


# Which feedback counts


@pytest.mark.parametrize("more", [1, 3, 4, 5, 8, 9, 12, 31])
def test_a_priority_that_comes_too_late_is_ignored(more):
    buffer = with_errors([1.0, 2.0, 3.0, 4.0])
    batch = buffer.gather(np.arange(4))
    assert indices_of(batch).tolist() == [0, 1, 2, 3]
    for number in range(4, 4 + more):
        buffer.add(*rows([number]))
    before = buffer.state_dict()["priorities"].copy()
    buffer.update_priorities(indices_of(batch), np.full(4, 1e6))
    after = buffer.state_dict()["priorities"]
    kept = [slot for slot in range(4) if slot >= more]
    assert [slot for slot in range(4) if before[slot] != after[slot]] == kept
    largest = buffer.state_dict()["largest_priority"]
    assert (largest > 1_000) == bool(kept), "nor does it count for new ones"


def test_indices_are_insertion_numbers_through_wraps_and_name_their_rows():
    buffer = make(capacity=7)
    number = 0
    for count in (3, 4, 1, 7, 2, 20, 5, 0, 6):
        buffer.add(*rows(range(number, number + count)))
        number += count
        batch = buffer.sample(40)
        assert_rows_are_their_numbers(batch)
        assert set(indices_of(batch)) == set(range(max(0, number - 7), number))


def test_of_a_number_that_comes_twice_the_last_priority_counts():
    buffer = with_errors([1.0, 1.0, 1.0])
    buffer.update_priorities(np.array([2, 0, 2]), np.array([50.0, 3.0, 7.0]))
    expected = expected_probabilities([3.0, 1.0, 7.0])
    assert buffer.probabilities(np.arange(3)) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_are_as_good_as_arrays(dtype):
    errors = torch.tensor([0.5, 2.0, 8.0], dtype=dtype, requires_grad=True)
    buffer = filled(3)
    buffer.update_priorities(torch.tensor([2, 0, 1]), errors)
    expected = expected_probabilities([2.0, 8.0, 0.5])
    assert buffer.probabilities(np.arange(3)) == pytest.approx(expected)


def test_what_the_caller_gave_stays_as_it_was():
    buffer = filled(14)
    numbers, errors = np.array([1, 6, 12]), np.array([1.0, 2.0, 3.0])
    buffer.update_priorities(numbers, errors)
    assert numbers.tolist() == [1, 6, 12]
    assert errors.tolist() == [1.0, 2.0, 3.0]


@given(st.data())
def test_whatever_happens_it_agrees_with_a_list(data):
    capacity = data.draw(st.integers(1, 20))
    model: list[float] = []
    buffer, largest = make(capacity), 1.0
    for _ in range(data.draw(st.integers(1, 12))):
        if not model or data.draw(st.booleans()):
            count = data.draw(st.integers(0, 2 * capacity))
            buffer.add(*rows(range(len(model), len(model) + count)))
            model += [largest] * count
        else:
            numbers = data.draw(st.lists(st.integers(0, len(model) - 1), max_size=12))
            errors = data.draw(st.lists(st.floats(0, 50), min_size=len(numbers), max_size=len(numbers)))
            buffer.update_priorities(np.array(numbers, int), np.array(errors, float))
            for number, error in zip(numbers, errors, strict=True):
                if number >= len(model) - capacity:
                    model[number] = (error + EPS) ** ALPHA
                    largest = max(largest, model[number])
        kept = [*[0.0] * (len(model) - capacity), *model[-capacity:]]
        assert len(buffer) == min(len(model), capacity)
        if model:
            chances = buffer.probabilities(np.arange(len(model)))
            assert chances == pytest.approx(np.array(kept) / np.sum(kept), rel=1e-9)
            batch = buffer.sample(8)
            assert_rows_are_their_numbers(batch)
            assert indices_of(batch).min() >= len(model) - capacity


# What is refused


@pytest.mark.parametrize("bad", [-1e-9, -3.0, np.nan, np.inf, -np.inf, 1e300])
def test_a_bad_priority_is_named_and_nothing_changes(bad):
    buffer = with_errors(ERRORS)
    before = copy.deepcopy(buffer.state_dict())
    message = f"priority {bad} of transition 7 (number 1 of the batch)"
    with pytest.raises(ValueError, match=re.escape(message)):
        buffer.update_priorities(np.array([3, 7, 9]), np.array([60.0, bad, np.nan]))
    assert np.array_equal(before["priorities"], buffer.state_dict()["priorities"])
    assert before["largest_priority"] == buffer.state_dict()["largest_priority"]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (np.array([0, 4]), "index 4: only 4 transitions were ever added"),
        (np.array([0, -1]), "index -1: only 4"),
        (np.array([0.0, 1.0]), r"whole numbers \[N\], got float64\(2,\)"),
        (np.array([[0, 1]]), r"whole numbers \[N\], got int64\(1, 2\)"),
        (np.array([0, 1, 2]), r"\(3,\) indices and \(2,\) priorities"),
    ],
)
def test_indices_that_name_nothing_are_refused(indices, message):
    buffer = filled(4)
    with pytest.raises(ValueError, match=message):
        buffer.update_priorities(indices, np.array([5.0, 6.0]))
    assert (buffer.probabilities(np.arange(4)) == 0.25).all()


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_alpha_beta_and_eps_have_their_ranges(value):
    with pytest.raises(ValueError, match=f"alpha must be from 0 to 1, got {value}"):
        make(alpha=value)
    with pytest.raises(ValueError, match=f"beta must be from 0 to 1, got {value}"):
        filled(3).sample(2, beta=value)
    if value != 1.1:
        with pytest.raises(ValueError, match=f"eps must be .* at least 0, got {value}"):
            make(eps=value)


def test_the_memory_of_the_priorities_is_asked_for_too(monkeypatch):
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 1_000_000)
    with pytest.raises(ConfigError, match="the largest that fits is") as caught:
        make(capacity=10**16)
    largest = int(str(caught.value).split()[-1])
    buffer = make(capacity=largest)
    taken = buffer.storage.nbytes + buffer.priorities.tree.nbytes
    assert 0.85 * 1_000_000 < taken <= 0.91 * 1_000_000


# The state


def advance(buffer, number, rng):
    """Some life: what an experience would do."""
    drawn = []
    for start in range(number, number + 12, 3):
        buffer.add(*rows(range(start, start + 3)))
        batch = buffer.sample(16, beta=0.6)
        drawn.append((batch.indices, batch.weight.numpy(), batch.obs.numpy()))
        buffer.update_priorities(batch.indices, rng.gamma(0.5, 2.0, 16))
    return drawn


@pytest.mark.parametrize("count", [0, 4, 10, 17, 100])
def test_a_restored_buffer_goes_on_exactly_like_the_original(count):
    original, restored = filled(count, seed=7), make(seed=7)
    if count:
        errors = np.random.default_rng(1).random(count)
        original.update_priorities(np.arange(count), 40 * errors)
        restored.add(*rows(range(5)))  # what was there before leaves no trace
        restored.update_priorities(np.arange(5), np.full(5, 1e6))
    state = copy.deepcopy(original.state_dict())
    state["priorities"] = torch.from_numpy(state["priorities"])  # as a checkpoint gives it
    restored.load_state_dict(state)
    assert np.array_equal(original.priorities.tree._nodes, restored.priorities.tree._nodes)
    pairs = zip(
        advance(original, count, np.random.default_rng(2)),
        advance(restored, count, np.random.default_rng(2)),
        strict=True,
    )
    for one, other in pairs:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert np.array_equal(original.priorities.tree._nodes, restored.priorities.tree._nodes)


def test_feedback_from_before_a_restore_still_finds_its_transitions():
    original = with_errors([1.0, 2.0, 3.0], capacity=3)
    original.add(*rows([3]))
    batch = original.gather(np.arange(3))
    restored = make(capacity=3)
    restored.load_state_dict(original.state_dict())
    restored.add(*rows([4]))
    restored.update_priorities(indices_of(batch), np.array([10.0, 20.0, 30.0]))
    largest = 3.5
    expected = np.array([largest, 30.5, 10.5]) ** ALPHA
    chances = restored.probabilities(np.array([4, 2, 3]))
    assert chances == pytest.approx(expected / expected.sum())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"priorities": torch.ones(4)}, r"priorities are float32\(4,\), not float64\(4,\)"),
        ({"priorities": np.ones(3)}, r"priorities are float64\(3,\), not float64\(4,\)"),
        ({"priorities": np.array([1, 1, np.nan, 1])}, "not from 0 to the largest"),
        ({"priorities": np.array([1, 1, -1.0, 1])}, "not from 0 to the largest"),
        ({"priorities": np.array([1, 1, 1.1, 1])}, "not from 0 to the largest"),
        ({"largest_priority": float("nan")}, "not from 0 to the largest"),
        ({"largest_priority": float("inf")}, "not from 0 to the largest"),
        ({"largest_priority": 0.5}, "not from 0 to the largest"),
        ({"added": 3}, "4 rows and position 4 cannot come from 3 transitions"),
        ({"added": 14}, "4 rows and position 4 cannot come from 14 transitions"),
        ({"added": -6}, "cannot come from -6"),
        ({"next": 5}, "4 rows and position 5 cannot come from 4"),
        ({"capacity": 11}, "capacity is 11, the config says 10"),
        ({"rows": torch.zeros(4, 32)}, "rows of 32 bytes expected"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, message):
    buffer = filled(4)
    before = copy.deepcopy(buffer.state_dict())
    with pytest.raises(CheckpointError, match=message):
        buffer.load_state_dict({**buffer.state_dict(), **change})
    after = buffer.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_state_of_uniform_replay_is_refused():
    uniform = ReplayBuffer(10, (2,))
    uniform.add(*rows(range(4)))
    with pytest.raises(CheckpointError, match="of uniform replay and holds no priorities"):
        make().load_state_dict(uniform.state_dict())


def test_weights_and_masks_come_along_to_the_device():
    buffer = PrioritizedReplayBuffer(4, (2,), device="meta")
    buffer.add(*rows(range(4)), np.ones((4, 3), bool))
    batch = buffer.sample(3)
    assert batch.next_mask is not None
    assert weight_of(batch).device.type == batch.next_mask.device.type == batch.obs.device.type == "meta"


@pytest.mark.parametrize("capacity", [1, 2, 3, 9])
def test_small_rings_work(capacity):
    buffer = make(capacity)
    for number in range(30):
        buffer.add(*rows([number]))
        batch = buffer.sample(5, beta=1.0)
        assert_rows_are_their_numbers(batch)
        buffer.update_priorities(indices_of(batch), np.arange(5.0))
        if capacity == 1:
            assert indices_of(batch).tolist() == [number] * 5
            assert (weight_of(batch) == 1.0).all()
