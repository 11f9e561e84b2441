"""The compiled gradient of DQN is that of autograd through plain layers."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.q_learning import make_learner, random_batch, random_masks, weights_of
from rl_training import native
from rl_training.algorithms import DQN, dqn_loss
from rl_training.algorithms.declared.dqn import DQNConfig
from rl_training.errors import NonFiniteError
from rl_training.models import MLPQNetwork

pytestmark = pytest.mark.skipif(
    native.library() is None, reason="there was no C compiler when this was installed"
)


def by_autograd(learner, batch):
    """Loss, TD errors, metrics and gradient, by the network's own forward pass and autograd."""
    with torch.no_grad():
        next_target = learner.target(batch.next_obs)
        next_online = learner.online(batch.next_obs) if learner.config.double else None
    loss, error, metrics = dqn_loss(
        learner.online(batch.obs), next_target, next_online, batch, learner.config.loss
    )
    grads = torch.autograd.grad(loss, list(learner.online.parameters()))
    return loss.detach(), error, metrics, torch.cat([grad.flatten() for grad in grads])


def assert_same_gradient(learner, batch):
    loss, error, metrics, expected = by_autograd(learner, batch)
    learner.optimizer.grad.fill_(torch.nan)
    head = learner._compiled(batch)
    torch.testing.assert_close(learner.optimizer.grad, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.each.mean(), loss)
    torch.testing.assert_close(head.error, error, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.priority, error.abs(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.target.mean(), metrics["target_mean"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.value.mean(), metrics["q_value_mean"], rtol=1e-4, atol=1e-5)


def with_other_target(learner):
    """Move the target away from the online network, and scales and shifts away from ones and zeros."""
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for parameter in learner.online.mlp.norms.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("double", [False, True], ids=["", "double"])
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("dueling", [False, True], ids=["", "dueling"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "normalized"])
def test_every_option_of_the_loss(loss, weighted, double, masked, dueling, layer_norm):
    options = {"loss": loss, "double": double, "dueling": dueling, "layer_norm": layer_norm}
    learner = make_learner(num_actions=3, hidden=(16, 9), **options)
    batch = random_batch(
        size=32,
        num_actions=3,
        reward=3 * torch.randn(32, generator=torch.Generator().manual_seed(5)),
        weight=torch.linspace(0.0, 2.0, 32) if weighted else None,
        next_mask=torch.from_numpy(random_masks(0, 32, 3)) if masked else None,
    )
    error = by_autograd(with_other_target(learner), batch)[1]
    assert (error.abs() > 1).any()
    assert (error.abs() < 1).any()
    assert_same_gradient(learner, batch)


@pytest.mark.parametrize("hidden", [(), (7,), (33, 21), (5, 4, 6, 3), (120, 84)])
@pytest.mark.parametrize("size", [1, 6, 67])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "normalized"])
def test_every_shape(hidden, size, layer_norm):
    """Also widths and batches that are no multiple of what the loops take at a time."""
    learner = with_other_target(make_learner((5,), 3, hidden, layer_norm=layer_norm and hidden != ()))
    for rows in (size, size + 1):  # the work space follows the batch
        assert_same_gradient(learner, random_batch(size=rows, obs_shape=(5,), num_actions=3))


@pytest.mark.parametrize("kind", ["bytes", "normalized", "strided"])
def test_every_kind_of_observation(kind):
    learner = make_learner((2, 3), 2, normalize_obs=kind == "normalized")
    batch = random_batch(obs_shape=(2, 3))
    if kind == "bytes":
        batch.obs, batch.next_obs = (
            (x * 100).clamp(0, 255).to(torch.uint8) for x in (batch.obs, batch.next_obs)
        )
    elif kind == "normalized":
        learner.observe(np.random.default_rng(0).normal(3.0, 2.0, (50, 2, 3)).astype(np.float32))
    else:  # as in replay, where all of a transition lies together
        learner = make_learner((6,))
        batch = random_batch(
            obs_shape=(6,), weight=torch.rand(8), next_mask=torch.ones(8, 2, dtype=torch.bool)
        )
        for field in dataclasses.fields(batch):
            if (value := getattr(batch, field.name)) is not None:
                wide = torch.zeros(8, 3, *value.shape[1:], dtype=value.dtype)
                wide[:, 1] = value
                setattr(batch, field.name, wide[:, 1])
        assert not batch.reward.is_contiguous()
    assert_same_gradient(learner, batch)


@given(
    hidden=st.lists(st.integers(1, 40), max_size=3),
    obs=st.integers(1, 20),
    actions=st.integers(1, 9),
    size=st.integers(1, 40),
    options=st.fixed_dictionaries({name: st.booleans() for name in ("double", "dueling", "layer_norm")}),
    masked=st.booleans(),
)
def test_random_shapes(hidden, obs, actions, size, options, masked):
    options["layer_norm"] &= min(hidden, default=0) > 1
    learner = with_other_target(make_learner((obs,), actions, hidden, **options))
    mask = torch.from_numpy(random_masks(0, size, actions)) if masked else None
    assert_same_gradient(
        learner, random_batch(size=size, obs_shape=(obs,), num_actions=actions, next_mask=mask)
    )


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_updates_with_and_without_it_are_the_same(double, dueling, layer_norm):
    def trained(compiled):
        learner = make_learner(double=double, dueling=dueling, layer_norm=layer_norm)
        learner._compiled = learner._compiled if compiled else None
        for seed in range(20):
            learner.update(random_batch(seed))
        return weights_of(learner.online)

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("where", ["first", "last", "obs", "next_obs", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "normalized"])
def test_what_is_not_finite_is_not_lost_on_the_way(where, value, layer_norm):
    learner, batch = make_learner(hidden=(16, 8), layer_norm=layer_norm), random_batch()
    if where in ("first", "last"):
        layer = learner.online.mlp.linears[0 if where == "first" else -1]
        layer.weight.data.fill_(value)
    else:
        getattr(batch, where)[:] = value
    before = weights_of(learner.online)
    with pytest.raises(NonFiniteError):
        learner.update(batch)
    assert torch.equal(before.nan_to_num(7.0), weights_of(learner.online).nan_to_num(7.0))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("which", ["online", "target"])
@pytest.mark.parametrize("action", [0, 1, 2])
def test_what_is_not_a_number_in_one_output_is_chosen(which, action, double):
    learner = make_learner(num_actions=3, double=double)
    getattr(learner, which).mlp.linears[-1].bias.data[action] = np.nan
    if which == "target" and double:  # the online network chooses, and may leave it alone
        learner.online.mlp.linears[-1].bias.data[action] = 100.0
    with pytest.raises(NonFiniteError):
        learner.update(random_batch(num_actions=3, size=32))


def test_a_batch_too_large_goes_through_torch(monkeypatch):
    learner = make_learner((8,), hidden=(512, 512))
    assert learner._compiled.max_rows == native.MAX_PRODUCTS // 512**2

    def refuse(batch):
        raise AssertionError("not meant for so many")

    monkeypatch.setattr(type(learner._compiled), "__call__", lambda self, batch: refuse(batch))
    learner.update(random_batch(size=learner._compiled.max_rows + 1, obs_shape=(8,)))
    assert learner.updates == 1


@pytest.mark.parametrize("options", [{"activation": "tanh"}, {"noisy": True}, {"algo": "c51"}])
def test_other_networks_and_heads_have_none(options):
    assert getattr(make_learner(**options), "_compiled", None) is None


def frozen(network):
    network.mlp.linears[0].requires_grad_(False)


def extended(network):
    network.extra = torch.nn.Parameter(torch.ones(3))


def hooked(network):
    network.mlp.register_forward_hook(lambda module, given, out: 2 * out)


def other_norm(network):
    network.mlp.norms[0].eps = 0.1


@pytest.mark.parametrize("change", [frozen, extended, hooked, other_norm])
def test_a_network_that_was_changed_has_none_and_learns(change):
    torch.manual_seed(0)
    network = MLPQNetwork((3,), 2, (16,), layer_norm=True)
    change(network)
    learner = DQN(network, 2, DQNConfig(), total_timesteps=100, rng=np.random.default_rng(0))
    assert learner._compiled is None
    before = weights_of(learner.online)
    learner.update(random_batch())
    assert not torch.equal(before, weights_of(learner.online))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("obs", torch.zeros(8, 2)),
        ("next_obs", torch.zeros(8, 4)),
        ("reward", torch.zeros(8, 1)),
        ("discount", torch.zeros(7)),
        ("next_mask", torch.ones(8, 1, dtype=torch.bool)),
        ("next_mask", torch.ones(8, dtype=torch.bool)),
    ],
)
def test_a_wrong_shape_is_refused(field, value):
    with pytest.raises(ValueError, match=f"^{field}: expected the shape"):
        make_learner().update(random_batch(**{field: value}))


@pytest.mark.parametrize("action", [-1, 2, 10**8])
def test_an_action_that_does_not_exist_is_refused_before_anything_is_written(action):
    learner, batch = make_learner(), random_batch()
    batch.action[5] = action
    learner.optimizer.grad.fill_(7.0)
    with pytest.raises(IndexError, match=f"^action: {action} is none of 2"):
        learner.update(batch)
    assert (learner.optimizer.grad == 7.0).all()


@pytest.mark.parametrize("dueling", [False, True])
def test_with_a_value_beside_the_advantages_there_are_no_more_actions(dueling):
    learner = make_learner(num_actions=3, dueling=dueling)
    assert learner._compiled is not None
    batch = random_batch(num_actions=3)
    batch.action[5] = 2
    assert_same_gradient(learner, batch)
    batch.action[5] = 3
    learner.optimizer.grad.fill_(7.0)
    with pytest.raises(IndexError, match=r"^action: 3 is none of 3"):
        learner.update(batch)
    assert (learner.optimizer.grad == 7.0).all()


def test_other_types_and_layouts_are_converted():
    learner, plain = make_learner(), random_batch(weight=torch.rand(8))
    batch = dataclasses.replace(
        plain,
        obs=plain.obs.T.contiguous().T,
        action=plain.action.int(),
        reward=plain.reward.double(),
        weight=plain.weight.double(),
        next_mask=torch.ones(8, 4, dtype=torch.bool)[:, ::2],
    )
    torch.testing.assert_close(learner._compiled(batch).each, learner._compiled(plain).each)


def test_the_default_type_of_torch_does_not_matter():
    learner, batch = make_learner(), random_batch()
    expected = learner._compiled(batch).each
    torch.set_default_dtype(torch.float64)
    try:
        got = learner._compiled(batch).each
        learner._compiled(random_batch(size=31))  # makes new room
    finally:
        torch.set_default_dtype(torch.float32)
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_code_for_any_processor_gives_the_same(layer_norm):
    """The variant for processors without AVX2, by itself."""
    options = {"double": True, "dueling": True, "layer_norm": layer_norm}
    learner = with_other_target(make_learner((5,), 3, (33, 21), **options))
    library = native.library()
    assert library is not None
    learner._compiled._function = library.dqn_gradient_plain
    learner._compiled._function.argtypes = (ctypes.c_void_p,) * 3
    assert_same_gradient(learner, random_batch(size=67, obs_shape=(5,), num_actions=3))
