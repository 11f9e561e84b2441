"""What users of Stable-Baselines3 write works here, or one line says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rl_training
from rl_training import DQN, PPO, SAC, Callback, RecurrentPPO, evaluate_policy
from rl_training.errors import ConfigError
from rl_training.runtime.session import Session

QUIET: dict[str, Any] = {
    "evaluation": {"frequency": 0, "final_episodes": 0},
    "logging": {"csv": False, "tensorboard": False},
}
SHORT: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, **QUIET}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_usual_lines_work(tmp_path: Path) -> None:
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        policy_kwargs={"net_arch": [32, 16], "activation_fn": torch.nn.Tanh},
        learning_rate=lambda left: left * 1e-3,
        train_freq=(2, "step"),
        tensorboard_log="logs",
        verbose=0,
        device="cpu",
        **SHORT,
    )
    seen: list[int] = []
    model.learn(
        total_timesteps=60,
        callback=[lambda training: seen.append(training.steps), Callback()],
        log_interval=None,
        tb_log_name="first",
        reset_num_timesteps=True,
        progress_bar=False,
    )
    assert seen == list(range(1, 61))
    assert model.num_timesteps == 60
    assert model.run_dir == tmp_path / "logs" / "first_1"
    config = model.config
    assert config is not None
    assert (config.network.hidden_sizes, config.network.activation) == ((32, 16), "tanh")
    options = config.algo_kwargs
    assert (options.learning_rate, options.learning_rate_final, options.train_freq) == (1e-3, 0.0, 2)
    assert model.learn(20, reset_num_timesteps=False).num_timesteps == 80
    obs = np.zeros(4, np.float32)
    assert model.policy.predict(obs)[0] == model.predict(obs)[0]
    assert (model.observation_space.shape, model.action_space) == ((4,), gym.spaces.Discrete(2))
    mean, std = evaluate_policy(model, gym.make("CartPole-v1"), n_eval_episodes=3)
    result = model.evaluate(3)
    assert (mean, std) == (result.mean, result.std)
    returns, lengths = evaluate_policy(model, n_eval_episodes=3, return_episode_rewards=True)
    assert (tuple(returns), tuple(lengths)) == (result.returns, result.lengths)


def test_verbose_decides_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    DQN("MlpPolicy", "CartPole-v1", verbose=0, **SHORT).learn(30)
    assert capsys.readouterr() == ("", "")
    DQN("MlpPolicy", "CartPole-v1", verbose=1, **SHORT).learn(30)
    out, err = capsys.readouterr()
    assert "Trained 30 steps" in out
    assert "observations: " in err


def test_an_environment_that_is_made_already_is_made_again_by_its_id() -> None:
    made = gym.make("CartPole-v1", sutton_barto_reward=True, max_episode_steps=17)
    made = gym.wrappers.FlattenObservation(made)
    config = DQN("MlpPolicy", made, **SHORT).learn(60, progress_bar=False).config
    assert config is not None
    assert (config.env.id, config.env.kwargs) == (
        "CartPole-v1",
        {"sutton_barto_reward": True, "max_episode_steps": 17},
    )
    assert [one.id for one in config.env.wrappers] == ["FlattenObservation"]
    bare = gym.make("CartPole-v1").unwrapped
    bare.spec = None
    with pytest.raises(
        ConfigError, match=r"^env: this CartPoleEnv was not made by gymnasium.make, so it cannot"
    ):
        DQN("MlpPolicy", bare)


def test_set_env_learns_on_in_a_run_of_its_own() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", **SHORT).learn(40, progress_bar=False)
    first = model.run_dir
    model.set_env(gym.make("CartPole-v1", sutton_barto_reward=True))
    model.learn(20, progress_bar=False)
    assert model.run_dir != first
    assert model.config is not None
    assert model.config.env.kwargs == {"sutton_barto_reward": True}
    assert DQN.load(str(first)).config.env.kwargs == {}  # type: ignore[union-attr]
    assert model.num_timesteps == 60


def test_what_is_inside_can_be_looked_at() -> None:
    model = DQN("CartPole-v1", config={"network": {"hidden_sizes": [8]}}, **SHORT)
    assert repr(model) == "DQN(env='CartPole-v1', steps=0, device='cpu')"
    model.learn(30, progress_bar=False)
    count = 4 * 8 + 8 + 8 * 2 + 2
    assert f"steps=30, device='cpu', parameters={count}, run_dir='runs/dqn/" in repr(model)
    assert isinstance(model.network, torch.nn.ModuleDict)
    tensors = model.parameters
    assert tensors.keys() == model.network.state_dict().keys()
    next(iter(tensors.values())).zero_()
    assert next(iter(model.parameters.values())).abs().sum() > 0, "a copy"


def learn_with(**options: Any) -> Callable[[], Any]:
    return lambda: DQN("CartPole-v1", **SHORT).learn(100, **options)


class BaseCallback:
    def _on_step(self) -> bool:
        return True


class CheckpointCallback(BaseCallback): ...


class Own(BaseCallback): ...


class VecEnvLike:
    num_envs = 4


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (
            lambda: DQN("MlpPolicy", "CartPole-v1", n_envs=4),
            "n_envs: num_envs=N makes that many environments",
        ),
        (
            lambda: DQN("MlpPolicy", VecEnvLike()),
            "env: give an id or a callable .*, and num_envs=N for several",
        ),
        (lambda: DQN("MlpPolicy", "CartPole-v1", 1e-3), "DQN: takes one argument without a name.*"),
        (
            lambda: PPO("MlpLstmPolicy", "CartPole-v1"),
            "MlpLstmPolicy: PPO has no memory; .*RecurrentPPO have one",
        ),
        (lambda: DQN("CartPole-v1", policy_kwargs={"net_arc": [8]}), ".*did you mean 'net_arch'.*"),
        (lambda: DQN("CartPole-v1", policy_kwargs=[8]), "policy_kwargs: should be a dict, not list"),
        (
            lambda: DQN("CartPole-v1", policy_kwargs={"activation_fn": torch.nn.Mish}),
            ".* Mish is none of ReLU.*",
        ),
        (
            lambda: DQN("CartPole-v1", learning_rate=lambda left: left**2),
            "learning_rate: this schedule is bent.*",
        ),
        (lambda: DQN("CartPole-v1", gamma=lambda left: 0.9), "gamma: a schedule is not possible here; .*"),
        (
            lambda: DQN("CartPole-v1", train_freq=(1, "episode")),
            "train_freq: .* it counts env steps: train_freq=4",
        ),
        (lambda: DQN("CartPole-v1", gradient_steps=-1), "gradient_steps: -1 is not allowed; .*"),
        (lambda: DQN("CartPole-v1", replay_buffer_class=dict), "replay_buffer_class: prioritized=True .*"),
        (lambda: DQN("CartPole-v1", hidden_sizes=[64]), ".*: network={'hidden_sizes': \\[64\\]}"),
        (learn_with(log_interval=4), "log_interval: logging={'frequency': 1_000} of the constructor .*"),
        (
            learn_with(callback=CheckpointCallback()),
            "callback: CheckpointCallback is of another .*'keep': 5.*",
        ),
        (
            learn_with(callback=Own()),
            "callback: Own._on_step is never called here; derive from rl_training.Callback.*",
        ),
        (
            learn_with(callback=3),
            "callback: 3 is none; give a function of the training, a Callback, or a list .*",
        ),
        (learn_with(callback=Callback), "callback: give one that is made: Callback\\(...\\)"),
        (lambda: DQN("CartPole-v1").get_env(), "get_env: is not here; environments live while learn.*"),
        (lambda: DQN("CartPole-v1").replay_buffer, "replay_buffer: is not here; .*"),
        (lambda: DQN.load("x", custom_objects={}), ".*"),
        (
            lambda: evaluate_policy(DQN("CartPole-v1"), deterministic=False),
            "deterministic: evaluation is greedy; .*",
        ),
    ],
)
def test_what_does_not_work_is_told_in_a_line(write: Callable[[], Any], line: str) -> None:
    with pytest.raises(rl_training.errors.RLTrainingError, match=f"^{line}$") as told:
        write()
    assert "\n" not in str(told.value)


def test_attributes_that_are_nowhere_are_no_attributes() -> None:
    model = DQN("CartPole-v1")
    assert not hasattr(model, "replay_buffer")
    with pytest.raises(AttributeError, match="'DQN' object has no attribute 'polcy'"):
        model.polcy  # noqa: B018


def test_names_of_that_package_are_imported_with_a_line() -> None:
    with pytest.raises(ImportError, match=r"^EvalCallback: is not here; evaluation={'frequency'"):
        from rl_training import EvalCallback  # type: ignore[attr-defined] # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from rl_training import Nothing  # type: ignore[attr-defined] # noqa: F401


def test_sizes_of_actor_and_critic_and_of_a_memory() -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": {"pi": [8], "qf": [16, 4]}}, **SHORT)
    config = model.learn(30, progress_bar=False).config
    assert config is not None
    assert (config.network.hidden_sizes, config.network.critic_hidden_sizes) == ((8,), (16, 4))
    with pytest.raises(ConfigError, match="actor and critic of ppo have the same sizes"):
        PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": {"pi": [8], "vf": [16]}})
    own = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs={"lstm_hidden_size": 12})
    assert own._given.experiment().algo_kwargs.core_size == 12


def test_a_callback_that_returns_false_ends_training() -> None:
    class Stop(Callback):
        def on_step(self, training: Session) -> bool:
            return training.steps < 25

    assert DQN("CartPole-v1", **SHORT).learn(60, callback=Stop(), progress_bar=False).num_timesteps == 25
