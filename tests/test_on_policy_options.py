"""Every option of the on-policy family reaches the object it is meant for: set to an odd value, built, read back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.on_policy import BOX, make_learner
from rl_training import load_config
from rl_training.algorithms.ppo import loss_options
from rl_training.models.distributions import GaussianHead, TanhGaussianHead
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

ALGOS = ("ppo", "a2c", "recurrent_ppo", "trpo")


@pytest.mark.parametrize("algo", ALGOS)
def test_options_that_all_share(algo: str) -> None:
    learner = make_learner(
        algo,
        BOX,
        n_steps=7,
        log_std_init=-1.25,
        learning_rate=0.037,
        adam_eps=0.003,
        max_grad_norm=3.5,
        gamma=0.77,
        normalize_reward=True,
        hidden=(5,),
        activation="relu",
        normalize_obs=True,
    )
    assert learner.experience.n_steps == 7
    assert learner.network.log_std.tolist() == [-1.25, -1.25]
    (optimizer,) = learner.optimizers.values()
    assert (optimizer.lr, optimizer.eps, optimizer.max_grad_norm) == (0.037, 0.003, 3.5)
    assert learner.reward_scale.gamma == 0.77
    assert learner.reward_scale.returns.shape == (2,)
    assert len(learner._normalizers) >= 1
    assert any(p.shape[0] == 5 for p in learner.network.parameters())


@pytest.mark.parametrize("algo", ALGOS)
def test_the_distribution_and_the_first_weights(algo: str) -> None:
    assert type(make_learner(algo, BOX).head) is GaussianHead
    assert type(make_learner(algo, BOX, action_distribution="tanh_gaussian").head) is TanhGaussianHead
    small, plain = (make_learner(algo, orthogonal_init=on).network.actor.linears[-1] for on in (True, False))
    assert float(small.bias.abs().max()) == 0.0 < float(plain.bias.abs().max())
    assert float(small.weight.abs().max()) < 0.02 < float(plain.weight.abs().max())


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo"])
def test_what_is_shared_between_actor_and_critic(algo: str) -> None:
    assert [make_learner(algo, shared_trunk=on).network.shared for on in (False, True)] == [False, True]


def test_the_options_of_the_surrogate_reach_the_loss_and_the_compiled_code() -> None:
    odd: dict[str, Any] = {
        "ent_coef": 0.11,
        "vf_coef": 0.23,
        "value_clipping": "maximum",
        "clip_range_vf": 0.31,
        "normalize_advantage": False,
    }
    learner = make_learner("ppo", **odd)
    assert loss_options(learner.config, 0.4) == {"clip_range": 0.4, **odd}
    found = learner._compiled._surrogate
    assert (found.ent_coef, found.vf_coef, found.clip_range_vf) == (0.11, 0.23, 0.31)
    assert (found.value_clipping, found.normalize_advantage) == (2, 0)


def test_the_memory_of_recurrent_ppo() -> None:
    learner = make_learner(
        "recurrent_ppo",
        core="gru",
        core_size=9,
        core_layers=2,
        head_sizes=[4],
        prev_action=True,
        prev_reward=True,
    )
    body = learner.network.body
    assert isinstance(body.core, torch.nn.GRU)
    assert (body.core_size, body.core_layers, body.prev_action, body.prev_reward) == (9, 2, True, True)
    assert learner.network.actor.sizes == (9, 4, 3)
    held = learner.experience._carry
    assert held.keys() == learner.initial_carry(1).keys() == {"hidden", "action", "reward", "critic_hidden"}
    assert held["hidden"].shape == (8, 2, 2, 9)


@pytest.mark.parametrize("algo", ALGOS)
def test_rollouts_of_one_step_of_an_environment_that_is_reset_in_between(algo: str) -> None:
    config = {
        "algo": algo,
        "env": {"id": "CartPole-v1", "vectorization": "native", "kwargs": {"max_episode_steps": 8}},
        "total_timesteps": 60,
        "algo_kwargs": {"n_steps": 1, "normalize_reward": True},
        "network": {"hidden_sizes": [4], "normalize_obs": True},
    }
    run = Run(load_config(config))
    for _ in train(run):
        pass
    run.close()
    assert run.clock.episodes > 0
    model = run.algorithm.state_dict()["model"]
    counts = [
        float(value) for part in model.values() for name, value in part.items() if name.endswith("count")
    ]
    assert len(counts) >= 2
    assert set(counts) == {60.0}
