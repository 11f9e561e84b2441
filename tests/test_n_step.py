"""n-step folding against a loop over whole episodes that looks ahead instead of remembering."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training.data import NStepFolder, ReplayBuffer, ReplayExperience, Transitions
from rl_training.errors import CheckpointError

GAMMA = 0.5  # with whole-numbered rewards every sum is exact in floating point


def make_folder(n, num_envs, gamma=GAMMA, **options):
    return NStepFolder(n, gamma, num_envs, (2,), np.float32, (), np.int64, **options)


def steps_of(env, length, rng):
    """One env's life: (obs, action, reward, next_obs, terminated, truncated), obs being (env, moment)."""
    steps, moment = [], 0
    for _ in range(length):
        terminated, truncated = (bool(flag) for flag in rng.random(2) < 0.15)
        steps.append(
            (
                (env, moment),
                int(rng.integers(5)),
                int(rng.integers(-4, 5)),
                (env, moment + 1),
                terminated,
                truncated,
            )
        )
        moment += 2 if terminated or truncated else 1  # the next episode does not begin at the final obs
    return steps


def together(envs, steps):
    obs, action, reward, next_obs, terminated, truncated = zip(*steps, strict=True)
    return Transitions(
        np.array(envs),
        np.array(obs, np.float32),
        np.array(action),
        np.array(reward, np.float64),
        np.array(next_obs, np.float32),
        np.array(terminated),
        np.array(truncated),
    )


def interleave(lives, rng):
    """Deal the lives out in vector steps in which some envs may have no row, as under NEXT_STEP."""
    rest = [list(life) for life in lives]
    while any(rest):
        envs = [env for env, life in enumerate(rest) if life and rng.random() < 0.7]
        if envs:
            yield together(envs, [rest[env].pop(0) for env in envs])


def windows(life, n):
    """What folding should give: each head with its n rewards, fewer at an episode's end; open ones not yet."""
    expected = []
    for head, (obs, action, *_) in enumerate(life):
        total, power = 0.0, 1.0
        for m, (_, _, reward, next_obs, terminated, truncated) in enumerate(life[head : head + n], start=1):
            total += power * reward
            power *= GAMMA
            if m == n or terminated or truncated:
                expected.append((obs, action, total, 0.0 if terminated else power, next_obs))
                break
    return expected


def as_rows(folded):
    obs, action, reward, discount, next_obs, *_ = folded
    return [
        (tuple(o), int(a), float(r), float(d), tuple(s))
        for o, a, r, d, s in zip(obs, action, reward, discount, next_obs, strict=True)
    ]


def by_env(rows, num_envs):
    return [[row for row in rows if row[0][0] == env] for env in range(num_envs)]


@given(n=st.integers(1, 5), num_envs=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_windows_equal_a_brute_force_loop_and_every_transition_heads_one(n, num_envs, seed):
    rng = np.random.default_rng(seed)
    lives = [steps_of(env, 25, rng) for env in range(num_envs)]
    folder = make_folder(n, num_envs)
    rows = [row for step in interleave(lives, rng) for row in as_rows(folder.fold(step))]
    assert by_env(rows, num_envs) == [windows(life, n) for life in lives]


@given(n=st.integers(1, 5), num_envs=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_a_window_carries_the_mask_of_its_own_next_obs(n, num_envs, seed):
    rng = np.random.default_rng(seed)
    folder = make_folder(n, num_envs)
    for step in interleave([steps_of(env, 25, rng) for env in range(num_envs)], rng):
        assert folder.fold(step)[5] is None
    for step in interleave([steps_of(env, 25, rng) for env in range(num_envs)], rng):
        step.next_mask = mask_of(step.next_obs)
        *_, next_obs, next_mask, _ = folder.fold(step)
        assert next_mask.dtype == bool
        assert np.array_equal(next_mask, mask_of(next_obs))


@given(n=st.integers(1, 5), num_envs=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_a_window_carries_the_mask_of_its_head_where_that_is_asked_for(n, num_envs, seed):
    rng = np.random.default_rng(seed)
    folder, plain = make_folder(n, num_envs, keep_masks=True), make_folder(n, num_envs)
    for step in interleave([steps_of(env, 25, rng) for env in range(num_envs)], rng):
        step.mask = mask_of(step.obs)
        obs, *_, mask = folder.fold(step)
        assert plain.fold(step)[6] is None
        if len(obs):
            assert np.array_equal(mask, mask_of(obs))


def test_masks_of_open_windows_come_back_with_their_state():
    rng = np.random.default_rng(0)
    original, restored = make_folder(3, 2, keep_masks=True), make_folder(3, 2, keep_masks=True)
    steps = list(interleave([steps_of(env, 25, rng) for env in range(2)], rng))
    for step in steps[:8]:
        step.mask = mask_of(step.obs)
        original.fold(step)
    restored.load_state_dict(original.state_dict())
    for step in steps[8:]:
        step.mask = mask_of(step.obs)
        obs, *_, mask = restored.fold(step)
        if len(obs):
            assert np.array_equal(mask, mask_of(obs))
    with pytest.raises(CheckpointError, match="n-step mask"):
        restored.load_state_dict({**original.state_dict(), "mask": np.ones((2, 3, 5))})


def mask_of(obs):
    """Eight actions, allowed or not as the binary digits of the moment and of the env say."""
    return (obs[:, 1:].astype(int) * 4 + obs[:, :1].astype(int) >> np.arange(8)) % 2 == 1


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("length", [1, 2, 4, 7])
def test_an_ended_episode_leaves_nothing_behind(n, terminated, truncated, length):
    folder = make_folder(n, 1, gamma=0.9)
    rows = []
    for t in range(length):
        last = t == length - 1
        step = ((0, t), t, 1.0, (0, t + 1), terminated and last, truncated and last)
        rows += as_rows(folder.fold(together([0], [step])))
    assert [row[1] for row in rows] == list(range(length))
    for _, head, reward, discount, next_obs in rows:
        m = min(n, length - head)
        reaches_end = head + m == length
        assert reward == pytest.approx(sum(0.9**k for k in range(m)), rel=1e-14)
        assert discount == (0.0 if terminated and reaches_end else pytest.approx(0.9**m, rel=1e-14))
        assert next_obs == (0, head + m)
    after = folder.fold(together([0], [((0, 50), 0, 0.0, (0, 51), True, False)]))
    assert len(as_rows(after)) == 1


def test_selected_rows_keep_all_their_columns():
    life = steps_of(0, 4, np.random.default_rng(0))
    step = together([0, 1, 2, 3], life)
    keep = np.array([True, False, False, True])
    assert step.select(keep).next_mask is None
    step.next_mask = mask_of(step.next_obs)
    some = step.select(keep)
    assert some.env_ids.tolist() == [0, 3]
    for column in ("obs", "action", "reward", "next_obs", "terminated", "truncated", "next_mask"):
        assert np.array_equal(getattr(some, column), getattr(step, column)[keep])


def test_a_full_ring_holds_the_newest_windows():
    rng = np.random.default_rng(3)
    life = steps_of(0, 60, rng)
    buffer = ReplayBuffer(8, (2,))
    experience = ReplayExperience(
        buffer, make_folder(3, 1), batch_size=4, learning_starts=0, train_freq=1, gradient_steps=1
    )
    for step in interleave([life], rng):
        experience.add(step)
    kept = buffer.gather(np.arange(len(buffer)))
    rows = as_rows((kept.obs.numpy(), kept.action, kept.reward, kept.discount, kept.next_obs.numpy()))
    assert sorted(rows) == sorted(windows(life, 3)[-8:])


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_folder_restored_in_the_middle_of_windows_goes_on_exactly(n):
    rng = np.random.default_rng(n)
    steps = list(interleave([steps_of(env, 30, rng) for env in range(3)], rng))
    for cut in (1, 7, 16):
        original, restored = make_folder(n, 3), make_folder(n, 3)
        for step in steps[:cut]:
            original.fold(step)
        state = copy.deepcopy(original.state_dict())
        original.fold(steps[cut])
        restored.load_state_dict(state)
        restored.fold(steps[cut])
        for step in steps[cut + 1 :]:
            assert as_rows(restored.fold(step)) == as_rows(original.fold(step))


def test_the_state_is_not_changed_by_folding_on():
    folder = make_folder(3, 1)
    state = folder.state_dict()
    folder.fold(together([0], [((0, 7), 1, 2.0, (0, 8), False, False)]))
    assert not any(np.any(value) for value in state.values())


@pytest.mark.parametrize("other", [(4, 2), (3, 1)], ids=["n", "num_envs"])
def test_windows_of_another_shape_are_refused(other):
    with pytest.raises(CheckpointError, match="n-step obs"):
        make_folder(3, 2).load_state_dict(make_folder(*other).state_dict())


def test_impossible_window_counts_are_refused():
    state = make_folder(3, 2).state_dict()
    for count in (-1, 3):
        with pytest.raises(CheckpointError, match="out of range"):
            make_folder(3, 2).load_state_dict({**state, "open": np.array([0, count])})


def test_forgotten_windows_never_come_out():
    rng = np.random.default_rng(5)
    lives = [steps_of(env, 20, rng) for env in range(2)]
    folder = make_folder(3, 2)
    folder.fold(
        together(
            [0, 1], [((0, 900), 1, 1.0, (0, 901), False, False), ((1, 900), 1, 1.0, (1, 901), False, False)]
        )
    )
    folder.forget()
    rows = [row for step in interleave(lives, rng) for row in as_rows(folder.fold(step))]
    assert by_env(rows, 2) == [windows(life, 3) for life in lives]
