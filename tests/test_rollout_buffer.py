"""Rollouts: what is dealt out is what happened, and advantages are what their definition says."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training import native
from rl_training.data import Transitions
from rl_training.data import rollout_buffer as module
from rl_training.data.rollout_buffer import Rollout, RolloutBuffer, advantages, next_values
from rl_training.errors import CheckpointError

GAMMA, LAMBDA = 0.9, 0.7
EPISODE, STEP = np.array([0, 1, 0], np.float32), np.array([0, 0, 1], np.float32)


class World:
    """Environments that end at random; an observation tells the environment, the episode and the step."""

    def __init__(self, num_envs: int, seed: int = 0, ends: float = 0.2, next_step: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.obs = np.array([[env, 0, 0] for env in range(num_envs)], np.float32)
        self.ends, self.next_step = ends, next_step
        self.resetting = np.zeros(num_envs, bool)
        self.made: dict[tuple[float, ...], tuple[Any, ...]] = {}

    def step(self) -> Transitions:
        rng, count = self.rng, len(self.obs)
        envs = np.flatnonzero(~self.resetting)
        terminated, truncated = (rng.random((2, count)) < self.ends)[:, envs]
        obs = self.obs[envs]
        next_obs = obs + STEP
        action, reward = rng.integers(0, 4, count)[envs], rng.normal(size=count)[envs]
        done = terminated | truncated
        for i in range(len(envs)):
            self.made[tuple(obs[i])] = (reward[i], terminated[i], truncated[i], tuple(next_obs[i]))
        self.obs[envs] = np.where(done[:, None], (obs + EPISODE) * (1, 1, 0), next_obs)
        self.resetting[:] = False
        if self.next_step:
            self.resetting[envs] = done
        return Transitions(envs, obs, action, reward, next_obs, terminated, truncated, mask=self._mask(obs))

    def _mask(self, obs: Any) -> Any:
        return (obs[:, 2:].astype(int) >> np.arange(4)) % 2 == 0


def make_buffer(n_steps: int, num_envs: int, total: int = 10**9) -> RolloutBuffer:
    return RolloutBuffer(n_steps, num_envs, (3,), total_timesteps=total)


def rollouts(buffer: RolloutBuffer, world: World, count: int) -> list[Rollout]:
    dealt: list[Rollout] = []
    steps = 0
    while len(dealt) < count:
        step = world.step()
        buffer.add(step)
        steps += len(step)
        dealt += [copy.deepcopy(rollout) for rollout in buffer.batches(steps)]
    return dealt


def value_of(obs: Any) -> Any:
    """A made-up value of observations [..., 3]."""
    return np.sin(obs @ np.array([1.0, 2.3, 0.7])).astype(np.float32)


def worth(rollout: Rollout, gamma: float = GAMMA, lam: float = LAMBDA) -> Any:
    values = value_of(rollout.obs)
    following = next_values(rollout, values, value_of(rollout.extra_obs))
    return advantages(rollout.reward, values, following, rollout.done, rollout.valid, gamma, lam)


def brute_force(world: World, obs: tuple[float, ...], kept: set[tuple[float, ...]], lam: float) -> float:
    """The sum of (gamma lambda)^k delta from an observation on, up to its episode's or the rollout's end."""
    total, factor = 0.0, 1.0
    while obs in kept:
        reward, terminated, truncated, after = world.made[obs]
        ahead = 0.0 if terminated else GAMMA * float(value_of(np.array(after)))
        total += factor * (reward + ahead - float(value_of(np.array(obs))))
        factor *= GAMMA * lam
        if terminated or truncated:
            break
        obs = after
    return total


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(module, "library", lambda: None)
    else:
        assert native.library() is not None


@given(
    num_envs=st.integers(1, 4),
    n_steps=st.integers(1, 9),
    lam=st.sampled_from([0.0, 0.5, 1.0]),
    next_step=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_advantages_equal_a_brute_force_sum(
    num_envs: int, n_steps: int, lam: float, next_step: bool, seed: int
) -> None:
    world = World(num_envs, seed, next_step=next_step)
    for rollout in rollouts(make_buffer(n_steps, num_envs), world, 4):
        found = worth(rollout, lam=lam)
        kept = {tuple(obs) for obs in rollout.obs[rollout.valid]}
        assert len(kept) == rollout.valid.sum()
        for t, env in zip(*np.nonzero(rollout.valid), strict=True):
            expected = brute_force(world, tuple(rollout.obs[t, env]), kept, lam)
            assert found[t, env] == pytest.approx(expected, abs=1e-5)


def test_the_ends_of_lambda_are_one_step_errors_and_whole_returns() -> None:
    world = World(2, seed=3)
    (rollout,) = rollouts(make_buffer(30, 2), world, 1)
    values = value_of(rollout.obs)
    following = next_values(rollout, values, value_of(rollout.extra_obs))
    assert worth(rollout, lam=0.0) == pytest.approx(rollout.reward + GAMMA * following - values, abs=1e-6)
    returns = worth(rollout, lam=1.0) + values
    for t, env in zip(*np.nonzero(rollout.valid[:-1] & ~rollout.done[:-1]), strict=True):
        assert returns[t, env] == pytest.approx(
            rollout.reward[t, env] + GAMMA * returns[t + 1, env], abs=1e-5
        )


def test_a_truncation_is_worth_the_value_of_its_last_observation_and_a_termination_nothing() -> None:
    buffer = RolloutBuffer(3, 1, (3,), total_timesteps=100)
    flags = [(False, True), (True, True), (False, False)]
    for t, (terminated, truncated) in enumerate(flags):
        obs = np.array([[0, t, 0]], np.float32)
        ends = np.array([terminated]), np.array([truncated])
        buffer.add(Transitions(np.array([0]), obs, np.array([0]), np.array([1.0]), obs + STEP, *ends))
    (rollout,) = buffer.batches(3)
    assert rollout.after[:, 0].tolist() == [0, -2, 1]
    assert rollout.extra_obs.tolist() == [[0, 0, 1], [0, 2, 1]]
    following = next_values(rollout, np.full((3, 1), 7.0), np.array([10.0, 20.0]))
    assert following[:, 0].tolist() == [10.0, 0.0, 20.0]


@given(seed=st.integers(0, 2**32), num_envs=st.integers(1, 3))
def test_rows_that_autoreset_makes_up_change_nothing(seed: int, num_envs: int) -> None:
    world = World(num_envs, seed, next_step=True)
    for rollout in rollouts(make_buffer(8, num_envs), world, 3):
        assert rollout.starts[rollout.valid].tolist() == (rollout.obs[rollout.valid][:, 2] == 0).tolist()
        for t, env in zip(*np.nonzero(rollout.valid), strict=True):
            reward, terminated, truncated, after = world.made[tuple(rollout.obs[t, env])]
            assert rollout.reward[t, env] == pytest.approx(reward)
            assert (rollout.terminated[t, env], rollout.truncated[t, env]) == (terminated, truncated)
            place = rollout.after[t, env]
            if place >= 0:
                assert tuple(rollout.extra_obs[place]) == after
            elif place == -1:
                assert tuple(rollout.obs[t + 1, env]) == after
            else:
                assert terminated
            assert rollout.mask is not None
            assert np.array_equal(rollout.mask[t, env], world._mask(rollout.obs[t, env][None])[0])


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_step_in_which_everything_is_reset_has_no_row(n_steps: int) -> None:
    world, buffer = World(1, ends=0.8, next_step=True), make_buffer(n_steps, 1)
    for rollout in rollouts(buffer, world, 10):
        assert rollout.valid.tolist() == [[True]] * n_steps


def test_a_rollout_is_dealt_out_once_and_the_last_one_ends_with_the_budget() -> None:
    world, buffer = World(2), make_buffer(8, 2, total=44)
    sizes = []
    for steps in range(2, 45, 2):
        buffer.add(world.step())
        sizes += [(steps, rollout.valid.sum()) for rollout in buffer.batches(steps)]
    assert sizes == [(16, 16), (32, 16), (44, 12)]
    assert len(buffer) == 0
    assert list(buffer.batches(44)) == []


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_rollout_under_way_comes_back_exactly(cut: int, next_step: bool) -> None:
    world = World(3, seed=1, next_step=next_step)
    original, restored = make_buffer(8, 3), make_buffer(8, 3)
    steps = [world.step() for _ in range(40)]
    for step in steps[:cut]:
        original.add(step)
        list(original.batches(0))
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    for step in steps[cut:]:
        dealt = []
        for buffer in (original, restored):
            buffer.add(step)
            dealt.append(list(buffer.batches(0)))
        for one, other in zip(*dealt, strict=True):
            assert np.array_equal(worth(one)[one.valid], worth(other)[other.valid])
            assert np.array_equal(one.starts, other.starts)
            assert np.array_equal(one.action[one.valid], other.action[other.valid])


def test_an_interruption_ends_episodes_as_a_truncation_would() -> None:
    world, buffer = World(2, ends=0.0), make_buffer(4, 2)
    for _ in range(2):
        buffer.add(world.step())
    buffer.interrupt()
    other = World(2, seed=5, ends=0.0)
    for _ in range(2):
        buffer.add(other.step())
    (rollout,) = buffer.batches(0)
    assert rollout.truncated.tolist() == [[False, False], [True, True], [False, False], [False, False]]
    assert rollout.starts.tolist() == [[True, True], [False, False], [True, True], [False, False]]
    assert rollout.extra_obs[rollout.after[1]].tolist() == [[0, 0, 2], [1, 0, 2]]


def broken(state: dict[str, Any], name: str) -> dict[str, Any]:
    blocks = state["blocks"]
    return {
        "too many steps": {**state, "blocks": {k: np.concatenate([v] * 9) for k, v in blocks.items()}},
        "another dtype": {**state, "blocks": {**blocks, "reward": blocks["reward"].astype(np.float64)}},
        "a missing field": {**state, "blocks": {k: v for k, v in blocks.items() if k != "starts"}},
        "other environments": {**state, "last_obs": np.zeros((5, 3), np.float32)},
        "a row that is not there": {
            **state,
            "final_rows": np.array([[99, 0]]),
            "final_obs": np.zeros((1, 3)),
        },
        "masks of other rows": {**state, "mask": np.ones((1, 2, 4), bool)},
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "too many steps",
        "another dtype",
        "a missing field",
        "other environments",
        "a row that is not there",
        "masks of other rows",
    ],
)
def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    world, buffer = World(2), make_buffer(8, 2)
    for _ in range(3):
        buffer.add(world.step())
    with pytest.raises(CheckpointError, match="replay: "):
        make_buffer(8, 2).load_state_dict(broken(buffer.state_dict(), name))
