"""What all value-based learners have in common: fixed points, return distributions, options, masks, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch import nn

from helpers.q_learning import (
    ALGOS,
    HEADS,
    make_learner,
    random_batch,
    random_masks,
    random_mdp,
    two_state_mdp,
    value_iteration,
    weights_of,
    whole_mdp,
)
from rl_training import load_config
from rl_training.data import Batch
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.models.noisy import NoisyLinear, noisy_layers
from rl_training.runtime.checkpoint import read_checkpoint
from rl_training.runtime.run import Run

# Networks


@pytest.mark.parametrize("algo", [*ALGOS, "drqn", "r2d2"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_normalized_layers_do_not_care_how_large_their_sums_are(algo: str, layer_norm: bool) -> None:
    """Every hidden layer, of every algorithm: all of its weights ten times as large change nothing, or everything."""
    obs = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    count = 0
    for layer in range(2):
        learner = make_learner((3,), 2, (24, 24), algo=algo, layer_norm=layer_norm)
        layers = [m for m in learner.online.modules() if isinstance(m, nn.Linear | NoisyLinear)]
        # Of IQN, the second of three is the embedding of the fraction.
        chosen = [m for m in layers if m.weight.shape[0] == 24 and m.weight.shape[1] in (3, 24)][layer]
        assert chosen.weight.shape == (24, 3 if layer == 0 else 24)
        before = values(learner, obs)
        with torch.no_grad():
            chosen.weight *= 10
            assert chosen.bias is not None
            chosen.bias.mul_(10)
        change = np.abs(values(learner, obs) - before).max()
        assert change < 1e-3 if layer_norm else change > 1e-2
        count += sum(isinstance(m, nn.LayerNorm) for m in learner.online.modules())
    assert count == (4 if layer_norm else 0)


def values(learner: Any, obs: Any) -> Any:
    if hasattr(learner, "q_values"):
        return learner.q_values(obs)
    return learner.step(obs, learner.initial_carry(len(obs)))[0]


# Fixed points


def fit(learner: Any, batch: Batch, rounds: int, updates: int, rates: tuple[float, float]) -> None:
    """Sync the target after each round of updates, while the learning rate falls from one to the other."""
    for rate in np.geomspace(*rates, rounds):
        learner.optimizer.lr = float(rate)
        for _ in range(updates):
            learner.update(batch)
        learner.sync_target()


def sure_mdp(rng: np.random.Generator) -> tuple[Any, Any]:
    """A random MDP of five states whose actions have one outcome each; one of them ends the episode."""
    transition = np.eye(5)[rng.integers(0, 5, (5, 3))]
    transition[2, 1] = 0.0
    return transition, rng.normal(size=(5, 3))


TABLE = {"hidden": (), "max_grad_norm": None, "adam_eps": 1e-8}
FITTING: dict[str, tuple[dict[str, Any], int, tuple[float, float]]] = {
    "c51": ({**TABLE, "num_atoms": 51}, 50, (0.3, 0.03)),
    "qr_dqn": ({**TABLE, "num_quantiles": 32, "kappa": 0.05}, 100, (0.1, 1e-3)),
    "iqn": (
        {
            **TABLE,
            "hidden": (64,),
            "num_quantiles": 8,
            "num_target_quantiles": 8,
            "num_policy_quantiles": 32,
            "num_cosines": 16,
        },
        50,
        (0.03, 1e-4),
    ),
}


@pytest.mark.parametrize(
    ("algo", "mdp", "options", "tolerance"),
    [
        # On a support that no target leaves, the projection keeps means exactly.
        ("c51", two_state_mdp, {}, 1e-2),
        ("c51", two_state_mdp, {"double": True, "dueling": True}, 1e-2),
        ("c51", random_mdp, {}, 1e-2),
        # The midpoints of N shares have the distribution's mean up to O(1 / N), exactly if nothing is random.
        ("qr_dqn", two_state_mdp, {}, 1e-2),
        ("qr_dqn", two_state_mdp, {"double": True, "dueling": True}, 1e-2),
        ("qr_dqn", sure_mdp, {}, 1e-2),
        ("qr_dqn", random_mdp, {}, 1e-2),
        # A small network smooths the steps that the quantile function of a discrete return has.
        ("iqn", two_state_mdp, {}, 1e-2),
        ("iqn", random_mdp, {}, 0.15),
    ],
)
def test_means_equal_value_iteration(algo: str, mdp: Any, options: dict[str, Any], tolerance: float) -> None:
    transition, reward = mdp(np.random.default_rng(1))
    gamma = 0.5
    settings, updates, rates = FITTING[algo]
    if algo == "c51":
        bound = 1.05 * np.abs(reward).max() / (1.0 - gamma)
        settings = {**settings, "v_min": -bound, "v_max": bound}
    learner = make_learner(reward.shape[:1], reward.shape[1], algo=algo, **{**settings, **options})
    fit(learner, whole_mdp(transition, reward, gamma), 12, updates, rates)
    q = learner.q_values(np.eye(len(reward), dtype=np.float32))
    assert np.abs(q - value_iteration(transition, reward, gamma)).max() < tolerance


# Distributions of returns

GAMMA, STAY = 0.7, 0.6
REWARDS = {0: (0.0, 1.0), 1: (-1.0, 3.0)}
"""Two states that take turns, each with one of two rewards at even odds; state 1 ends the episode with odds 0.4."""


def chain() -> Batch:
    """All that can happen, by its probability."""
    rows = [(0, reward, GAMMA, 1, 0.5) for reward in REWARDS[0]]
    rows += [(1, reward, GAMMA, 0, 0.5 * STAY) for reward in REWARDS[1]]
    rows += [(1, reward, 0.0, 0, 0.5 * (1.0 - STAY)) for reward in REWARDS[1]]
    state, reward, discount, after, weight = (torch.tensor(column) for column in zip(*rows, strict=True))
    obs = torch.eye(2)
    action = torch.zeros(len(rows), dtype=torch.int64)
    return Batch(obs[state], action, reward, discount, obs[after], weight=weight)


def simulated(start: int, episodes: int = 20_000) -> Any:
    rng = np.random.default_rng(start)
    returns, factor, alive, state = np.zeros(episodes), 1.0, np.ones(episodes, bool), start
    for _ in range(60):
        returns += factor * alive * rng.choice(REWARDS[state], episodes)
        if state == 1:
            alive &= rng.random(episodes) < STAY
        factor, state = factor * GAMMA, 1 - state
    return returns


@pytest.mark.parametrize("algo", ["c51", "qr_dqn"])
def test_return_distributions_equal_simulated_ones(algo: str) -> None:
    """The distance between two sets of 20,000 simulated returns is about 0.02."""
    settings, _, rates = FITTING[algo]
    sizes: dict[str, dict[str, Any]] = {
        "c51": {"num_atoms": 201, "v_min": -4.0, "v_max": 12.0},
        "qr_dqn": {"num_quantiles": 100},
    }
    learner = make_learner((2,), 1, algo=algo, **{**settings, **sizes[algo]})
    fit(learner, chain(), 16, 25, rates)
    with torch.no_grad():
        learned = learner.online(torch.eye(2))[:, 0]
    for state in (0, 1):
        returns = simulated(state)
        if algo == "c51":
            distance = wasserstein_distance(learner.support, returns, learned[state].softmax(0))
        else:
            distance = wasserstein_distance(learned[state], returns)
        assert distance < 0.1
        assert returns.std() > 1.0
        mean = learner.q_values(np.eye(2, dtype=np.float32))[state, 0]
        assert mean == pytest.approx(returns.mean(), abs=0.1)


# Options

OPTIONS: dict[str, dict[str, Any]] = {
    "double": {"double": True},
    "dueling": {"dueling": True},
    "noisy": {"noisy": True},
    "n-step": {"n_step_return": 3},
    "prioritized": {"prioritized": True},
}
EVERYTHING = {name: value for options in OPTIONS.values() for name, value in options.items()}
SIZES = {"qr_dqn": {"num_quantiles": 16}, "iqn": {"num_quantiles": 8, "num_target_quantiles": 4}}
OFF = {"double": False, "dueling": False, "noisy": False, "n_step_return": 1}


@pytest.mark.parametrize("option", [*OPTIONS, "everything"])
@pytest.mark.parametrize("algo", HEADS)
def test_every_head_trains_with_every_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str, option: str
) -> None:
    monkeypatch.setattr(
        "rl_training.runtime.report.plot_run", lambda *_, **__: None
    )  # takes longer than the rest
    options = {**OFF, **SIZES.get(algo, {}), **OPTIONS.get(option, EVERYTHING)}
    settings = {"learning_starts": 40, "batch_size": 16, "buffer_size": 150, "target_update_interval": 20}
    settings["train_freq"] = 4
    config = load_config(
        {
            "algo": algo,
            "env": {"id": "CartPole-v1", "num_envs": 2},
            "total_timesteps": 200,
            "algo_kwargs": {**settings, **options},
            "network": {"hidden_sizes": [16, 16]},
            "evaluation": {"frequency": 0, "final_episodes": 0},
            "logging": {"tensorboard": False, "csv": False},
        }
    )
    untrained = Run(config)
    before = untrained.algorithm.state_dict()["model"]["online"]
    untrained.close()
    result = registry.train(config, run_dir=tmp_path / "run", console=False)
    assert result.updates == 40
    after = read_checkpoint(result.checkpoint).tree["model"]["online"]
    assert before.keys() == after.keys()
    assert any("sigma" in name for name in after) == config.algo_kwargs.noisy
    for name, values in after.items():
        assert torch.isfinite(values).all(), name
        assert not torch.equal(values, before[name]), name


# Masks


def silence(learner: Any) -> None:
    """Take the noise out of a noisy learner."""
    for layer in (*noisy_layers(learner.online), *noisy_layers(learner.target)):
        layer.weight_sigma.data.zero_()
        layer.bias_sigma.data.zero_()


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_what_a_mask_forbids_is_never_done(algo: str, rows: int) -> None:
    learner = make_learner(num_actions=5, algo=algo, learning_starts=100, exploration_fraction=1.0)
    rng = np.random.default_rng(0)
    for steps in (0, 500):  # at random, and partly so or by noise
        learner.advance(steps)
        for seed in range(30):
            obs, mask = rng.normal(size=(rows, 3)).astype(np.float32), random_masks(seed, rows, 5)
            for explore in (False, True):
                action = learner.act(obs, explore=explore, mask=mask).action
                assert mask[np.arange(rows), action].all()
            best = np.where(mask, learner.q_values(obs), -np.inf).argmax(1)
            assert np.array_equal(learner.act(obs, explore=False, mask=mask).action, best)


@pytest.mark.parametrize("algo", ["dqn", "rainbow"])
def test_exploring_under_a_mask_is_uniform_over_what_it_allows(algo: str) -> None:
    learner = make_learner(num_actions=4, algo=algo, learning_starts=100)
    mask = np.array([[True, False, True, True], [False, True, False, True]] * 500)
    action = learner.act(np.zeros((1000, 3), np.float32), explore=True, mask=mask).action
    assert np.bincount(action[::2], minlength=4) / 500 == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.08)
    assert np.bincount(action[1::2], minlength=4) / 500 == pytest.approx([0, 1 / 2, 0, 1 / 2], abs=0.08)


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("double", [False, True])
def test_targets_are_those_of_a_search_over_the_allowed_actions(algo: str, double: bool) -> None:
    support = {"v_min": -30.0, "v_max": 30.0} if algo in ("c51", "rainbow") else {}
    learner = make_learner((3,), 4, (16, 16), algo=algo, double=double, **support)
    other = make_learner((3,), 4, (16, 16), algo=algo, double=double, seed=1, **support)
    learner.online.load_state_dict(other.online.state_dict())
    silence(learner)
    if algo == "iqn":
        learner._draw = lambda rows, count: torch.linspace(0.0, 1.0, count).expand(rows, count)
    mask = random_masks(0, 32, 4)
    batch = random_batch(size=32, num_actions=4, next_mask=torch.from_numpy(mask))
    expected, differing = [], 0
    with torch.no_grad():
        values = learner.expected(learner.output(learner.target, batch.next_obs, "target")).numpy()
        chooser = learner.online if double else learner.target
        choosing = learner.expected(learner.output(chooser, batch.next_obs, "policy")).numpy()
        q = learner.expected(learner.output(learner.online, batch.obs, "online"))
    for row in range(32):
        allowed = [action for action in range(4) if mask[row, action]]
        best = max(allowed, key=lambda action: choosing[row, action])
        differing += best != choosing[row].argmax()
        expected.append(float(batch.reward[row]) + float(batch.discount[row]) * float(values[row, best]))
    assert differing > 5
    result = learner.update(batch)
    chosen = q[torch.arange(32), batch.action]
    torch.testing.assert_close(learner.last_td_errors, chosen - torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert result.metrics["target_mean"] == pytest.approx(np.mean(expected), abs=1e-4)


# What holds for every learner


@pytest.mark.parametrize("algo", ALGOS)
def test_a_sample_of_weight_zero_has_no_influence(algo: str) -> None:
    learner, other = (make_learner(algo=algo, noisy=False) for _ in range(2))
    weight = torch.tensor([1.0, 0.0])
    changed = random_batch(size=2)
    changed.reward[1] += 5.0
    learner.update(random_batch(size=2), weight)
    other.update(changed, weight)
    assert torch.equal(weights_of(learner.online), weights_of(other.online))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("algo", ALGOS)
def test_a_batch_of_one_keeps_its_shapes(algo: str) -> None:
    learner = make_learner(algo=algo)
    result = learner.update(random_batch(size=1))
    assert learner.last_td_errors.shape == result.priorities.shape == (1,)
    assert all(value.shape == () for value in result.metrics.values())
    for explore in (False, True):
        assert learner.act(np.zeros((1, 3), np.float32), explore=explore).action.shape == (1,)


# Bad input


@pytest.mark.parametrize(
    ("algo", "key", "value"),
    [
        ("prioritized_dqn", "alpha", 1.5),
        ("prioritized_dqn", "alpha", -0.1),
        ("prioritized_dqn", "beta", 2),
        ("prioritized_dqn", "beta_final", -1),
        ("prioritized_dqn", "priority_eps", 0),
        ("prioritized_dqn", "prioritized", False),
        ("qr_dqn", "num_quantiles", 0),
        ("qr_dqn", "num_quantiles", 2.5),
        ("qr_dqn", "kappa", 0),
        ("iqn", "num_target_quantiles", 0),
        ("iqn", "num_policy_quantiles", -1),
        ("iqn", "num_cosines", 0),
        ("c51", "num_atoms", 1),
        ("c51", "v_min", 100),
        ("c51", "v_min", 101),
        ("rainbow", "v_min", 1e6),
        ("rainbow", "noisy_sigma", 0),
        *(
            (algo, key, float("nan"))
            for algo, key in [
                ("prioritized_dqn", "alpha"),
                ("prioritized_dqn", "beta"),
                ("qr_dqn", "kappa"),
                ("c51", "v_min"),
                ("c51", "v_max"),
                ("rainbow", "noisy_sigma"),
            ]
        ),
        ("c51", "v_max", float("inf")),
        ("c51", "v_max", 1e39),
        ("c51", "v_max", 1e-43),
    ],
)
def test_bad_input_is_one_line_that_names_its_key(algo: str, key: str, value: Any) -> None:
    support = {"algo_kwargs.v_min": 0, "algo_kwargs.v_max": 100} if algo in ("c51", "rainbow") else {}
    with pytest.raises(ConfigError) as caught:
        load_config(f"{algo}/cartpole", {**support, f"algo_kwargs.{key}": value})
    message = str(caught.value)
    assert message.startswith(f"algo_kwargs.{key}: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("algo", "key", "hint"),
    [
        ("c51", "n_atoms", "num_atoms"),
        ("qr_dqn", "n_quantiles", "num_quantiles"),
        ("rainbow", "sigma_init", "noisy_sigma"),
        ("prioritized_dqn", "prioritized_replay_alpha", "alpha"),
        ("dqn", "num_atoms", ""),
    ],
)
def test_names_of_other_packages_lead_to_ours(algo: str, key: str, hint: str) -> None:
    expected = f"algo_kwargs.{key}: unknown key" + (f"; did you mean '{hint}'?" if hint else "")
    with pytest.raises(ConfigError) as caught:
        load_config(f"{algo}/cartpole", {f"algo_kwargs.{key}": 1})
    assert str(caught.value).startswith(expected)


def test_a_support_whose_atoms_are_one_in_single_precision_is_refused() -> None:
    close = {"algo_kwargs.v_min": 1e8, "algo_kwargs.v_max": 100_000_001}
    with pytest.raises(ConfigError, match=r"^algo_kwargs\.v_max: .*cannot be told apart"):
        load_config("c51/cartpole", close)
    load_config("c51/cartpole", {"algo_kwargs.v_min": 1e8, "algo_kwargs.v_max": 2e8})


@pytest.mark.parametrize(
    ("algo", "override"),
    [
        ("prioritized_dqn", "alpha=0"),
        ("c51", "v_max=1000"),
        ("c51", "num_atoms=21"),
        ("rainbow", "v_min=-7"),
        ("rainbow", "noisy=false"),
        ("qr_dqn", "num_quantiles=8"),
        ("iqn", "num_cosines=16"),
        ("dqn", "prioritized=true"),
        ("dqn", "n_step_return=2"),
        ("dqn", "buffer_size=500"),
    ],
)
def test_what_the_saved_state_depends_on_cannot_change_on_resume(
    tmp_path: Path, algo: str, override: str
) -> None:
    config = {
        "algo": algo,
        "env": {"id": "CartPole-v1"},
        "total_timesteps": 100,
        "algo_kwargs": {"learning_starts": 50, "buffer_size": 100, "batch_size": 8},
        "network": {"hidden_sizes": [8]},
        "evaluation": {"frequency": 0, "final_episodes": 0},
        "logging": {"tensorboard": False, "csv": False},
    }
    done = registry.train(load_config(config), run_dir=tmp_path / "run", console=False)
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^algo_kwargs\.{key}: cannot change when a run is resumed"):
        registry.resume(
            done.run_dir, overrides=[f"algo_kwargs.{override}", "total_timesteps=200"], console=False
        )


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("network.layer_norm=true", "network.layer_norm"),
        ("network={activation: tanh}", "network.activation"),
        ("env.num_envs=2", "env.num_envs"),
        ("seed=9", "seed"),
    ],
)
def test_what_a_run_is_about_cannot_change_on_resume(tmp_path: Path, override: str, key: str) -> None:
    config = {
        "algo": "dqn",
        "env": {"id": "CartPole-v1"},
        "total_timesteps": 100,
        "algo_kwargs": {"learning_starts": 50, "batch_size": 8},
        "network": {"hidden_sizes": [8]},
        "evaluation": {"frequency": 0, "final_episodes": 0},
    }
    done = registry.train(load_config(config), run_dir=tmp_path / "run", console=False)
    with pytest.raises(ConfigError, match=rf"^{key}: cannot change when a run is resumed"):
        registry.resume(done.run_dir, overrides=[override, "total_timesteps=200"], console=False)
