"""Options of the actor-critics with replay reach their objects, and those without an effect are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from helpers.runs import outcome, stop_at
from rl_training.algorithms.spec import BuildContext
from rl_training.envs.spaces import describe_spaces
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.experiment.registry import get
from rl_training.models.batch_renorm import BatchRenorm
from rl_training.runtime import workflows
from rl_training.runtime.session import Interrupted
from rl_training.runtime.streams import Streams

ALGORITHMS = ("ddpg", "td3", "sac", "tqc", "discrete_sac", "crossq")


def configured(algo: str, **overrides: Any) -> Any:
    return load_config({"algo": algo, **get(algo).smallest, "seed": 1}, overrides)


def learner_of(algo: str, **overrides: Any) -> Any:
    config = configured(algo, **overrides)
    env = gym.make(config.env.id)
    spaces = describe_spaces(env.observation_space, env.action_space)
    return get(algo).build_learner(BuildContext(config, *spaces, Streams(1), torch.device("cpu")))


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_actor_has_its_own_rate_whose_ratio_stays(algo: str) -> None:
    learner = learner_of(
        algo,
        **{
            "algo_kwargs.learning_rate": 4e-3,
            "algo_kwargs.actor_learning_rate": 1e-3,
            "algo_kwargs.learning_rate_final": 2e-3,
        },
    )
    for steps, share in ((0, 1.0), (100, 0.75), (200, 0.5)):
        learner.advance(steps)
        for name, optimizer in learner.optimizers.items():
            first = 4e-3 if name == "critic" else 1e-3
            assert optimizer.lr == pytest.approx(share * first), name


def test_the_temperature_keeps_the_usual_betas() -> None:
    learner = learner_of("crossq")
    betas = {name: optimizer.betas for name, optimizer in learner.optimizers.items()}
    assert betas == {"critic": (0.5, 0.999), "actor": (0.5, 0.999), "temperature": (0.9, 0.999)}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_critics_may_be_of_another_size(algo: str) -> None:
    learner = learner_of(algo, **{"network.critic_hidden_sizes": [11]})
    shapes = {tuple(p.shape) for p in learner.network.critic.parameters() if p.ndim == 2}
    assert any(11 in shape for shape in shapes)
    assert not any(11 in p.shape for p in learner.network.actor.parameters())


def test_every_normalised_layer_has_the_momentum_and_the_warm_up() -> None:
    learner = learner_of(
        "crossq", **{"algo_kwargs.batch_norm_momentum": 0.37, "algo_kwargs.renorm_warm_up": 13}
    )
    layers = [module for module in learner.network.modules() if isinstance(module, BatchRenorm)]
    assert len(layers) == 6, "before each layer of weights, of the actor and of two critics"
    assert {(layer.momentum, layer.warm_up) for layer in layers} == {(0.37, 13)}


def test_features_are_not_learned_for_the_size_of_state_dependent_noise() -> None:
    actor = learner_of(
        "sac", **{"algo_kwargs.use_sde": True, "algo_kwargs.sde_log_std_init": -1.5}
    ).network.actor
    assert float(actor.log_std.detach().mean()) == -1.5
    _, log_std = actor(torch.randn(5, 3))
    grads: tuple[Any, ...] = torch.autograd.grad(
        log_std.sum(), [actor.body.linears[0].weight, actor.log_std], allow_unused=True
    )
    assert grads[0] is None
    assert (grads[1] != 0).any()


LASTING: dict[str, dict[str, Any]] = {
    "ddpg": {"algo_kwargs.action_noise": "ou"},
    "sac": {"algo_kwargs.use_sde": True},
}


@pytest.mark.parametrize("algo", LASTING)
@pytest.mark.parametrize("stop", [20, 50, 52])
def test_noise_that_lasts_goes_on_from_before_at_and_after_the_end_of_the_warm_up(
    tmp_path: Path, algo: str, stop: int
) -> None:
    config = configured(algo, **LASTING[algo], **{"env.num_envs": 2, "logging.tensorboard": False})
    assert config.algo_kwargs.learning_starts == 50
    workflows.start(config, run_dir=tmp_path / "straight", console=False)
    with pytest.raises(Interrupted):
        workflows.start(config, run_dir=tmp_path / "stopped", callback=stop_at(stop), console=False)
    workflows.resume(tmp_path / "stopped", console=False)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "priority": ("sac", {"algo_kwargs.alpha": 0.3}, "algo_kwargs.alpha: has no effect without"),
    "delay": (
        "td3",
        {"algo_kwargs.policy_delay": 1_000},
        "algo_kwargs.policy_delay: 1000 is more than the 75 updates",
    ),
    "norm": (
        "sac",
        {"algo_kwargs.critic_layer_norm": True, "network.critic_hidden_sizes": []},
        "algo_kwargs.critic_layer_norm: needs hidden layers",
    ),
    "dropout": (
        "ddpg",
        {"algo_kwargs.critic_dropout": 0.1, "network.critic_hidden_sizes": []},
        "algo_kwargs.critic_dropout: needs hidden layers",
    ),
    "diverging noise": (
        "ddpg",
        {"algo_kwargs.action_noise": "ou", "algo_kwargs.ou_theta": 50, "algo_kwargs.ou_dt": 1},
        "algo_kwargs.ou_theta: 50 times",
    ),
    "temperature": (
        "sac",
        {"algo_kwargs.ent_coef": "auto_0.1"},
        "algo_kwargs.ent_coef: .*should be auto or a number",
    ),
    "negative temperature": (
        "sac",
        {"algo_kwargs.ent_coef": -0.1},
        "algo_kwargs.ent_coef: -0.1 should be auto",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_effect_or_makes_no_sense_is_refused_in_one_line(name: str) -> None:
    algo, overrides, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message) as caught:
        configured(algo, **overrides)
    assert "\n" not in str(caught.value)
    assert "function" not in str(caught.value)


@pytest.mark.parametrize("target", [0.7, -40.0])
def test_an_entropy_that_no_policy_has_is_refused(target: float) -> None:
    with pytest.raises(ConfigError, match=r"target_entropy: .* cannot be reached"):
        learner_of("sac", **{"algo_kwargs.target_entropy": target})


@pytest.mark.parametrize(("first", "later"), [("auto", "0.1"), ("0.2", "auto"), ("0.2", "0.1")], ids=str)
def test_a_resumed_run_keeps_its_temperature(tmp_path: Path, first: str, later: str) -> None:
    config = configured("sac", **{"algo_kwargs.ent_coef": first, "checkpoint.frequency": 50})
    with pytest.raises(Interrupted):
        workflows.start(config, run_dir=tmp_path / "run", callback=stop_at(100), console=False)
    with pytest.raises(ConfigError, match=r"algo_kwargs\.ent_coef"):
        workflows.resume(tmp_path / "run", overrides=[f"algo_kwargs.ent_coef={later}"], console=False)


def test_the_pace_of_updates_does_not_depend_on_the_environments() -> None:
    settings = {"algo_kwargs.train_freq": 4, "algo_kwargs.gradient_steps": 2}
    lines = {configured("sac", **settings, **{"env.num_envs": n}).algo_kwargs.pace() for n in (1, 4)}
    assert lines == {
        "updates: 0.5 per step of all environments together (2 every 4 steps), after the first 50 steps"
    }


def test_renormalised_layers_have_autograds_gradients_from_the_end_of_the_warm_up_on() -> None:
    torch.manual_seed(0)
    layer = BatchRenorm(3, momentum=0.3, warm_up=2)
    layer.weight.data.normal_()
    layer.bias.data.normal_()
    for call in range(4):
        x = (2.0 * torch.randn(6, 3) + 1.0).requires_grad_()
        mean, var = layer.running_mean.clone(), layer.running_var.clone()
        found = layer.train()(x)
        of_batch, centre = x.var(0, correction=0), x.mean(0)
        normal = (x - centre) / (of_batch + layer.eps).sqrt()
        if call >= 2:  # the third call is the first behind a warm-up of two
            running = (var + layer.eps).sqrt()
            r = ((of_batch + layer.eps).sqrt() / running).clamp(1 / 3, 3).detach()
            d = ((centre - mean) / running).clamp(-5, 5).detach()
            normal = normal * r + d
        expected = normal * layer.weight + layer.bias
        torch.testing.assert_close(found, expected)
        by = torch.randn_like(found)
        wanted = [x, layer.weight, layer.bias]
        for mine, exact in zip(
            torch.autograd.grad(found, wanted, by), torch.autograd.grad(expected, wanted, by), strict=True
        ):
            torch.testing.assert_close(mine, exact, rtol=1e-4, atol=1e-5)
