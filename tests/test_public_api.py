"""The managed API: three lines to start, and everything one does with an agent."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import rl_training
from rl_training import DQN, Callback
from rl_training.errors import CheckpointError, ConfigError, StorageError
from rl_training.experiment import registry
from rl_training.runtime.evaluator import Evaluation
from rl_training.runtime.session import Interrupted, Session

SMALL: dict[str, Any] = {
    "network": {"hidden_sizes": [16]},
    "evaluation": {"frequency": 200, "episodes": 2, "final_episodes": 2},
    "logging": {"tensorboard": False, "frequency": 100},
}


def small_agent(tmp_path: Path, env: Any = "CartPole-v1", **options: Any) -> DQN:
    return DQN(env, config=SMALL, run_dir=tmp_path / "run", learning_starts=50, **options)


class Corridor(gym.Env[Any, Any]):
    """Five cells; right leads to the reward."""

    def __init__(self, length: int = 5) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = gym.spaces.Discrete(2, start=7)
        self.length, self.cell, self.seen = length, 0, set[int]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return self.obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (7, 8)
        self.cell = max(self.cell + (1 if action == 8 else -1), 0)
        done = self.cell == self.length - 1
        return self.obs(), float(done), done, False, {}

    def obs(self) -> Any:
        return np.eye(self.length, dtype=np.float32)[self.cell]


class Tiny(nn.Module):
    """A user's own network."""

    def __init__(self, obs_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(obs_shape[0], num_outputs)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.linear(obs)


def test_three_lines_to_start(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    agent.learn(400, progress_bar=False)
    action, state = agent.predict(np.zeros(4, np.float32))
    assert action in (0, 1)
    assert state is None


def test_learn_again_trains_that_much_more(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    agent.learn(300, progress_bar=False)
    agent.learn(200, progress_bar=False)
    assert agent.result is not None
    assert agent.result.steps == 500
    agent.learn("0.1k", progress_bar=False)  # type: ignore[arg-type]
    assert agent.result.steps == 600
    for wrong in (-1, 0, 1.5, "many", True):
        with pytest.raises(ConfigError, match=f"^total_timesteps: {wrong!r} is not allowed"):
            agent.learn(wrong)  # type: ignore[arg-type]
    assert agent.result.steps == 600


@pytest.mark.parametrize("name", ["PrioritizedDQN", "C51", "QRDQN", "IQN", "Rainbow"])
def test_every_class_learns_saves_loads_and_goes_on(tmp_path: Path, name: str) -> None:
    cls = getattr(rl_training, name)
    agent = cls("CartPole-v1", config=SMALL, run_dir=tmp_path / "run", learning_starts=50, batch_size=16)
    agent.learn(120, progress_bar=False)
    loaded = rl_training.load(agent.save(tmp_path / "saved"))
    assert type(loaded) is cls
    obs = np.random.default_rng(0).normal(size=(32, 4))
    assert np.array_equal(loaded.predict(obs)[0], agent.predict(obs)[0])
    assert set(agent.predict(obs, deterministic=False)[0]) <= {0, 1}
    mask = np.eye(2, dtype=bool)[np.arange(32) % 2]
    assert np.array_equal(agent.predict(obs, action_mask=mask)[0], np.arange(32) % 2)
    assert loaded.evaluate(2) == agent.evaluate(2)
    assert agent.learn(60, progress_bar=False).result.steps == 180
    with pytest.raises(CheckpointError, match=f"was made by '{cls.algo_name}', not 'dqn'"):
        DQN.load(tmp_path / "saved")


def test_save_load_and_resume(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    agent.learn(300, progress_bar=False)
    saved = agent.save(tmp_path / "saved")
    obs = np.random.default_rng(0).normal(size=(32, 4))
    for loaded in (DQN.load(saved), rl_training.load(saved), rl_training.load(tmp_path / "run")):
        assert type(loaded) is DQN
        assert np.array_equal(loaded.predict(obs)[0], agent.predict(obs)[0])
        assert loaded.evaluate(3) == agent.evaluate(3)
    resumed = DQN.load(tmp_path / "run").resume(400, progress_bar=False)
    assert resumed.result is not None
    assert resumed.result.steps == 400


def test_a_saved_agent_resumes_as_a_run_of_its_own(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    agent.learn(300, progress_bar=False)
    apart = tmp_path / "elsewhere"
    resumed = DQN.load(agent.save(apart / "agent")).resume(400, progress_bar=False)
    assert resumed.result is not None
    assert resumed.result.steps == 400
    assert resumed.result.run_dir.parent == apart


def test_an_own_environment_with_actions_from_seven(tmp_path: Path) -> None:
    agent = small_agent(tmp_path, env=Corridor, gamma=0.9, learning_rate=1e-2, target_update_interval=50)
    agent.learn(1_500, progress_bar=False)
    actions, _ = agent.predict(np.eye(5, dtype=np.float32)[:4])
    assert actions.tolist() == [8, 8, 8, 8]
    assert agent.evaluate(2).lengths == (4, 4)
    assert DQN.load(tmp_path / "run", trust=True).evaluate(2).lengths == (4, 4)


def test_an_environment_made_by_a_lambda_is_given_again_on_load(tmp_path: Path) -> None:
    agent = small_agent(tmp_path, env=lambda: Corridor(3))
    agent.learn(200, progress_bar=False)
    with pytest.raises(ConfigError, match="env"):
        DQN.load(tmp_path / "run").evaluate(1)
    assert len(DQN.load(tmp_path / "run", env=lambda: Corridor(3)).evaluate(1).returns) == 1


def test_an_own_network(tmp_path: Path) -> None:
    agent = small_agent(tmp_path, network=Tiny)
    agent.learn(200, progress_bar=False)
    obs = np.random.default_rng(0).normal(size=(16, 4))
    with pytest.raises(
        ConfigError, match=r"network\.factory: .* would import 'test_public_api', which is not"
    ):
        DQN.load(tmp_path / "run")
    again = DQN.load(tmp_path / "run", trust=True)
    assert np.array_equal(again.predict(obs)[0], agent.predict(obs)[0])
    given = DQN.load(tmp_path / "run", network=Tiny)
    assert np.array_equal(given.predict(obs)[0], agent.predict(obs)[0])


@pytest.mark.parametrize("algo", ["dqn", "drqn"])
def test_convolutions_are_not_chosen_for_a_custom_network(tmp_path: Path, algo: str) -> None:
    settings = {"network.cnn": "impala", "network.hidden_sizes": [2], "total_timesteps": 2_000}
    config = rl_training.load_config(f"{algo}/cartpole", settings)
    with pytest.raises(
        ConfigError, match=r"^network\.cnn: impala has no effect on a custom network; leave it"
    ):
        registry.train(config, run_dir=tmp_path / "run", network=Tiny, console=False)


def test_an_own_callback_sees_every_step_logs_and_stops(tmp_path: Path) -> None:
    class Watch(Callback):
        def __init__(self) -> None:
            self.steps = 0
            self.evaluations: list[Evaluation] = []

        def on_step(self, training: Session) -> None:
            self.steps += 1
            if training.steps == 250:
                training.log({"own/value": 1.5})
                training.stop("seen enough")

        def on_evaluation(self, training: Session, evaluation: Evaluation) -> None:
            self.evaluations.append(evaluation)

        def state_dict(self) -> dict[str, Any]:
            return {"steps": self.steps}

        def load_state_dict(self, state: Any) -> None:
            self.steps = int(state["steps"])

    watch = Watch()
    agent = small_agent(tmp_path)
    agent.learn(400, callback=watch, progress_bar=False)
    assert agent.result is not None
    assert (agent.result.steps, agent.result.stop_reason) == (250, "seen enough")
    assert (watch.steps, len(watch.evaluations)) == (250, 1)
    assert "own/value" in (tmp_path / "run" / "metrics.csv").read_text()
    agent.resume(400, callback=(again := Watch()), progress_bar=False)
    assert again.steps == 400


def test_a_plain_function_is_a_callback(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    agent.learn(400, callback=lambda training: training.steps < 120, progress_bar=False)
    assert agent.result is not None
    assert agent.result.steps == 120


def test_stop_on_threshold(tmp_path: Path) -> None:
    config = {**SMALL, "evaluation": {**SMALL["evaluation"], "stop_at": 1.0}}
    agent = DQN("CartPole-v1", config=config, run_dir=tmp_path / "run", learning_starts=50)
    agent.learn(10_000, progress_bar=False)
    assert agent.result is not None
    assert agent.result.steps == 200
    assert "threshold" in str(agent.result.stop_reason)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: DQN(), "env: give an environment"),
        (lambda: DQN("CartPole-v1", gama=0.9), "algo_kwargs.gama: unknown key; did you mean 'gamma'"),
        (lambda: DQN("CartPole-v1", gamma=2.0), "algo_kwargs.gamma: 2.0 is not allowed"),
        (lambda: rl_training.C51("CartPole-v1", v_min=3, v_max=2), "algo_kwargs.v_min: 3 is not below"),
        (lambda: rl_training.QRDQN("CartPole-v1", num_atoms=5), "algo_kwargs.num_atoms: unknown key"),
        (lambda: rl_training.PrioritizedDQN("CartPole-v1", alpha=-1), "algo_kwargs.alpha: -1"),
        (lambda: DQN("CartPole-v1").predict(np.zeros(4)), "call learn"),
        (lambda: DQN("CartPole-v1").evaluate(1), "call learn"),
        (lambda: DQN("CartPole-v1").save("x"), "nothing to save"),
        (lambda: DQN("CartPole-v1").resume(), "nothing to resume"),
        (lambda: DQN("CartPole-v1").learn(), "total_timesteps: required key is missing"),
        (lambda: DQN("CartPole-v1", num_envs=3).learn(100), "not a multiple of env.num_envs=3"),
        (
            lambda: DQN("CartPole-v1", config={"network": {"hidden_sizes": [], "layer_norm": True}}).learn(
                100
            ),
            "^network.layer_norm: needs hidden layers, of two units or more each$",
        ),
        (lambda: DQN("CartPole-v1", layer_norm=True), "network={'layer_norm': True}$"),
        (lambda: DQN("CartPole-v1", seeed=1), "^seeed: unknown keyword; did you mean 'seed'"),
        (
            lambda: DQN(config=["dqn/cartpole"]),  # type: ignore[arg-type]
            "^config: should be a name, a path, a mapping or a config",
        ),
    ],
)
def test_misuse_is_told_at_once(build: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build()


def test_a_config_may_be_one_that_was_loaded_and_changed(tmp_path: Path) -> None:
    settings = {
        "network": {"layer_norm": True},
        "total_timesteps": 300,
        "algo_kwargs.learning_starts": 100,
    }
    config = rl_training.load_config("dqn/cartpole_quick", settings)
    assert config.network.hidden_sizes == (128, 128), "what a section leaves out stays"
    agent = DQN(config=config, batch_size=16, run_dir=tmp_path / "run").learn()
    assert agent.config is not None
    assert agent.config.network == config.network
    assert (agent.config.algo_kwargs.batch_size, agent.config.total_timesteps) == (16, 300)
    assert rl_training.load_config(tmp_path / "run") == agent.config, "a run folder is a source, too"


def test_a_star_imports_what_is_public_and_nothing_else() -> None:
    names: dict[str, Any] = {}
    exec("from rl_training import *", names)
    assert names.keys() - {"__builtins__"} == set(dir(rl_training))
    assert names["DQN"] is DQN


def test_what_is_no_environment_or_network_is_refused(tmp_path: Path) -> None:
    small_agent(tmp_path).learn(60, progress_bar=False)
    for env, told in (
        (gym.make_vec("CartPole-v1", 2), "makes one environment, and num_envs=N for several$"),
        (7, "makes it, not int$"),
    ):
        for use in (lambda env=env: DQN(env), lambda env=env: DQN.load(tmp_path / "run", env=env)):
            with pytest.raises(ConfigError, match=f"^env: give an id or a callable that {told}"):
                use()
    with pytest.raises(ConfigError, match=r"^network: give a callable that makes it, not str$"):
        DQN("CartPole-v1", network="torch:nn")  # type: ignore[arg-type]


def test_the_best_agent_learns_on_from_where_it_was(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    agent.learn(500, progress_bar=False)
    hint = tmp_path / "run" / "checkpoints" / "best"
    best = DQN.load(tmp_path / "run", best=True)
    begun = int(hint.read_text().strip()[5:])
    best.learn(100, progress_bar=False)
    assert best.result is not None
    assert best.result.steps == begun + 100
    assert best.run_dir == tmp_path / f"run_from-step-{begun:09d}"
    assert DQN.load(tmp_path / "run").learn(100, progress_bar=False).result.steps == 600  # type: ignore[union-attr]


def stop_at(step: int) -> Any:
    def stop(training: Session) -> None:
        if training.steps == step:
            os.kill(os.getpid(), signal.SIGINT)

    return stop


def test_an_interrupted_learn_is_resumed_not_begun_again(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    with pytest.raises(Interrupted):
        agent.learn(400, stop_at(120), progress_bar=False)
    told = "^learn\\(\\) did not come to its end: agent.resume\\(\\) goes on with it$"
    for use in (agent.learn, lambda: agent.set_env("CartPole-v0")):
        with pytest.raises(ConfigError, match=told):
            use()
    assert agent.num_timesteps == 120
    assert agent.predict(np.zeros(4))[0] in (0, 1), "it knows what the interrupted run has saved"
    assert DQN.load(agent.save(tmp_path / "x")).num_timesteps == 120
    assert agent.resume(progress_bar=False).result.steps == 400  # type: ignore[union-attr]
    with pytest.raises(Interrupted):
        agent.learn(200, stop_at(450), progress_bar=False)
    with pytest.raises(ConfigError, match=told):
        agent.learn(200)
    assert agent.predict(np.zeros(4))[0] in (0, 1)
    assert agent.resume(progress_bar=False).result.steps == 600  # type: ignore[union-attr]
    assert agent.run_dir == tmp_path / "run"
    assert agent.learn(100, progress_bar=False).result.steps == 700  # type: ignore[union-attr]


def test_a_refused_learn_begins_nothing(tmp_path: Path) -> None:
    agent = small_agent(tmp_path, env="Pendulum-v1")
    for _ in range(2):
        with pytest.raises(ConfigError, match="takes discrete actions"):
            agent.learn(100, progress_bar=False)


def test_a_failed_save_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_agent(tmp_path).learn(100, progress_bar=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/x: not saved: "):
        agent.save(tmp_path / "file" / "x")

    def full(source: Any, target: Any, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(StorageError, match=r"x: not saved: .*No space left on device"):
            agent.save(tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "file"}
    (tmp_path / ".x.partial").mkdir()  # a save that was killed
    assert DQN.load(agent.save(tmp_path / "x")).predict(np.zeros(4))[0] in (0, 1)
    assert not (tmp_path / ".x.partial").exists()


def test_load_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such run"):
        rl_training.load(tmp_path / "missing")


def test_a_config_of_another_algorithm_is_refused():
    for given in (
        "sac/pendulum",
        rl_training.load_config("sac/pendulum"),
        {"algo": "sac", "env": {"id": "Pendulum-v1"}},
    ):
        with pytest.raises(ConfigError, match="config: is one of 'sac', not of 'td3'"):
            rl_training.TD3(config=given)


def test_more_threads_than_cores_are_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    config = {"threads": 2, "evaluation": {"final_episodes": 0, "frequency": 0}}
    rl_training.DQN("CartPole-v1", config=config, run_dir=tmp_path / "run", learning_starts=10).learn(20)
    assert "warning: threads=2 is more than the 1 cores here" in capsys.readouterr().err
