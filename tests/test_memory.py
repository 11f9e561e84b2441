"""Memory through every surface: acting, evaluation, prediction by the API and by the command line."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from helpers.trainer_checks import SMALL
from rl_training import DQN, DRQN, R2D2, load_config
from rl_training.algorithms.protocol import Decision
from rl_training.config import EnvConfig, EvaluationConfig
from rl_training.envs import make_env
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.collector import Collector
from rl_training.runtime.evaluator import evaluate
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.spaces import DiscreteActions

ENV = "rl_training/CartPoleNoVelocity-v0"
OVERRIDES = {**SMALL, "total_timesteps": 400, "evaluation.frequency": 0, "logging.tensorboard": False}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> DRQN:
    config = load_config("drqn/cartpole_no_velocity", OVERRIDES).model_dump(mode="json")
    return DRQN(config=config, run_dir=tmp_path_factory.mktemp("drqn") / "run").learn(progress_bar=False)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def r2d2(tmp_path_factory: pytest.TempPathFactory) -> R2D2:
    config = load_config("r2d2/cartpole_no_velocity", OVERRIDES).model_dump(mode="json")
    return R2D2(config=config, run_dir=tmp_path_factory.mktemp("r2d2") / "run").learn(progress_bar=False)  # type: ignore[return-value]


# Collecting


class Counting:
    """Remembers how many observations of the episode it has seen, and the last reward; says so if that is wrong."""

    def __init__(self) -> None:
        self.decisions = 0

    def initial_carry(self, count: int) -> dict[str, Any]:
        return {"seen": np.zeros(count, np.int64), "reward": np.zeros(count, np.float32)}

    def observe(self, obs: Any) -> None:
        pass

    def act(self, obs: Any, carry: Any = None, *, explore: bool, mask: Any = None) -> Decision:
        carry = self.initial_carry(len(obs)) if carry is None else carry
        self.check(obs, carry)
        self.decisions += len(obs)
        return Decision(np.zeros(len(obs), np.int64), {**carry, "seen": carry["seen"] + 1})

    def check(self, obs: Any, carry: Any) -> None:
        """The reward of a step is its number, and so is an observation, except that the final one is acted on once
        more with NEXT_STEP autoreset, where what is remembered does not matter."""
        assert carry["seen"].tolist() == obs[:, 0].tolist()
        assert carry["reward"].tolist() == obs[:, 0].tolist()


class Steps(gym.Env[Any, Any]):
    """Observations count the steps of an episode; the reward of a step is its number."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 0, *, cut: bool = False) -> None:
        self.fixed, self.cut = length, cut

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = self.fixed or int(self.np_random.integers(2, 9))
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        over = self.t == self.length
        return np.array([self.t], np.float32), float(self.t), over and not self.cut, over and self.cut, {}


ENDINGS = pytest.mark.parametrize("cut", [False, True], ids=["terminated", "truncated"])


@ENDINGS
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_memory_of_each_step_is_that_of_its_episode(mode: AutoresetMode, cut: bool) -> None:
    """The environments' episodes end at different times."""
    envs = gym.vector.SyncVectorEnv(
        [functools.partial(Steps, length, cut=cut) for length in (3, 5, 2)], autoreset_mode=mode
    )
    collector, learner = Collector(envs, DiscreteActions(2)), Counting()
    seen = 0
    for _ in range(31):
        step, _ = collector.step(learner)  # type: ignore[arg-type]
        carry = step.carry if step.carry is not None else learner.initial_carry(3)
        learner.check(step.obs, carry)
        seen += len(step)
    assert seen >= 60


@ENDINGS
@pytest.mark.parametrize("envs", [1, 3])
def test_evaluation_carries_and_wipes_the_memory_of_each_env(envs: int, cut: bool) -> None:
    learner: Any = Counting()
    options, env = EvaluationConfig(num_envs=envs), EnvConfig(id="test:Steps", kwargs={"cut": cut})
    result = evaluate(learner, env, DiscreteActions(2), options, 20, Steps)
    assert len(set(result.lengths)) > 3
    assert learner.decisions >= sum(result.lengths)


def halfway(algo: str, **overrides: Any) -> Run:
    """A run with two environments in the middle of its episodes."""
    run = Run(load_config(f"{algo}/cartpole", {**OVERRIDES, **overrides}))
    for clock in train(run):
        if clock.steps == 250:
            return run
    raise AssertionError


def test_a_checkpoint_without_the_memory_is_refused() -> None:
    run = halfway("drqn")
    tree = copy.deepcopy(run.state_dict())
    assert run.load_state_dict(tree) == "replayed"
    for name, value in (("hidden", np.zeros((2, 1, 3), np.float32)), ("hidden", np.zeros((2, 1, 64)))):
        damaged = copy.deepcopy(tree)
        damaged["envs"]["carry"][name] = value
        with pytest.raises(CheckpointError, match="the saved memory does not fit"):
            run.load_state_dict(damaged)
    for missing in ({}, {"carry": None}):
        envs = {key: value for key, value in tree["envs"].items() if key != "carry"}
        with pytest.raises(CheckpointError, match="the agent's memory is missing"):
            run.load_state_dict({**tree, "envs": {**envs, **missing}})
    run.close()


def test_where_environments_restart_sequences_end() -> None:
    """Nothing is remembered, and the chunks that were under way end where they are."""
    run = halfway("drqn")
    tree = copy.deepcopy(run.state_dict())
    tree["envs"] = {"restore": "restarted", "started": tree["envs"]["started"]}
    again = Run(run.config)
    assert again.load_state_dict(tree) == "restarted"
    buffer: Any = again.experience.buffer  # type: ignore[attr-defined]
    assert not buffer._age.any()
    before = int(buffer._steps.sum())
    step, _ = again.collector.step(again.algorithm)
    assert step.carry is None
    again.experience.add(step)
    assert buffer._age.tolist() == [1, 1]
    assert int(buffer._steps.sum()) == before
    for each in (run, again):
        each.close()


# Evaluation and prediction


def play(agent: Any, seeds: list[int], **reward: Any) -> list[float]:
    """Play one episode for each seed by hand, all at once, carrying the memory by ``predict``."""
    envs = [gym.make(ENV) for _ in seeds]
    obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
    total, over, state = np.zeros(len(seeds)), np.zeros(len(seeds), bool), None
    while not over.all():
        action, state = agent.predict(obs, state, **reward)
        for i, env in enumerate(envs):
            if not over[i]:
                obs[i], gain, terminated, truncated, _ = env.step(action[i])
                total[i] += float(gain)
                over[i] = terminated or truncated
    return total.tolist()


def test_many_envs_are_predicted_like_each_alone(agent: DRQN) -> None:
    together = play(agent, [1, 2, 3])
    assert together == [play(agent, [seed])[0] for seed in (1, 2, 3)]


def test_a_single_observation_is_a_batch_of_one(agent: DRQN) -> None:
    obs = np.array([0.01, 0.02], np.float32)
    one, state = agent.predict(obs)
    many, states = agent.predict(obs[None])
    assert one == many[0]
    for _ in range(3):
        one, state = agent.predict(obs, state, episode_start=False)
        many, states = agent.predict(obs[None], states, episode_start=[False])
        assert one == many[0]
        assert all(np.array_equal(state[name], states[name]) for name in state)


def test_the_memory_matters_and_is_forgotten_on_request(agent: DRQN) -> None:
    obs = np.array([[0.0, 0.05]] * 2, np.float32)
    _, state = agent.predict(obs)
    kept = {name: array.copy() for name, array in state.items()}
    _, after = agent.predict(obs, state, episode_start=[False, True])
    _, fresh = agent.predict(obs)
    assert np.array_equal(after["hidden"][1], fresh["hidden"][1])
    assert not np.array_equal(after["hidden"][0], fresh["hidden"][0])
    assert all(np.array_equal(state[name], kept[name]) for name in state), "what was handed in is left alone"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "batch"}, "state: it is the memory of 3 environments, obs is of 2"),
        ({"state": (1, 2)}, "state: expected what predict() returned"),
        ({"state": {"hidden": 1}}, "state: expected what predict() returned"),
        ({"state": "shape"}, "state: hidden should be float32 (2, 1, 64)"),
        ({"state": "nan"}, "state: hidden contains NaN or infinity"),
        ({"episode_start": [True, False, True]}, "episode_start: expected true or false, or 2 of them"),
        ({"episode_start": "no"}, "episode_start: expected true or false"),
        ({"state": None, "episode_start": "no"}, "episode_start: expected true or false"),
        ({"state": None, "reward": "x"}, "reward: expected a number"),
        ({"state": "large"}, "state: hidden contains NaN or infinity, or what is too large"),
    ],
)
def test_a_memory_that_does_not_fit_is_refused(agent: DRQN, change: dict[str, Any], message: str) -> None:
    obs = np.zeros((2, 2), np.float32)
    _, state = agent.predict(obs)
    bad = {
        "batch": agent.predict(np.zeros((3, 2), np.float32))[1],
        "shape": {**state, "hidden": state["hidden"][..., :5]},
        "large": {**state, "hidden": state["hidden"].astype(np.float64) * 1e60},
        "nan": {**state, "hidden": state["hidden"] * np.nan},
    }
    given = {"state": state, **change}
    if isinstance(given["state"], str):
        given["state"] = bad[given["state"]]
    with pytest.raises(ConfigError) as caught:
        agent.predict(obs, **given)
    assert message in str(caught.value)


@pytest.mark.parametrize("action", [[-1, 0], [0, 3], [0.5, 1.0]])
def test_an_action_that_there_is_not_cannot_be_remembered(r2d2: R2D2, action: Any) -> None:
    obs = np.zeros((2, 2), np.float32)
    _, state = r2d2.predict(obs)
    with pytest.raises(ConfigError, match="state: action should be"):
        r2d2.predict(obs, {**state, "action": np.array(action)}, reward=0.0)


def test_an_agent_that_needs_the_last_reward_says_so(r2d2: R2D2) -> None:
    obs = np.zeros((2, 2), np.float32)
    _, state = r2d2.predict(obs)
    with pytest.raises(ConfigError, match="reward: this agent also needs the reward of its last action"):
        r2d2.predict(obs, state)
    with pytest.raises(ConfigError, match="reward: expected a number"):
        r2d2.predict(obs, state, reward=[1.0, np.nan])
    _, other = r2d2.predict(obs, state, reward=[1.0, 5.0])
    assert not np.array_equal(other["hidden"][0], other["hidden"][1])
    r2d2.predict(obs, state, episode_start=True)


def test_evaluation_plays_the_same_episodes_at_once_and_one_by_one(agent: DRQN, r2d2: R2D2) -> None:
    learners: list[DRQN | R2D2] = [agent, r2d2]
    for learned in learners:
        config = learned.config
        policy: Any = learned._policy
        assert config is not None
        one_by_one = config.evaluation.model_copy(update={"num_envs": 1})
        assert evaluate(policy.algorithm, config.env, policy.actions, one_by_one, 6) == learned.evaluate(6)


def test_the_memory_of_a_learner_is_what_its_replay_expects() -> None:
    for name, overrides in (
        ("drqn/cartpole", {"algo_kwargs.core": "gru"}),
        ("drqn/cartpole", {"algo_kwargs.core_layers": 3, "algo_kwargs.prev_action": True}),
        ("r2d2/cartpole_no_velocity", {}),
    ):
        config = load_config(name, overrides)
        run = Run(config)
        stored = run.experience.buffer._state  # type: ignore[attr-defined]
        carry = run.algorithm.initial_carry(1)
        run.close()
        assert carry is not None
        assert {n: (a.shape[1:], a.dtype) for n, a in stored.items()} == {
            n: (a.shape[1:], a.dtype) for n, a in carry.items()
        }


def test_memoryless_agents_take_and_give_none(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole_no_velocity", {**OVERRIDES, "total_timesteps": 240}).model_dump(
        mode="json"
    )
    agent = DQN(config=config, run_dir=tmp_path / "run").learn(progress_bar=False)
    assert agent.predict([0.0, 0.1], state=None, episode_start=True)[1] is None


# The command line


def test_predict_keeps_the_memory_in_a_file(cli: Callable[..., Any], agent: DRQN, tmp_path: Path) -> None:
    state, memory = None, tmp_path / "memory.json"
    rng = np.random.default_rng(0)
    for _ in range(4):
        obs = rng.normal(size=2).astype(np.float32)
        action, state = agent.predict(obs, state)
        done = cli("predict", agent.run_dir, "--obs", json.dumps(obs.tolist()), "--state", memory)
        assert done.code == 0, done.err
        assert done.out.strip() == str(action)
        written = json.loads(memory.read_text())
        assert all(np.array_equal(np.float32(written[name]), array) for name, array in state.items())
    done = cli("predict", agent.run_dir, "--obs", "[0, 0]", "--state", memory, "--episode-start", "true")
    assert done.code == 0, done.err
    fresh = agent.predict(np.zeros(2, np.float32))[1]
    written = json.loads(memory.read_text())
    assert all(np.array_equal(np.float32(written[name]), array) for name, array in fresh.items())


def test_predict_takes_rewards_of_many(cli: Callable[..., Any], r2d2: R2D2, tmp_path: Path) -> None:
    memory, obs = tmp_path / "memory.json", ["--obs", "[[0, 0], [0, 0.1]]"]
    assert cli("predict", r2d2.run_dir, *obs, "--state", memory).code == 0
    assert "reward: this agent also needs" in cli("predict", r2d2.run_dir, *obs, "--state", memory).err
    done = cli("predict", r2d2.run_dir, *obs, "--state", memory, "--reward", "[1, 0.5]", "--json")
    assert len(json.loads(done.out)["action"]) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "--state: "),
        ('{"hidden": [[1]]}', "state: expected what predict() returned"),
        ("[NaN]", "--state: "),
    ],
)
def test_a_bad_memory_file_is_refused_and_kept(
    cli: Callable[..., Any], agent: DRQN, tmp_path: Path, content: str, message: str
) -> None:
    memory = tmp_path / "memory.json"
    memory.write_text(content)
    done = cli("predict", agent.run_dir, "--obs", "[0, 0]", "--state", memory)
    assert done.code == 2
    assert message in done.err
    assert memory.read_text() == content


def test_a_changed_env_is_made_with_lists_for_tuples() -> None:
    config = load_config(
        "dqn/cartpole", {"env.wrappers": [{"id": "ReshapeObservation", "kwargs": {"shape": [2, 2]}}]}
    )
    env = make_env(config.env)
    assert env.observation_space.shape == (2, 2)
    env.close()


def test_without_a_memory_file_an_episode_begins_and_it_is_said(cli: Callable[..., Any], agent: DRQN) -> None:
    done = cli("predict", agent.run_dir, "--obs", "[0, 0]")
    assert done.code == 0
    assert done.err.strip() == "no --state: an episode begins"
    assert int(done.out) in (0, 1)


def test_options_of_a_memory_are_refused_without_one(cli: Callable[..., Any], tmp_path: Path) -> None:
    config = load_config("dqn/cartpole_no_velocity", OVERRIDES).model_dump(mode="json")
    DQN(config=config, run_dir=tmp_path / "run").learn(progress_bar=False)
    memory = tmp_path / "memory.json"
    for option, value in (("--state", memory), ("--episode-start", "true"), ("--reward", "1")):
        done = cli("predict", tmp_path / "run", "--obs", "[0, 0]", option, value)
        assert done.code == 2
        assert f"{option}: this agent has no memory" in done.err
    assert not memory.exists()


def test_help_shows_how_a_batch_forgets(cli: Callable[..., Any]) -> None:
    assert "[true, false]" in " ".join(cli("predict", "--help").out.split())
