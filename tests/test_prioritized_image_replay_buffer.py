"""Priorities over images that are kept once: which transitions count, how often they are drawn, what is saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import chisquare

from helpers.image_replay import (
    ImageWorld,
    as_saved,
    assert_holds_what_it_should,
    contents,
    live,
    lives,
    rows_of,
    same,
)
from rl_training.data import PrioritizedImageReplayBuffer
from rl_training.errors import CheckpointError, ConfigError

ALPHA, EPS = 0.6, 0.5


def made(own: dict[str, Any], **options: Any) -> tuple[ImageWorld, Any]:
    world = ImageWorld(**own["world"])
    options = {"alpha": ALPHA, "eps": EPS, **options}
    return world, world.buffer(PrioritizedImageReplayBuffer, **own["buffer"], **options)


def filled(steps: int = 60, n: int = 3, num_envs: int = 2, **options: Any) -> tuple[ImageWorld, Any]:
    world, buffer = made(
        {"world": {"num_envs": num_envs, "stack": 3, "masked": True}, "buffer": {"capacity": 80, "n": n}},
        **options,
    )
    for _ in live(world, steps, buffer):
        pass
    return world, buffer


def drawable(world: ImageWorld, buffer: Any) -> dict[int, tuple[int, int]]:
    """Return which steps should be there, by the numbers of their transitions."""
    return {
        world.steps[env][i].number * world.num_envs + env: (env, i)
        for env in range(world.num_envs)
        for i in world.drawable(env, buffer.n_step, buffer._segment, buffer._rings.slots)
    }


@settings(max_examples=60, deadline=None)
@given(lives())
def test_whatever_happens_it_agrees_with_a_dictionary(own: dict[str, Any]) -> None:
    world, buffer = made(own)
    rng = np.random.default_rng(own["world"]["seed"])
    model: dict[int, float] = {}
    seen: set[int] = set()
    largest = 1.0
    for number in live(world, 120, buffer):
        there = drawable(world, buffer)
        model = {index: model.get(index, largest) for index in there}
        seen |= there.keys()
        if model and rng.random() < 0.5:
            indices = rng.choice(sorted(seen), 6)  # of which some are gone
            errors = rng.gamma(0.5, 4.0, 6)
            buffer.update_priorities(indices, torch.from_numpy(errors))
            for index, error in zip(indices.tolist(), errors.tolist(), strict=True):
                if index in model:
                    model[index] = (error + EPS) ** ALPHA
                    largest = max(largest, model[index])
        if seen and number % 7 == 0:
            every = np.array(sorted(seen))
            total = sum(model.values())
            expected = [model.get(index, 0.0) / total if total else 0.0 for index in every.tolist()]
            assert buffer.priorities.tree.total == pytest.approx(total)
            if total:
                np.testing.assert_allclose(buffer.probabilities(every), expected, rtol=1e-9)
        if model:
            batch = buffer.sample(3, beta=0.5)
            chances = np.array([model[index] for index in batch.indices.tolist()])
            np.testing.assert_allclose(batch.weight.numpy(), (chances.min() / chances) ** 0.5, rtol=1e-6)
            for index, row in zip(batch.indices.tolist(), rows_of(batch), strict=True):
                window = world.window(*there[index], buffer.n_step)
                assert window is not None
                assert same(row, window)
    assert_holds_what_it_should(buffer, world)


def test_transitions_are_drawn_as_often_as_their_priorities_say() -> None:
    _, buffer = filled()
    indices = np.unique(buffer.sample(4_000).indices)
    assert len(indices) == len(buffer) > 30
    buffer.update_priorities(indices, np.random.default_rng(0).gamma(0.5, 4.0, len(indices)))
    chances = buffer.probabilities(indices)
    assert chances.sum() == pytest.approx(1.0)
    assert chances.max() > 3 * chances.min()
    drawn = np.concatenate([buffer.sample(1).indices for _ in range(20_000)])  # one at a time: not stratified
    counts = (drawn[:, None] == indices).sum(0)
    assert chisquare(counts, 20_000 * chances).pvalue > 1e-3


def test_without_alpha_draws_are_uniform_and_weigh_the_same() -> None:
    _, buffer = filled(alpha=0.0)
    indices = np.unique(buffer.sample(4_000).indices)
    buffer.update_priorities(indices, np.random.default_rng(0).gamma(0.5, 4.0, len(indices)))
    assert len(indices) == len(buffer)
    np.testing.assert_allclose(buffer.probabilities(indices), 1 / len(buffer), rtol=1e-12)
    assert (buffer.sample(32, beta=1.0).weight == 1.0).all()
    drawn = np.concatenate([buffer.sample(1).indices for _ in range(20_000)])
    assert chisquare((drawn[:, None] == indices).sum(0)).pvalue > 1e-3


def test_new_transitions_get_the_largest_priority_when_they_can_be_drawn() -> None:
    world, buffer = made({"world": {"num_envs": 1, "ends": 0.0}, "buffer": {"capacity": 80, "n": 3}})
    for _ in range(2):
        buffer.add(world.step())
    assert buffer.priorities.tree.total == len(buffer) == 0
    buffer.add(world.step())
    assert buffer.probabilities(np.array([0])) == 1.0
    buffer.update_priorities(np.array([0]), np.array([99.5]))
    buffer.add(world.step())
    assert buffer.probabilities(np.arange(2)).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="index 2: no transition ever had it"):
        buffer.update_priorities(np.array([0, 2]), np.ones(2))
    buffer.interrupt()
    assert buffer.probabilities(np.arange(4)).tolist() == [0.25] * 4


def test_a_priority_that_comes_too_late_is_ignored() -> None:
    world, buffer = made({"world": {"num_envs": 2, "ends": 0.1}, "buffer": {"capacity": 20, "n": 2}})
    for _ in live(world, 8, buffer, apart=False):
        pass
    batch = buffer.sample(30)
    for _ in live(world, 60, buffer, apart=False):
        pass
    before = buffer.priorities.tree.values.copy()
    buffer.update_priorities(batch.indices, np.full(30, 1e6))
    assert np.array_equal(before, buffer.priorities.tree.values)
    assert buffer.priorities.largest == 1.0
    assert (buffer.probabilities(batch.indices) == 0.0).all()


@pytest.mark.parametrize("bad", [-1e-9, np.nan, np.inf, 1e300])
def test_a_bad_priority_is_named_and_nothing_changes(bad: float) -> None:
    _, buffer = filled()
    indices = np.unique(buffer.sample(300).indices)[:3]
    before = contents(buffer.state_dict())
    with pytest.raises(ValueError, match=rf"of transition {indices[1]} \(number 1 of the batch\)"):
        buffer.update_priorities(indices, np.array([60.0, bad, np.nan]))
    assert contents(buffer.state_dict()) == before


def test_indices_that_name_nothing_are_refused() -> None:
    world, buffer = filled()
    ended = next(row for row in reversed(world.steps[1]) if row.ended)
    behind = (ended.number + 1) * 2 + 1  # the last observation of an episode, from which no step was made
    for bad in (-1, -2, buffer._head[0] * 2, 10**12, behind):
        with pytest.raises(ValueError, match=f"index {bad}: no transition"):
            buffer.update_priorities(np.array([bad]), np.ones(1))
    with pytest.raises(ValueError, match=r"\(2,\) indices and \(1,\) priorities"):
        buffer.update_priorities(np.array([0, 0]), np.ones(1))
    with pytest.raises(ValueError, match="whole numbers"):
        buffer.update_priorities(np.array([0.5]), np.ones(1))


@settings(max_examples=40, deadline=None)
@given(lives())
def test_a_restored_buffer_goes_on_exactly_like_the_original(own: dict[str, Any]) -> None:
    world, original = made(own)
    buffers = [original]
    for number in live(world, 100, buffers):
        if number % 27 == 0:
            restored = made(own)[1]
            for _ in live(ImageWorld(**own["world"]), 9, restored):  # of which no trace may remain
                pass
            restored.load_state_dict(as_saved(original))
            buffers.append(restored)
        if len(original):
            errors = world.rng.gamma(0.5, 4.0, 5)
            batches = []
            for buffer in buffers:
                buffer._rng = np.random.default_rng(number)
                batches.append(buffer.sample(5))
                buffer.update_priorities(batches[0].indices, errors)
            for batch in batches:
                assert np.array_equal(batch.indices, batches[0].indices)
                assert torch.equal(batch.weight, batches[0].weight)
                assert torch.equal(batch.obs, batches[0].obs)
    nodes = original.priorities.tree._nodes
    assert all(np.array_equal(buffer.priorities.tree._nodes, nodes) for buffer in buffers)
    assert all(contents(buffer.state_dict()) == contents(original.state_dict()) for buffer in buffers)


def test_states_that_do_not_fit_are_refused() -> None:
    _, buffer = filled(steps=150)
    good = as_saved(buffer)
    values = good["priorities"]
    everywhere = {env: np.full_like(own, 0.5) for env, own in values.items()}
    damages: list[tuple[dict[str, Any], str]] = [
        ({"priorities": everywhere}, "without a transition"),
        ({"priorities": {"0": values["0"]}}, "not those of 2 environments"),
        ({"priorities": {**values, "1": values["1"][1:]}}, "priorities are float64"),
        ({"priorities": {**values, "1": values["1"].astype(np.float32)}}, "priorities are float32"),
        ({"largest_priority": 0.5}, "not from 0 to the largest"),
        ({"largest_priority": float("nan")}, "not from 0 to the largest"),
    ]
    for damage, message in damages:
        with pytest.raises(CheckpointError, match=message):
            filled(0)[1].load_state_dict({**good, **damage})
    uniform = ImageWorld(2, stack=3, masked=True).buffer(capacity=80, n=3)
    with pytest.raises(CheckpointError, match="of uniform replay and holds no priorities"):
        filled(0)[1].load_state_dict(as_saved(uniform))


def test_the_memory_of_the_priorities_is_asked_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 1_000_000)

    def buffer(capacity: int) -> PrioritizedImageReplayBuffer:
        return PrioritizedImageReplayBuffer(capacity, (4, 4), (), np.int64)

    with pytest.raises(ConfigError, match="the largest that fits is") as caught:
        buffer(10**9)
    largest = int(str(caught.value).split()[-1])
    assert 0.85 * 1_000_000 < buffer(largest).nbytes <= 0.91 * 1_000_000


def test_an_empty_buffer_says_so() -> None:
    with pytest.raises(ValueError, match="is empty"):
        filled(0)[1].sample(1)
