"""Networks with a memory: whole sequences are what single steps would give, for Q-heads and for actor-critics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.models.distributions import CategoricalHead, GaussianHead
from rl_training.models.recurrent.body import RecurrentBody, State
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
from rl_training.models.recurrent.mirror import actor_critic_mirror

T, B, OBS, ACTIONS = 9, 5, 3, 4
OPTIONS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"core": "gru"},
    "two layers": {"core_layers": 2},
    "past": {"prev_action": True, "prev_reward": True},
    "shared": {"shared": True},
    "heads": {"head_sizes": (6,)},
    "no encoder": {"hidden_sizes": ()},
    "normalised": {"normalize_obs": True},
}


def make(name: str, seed: int = 0) -> LSTMActorCritic:
    torch.manual_seed(seed)
    options = {"core_size": 7, "hidden_sizes": (6,), **OPTIONS[name]}
    network = LSTMActorCritic((OBS,), CategoricalHead(ACTIONS), ACTIONS, **options)
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return network


def inputs(seed: int = 1) -> tuple[torch.Tensor, dict[str, Any], torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    obs = torch.randn(T, B, OBS, generator=rng)
    between = {
        "actions": torch.randint(ACTIONS, (T - 1, B), generator=rng),
        "rewards": torch.randn(T - 1, B, generator=rng),
    }
    starts = torch.rand(T, B, generator=rng) < 0.3
    return obs, between, starts


def step_by_step(network: LSTMActorCritic, obs: torch.Tensor, state: State, between: Any, starts: Any) -> Any:
    outputs, values = [], []
    for t in range(len(obs)):
        if t and "action" in state:
            state["action"] = between["actions"][t - 1] + 1
        if t and "reward" in state:
            state["reward"] = between["rewards"][t - 1]
        for name, tensor in state.items():
            tensor = tensor.clone()
            tensor[starts[t]] = 0
            state[name] = tensor
        out, value, state = network(obs[t], state)
        outputs.append(out)
        values.append(value)
    return torch.stack(outputs), torch.stack(values), state


@pytest.mark.parametrize("name", OPTIONS)
def test_a_sequence_with_resets_equals_single_steps_with_zeroing(name: str) -> None:
    network = make(name)
    obs, between, starts = inputs()
    state = {
        key: torch.randn_like(t) if t.is_floating_point() else t
        for key, t in network.initial_state(B).items()
    }
    known = between if network.body.prev_action else {}
    out, value, after = network.sequence(obs, dict(state), **known, starts=starts)
    expected = step_by_step(network, obs, dict(state), between, starts)
    torch.testing.assert_close(out, expected[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(value, expected[1], rtol=1e-5, atol=1e-6)
    for key in ("hidden", "cell", "critic_hidden", "critic_cell"):
        assert (key in after) == (key in expected[2])
        if key in after:
            torch.testing.assert_close(after[key], expected[2][key], rtol=1e-5, atol=1e-6)


def test_no_gradient_leaks_from_one_episode_into_another() -> None:
    network = make("lstm")
    obs, _, _ = inputs()
    obs.requires_grad_()
    starts = torch.zeros(T, B, dtype=torch.bool)
    starts[4] = True
    out, value, _ = network.sequence(obs, network.initial_state(B), starts=starts)
    (gradient,) = torch.autograd.grad(out[6].sum() + value[6].sum(), obs)
    assert (gradient[:4] == 0).all()
    assert (gradient[4:7] != 0).any(-1).all()
    assert (gradient[7:] == 0).all()


@pytest.mark.parametrize("name", OPTIONS)
def test_the_numpy_mirror_acts_as_the_network_does(name: str) -> None:
    network = make(name)
    if network.body.encoder[0].normalizer is not None:  # type: ignore[index]
        for body in (network.body, network.critic_body):
            body.encoder[0].normalizer.observe(np.random.default_rng(0).normal(2.0, 3.0, (50, OBS)))  # type: ignore[index]
    mirror = actor_critic_mirror(network)
    assert mirror is not None
    rng = np.random.default_rng(0)
    state = network.initial_state(B)
    carry = {key: tensor.numpy() for key, tensor in state.items()}
    for _ in range(4):
        obs = rng.normal(size=(B, OBS)).astype(np.float32)
        with torch.no_grad():
            out, _, state = network(torch.from_numpy(obs), state)
        found, carry = mirror(obs, carry)
        assert found == pytest.approx(out.numpy(), abs=1e-5)
        assert carry.keys() == state.keys()
        for key, tensor in state.items():
            assert carry[key] == pytest.approx(tensor.numpy(), abs=1e-5)


def test_actor_and_critic_have_parameters_of_their_own() -> None:
    for shared in (False, True):
        network = LSTMActorCritic((OBS,), GaussianHead((2,)), shared=shared)
        actor, critic = set(network.actor_parameters()), set(network.critic_parameters())
        assert not actor & critic
        assert actor | critic == set(network.parameters())
        assert network.log_std in actor
        memory = network.initial_state(3)
        assert ("critic_hidden" in memory) != shared


def test_drawing_acting_and_probabilities_belong_together() -> None:
    network = make("lstm")
    state = network.initial_state(B)
    obs = torch.randn(B, OBS)
    best, after = network.act(obs, state)
    drawn, log_prob, _ = network.sample(obs, state, np.random.default_rng(0))
    out, _, again = network(obs, state)
    assert torch.equal(best, out.argmax(1))
    torch.testing.assert_close(log_prob, out.log_softmax(1).gather(1, drawn[:, None])[:, 0])
    torch.testing.assert_close(after["hidden"], again["hidden"])


def test_a_body_is_shared_by_heads_of_any_kind() -> None:
    from rl_training.models.recurrent.lstm_q_network import LSTMQNetwork

    assert issubclass(LSTMQNetwork, RecurrentBody)
    assert isinstance(make("lstm").body, RecurrentBody)
