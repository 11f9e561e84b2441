"""DRQN with a memory that begins anew with every sequence: acting and learning see the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers.q_learning import make_learner
from rl_training.algorithms.drqn import learned_steps
from rl_training.data import RecurrentReplayBuffer, Transitions, carry_on
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.spaces import Array

OBS, ACTIONS = 3, 4


def drqn(burn_in: int = 3, period: int = 5, **options: Any) -> Any:
    settings = {"core_size": 8, "prev_action": True, "prev_reward": True, **options}
    lengths = {"sequence_length": burn_in + period, "burn_in": burn_in, "restart_memory": True}
    return make_learner((OBS,), ACTIONS, (6,), algo="drqn", **{**lengths, **settings})


def played(
    learner: Any, envs: int, steps: int
) -> tuple[RecurrentReplayBuffer, list[Array], dict[Any, Array]]:
    """Act on random observations; return the buffer, all observations, and the Q-values by environment and row."""
    config = learner.config
    buffer = RecurrentReplayBuffer(
        1000,
        (OBS,),
        length=config.sequence_length,
        period=config.period,
        state=config.stored_memory(),
        num_envs=envs,
    )
    rng = np.random.default_rng(3)
    obs, carry, seen = rng.normal(size=(envs, OBS)).astype(np.float32), None, {}
    everything = [obs]
    for t in range(steps):
        q, _ = learner.step(obs, learner.initial_carry(envs) if carry is None else carry)
        seen.update({(env, int(buffer._head[env])): q[env] for env in range(envs)})
        decision = learner.act(obs, carry, explore=True)
        following = rng.normal(size=(envs, OBS)).astype(np.float32)
        done, reward = np.arange(envs) * 9 + 17 == t, rng.normal(size=envs)
        none = np.zeros(envs, bool)
        buffer.add(
            Transitions(np.arange(envs), obs, decision.action, reward, following, done, none, None, carry)
        )
        obs, carry = following, carry_on(decision.carry, reward, done)
        everything.append(obs)
    return buffer, everything, seen


@pytest.mark.parametrize("core", ["lstm", "gru"])
@pytest.mark.parametrize(("burn_in", "period"), [(4, 4), (3, 5), (1, 6)])
def test_every_step_is_learned_by_the_memory_that_it_was_acted_by(
    burn_in: int, period: int, core: str
) -> None:
    learner = drqn(burn_in, period, core=core)
    buffer, _, seen = played(learner, envs=3, steps=60)
    buffer.interrupt()
    slots = buffer._drawable()
    batch = buffer.gather(slots)
    with torch.no_grad():
        q = learner.unroll(learner.online, batch).numpy()
    learned = learned_steps(batch, burn_in).numpy()
    compared, whole = set(), 0
    for b, slot in enumerate(slots):
        for t in np.flatnonzero(learned[:, b]):
            where = int(buffer._env[slot]), int(buffer._start[slot] + t)
            np.testing.assert_allclose(q[t, b], seen[where], rtol=0, atol=1e-5)
            compared.add(where)
        # What follows a whole chunk is acted on by the memory of the next one; returns end with its value.
        if (
            batch.mask[:, b].all()
            and (behind := (int(buffer._env[slot]), int(buffer._start[slot]) + len(q) - 1)) in seen
        ):
            np.testing.assert_allclose(q[-1, b], seen[behind], rtol=0, atol=1e-5)
            whole += 1
    assert whole > 5
    assert compared == seen.keys(), "every step should be learned"


def test_what_is_older_than_a_sequence_is_forgotten() -> None:
    learner = drqn(3, 5)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(30, 1, OBS)).astype(np.float32)

    def last(changed: int) -> Array:
        carry = learner.initial_carry(1)
        for t, row in enumerate(obs):
            q, carry = learner.step(row + 1.0 * (t == changed), carry)
            carry["action"] = np.zeros(1, np.int64)
        return np.asarray(q[0])

    same = [t for t in range(30) if np.array_equal(last(t), last(-1))]
    # The step at 29 is learned in the sequence from 25 on if that is behind its burn-in: 25 + 3 <= 29.
    assert same == list(range(25))


def test_neither_hidden_nor_cell_state_is_stored() -> None:
    learner = drqn()
    buffer, _, _ = played(learner, envs=1, steps=20)
    assert buffer.sample(4).state.keys() == {"action", "reward"}
    plain = make_learner((OBS,), ACTIONS, (6,), algo="drqn", core_size=8)
    assert plain.config.stored_memory().keys() == {"hidden", "cell"}


def test_gradients_flow_back_through_the_burn_in() -> None:
    learner = drqn(4, 4)
    buffer, _, _ = played(learner, envs=1, steps=14)
    batch = buffer.gather(np.array([1]))
    assert not batch.starts.any()
    batch.obs.requires_grad_()
    grad = torch.autograd.grad(learner._loss(batch)[0], batch.obs)[0]
    assert grad[:8, 0].any(1).all()


@pytest.mark.parametrize(("burn_in", "length"), [(0, 8), (5, 9)])
def test_a_burn_in_that_no_memory_could_follow_is_refused(burn_in: int, length: int) -> None:
    settings = {
        "burn_in": burn_in,
        "sequence_length": length,
        "sequence_period": None,
        "restart_memory": True,
    }
    with pytest.raises(
        ConfigError, match=r"algo_kwargs.restart_memory: needs a burn-in from 1 to the \d steps"
    ):
        load_config("drqn/tmaze", {f"algo_kwargs.{name}": value for name, value in settings.items()})


def test_overlapping_sequences_are_refused() -> None:
    settings = {"burn_in": 2, "sequence_length": 9, "sequence_period": 4, "restart_memory": True}
    with pytest.raises(ConfigError, match=r"algo_kwargs.sequence_period: .*null or 7 .*, not 4"):
        load_config("drqn/tmaze", {f"algo_kwargs.{name}": value for name, value in settings.items()})
