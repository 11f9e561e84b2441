"""The sum tree against plain arrays: sums, prefix queries, and what rounding must not do."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training.data import SumTree, kernels
from rl_training.data.sum_tree import FAN_OUT, MAX_VALUE

CAPACITIES = [1, 2, 7, 8, 9, 63, 64, 65, 513, 1000]


def tree_of(values) -> SumTree:
    tree = SumTree(len(values))
    tree.update(np.arange(len(values)), np.asarray(values, np.float64))
    return tree


def searched(values, targets):
    """The plain answer: the first slot up to which the values sum to more than the target."""
    return np.searchsorted(np.cumsum(values), targets, side="right")


@pytest.mark.parametrize("capacity", [1, 9, 4096, 10_007])
def test_a_million_updates_leave_sums_and_queries_exact(capacity):
    rng = np.random.default_rng(capacity)
    tree, plain = SumTree(capacity), np.zeros(capacity)
    for _ in range(1_000):
        slots = rng.integers(0, capacity, 1_000)
        values = rng.integers(0, 2**36, 1_000).astype(float) * (rng.random(1_000) < 0.8)
        tree.update(slots, values)
        plain[slots] = values  # of equal slots, numpy too keeps the last
    plain[:3] = 5.0  # so that there is something to find whatever came out
    tree.fill(0, min(3, capacity), 5.0)
    assert np.array_equal(tree.values, plain)
    assert tree.total == plain.sum()
    edges = np.cumsum(plain)
    targets = np.concatenate([[0.0], edges[:-1], edges - 1, rng.integers(0, int(tree.total), 5_000)])
    targets = targets[(targets >= 0) & (targets < tree.total)]
    assert np.array_equal(tree.find(targets), searched(plain, targets))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_query_equals_a_search_in_the_running_sum(capacity):
    values = np.random.default_rng(0).integers(0, 4, capacity).astype(float)
    values[capacity // 2] = 3.0
    tree = tree_of(values)
    targets = np.arange(0, values.sum(), 0.5)
    assert np.array_equal(tree.find(targets), searched(values, targets))


@given(st.data())
def test_changes_in_any_order_give_what_a_list_holds(data):
    capacity = data.draw(st.integers(1, 80))
    tree, plain = SumTree(capacity), [0.0] * capacity
    slots = st.integers(0, capacity - 1)
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            batch = data.draw(st.lists(st.tuples(slots, st.integers(0, 9)), max_size=20))
            tree.update(np.array([s for s, _ in batch], int), np.array([v for _, v in batch], float))
            for slot, value in batch:
                plain[slot] = float(value)
        else:
            start, stop = sorted((data.draw(slots), data.draw(slots)))
            value = float(data.draw(st.integers(0, 9)))
            tree.fill(start, stop, value)
            plain[start:stop] = [value] * (stop - start)
    assert tree.values.tolist() == plain
    assert tree.total == sum(plain)
    targets = np.arange(0, sum(plain), 1.0)
    assert np.array_equal(tree.find(targets), searched(plain, targets))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_inner_nodes_follow_from_the_leaves_alone(capacity):
    rng = np.random.default_rng(1)
    tree = SumTree(capacity)
    for scale in (1e18, 1e-9, 1e6, 1.0):  # a correction by differences would keep traces of the large ones
        for _ in range(20):
            slots = rng.integers(0, capacity, 50)
            tree.update(slots, rng.random(50) * scale)
    tree.update(np.arange(capacity), rng.random(capacity))
    again = SumTree(capacity)
    order = rng.permutation(capacity)
    again.update(order, tree.values[order])
    assert np.array_equal(tree._nodes, again._nodes)
    assert tree.total == pytest.approx(tree.values.sum(), rel=1e-12)


MAGNITUDES = st.floats(0, 1e30) | st.sampled_from([0.0, 0.1, 0.3, 1e-300, 5e-324, 1e16, MAX_VALUE])


@given(
    st.lists(MAGNITUDES, min_size=1, max_size=70), st.lists(st.floats(0, 1, exclude_max=True), max_size=20)
)
def test_no_slot_without_a_value_is_found_whatever_the_rounding(values, shares):
    values[0] = values[0] or 0.7
    tree = tree_of(values)
    last = np.nextafter(tree.total, 0.0)
    targets = np.minimum([*(share * tree.total for share in shares), 0.0, last], last)
    found = tree.find(targets)
    assert (np.array(values)[found] > 0.0).all()


@pytest.mark.parametrize("height", [1, 2, 3])
def test_the_end_of_a_sum_that_was_rounded_up_belongs_to_the_last_slot_with_a_value(height):
    rng = np.random.default_rng(0)
    beyond, capacity = 0, FAN_OUT**height
    last = capacity - 3
    for _ in range(500):
        values = rng.random(capacity) * 10.0 ** rng.integers(-3, 3, capacity) + 1e-6
        values[last + 1 :] = 0.0
        tree = tree_of(values)
        highest = tree._nodes[tree._levels[-2] : tree._levels[-1]]
        beyond += np.cumsum(highest)[-1] < tree.total
        assert tree.find(np.array([np.nextafter(tree.total, 0.0)])).tolist() == [last]
    assert beyond > 25, "the case must occur"


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_slots_are_found_in_proportion_to_their_values(capacity):
    values = np.random.default_rng(2).random(capacity)
    tree = tree_of(values)
    targets = (np.arange(200_000) + 0.5) * (tree.total / 200_000)
    counts = np.bincount(tree.find(targets), minlength=capacity)
    assert np.abs(counts - 200_000 * values / values.sum()).max() <= 1.01


def test_of_a_slot_that_comes_twice_the_last_value_counts():
    tree = SumTree(20)
    tree.update(np.array([3, 11, 3, 3, 11]), np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    assert (tree.values[3], tree.values[11], tree.total) == (8.0, 16.0, 24.0)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, 1e300])
def test_a_bad_value_is_named_and_changes_nothing(value):
    tree = tree_of([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=re.escape(f"slot 2 with value {value} (number 1 of the batch)")):
        tree.update(np.array([0, 2]), np.array([7.0, value]))
    with pytest.raises(ValueError, match="cannot be given the value"):
        tree.fill(0, 2, value)
    assert tree.values.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("slot", [-1, 3, 7, 2**40])
def test_a_slot_outside_is_refused(slot):
    tree = tree_of([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=f"slot {slot} "):
        tree.update(np.array([slot]), np.array([7.0]))
    with pytest.raises(ValueError, match="of 3"):
        tree.fill(slot, slot + 1, 1.0)
    assert tree.total == 6.0


@pytest.mark.parametrize("target", [-1e-9, 6.0, np.nan, np.inf])
def test_a_target_outside_is_refused(target):
    with pytest.raises(ValueError, match=r"number 1 of the batch\) is not in \[0, 6.0\)"):
        tree_of([1.0, 2.0, 3.0]).find(np.array([0.0, target]))


def test_an_empty_tree_has_nothing_to_find_and_empty_batches_do_nothing():
    tree = SumTree(5)
    with pytest.raises(ValueError, match=r"not in \[0, 0.0\)"):
        tree.find(np.zeros(1))
    tree.update(np.zeros(0, int), np.zeros(0))
    tree.fill(2, 2, 1.0)
    assert tree.total == 0.0
    assert tree.find(np.zeros(0)).tolist() == []


def test_shapes_must_agree_and_a_tree_has_slots():
    with pytest.raises(ValueError, match="differ in shape"):
        SumTree(5).update(np.arange(3), np.zeros(2))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        SumTree(0)


def test_targets_stay_as_they_are_and_a_copy_has_its_own_values():
    tree = tree_of([1.0, 2.0, 3.0])
    targets = np.array([0.5, 5.5])
    tree.find(targets)
    assert targets.tolist() == [0.5, 5.5]
    other = copy.deepcopy(tree)
    other.fill(0, 3, 9.0)
    assert tree.total == 6.0


@pytest.mark.parametrize("capacity", [1_000, 100_000])
def test_a_slot_takes_eight_bytes_and_a_seventh_for_the_sums_which_begin_cache_lines(capacity):
    tree = SumTree(capacity)
    assert 8 * capacity < tree.nbytes <= 1.02 * SumTree.BYTES_PER_SLOT * capacity
    assert tree._nodes.ctypes.data % 64 == 0
    assert not (tree._levels % FAN_OUT).any()
    assert 1 << kernels.SHIFT == FAN_OUT


def test_uniform_replay_does_not_pay_for_the_compiler():
    code = (
        "import sys; from rl_training.data import ReplayBuffer; ReplayBuffer(3, (2,)); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_disk_that_refuses_the_compiled_code_costs_nothing_but_time(tmp_path):
    """The cache of numba cannot be written where no file may have any size."""
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
        "from rl_training.data import PrioritizedReplayBuffer; PrioritizedReplayBuffer(4, (1,))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
