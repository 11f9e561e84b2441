"""Replay that keeps observations of any kind once, against lists that keep them whole: stacks, padding, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from helpers.image_replay import (
    ACTIONS,
    GAMMA,
    KINDS,
    ImageWorld,
    as_saved,
    assert_holds_what_it_should,
    contents,
    every,
    live,
    lives,
    rows_of,
    same,
)
from rl_training.data import ImageReplayBuffer, NStepFolder, ReplayBuffer, ReplayExperience, Transitions
from rl_training.errors import CheckpointError, ConfigError, EnvError


def made(own: dict[str, Any], **options: Any) -> tuple[ImageWorld, Any]:
    world = ImageWorld(**own["world"])
    return world, world.buffer(**own["buffer"], **options)


@settings(max_examples=80, deadline=None)
@given(lives())
def test_it_holds_what_lists_of_steps_do(own: dict[str, Any]) -> None:
    world, buffer = made(own)
    most = 0
    for number in live(world, 150, buffer):
        if number % 13 == 0 or number > 145:
            most = max(most, assert_holds_what_it_should(buffer, world))
            if len(buffer):
                rows = [row for _, row in every(buffer)]
                assert all(any(same(row, other) for other in rows) for row in rows_of(buffer.sample(4)))
    assert most > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("masked", [False, True])
def test_they_are_the_transitions_that_a_folder_and_a_plain_buffer_hold(
    kind: str, n: int, masked: bool
) -> None:
    world = ImageWorld(3, **KINDS[kind], masked=masked, seed=n)
    buffer = world.buffer(capacity=3_000, n=n)
    fields = (world.shape, world.dtype, (), np.int64)
    plain = ReplayBuffer(3_000, *fields, keep_masks=True)
    folder = NStepFolder(n, GAMMA, 3, *fields, keep_masks=True)
    other = ReplayExperience(plain, folder, batch_size=1, learning_starts=0, train_freq=1, gradient_steps=1)
    for _ in range(120):
        step = world.step(np.flatnonzero(world.rng.random(3) < 0.8))
        if len(step):
            buffer.add(step)
            other.add(step)
    batch = plain.gather(np.arange(len(plain)))
    assert (batch.next_mask is not None) == (batch.mask is not None) == masked

    def key(row: tuple[Any, ...]) -> Any:
        return [part.tobytes() for i, part in enumerate(row) if i != 2], float(row[2])

    mine, theirs = sorted([row for _, row in every(buffer)], key=key), sorted(rows_of(batch), key=key)
    assert len(mine) > 250
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))
    assert all(a[0].dtype == b[0].dtype == world.dtype for a, b in zip(mine, theirs, strict=True))


@settings(max_examples=60, deadline=None)
@given(lives())
def test_a_restored_buffer_goes_on_exactly_like_the_original(own: dict[str, Any]) -> None:
    world, original = made(own)
    buffers = [original]
    for number in live(world, 110, buffers):
        if number % 27 == 0:
            restored = made(own)[1]
            for _ in live(ImageWorld(**own["world"]), 5, restored):  # of which no trace may remain
                pass
            restored.load_state_dict(as_saved(original))
            buffers.append(restored)
        if len(original):
            assert_draw_the_same(buffers)
    assert all(contents(buffer.state_dict()) == contents(original.state_dict()) for buffer in buffers)
    assert_holds_what_it_should(buffers[1], world)


def assert_draw_the_same(buffers: list[Any]) -> None:
    for buffer in buffers:
        buffer._rng = np.random.default_rng(3)
    one, *others = [buffer.sample(3) for buffer in buffers]
    for other in others:
        assert ((one.mask is None), (one.next_mask is None)) == (
            (other.mask is None),
            (other.next_mask is None),
        )
        for row, same_row in zip(rows_of(one), rows_of(other), strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(row, same_row, strict=True))


@pytest.mark.parametrize("masked_from", [0, 37, 300])
def test_complete_segments_never_change(masked_from: int) -> None:
    """Neither by an interruption nor by the first mask."""
    world = ImageWorld(2, stack=3, padding="zeros")
    buffer = world.buffer(capacity=1_300, n=3)
    seen: dict[str, Any] = {}
    with_masks = 0
    for number in live(world, 500, buffer):
        world.masked = number >= masked_from
        if number % 7 == 0:
            for name, segment in buffer.state_dict()["segments"].items():
                content = contents(segment)
                assert seen.setdefault(name, content) == content
                with_masks += "masks" in content
    assert len(seen) > 40
    assert with_masks > 0


# Stacks and their padding


def stacked(padding: str, frames: Any, stack: int = 3) -> Any:
    """Return an episode's observations [T + 1, K, ...]."""
    before = frames[:1] if padding == "reset" else np.zeros_like(frames[:1])
    padded = np.concatenate([*[before] * (stack - 1), frames])
    return np.stack([padded[i : i + stack] for i in range(len(frames))])


def one_step(obs: Any, next_obs: Any, ends: bool = True) -> Transitions:
    end, no = np.array([ends]), np.zeros(1, bool)
    return Transitions(np.arange(1), obs[None], np.zeros(1, int), np.ones(1), next_obs[None], end, no)


def frames_of(*values: int) -> Any:
    return np.array(values, np.uint8)[:, None, None] * np.ones((2, 2), np.uint8)


def episode(padding: str, *values: int) -> Transitions:
    return one_step(*stacked(padding, frames_of(*values)))


def plain_buffer() -> ImageReplayBuffer:
    return ImageReplayBuffer(60, (3, 2, 2), (), np.int64, stack=3)


@pytest.mark.parametrize("padding", ["reset", "zeros"])
def test_both_forms_of_padding_come_back(padding: str) -> None:
    buffer = plain_buffer()
    buffer.add(episode(padding, 5, 6))
    batch = buffer.gather(np.zeros(1, int), np.zeros(1, int))
    before = 5 if padding == "reset" else 0
    assert batch.obs[0, :, 0, 0].tolist() == [before, before, 5]
    assert batch.next_obs[0, :, 0, 0].tolist() == [before, 5, 6]


@pytest.mark.parametrize("padding", ["reset", "zeros"])
def test_a_black_first_frame_decides_nothing(padding: str) -> None:
    buffer = plain_buffer()
    buffer.add(episode(padding, 0, 7))
    assert "padding" not in buffer.state_dict()
    buffer.add(episode(padding, 5, 6))
    assert buffer.state_dict()["padding"] == padding
    buffer.add(episode("zeros" if padding == "reset" else "reset", 0, 9))
    for head, (first, then) in zip((0, 2, 4), ((0, 7), (5, 6), (0, 9)), strict=True):
        batch = buffer.gather(np.zeros(1, int), np.array([head]))
        assert np.array_equal(batch.obs[0], stacked(padding, frames_of(first, then))[0])
        assert np.array_equal(batch.next_obs[0], stacked(padding, frames_of(first, then))[1])


@pytest.mark.parametrize("padding", ["reset", "zeros"])
@pytest.mark.parametrize("restored", [False, True])
def test_a_mix_is_refused_and_leaves_no_trace(padding: str, restored: bool) -> None:
    buffer = plain_buffer()
    buffer.add(episode(padding, 5, 6))
    if restored:
        again = plain_buffer()
        again.load_state_dict(as_saved(buffer))
        buffer = again
    before = contents(buffer.state_dict())
    names = {"reset": "its first frame", "zeros": "zeros"}
    other = "zeros" if padding == "reset" else "reset"
    message = f"env 0: .* padded by {names[other]}, but those of earlier episodes by {names[padding]}"
    with pytest.raises(EnvError, match=message):
        buffer.add(episode(other, 5, 6))
    assert contents(buffer.state_dict()) == before


def test_a_mix_within_one_step_is_refused_before_anything_is_decided() -> None:
    buffer = ImageReplayBuffer(60, (3, 2, 2), (), np.int64, stack=3, num_envs=2)
    obs, next_obs = (
        np.stack([stacked(padding, frames_of(5, 6))[i] for padding in ("reset", "zeros")]) for i in (0, 1)
    )
    end, no = np.ones(2, bool), np.zeros(2, bool)
    both = Transitions(np.arange(2), obs, np.zeros(2, int), np.ones(2), next_obs, end, no)
    with pytest.raises(EnvError, match=r"env 1: .* padded by zeros"):
        buffer.add(both)
    assert buffer._stacks.padding is None
    assert len(buffer) == 0


@pytest.mark.parametrize("first", [[1, 5, 5], [0, 5, 5], [5, 5, 0], [0, 4, 5]])
def test_other_beginnings_are_refused(first: list[int]) -> None:
    obs = frames_of(*first)
    with pytest.raises(EnvError, match=r"copies of the first one .* or all zero"):
        plain_buffer().add(one_step(obs, np.concatenate([obs[1:], frames_of(9)])))


@pytest.mark.parametrize("frame", [(4, 4), (3, 3), (2, 2, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
def test_a_single_pixel_that_is_not_that_of_the_step_before_is_seen(
    frame: tuple[int, ...], dtype: Any
) -> None:
    world = ImageWorld(2, frame=frame, dtype=dtype, stack=3)
    for place in range(2 * int(np.prod(frame))):
        step = world.step(ends=0.0)
        step.next_obs[1].reshape(-1)[place] ^= True
        with pytest.raises(EnvError, match=r"env 1: .* the older ones are not those of the step before"):
            world.buffer(capacity=60).add(step)


def test_a_state_from_before_there_was_a_choice_means_repeated_frames() -> None:
    buffer = plain_buffer()
    buffer.add(episode("reset", 5, 6))
    state = as_saved(buffer)
    del state["padding"]
    again = plain_buffer()
    again.load_state_dict(state)
    with pytest.raises(EnvError, match="padded by zeros"):
        again.add(episode("zeros", 5, 6))
    again.add(episode("reset", 5, 6))
    assert len(again) == 2


def test_only_known_paddings_are_loaded() -> None:
    buffer = plain_buffer()
    buffer.add(episode("zeros", 5, 6))
    with pytest.raises(CheckpointError, match="padding 'mirror'"):
        plain_buffer().load_state_dict({**as_saved(buffer), "padding": "mirror"})


def test_a_stack_must_be_the_first_dimension() -> None:
    for shape, stack in (((3, 4, 5), 4), ((4,), 4), ((4, 4), 0)):
        with pytest.raises(ValueError, match="are no stacks of"):
            ImageReplayBuffer(60, shape, stack=stack)


# Masks


def test_masks_take_memory_once_there_are_some() -> None:
    world = ImageWorld(1)
    buffer = world.buffer(capacity=1_000)
    before = buffer.nbytes
    buffer.add(world.step(ends=0.0))
    assert buffer.nbytes == before
    assert buffer.sample(2).next_mask is buffer.sample(2).mask is None
    world.masked = True
    buffer.add(world.step(ends=0.0))
    assert buffer.nbytes == before + ACTIONS * buffer._ring
    batch = buffer.gather(np.zeros(2, int), np.arange(2))
    assert batch.mask.all()  # nobody had said anything about these
    assert np.array_equal(batch.next_mask[1], world.steps[0][1].fields["next_mask"])
    assert batch.next_mask[0].all()


def test_masks_of_obs_are_only_given_where_they_are_asked_for() -> None:
    world = ImageWorld(1, masked=True)
    buffer = world.buffer(keep_masks=False)
    buffer.add(world.step())
    assert buffer.sample(1).mask is None
    assert buffer.sample(1).next_mask is not None


def test_masks_beyond_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ImageWorld(1, masked=True)
    buffer = world.buffer()
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 10)
    with pytest.raises(ConfigError, match=r"algo_kwargs.buffer_size: .* the largest that fits is"):
        buffer.add(world.step())


def test_masks_that_do_not_belong_to_their_rows_are_refused() -> None:
    world = ImageWorld(1, masked=True)
    buffer = world.buffer()
    for _ in live(world, 30, buffer):
        pass
    good = as_saved(buffer)
    name = next(iter(good["segments"]))
    masks = good["segments"][name]["masks"]
    for bad in (None, masks[:, :2], masks.astype(np.uint8), masks[1:]):
        state = {**good, "segments": {**good["segments"], name: {**good["segments"][name], "masks": bad}}}
        with pytest.raises(CheckpointError, match="masks"):
            world.buffer().load_state_dict(state)
    for actions in (None, ACTIONS + 1, "3", -1):
        with pytest.raises(CheckpointError, match="masks"):
            world.buffer().load_state_dict({**good, "masked_actions": actions})


# Memory


def test_stacks_take_a_third_of_whole_transitions_at_most() -> None:
    buffer = ImageReplayBuffer(100_000, (4, 84, 84), (), np.int64, stack=4)
    whole = 100_000 * 2 * 4 * 84 * 84
    arrays = [buffer._rings.frames, buffer._rings.rows, buffer._heads]
    assert buffer.nbytes == sum(array.nbytes for array in arrays)
    assert buffer._rings.frames.nbytes >= 100_000 * 84 * 84
    assert buffer.nbytes <= 1.01 * 100_000 * buffer.bytes_per_frame
    assert buffer.nbytes <= whole / 3
    assert buffer.nbytes <= 0.13 * whole


def test_states_of_whole_transitions_are_refused_by_name() -> None:
    plain = ReplayBuffer(60, (3, 2, 2), np.uint8)
    with pytest.raises(CheckpointError, match="holds whole transitions"):
        plain_buffer().load_state_dict(plain.state_dict())
