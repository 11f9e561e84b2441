"""C51: the projection by closed forms and brute force, the gradient of its loss, and what it is drawn to."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from helpers.q_learning import gradient_table, make_learner, random_batch, set_table
from rl_training.algorithms.c51 import OUTSIDE_SHARE, c51_loss, project
from rl_training.data import Batch
from rl_training.experiment import registry
from rl_training.experiment.configs import load_config
from rl_training.models import MLPC51QNetwork

SUPPORTS = {
    "dyadic": (-2.0, 3.0, 11),
    "c51": (-10.0, 10.0, 51),
    "cartpole": (0.0, 100.0, 101),
    "crooked": (-1.0 / 3.0, 1.0 / 7.0, 37),
    "far from zero": (1000.1, 1007.3, 23),
    "two atoms": (-0.3, 0.7, 2),
}


@pytest.fixture(params=SUPPORTS)
def support(request: pytest.FixtureRequest) -> torch.Tensor:
    return torch.linspace(*SUPPORTS[request.param])


def distributions(seed: int, rows: int, atoms: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.dirichlet(np.full(atoms, 0.3), rows)).float()


def projected(
    probabilities: torch.Tensor, reward: Any, discount: Any, support: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """``project`` with the same reward and discount for all rows, or with one each."""
    rows = len(probabilities)
    rewards, discounts = (
        torch.as_tensor(value, dtype=torch.float32).expand(rows) for value in (reward, discount)
    )
    return project(probabilities, rewards, discounts, support)


def step_of(support: torch.Tensor) -> float:
    return float(support[-1] - support[0]) / (len(support) - 1)


# The projection: closed forms


def test_nothing_moves_without_reward_and_discounting(support: torch.Tensor) -> None:
    p = distributions(0, 20, len(support))
    result, clipped = projected(p, 0.0, 1.0, support)
    torch.testing.assert_close(result, p, rtol=0.0, atol=1e-4)
    assert torch.equal(clipped, torch.zeros(20))


@pytest.mark.parametrize("k", [-3, -1, 1, 2, 5])
def test_a_reward_of_k_steps_shifts_by_k_atoms(k: int) -> None:
    support = torch.linspace(-10.0, 10.0, 51)
    p = torch.zeros(20, 51)
    p[:, 10:40] = distributions(1, 20, 30)
    result, clipped = projected(p, k * 0.4, 1.0, support)
    torch.testing.assert_close(result, p.roll(k, 1), rtol=0.0, atol=1e-5)
    assert torch.equal(clipped, torch.zeros(20))


def test_a_reward_of_half_a_step_splits_every_atom_in_halves() -> None:
    support = torch.linspace(-10.0, 10.0, 51)
    p = torch.zeros(20, 51)
    p[:, 1:50] = distributions(2, 20, 49)
    result, _ = projected(p, 0.2, 1.0, support)
    torch.testing.assert_close(result, 0.5 * p + 0.5 * p.roll(1, 1), rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("side", [0, -1])
def test_what_lies_outside_is_gathered_at_the_edge(support: torch.Tensor, discount: float, side: int) -> None:
    p = distributions(3, 20, len(support))
    far = 10.0 * float(support.abs().max()) * (-1.0 if side == 0 else 1.0)
    result, clipped = projected(p, far, discount, support)
    edge = torch.zeros_like(p)
    edge[:, side] = 1.0
    torch.testing.assert_close(result, edge)
    torch.testing.assert_close(clipped, torch.ones(20))


def test_a_terminal_transition_becomes_the_two_hot_of_its_reward() -> None:
    support = torch.linspace(-2.0, 3.0, 11)
    reward = torch.tensor([-2.0, -1.9, 0.0, 0.125, 2.75, 3.0, 7.0, -7.0])
    result, _ = projected(distributions(4, 8, 11), reward, 0.0, support)
    expected = torch.zeros(8, 11)
    for row, shares in enumerate(
        [
            {0: 1.0},
            {0: 0.8, 1: 0.2},
            {4: 1.0},
            {4: 0.75, 5: 0.25},
            {9: 0.5, 10: 0.5},
            {10: 1.0},
            {10: 1.0},
            {0: 1.0},
        ]
    ):
        for atom, share in shares.items():
            expected[row, atom] = share
    torch.testing.assert_close(result, expected, rtol=0.0, atol=1e-5)


# The projection: random input, with returns on the atoms, between them and outside


def random_moves(
    seed: int, support: torch.Tensor, rows: int = 200
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    step, width = step_of(support), float(support[-1] - support[0])
    reward = rng.uniform(-width, width, rows)
    discount = rng.uniform(0.0, 1.0, rows)
    # A third moves from atom to atom, and a third is terminal with a reward that is an atom.
    third = rows // 3
    reward[:third], discount[:third] = rng.integers(-4, 5, third) * step, 1.0
    reward[third : 2 * third] = support.numpy()[rng.integers(0, len(support), third)]
    discount[third : 2 * third] = 0.0
    rewards, discounts = (torch.from_numpy(values).float() for values in (reward, discount))
    return distributions(seed, rows, len(support)), rewards, discounts


def brute_force(p: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor, support: torch.Tensor) -> Any:
    """Atom by atom, in double precision, with the two cases of an atom that is hit and of one that is not."""
    z = np.linspace(float(support[0]), float(support[-1]), len(support))
    step, result = z[1] - z[0], np.zeros(p.shape)
    for row in range(len(p)):
        for j, mass in enumerate(p[row].tolist()):
            value = min(max(float(reward[row]) + float(discount[row]) * z[j], z[0]), z[-1])
            position = min(max((value - z[0]) / step, 0.0), len(z) - 1.0)
            lower, upper = math.floor(position), math.ceil(position)
            if lower == upper:
                result[row, lower] += mass
            else:
                result[row, lower] += mass * (upper - position)
                result[row, upper] += mass * (position - lower)
    return result


def tolerance(support: torch.Tensor) -> float:
    """Positions are known to float32's rounding of the largest number, in steps of the support."""
    return 4e-7 * max(1.0, float(support.abs().max())) / step_of(support) + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_projection_equals_a_loop_and_the_triangular_kernel(support: torch.Tensor, seed: int) -> None:
    p, reward, discount = random_moves(seed, support)
    result, _ = project(p, reward, discount, support)
    atol = tolerance(support)
    np.testing.assert_allclose(result, brute_force(p, reward, discount, support), rtol=0.0, atol=atol)
    z = support.double()
    moved = (reward[:, None].double() + discount[:, None].double() * z).clamp(z[0], z[-1])
    kernel = (1.0 - (moved[:, :, None] - z).abs() / step_of(support)).clamp(0.0, 1.0)
    expected = (p[:, :, None].double() * kernel).sum(1)
    np.testing.assert_allclose(result, expected, rtol=0.0, atol=atol)


@pytest.mark.parametrize("seed", range(3))
def test_no_mass_is_lost_and_none_is_negative(support: torch.Tensor, seed: int) -> None:
    result, _ = project(*random_moves(seed, support), support)
    torch.testing.assert_close(result.sum(1), torch.ones(200))
    assert (result >= 0.0).all()


def test_the_mean_is_kept_where_nothing_is_clipped(support: torch.Tensor) -> None:
    p, _, discount = random_moves(5, support)
    z = support.double()
    # Any of these rewards keeps both ends inside.
    room = (z[0] - discount * z[0], z[-1] - discount * z[-1])
    share = torch.from_numpy(np.random.default_rng(6).random(200))
    reward = (room[0] + share * (room[1] - room[0])).float()
    result, clipped = project(p, reward, discount, support)
    expected = reward + discount * (p.double() @ z)
    np.testing.assert_allclose(
        result.double() @ z, expected, rtol=3e-6, atol=3e-6 * float(support.abs().max())
    )
    assert torch.equal(clipped, torch.zeros(200))


def test_the_clipped_share_is_the_mass_that_lay_outside() -> None:
    support = torch.linspace(-2.0, 2.0, 5)
    p = torch.tensor([[0.1, 0.2, 0.3, 0.25, 0.15]]).expand(5, 5)
    reward = torch.tensor([0.0, 1.0, -2.0, 0.001, 50.0])
    _, clipped = project(p, reward, torch.ones(5), support)
    # A thousandth beyond the end is rounding.
    torch.testing.assert_close(clipped, torch.tensor([0.0, 0.15, 0.1 + 0.2, 0.0, 1.0]))


def test_a_return_that_just_fits_is_not_called_clipped() -> None:
    """1 + 0.99 * 100 = 100 is CartPole's best value, at the very end of a support up to 100."""
    support = torch.linspace(0.0, 100.0, 51)
    _, clipped = projected(distributions(0, 20, 51), 1.0, 0.99, support)
    assert torch.equal(clipped, torch.zeros(20))


# The loss


def test_targets_outside_the_support_are_proof_only_where_they_are_no_estimates() -> None:
    support = torch.linspace(0.0, 10.0, 11)
    rows = torch.zeros(4, 11)
    batch = Batch(
        *(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64)),
        reward=torch.tensor([20.0, 20.0, 5.0, -0.1]),
        discount=torch.tensor([0.0, 0.9, 0.0, 0.0]),
        next_obs=torch.zeros(4, 1),
    )
    extra = c51_loss(rows, rows, batch, support).extra
    assert extra["targets_outside"].tolist() == [1.0, 1.0, 0.0, 1.0]
    assert extra["end_targets_outside"].tolist() == [1.0, 0.0, 0.0, 1.0]


def logits(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [1.0, 40.0], ids=["soft", "certain"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_by_the_logits_is_softmax_minus_target(scale: float, weighted: bool) -> None:
    """Also where probabilities are almost 0, which is where a clamp before the logarithm would stop it."""
    support = torch.linspace(-3.0, 3.0, 13)
    chosen, following = logits(0, 16, 13, scale=scale), logits(1, 16, 13, scale=scale)
    chosen.requires_grad_()
    following.requires_grad_()
    batch = random_batch(size=16)
    weight = torch.rand(16, generator=torch.Generator().manual_seed(2)) if weighted else torch.ones(16)
    head = c51_loss(chosen, following, batch, support)
    (head.each * weight).mean().backward()
    target, _ = project(following.detach().softmax(1), batch.reward, batch.discount, support)
    expected = (chosen.detach().softmax(1) - target) * weight[:, None] / 16
    torch.testing.assert_close(chosen.grad, expected, rtol=1e-4, atol=1e-7)
    assert following.grad is None
    assert not any(part.requires_grad for part in (head.value, head.target, head.error, head.priority))


@pytest.mark.parametrize("weighted", [False, True])
def test_an_update_descends_along_that_gradient_for_the_actions_taken(weighted: bool) -> None:
    learner = make_learner((4,), 3, (), algo="c51", num_atoms=7, v_min=-3, v_max=3, max_grad_norm=None)
    online, target_net = logits(3, 4, 3, 7), logits(4, 4, 3, 7)
    set_table(learner.online, online)
    set_table(learner.target, target_net)
    weight = torch.tensor([0.0, 0.5, 1.0, 2.0]) if weighted else None
    batch = random_batch(size=4, num_actions=3, obs=torch.eye(4), next_obs=torch.eye(4), weight=weight)
    result = learner.update(batch)
    rows = torch.arange(4)
    best = (target_net.softmax(2) @ learner.support).argmax(1)
    target, _ = project(target_net[rows, best].softmax(1), batch.reward, batch.discount, learner.support)
    expected = torch.zeros(4, 3, 7)
    share = (torch.ones(4) if weight is None else weight) / 4
    expected[rows, batch.action] = (online[rows, batch.action].softmax(1) - target) * share[:, None]
    torch.testing.assert_close(gradient_table(learner, 4, 3, 7), expected, rtol=1e-4, atol=1e-7)
    each = -(target * online[rows, batch.action].log_softmax(1)).sum(1)
    torch.testing.assert_close(result.priorities, each)  # of the samples, whatever their weights
    torch.testing.assert_close(result.metrics["loss"], (each * share).sum())


# Which distribution it is drawn to

# Probabilities of -1, 0, 1 by state and action. The target's most probable 1 is the wrong action's in both states.
ONLINE_P = [[[0.05, 0.6, 0.35], [0.3, 0.05, 0.65]], [[0.65, 0.05, 0.3], [0.3, 0.45, 0.25]]]
TARGET_P = [[[0.35, 0.05, 0.6], [0.0, 0.7, 0.3]], [[0.1, 0.5, 0.4], [0.45, 0.05, 0.5]]]
BEST = {False: [1, 0], True: [1, 1]}
"""By the target's means .25, .3; .3, .05 and by the online network's .3, .35; -.35, -.05."""


def hand_learner(double: bool) -> Any:
    learner = make_learner((2,), 2, (), algo="c51", num_atoms=3, v_min=-1, v_max=1, double=double)
    set_table(learner.online, torch.tensor(ONLINE_P).log())
    set_table(learner.target, torch.tensor(TARGET_P).clamp(min=1e-30).log())
    return learner


def hand_batch(**changes: Any) -> Batch:
    fields = {"action": torch.tensor([0, 1]), "reward": torch.tensor([0.25, -0.5])}
    fields |= {"discount": torch.tensor([0.5, 0.5]), "obs": torch.eye(2), "next_obs": torch.eye(2)}
    return Batch(**{**fields, **changes})


@pytest.mark.parametrize("double", [False, True])
def test_the_target_network_chooses_unless_double_lets_the_online_network(double: bool) -> None:
    learner = hand_learner(double)
    result = learner.update(hand_batch())
    chosen = torch.tensor([TARGET_P[state][action] for state, action in enumerate(BEST[double])])
    target, _ = project(chosen, torch.tensor([0.25, -0.5]), torch.tensor([0.5, 0.5]), learner.support)
    taken = torch.tensor([ONLINE_P[0][0], ONLINE_P[1][1]])
    torch.testing.assert_close(result.priorities, -(target * taken.log()).sum(1))
    means = [0.3, -0.05]
    expected = [0.25 + 0.5 * 0.3, -0.5 + 0.5 * (0.05 if double else 0.3)]
    assert learner.last_td_errors.tolist() == pytest.approx(np.subtract(means, expected), abs=1e-6)
    assert result.metrics["target_mean"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert result.metrics["q_value_mean"] == pytest.approx(np.mean(means), abs=1e-6)
    assert result.metrics["clipped_mass"] == 0.0


@pytest.mark.parametrize("double", [False, True])
def test_what_is_forbidden_next_is_nobodys_target(double: bool) -> None:
    learner = hand_learner(double)
    forbidden = torch.ones(2, 2, dtype=torch.bool)
    forbidden[[0, 1], BEST[double]] = False
    result = learner.update(hand_batch(next_mask=forbidden))
    others = [0.25, 0.3 if double else 0.05]
    expected = [0.25 + 0.5 * others[0], -0.5 + 0.5 * others[1]]
    assert result.metrics["target_mean"] == pytest.approx(np.mean(expected), abs=1e-6)


def test_actions_are_chosen_by_the_mean() -> None:
    learner = hand_learner(False)
    obs = np.eye(2, dtype=np.float32)
    assert learner.q_values(obs) == pytest.approx(np.array([[0.3, 0.35], [-0.35, -0.05]]), abs=1e-6)
    assert learner.act(obs, explore=False).action.tolist() == [1, 1]
    assert learner.online.act(torch.eye(2)).tolist() == [1, 1]


def test_the_duel_is_about_logits_and_comes_before_the_softmax() -> None:
    learner = make_learner((4,), 3, (8,), algo="c51", dueling=True, num_atoms=5, v_min=-2, v_max=2)
    obs = 3 * logits(5, 6, 4)
    with torch.no_grad():
        out = learner.online.mlp(obs).view(6, 4, 5)
        value, advantage = out[:, :1], out[:, 1:]
        combined = value + advantage - advantage.mean(1, keepdim=True)
        torch.testing.assert_close(learner.online(obs), combined)
    expected = combined.softmax(2) @ learner.support
    torch.testing.assert_close(torch.from_numpy(learner.q_values(obs.numpy())), expected)
    p = out.softmax(2)
    after = (p[:, :1] + p[:, 1:] - p[:, 1:].mean(1, keepdim=True)) @ learner.support
    assert (after - expected).abs().max() > 0.05


def test_the_network_gives_logits_and_its_support_is_no_weight() -> None:
    network = MLPC51QNetwork((3, 2), 4, num_atoms=6, v_min=-1.0, v_max=4.0, hidden_sizes=(8,))
    assert network(torch.zeros(5, 3, 2)).shape == (5, 4, 6)
    assert network.act(torch.zeros(5, 3, 2)).shape == (5,)
    assert network.support.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    assert "support" not in network.state_dict()


# A support that does not fit


def test_the_warning_says_how_much_is_clipped_and_what_to_do() -> None:
    learner = make_learner(algo="c51", v_min=-1.5, v_max=20)
    bad = {
        "train/clipped_mass": 0.256,
        "train/targets_outside": OUTSIDE_SHARE,
        "train/end_targets_outside": 0.0,
    }
    told = {
        "clipped_mass": "returns do not fit the support [-1.5, 20]: 25.6 % of the targets' mass is clipped to its "
        "ends; widen algo_kwargs.v_min and v_max"
    }
    assert learner.warnings(bad) == told
    assert learner.warnings({**bad, "train/targets_outside": 0.0, "train/end_targets_outside": 1e-6}) == told
    assert learner.warnings({**bad, "train/targets_outside": OUTSIDE_SHARE - 1e-6}) == {}
    assert learner.warnings({}) == {}


class Payday(gym.Env[Any, Any]):
    """Episodes of ``length`` steps, each rewarded with ``wage``, the last one with ``bonus`` on top."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int, wage: float, bonus: float) -> None:
        self.length, self.wage, self.bonus = length, wage, bonus

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == self.length
        reward = self.wage + (self.bonus if over else 0.0)
        return np.array([self.t / self.length], np.float32), reward, over, False, {}


@pytest.mark.parametrize(
    ("length", "wage", "bonus", "support", "warned"),
    [
        (
            50,
            0.0,
            100.0,
            (-10, 10),
            True,
        ),  # one transition in fifty is outside, all else bootstraps on its ends
        (50, 0.0, 9.0, (-10, 10), False),
        (9, 5.0, 0.0, (0, 50), False),  # an untrained network's mass is clipped though all returns fit
        (9, 5.0, 0.0, (0, 30), True),
    ],
)
def test_what_was_seen_decides_about_the_warning(
    capfd: Any, tmp_path: Path, length: int, wage: float, bonus: float, support: tuple[int, int], warned: bool
) -> None:
    config = load_config(
        "c51/cartpole",
        {
            "total_timesteps": 1_200,
            "algo_kwargs.learning_starts": 100,
            "algo_kwargs.train_freq": 2,
            "algo_kwargs.gradient_steps": 1,
            "algo_kwargs.target_update_interval": 50,
            "algo_kwargs.v_min": support[0],
            "algo_kwargs.v_max": support[1],
            "network.hidden_sizes": [16],
            "evaluation.frequency": 0,
            "evaluation.final_episodes": 0,
            "logging.tensorboard": False,
            "logging.frequency": 300,
        },
    )
    factory = functools.partial(Payday, length, wage, bonus)
    registry.train(config, run_dir=tmp_path / "run", env=factory, console=False)
    assert ("do not fit the support" in capfd.readouterr().err) == warned


@pytest.mark.parametrize(("v_max", "times"), [(5, 1), (100, 0)], ids=["too small", "fitting"])
def test_a_run_tells_once_that_returns_do_not_fit(
    cli: Callable[..., Any], tmp_path: Path, v_max: int, times: int
) -> None:
    small = {"learning_starts": 50, "train_freq": 4, "gradient_steps": 1, "target_update_interval": 10}
    words = [f"algo_kwargs.{name}={value}" for name, value in {**small, "v_min": 0, "v_max": v_max}.items()]
    words += ["total_timesteps=300", "network.hidden_sizes=[16]", "logging.frequency=50"]
    words += ["evaluation.frequency=0", "evaluation.final_episodes=0", "logging.tensorboard=false"]
    done = cli("train", "--config", "c51/cartpole", "--run-dir", tmp_path / "run", "--quiet", *words)
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if "do not fit the support [0, " in line]
    assert len(lines) == times
    assert all(line.startswith("warning: step ") for line in lines)
