"""DrQ-v2: augmentation, networks and updates against closed forms and a plain transcription."""

from __future__ import annotations

import copy
import functools
import importlib.util
import math
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from rl_training.algorithms import DrQv2
from rl_training.algorithms.actor_critic import CriticLoss
from rl_training.algorithms.augmentation import draw_shifts, shift_images
from rl_training.algorithms.declared.drqv2 import DrQv2Config
from rl_training.data import Batch
from rl_training.errors import CheckpointError, NonFiniteError
from rl_training.models import DeterministicActor, DrQv2Encoder, DrQv2Network, SquashedGaussianActor, TwinQ
from rl_training.models.actors import clamp_straight_through, with_noise

OBS = (3, 3, 20, 20)


def load_plain() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "plain_drqv2.py"
    spec = importlib.util.spec_from_file_location("plain_drqv2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(module: nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def seen_by(agent: DrQv2, given: Batch) -> CriticLoss:
    return agent._critic_loss(given, *agent._see(given))


def learner(network: Any = None, obs: Any = OBS, seed: int = 0, actions: int = 2, **options: Any) -> DrQv2:
    torch.manual_seed(seed)
    network = network or DrQv2Network(obs, actions, (32, 32), feature_dim=10)
    config = DrQv2Config(**{"batch_size": 8, "learning_rate": 1e-3, "learning_starts": 0, **options})
    return DrQv2(
        network, config, action_shape=(actions,), total_timesteps=1000, rng=np.random.default_rng(seed)
    )


def batch(count: int = 8, obs: Any = OBS, actions: int = 2, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (2, count, *obs), generator=g, dtype=torch.uint8)
    return Batch(
        images[0],
        torch.rand((count, actions), generator=g) * 2 - 1,
        torch.randn(count, generator=g),
        torch.rand(count, generator=g),
        images[1],
    )


# Random shifts


def all_shifts(pad: int = 4) -> Any:
    return np.array([(down, right) for down in range(2 * pad + 1) for right in range(2 * pad + 1)])


def test_a_shift_is_a_slice_of_the_padded_image() -> None:
    shifts = all_shifts()
    images = torch.randint(0, 256, (81, 3, 2, 13, 11), dtype=torch.uint8)
    moved = shift_images(images, shifts, 4)
    padded = functional.pad(images.flatten(1, 2).float(), (4,) * 4, mode="replicate").unflatten(1, (3, 2))
    for i, (down, right) in enumerate(shifts.tolist()):
        assert torch.equal(moved[i].float(), padded[i, ..., down : down + 13, right : right + 11])
    assert torch.equal(moved[40], images[40]), "a shift by the padding shows the image itself"
    assert moved.dtype == torch.uint8


def test_a_shift_equals_bilinear_sampling() -> None:
    shifts = all_shifts()
    images = torch.randint(0, 256, (81, 9, 24, 24), dtype=torch.uint8)
    sampled = load_plain().grid_shift(images.float(), shifts, 4)
    # Bilinear weights are rounded to about 1e-6 of 255.
    assert (sampled - shift_images(images, shifts, 4)).abs().max() < 2e-2
    assert torch.equal(sampled.round(), shift_images(images, shifts, 4).float())


def test_shifts_are_uniform() -> None:
    drawn = Counter(map(tuple, draw_shifts(np.random.default_rng(0), 81_000, 4).tolist()))
    assert len(drawn) == 81
    spread = sum((count - 1000) ** 2 / 1000 for count in drawn.values())
    assert spread < 80 + 4 * math.sqrt(160)


class Spy(nn.Module):
    """An encoder that remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 4)
        self.seen: list[torch.Tensor] = []

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.seen.append(obs.clone())
        features: torch.Tensor = self.linear(obs.float().mean((1, 2, 3, 4)).unsqueeze(1))
        return features


def shift_of(image: torch.Tensor, original: torch.Tensor) -> tuple[int, int]:
    """Find by which shift an image came about, all frames of a stack by the same one."""
    shifts = all_shifts()
    every = shift_images(original.expand(81, *original.shape), shifts, 4)
    (found,) = [i for i in range(81) if torch.equal(every[i], image)]
    return tuple(shifts[found].tolist())


def test_current_and_next_images_are_shifted_apart() -> None:
    spy = Spy()
    agent = learner(DrQv2Network(OBS, 2, (8,), encoder=spy, encoder_size=4))
    given = batch(64)
    given.next_obs = given.obs
    agent.update(given)
    now, then = spy.seen
    pairs = [(shift_of(now[i], given.obs[i]), shift_of(then[i], given.obs[i])) for i in range(64)]
    assert sum(a == b for a, b in pairs) < 6
    assert len({a for a, _ in pairs}) > 30
    agent.update(given)
    again = [shift_of(spy.seen[2][i], given.obs[i]) for i in range(64)]
    assert sum(a == b for (a, _), b in zip(pairs, again, strict=True)) < 6, "drawn anew each time"


def test_without_augmentation_images_are_seen_as_they_are() -> None:
    spy = Spy()
    agent = learner(DrQv2Network(OBS, 2, (8,), encoder=spy, encoder_size=4), shift_pad=0)
    given = batch()
    agent.update(given)
    assert torch.equal(spy.seen[0], given.obs)
    assert torch.equal(spy.seen[1], given.next_obs)


# Networks


def test_encoder_of_the_paper() -> None:
    encoder = DrQv2Encoder((9, 84, 84))
    assert encoder.size == 39_200
    convs = [part for part in encoder.convs if isinstance(part, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size, c.stride) for c in convs] == [
        (9, 32, (3, 3), (2, 2)),
        *[(32, 32, (3, 3), (1, 1))] * 3,
    ]
    obs = torch.randint(0, 256, (2, 9, 84, 84), dtype=torch.uint8)
    plain = encoder.convs(obs.float() / 255.0 - 0.5).reshape(2, -1)
    assert torch.allclose(encoder(obs), plain, atol=1e-5)
    assert torch.allclose(encoder(obs.view(2, 3, 3, 84, 84)), plain, atol=1e-5), "a stack is its channels"
    assert (plain > 0).any()


@pytest.mark.parametrize("size", [(15, 15), (16, 30), (33, 17)])
def test_encoder_knows_its_size(size: tuple[int, int]) -> None:
    encoder = DrQv2Encoder((3, *size))
    assert encoder(torch.zeros((1, 3, *size), dtype=torch.uint8)).shape == (1, encoder.size)
    with pytest.raises(ValueError, match="at least 15"):
        DrQv2Encoder((3, 14, 20))


def test_weights_are_orthogonal() -> None:
    network = DrQv2Network((9, 84, 84), 2, (48, 48))
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            weight = module.weight.flatten(1)
            rows = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
            gain = 2.0 if isinstance(module, nn.Conv2d) else 1.0  # the square of that for ReLU
            assert torch.allclose(rows, gain * torch.eye(len(rows)), atol=1e-4)
            assert module.bias is not None
            assert not module.bias.any()


def test_parameters_are_parted() -> None:
    network = DrQv2Network(OBS, 2, (8,))
    actor, critic = (
        {id(p) for p in part} for part in (network.actor_parameters(), network.critic_parameters())
    )
    assert not actor & critic
    assert actor | critic == {id(p) for p in network.parameters()}
    assert {id(p) for p in network.encoder.parameters()} < critic
    trunks = [network.actor.trunk, network.critic.trunk]
    assert [type(part) for part in trunks[0]] == [nn.Linear, nn.LayerNorm, nn.Tanh]
    assert not torch.equal(trunks[0][0].weight, trunks[1][0].weight)


def test_actions_are_bounded_and_noise_is_clipped() -> None:
    network = DrQv2Network(OBS, 2, (8,))
    obs = batch(50).obs
    with torch.no_grad():
        mean = network.act(obs)
        noisy = network.sample(obs, torch.randn(50, 2) * 3, clip=0.3)
        free = network.sample(obs, torch.randn(50, 2) * 3)
    assert mean.abs().max() < 1
    with torch.no_grad():
        for p in network.actor.head.parameters():
            p.mul_(30)
        assert 0.9 < network.act(obs).abs().max() <= 1
    assert ((noisy - mean).abs() <= 0.3 + 1e-6).all()
    assert (noisy.abs() <= 1).all()
    assert (free.abs() == 1).any()


def test_the_clamp_lets_the_gradient_through() -> None:
    x = torch.tensor([-3.0, -1.0, 0.2, 5.0], requires_grad=True)
    clamped = clamp_straight_through(x)
    assert clamped.tolist() == pytest.approx([-1.0, -1.0, 0.2, 1.0])
    (gradient,) = torch.autograd.grad(clamped.sum(), x)
    assert gradient.tolist() == [1.0] * 4
    noisy = with_noise(x, torch.tensor([9.0, 0.1, 0.1, -9.0]), 0.3)
    assert noisy.tolist() == pytest.approx([-1.0, -0.9, 0.3, 1.0])


def test_squashed_gaussian_density_is_that_of_torch() -> None:
    torch.manual_seed(0)
    actor = SquashedGaussianActor(3, 2, (16,))
    x, noise = torch.randn(500, 3), torch.randn(500, 2)
    action, log_density = actor.sample(x, noise)
    mean, log_std = actor(x)
    base = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(
        base, torch.distributions.TanhTransform(cache_size=1)
    )
    raw = mean + log_std.exp() * noise
    exact = base.log_prob(raw.double()) - torch.log1p(-(torch.tanh(raw.double()) ** 2))
    assert torch.allclose(log_density.double(), exact.sum(-1), atol=1e-4)
    assert torch.allclose(squashed.log_prob(action * 0.999).sum(-1), log_density, atol=0.1)
    assert torch.equal(actor.mode(x), torch.tanh(mean))
    far = actor.sample(x, torch.full((500, 2), 60.0))[1]
    assert torch.isfinite(far).all()


def test_twin_values_are_two() -> None:
    critic = TwinQ(4, 2, (8,))
    first, second = critic(torch.randn(5, 4), torch.randn(5, 2))
    assert first.shape == second.shape == (5,)
    assert not torch.equal(first, second)


# Updates


def test_updates_are_those_of_a_plain_transcription() -> None:
    plain_module = load_plain()
    agent = learner(policy_delay=1, tau=0.05)
    agent.std = 0.5
    plain = plain_module.PlainDrQv2(
        plain_module.as_plain(agent.network), agent.config, np.random.default_rng(0), std=0.5
    )
    for i in range(5):
        given = batch(16, seed=i)
        critic_loss, actor_loss = plain.update(given)
        metrics = agent.update(given).metrics
        assert float(metrics["critic_loss"]) == pytest.approx(critic_loss, rel=1e-4)
        assert float(metrics["actor_loss"]) == pytest.approx(actor_loss, rel=1e-3, abs=1e-4)
    for (name, mine), theirs in zip(
        agent.network.named_parameters(), plain.network.parameters(), strict=True
    ):
        assert torch.allclose(mine, theirs, atol=2e-4), name
    for mine, theirs in zip(agent.target.parameters(), plain.target.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_the_actor_does_not_train_the_encoder() -> None:
    agent = learner()
    features = agent.network.encoder(batch().obs)
    before = copy.deepcopy(agent.network.state_dict())
    loss = agent._improve(batch(), features.detach())["actor_loss"]
    moved = {
        name for name, value in agent.network.state_dict().items() if not torch.equal(value, before[name])
    }
    assert moved
    assert all(name.startswith("actor.") for name in moved)
    assert torch.isfinite(loss)


def test_the_actor_loss_has_no_way_to_the_encoder() -> None:
    agent = learner(policy_delay=1)
    captured: list[torch.Tensor] = []
    step = agent.optimizers["actor"].step
    agent.optimizers["actor"].step = lambda loss: captured.append(loss) or step(loss)  # type: ignore[func-returns-value]
    for p in agent.network.parameters():
        p.requires_grad_(True)
    keep = torch.autograd.grad
    kept: Any = functools.partial(keep, retain_graph=True)
    torch.autograd.grad = kept
    try:
        agent.update(batch())
    finally:
        torch.autograd.grad = keep
    encoder = list(agent.network.encoder.parameters())
    gradients = torch.autograd.grad(captured[0], encoder, allow_unused=True)
    assert all(gradient is None for gradient in gradients)


def test_the_target_has_no_encoder() -> None:
    agent = learner()
    assert {name.split(".")[0] for name in agent.target.state_dict()} == {"trunk", "heads"}
    assert agent.target.state_dict().keys() == agent.network.critic.state_dict().keys()
    assert {"online", "target"} == agent.state_dict()["model"].keys()
    assert not any(p.requires_grad for p in agent.target.parameters())


def test_target_moves_by_polyak() -> None:
    agent = learner(learning_rate=1e-30, tau=0.1)
    online = flat(agent.network.critic).clone()
    agent._slow[0].flat.zero_()
    for k in range(1, 8):
        agent.update(batch(seed=k))
        assert torch.allclose(flat(agent.target), online * (1 - 0.9**k), atol=1e-6)
    assert torch.allclose(flat(agent.network.critic), online, atol=1e-20)


def test_actor_and_target_wait_for_their_turn() -> None:
    agent = learner(policy_delay=3)
    for i in range(1, 7):
        actor, target = agent.optimizers["actor"].flat.clone(), flat(agent.target).clone()
        critic = flat(agent.network.critic).clone()
        metrics = agent.update(batch(seed=i)).metrics
        turn = i % 3 == 0
        assert (not torch.equal(agent.optimizers["actor"].flat, actor)) == turn
        assert (not torch.equal(flat(agent.target), target)) == turn
        assert not torch.equal(flat(agent.network.critic), critic)
        assert ("actor_loss" in metrics) == turn
    assert agent.status()["actor_updates"] == 2
    assert agent.updates == 6


def test_the_target_takes_the_smaller_value_of_a_smoothed_action() -> None:
    agent = learner(std_clip=0.3)
    agent.std = 5.0
    seen: list[torch.Tensor] = []

    class Stub(nn.Module):
        def forward(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            seen.append(action)
            return torch.stack((action[:, 0], -action[:, 0]))

    agent.target = Stub()
    given = batch(32)
    target = seen_by(agent, given).target
    assert torch.allclose(target, given.reward - given.discount * seen[0][:, 0].abs())
    assert (seen[0].abs() <= 1).all()
    # With noise this large, nearly every action lies at the end of the clip, in each dimension by itself.
    spy = copy.deepcopy(agent)
    spy._rng = np.random.default_rng(0)
    spy.config = agent.config.model_copy(update={"shift_pad": 0})
    seen.clear()
    seen_by(spy, given)
    with torch.no_grad():
        mean = spy.network.actor(spy.network.encoder(given.next_obs))
    distance = (seen[0] - mean).abs()
    assert (distance <= 0.3 + 1e-6).all()
    assert (distance > 0.29).float().mean() > 0.5


def test_rewards_are_scaled_in_the_target_alone() -> None:
    given = batch(16)
    plain, scaled = learner(), learner(reward_scale=0.25)
    first, second = seen_by(plain, given), seen_by(scaled, given)
    target, smaller = first.target, second.target
    assert torch.equal(first.value, second.value)
    assert torch.allclose(target - smaller, 0.75 * given.reward, atol=1e-6)
    assert not torch.allclose(target, smaller)


def test_both_optimizers_have_the_options() -> None:
    agent = learner(learning_rate=2e-3, adam_eps=0.5, adam_betas=(0.3, 0.7), max_grad_norm=1e-3)
    assert agent.optimizers.keys() == {"critic", "actor"}
    for optimizer in agent.optimizers.values():
        made = (optimizer.lr, optimizer.eps, optimizer.betas, optimizer.max_grad_norm)
        assert made == (2e-3, 0.5, (0.3, 0.7), 1e-3)
    agent.update(batch())
    for optimizer in agent.optimizers.values():
        assert float(torch.linalg.vector_norm(optimizer.grad)) <= 1.001e-3, "cut off"


def test_the_learning_rate_follows_its_schedule() -> None:
    falling, constant = learner(learning_rate_final=1e-4), learner()
    for step, rate in ((0, 1e-3), (500, 5.5e-4), (1000, 1e-4), (5000, 1e-4)):
        falling.advance(step)
        constant.advance(step)
        assert falling.status()["learning_rate"] == pytest.approx(rate)
        assert falling.optimizers["critic"].lr == falling.optimizers["actor"].lr
        assert constant.optimizers["critic"].lr == constant.optimizers["actor"].lr == 1e-3
    other = learner(learning_rate_final=1e-4)
    falling.advance(500)
    other.load_state_dict(copy.deepcopy(falling.state_dict()))
    assert other.optimizers["actor"].lr == pytest.approx(5.5e-4)


def test_noise_follows_its_schedule() -> None:
    agent = learner(std_initial=1.0, std_final=0.1, std_duration=100)
    for steps, std in ((0, 1.0), (50, 0.55), (100, 0.1), (1_000, 0.1)):
        agent.advance(steps)
        assert agent.std == pytest.approx(std)
        assert agent.status()["exploration_std"] == pytest.approx(std)


def test_exploration_is_random_first_and_unclipped_then() -> None:
    agent = learner(learning_starts=10, std_initial=1.0, std_final=1.0)
    obs = batch(400).obs.numpy()
    mean = agent.act(obs, explore=False).action
    assert np.array_equal(mean, agent.act(obs, explore=False).action)
    first = agent.act(obs, explore=True).action
    assert np.abs(first).max() < 1
    assert abs(first.std() - 1 / np.sqrt(3)) < 0.03, "uniform"
    agent.advance(10)
    then = agent.act(obs, explore=True).action
    assert (np.abs(then) == 1).mean() > 0.1
    assert np.abs(then - mean).max() > 0.6
    assert then.dtype == mean.dtype == np.float32


def test_what_is_not_finite_does_not_reach_the_weights() -> None:
    agent = learner()
    before = copy.deepcopy(agent.state_dict()["model"])
    given = batch()
    given.reward[0] = math.nan
    with pytest.raises(NonFiniteError):
        agent.update(given)
    after = agent.state_dict()["model"]
    assert all(
        torch.equal(before[part][name], value) for part in before for name, value in after[part].items()
    )


def test_a_restored_learner_goes_on_bit_for_bit() -> None:
    agent, other = learner(policy_delay=2), learner(policy_delay=2, seed=1)
    for i in range(3):
        agent.update(batch(seed=i))
    agent.advance(500)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    other._rng = copy.deepcopy(agent._rng)
    for i in range(3):
        agent.update(batch(seed=i))
        other.update(batch(seed=i))
    assert other.std == agent.std
    assert (other.updates, other.actor_updates) == (6, 3)
    for mine, theirs in zip(agent.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(flat(agent.target), flat(other.target))
    with pytest.raises(CheckpointError):
        learner(DrQv2Network(OBS, 2, (16, 16))).load_state_dict(agent.state_dict())


# Linear-quadratic control


class Vectors(nn.Module):
    """Actor and critics straight on the observations, made of the shared pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Identity()
        self.actor = DeterministicActor(1, 1, (48, 48))
        self.critic = TwinQ(1, 1, (48, 48))

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        action: torch.Tensor = self.actor(obs)
        return action


def test_the_policy_reaches_the_gain_of_riccati() -> None:
    a, b, cost, gamma = 0.9, 0.5, 0.5, 0.9
    value = 0.0
    for _ in range(1_000):
        value = 1.0 + gamma * a**2 * value - (gamma * a * b * value) ** 2 / (cost + gamma * b**2 * value)
    gain = gamma * a * b * value / (cost + gamma * b**2 * value)
    agent = learner(
        Vectors(),
        obs=(1,),
        actions=1,
        shift_pad=0,
        tau=0.05,
        std_initial=0.1,
        std_final=0.1,
        learning_rate=1e-3,
    )
    g = torch.Generator().manual_seed(0)
    for i in range(2_500):
        x = torch.rand((128, 1), generator=g) * 2 - 1
        u = torch.rand((128, 1), generator=g) * 2 - 1
        reward = -(x.square() + cost * u.square()).squeeze(1)
        agent.update(Batch(x, u, reward, torch.full((128,), gamma), a * x + b * u))
        for optimizer in (agent.optimizers["critic"], agent.optimizers["actor"]):
            optimizer.lr = 3e-3 * (1 - i / 2_500) + 1e-5
    x = torch.linspace(-0.8, 0.8, 33)[:, None]
    with torch.no_grad():
        action = agent.network.actor(x)
    slope = float((x * action).sum() / x.square().sum())
    assert slope == pytest.approx(-gain, rel=0.05)
    assert torch.allclose(action, -gain * x, atol=0.05)


class Moded(nn.Module):
    """An encoder with batch statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.size = nn.BatchNorm1d(6), 6

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1).float() / 255.0
        out: torch.Tensor = self.norm(flat[:, :6])
        return out


def moded() -> DrQv2:
    return learner(DrQv2Network(OBS, 2, (8,), feature_dim=4, encoder=Moded(), encoder_size=6))


def test_a_custom_encoder_is_in_training_mode_while_it_learns_and_only_then() -> None:
    agent = moded()
    norm: Any = agent.network.encoder.norm
    before = norm.running_mean.clone()
    agent.act(batch().obs.numpy(), explore=True)
    assert torch.equal(norm.running_mean, before)
    agent.update(batch())
    assert int(norm.num_batches_tracked) == 1, "once, for the observations and not for the next ones"
    assert not torch.equal(norm.running_mean, before)
    assert not norm.training


def test_a_checkpoint_from_before_encoders_had_modes_still_loads() -> None:
    agent, old = moded(), moded()
    agent.update(batch())
    state = agent.state_dict()
    del state["counters"]["torch_stream"]
    old.load_state_dict(state)
    assert old.updates == 1
