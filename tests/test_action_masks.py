"""Action masks: what an environment forbids is never done, and is known wherever a next action is imagined."""

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
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

from helpers.q_learning import make_learner, random_batch
from rl_training import DQN
from rl_training.algorithms import Decision
from rl_training.algorithms.value_learner import greedy, greedy_actions
from rl_training.config import EnvConfig, EvaluationConfig
from rl_training.envs import JournaledEnv, make_vector_env
from rl_training.envs.journal import EpisodeSeeds
from rl_training.envs.subprocess import SubprocessVectorEnv
from rl_training.envs.sync import SyncVectorEnv
from rl_training.errors import ConfigError, EnvError
from rl_training.experiment import registry
from rl_training.experiment.configs import load_config
from rl_training.runtime.checkpoint import tree_digest
from rl_training.runtime.collector import Collector
from rl_training.runtime.evaluator import evaluate
from rl_training.runtime.workflows import load_checkpoint
from rl_training.spaces import ContinuousActions, DiscreteActions

OWN = {"sync": SyncVectorEnv, "subprocess": SubprocessVectorEnv}
MODES = [*OWN, *(mode.value for mode in AutoresetMode)]
A, START = 5, 3
ACTIONS = DiscreteActions(A, START)


def ending(key: int) -> tuple[int, bool, bool]:
    """Length of an episode, and whether it ends by termination, truncation or both."""
    rng = np.random.default_rng(key)
    return int(rng.integers(1, 7)), *[(True, False), (False, True), (True, True)][rng.integers(3)]


def script(key: int, t: int) -> np.ndarray | None:
    """What the environment says in the t-th state of an episode: bools, or nothing."""
    if t == 3:
        return None
    length, terminated, _ = ending(key)
    if t == length and terminated:
        return np.zeros(A, bool)
    rng = np.random.default_rng([key, t])
    mask = rng.random(A) < 0.3
    mask[rng.integers(A)] = True
    return mask


def allowed(obs: np.ndarray) -> list[bool]:
    """Which actions an observation allows, nothing said or nothing left to choose being everything."""
    mask = script(int(obs[0]), int(obs[1]))
    return [True] * A if mask is None or not mask.any() else mask.tolist()


class Masked(gym.Env):
    """obs = (episode, t); what the mask forbids raises.

    Env ``index`` counts its episodes by itself; without one, an episode is what its seed says. The mask is
    always written into the same array, unless it is to be ``fresh``: of masks that are partly lists,
    Gymnasium keeps the arrays themselves, so that the next episode would overwrite a last mask.
    """

    observation_space = Box(0.0, np.inf, (2,), np.float32)
    action_space = Discrete(A, start=START)

    def __init__(self, index: int | None = None, fresh: bool = False) -> None:
        self.index, self.fresh, self.episodes = index, fresh, -1
        self.mask = np.zeros(A, np.int8)

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        self.key = seed % 100_000 if self.index is None else 1000 * self.index + self.episodes
        self.t = 0
        return self.obs(), self.info()

    def step(self, action):
        if not allowed(self.obs())[action - START]:
            raise ValueError(f"action {action} is forbidden")
        self.t += 1
        length, terminated, truncated = ending(self.key)
        ended = self.t == length
        return self.obs(), 1.0, terminated and ended, truncated and ended, self.info()

    def obs(self):
        return np.array([self.key, self.t], np.float32)

    def info(self):
        mask = script(self.key, self.t)
        if mask is None:
            return {"note": "anything goes"}
        if self.fresh:
            self.mask = self.mask.copy()
        self.mask[:] = 2 * mask
        return {"action_mask": self.mask.tolist() if self.index == 1 else self.mask}


gym.register("MaskedEpisodes-v0", Masked)  # type: ignore[arg-type]


class Recorder:
    """Remembers the masks it was given, and takes the first action that they allow."""

    def __init__(self) -> None:
        self.obs: list[np.ndarray] = []
        self.masks: list[np.ndarray] = []

    def act(self, obs, carry=None, *, explore, mask=None):
        mask = np.ones((len(obs), A), bool) if mask is None else mask
        assert (mask.dtype, mask.shape) == (bool, (len(obs), A))
        self.obs.append(obs.copy())
        self.masks.append(mask.copy())
        return Decision(mask.argmax(1))

    def observe(self, obs):
        pass


def seeds(count):
    return [EpisodeSeeds(np.random.SeedSequence(11, spawn_key=(i,))) for i in range(count)]


def masked_envs(mode: str, count: int = 3, make: Callable[..., gym.Env] = Masked) -> Any:
    fns = [functools.partial(make, i) for i in range(count)]
    if mode not in OWN:
        return gym.vector.SyncVectorEnv(fns, autoreset_mode=AutoresetMode(mode))
    return OWN[mode](
        [lambda fn=fn, own=own: JournaledEnv(fn(), own) for fn, own in zip(fns, seeds(count), strict=True)]
    )


def by_script(count: int, episodes: int) -> dict[tuple[int, int], tuple[list[bool], list[bool]]]:
    """The masks of an observation and its successor, by episode and t."""
    keys = [1000 * env + episode for env in range(count) for episode in range(episodes)]
    return {
        (key, t): (allowed(np.array([key, t])), allowed(np.array([key, t + 1])))
        for key in keys
        for t in range(ending(key)[0])
    }


@pytest.mark.parametrize("mode", MODES)
def test_every_vector_env_gives_the_masks_of_the_observations_and_of_their_true_successors(mode: str) -> None:
    learner: Any = Recorder()
    envs = masked_envs(mode, make=functools.partial(Masked, fresh=mode not in OWN))
    collector = Collector(envs, ACTIONS)
    steps = [collector.step(learner)[0] for _ in range(200)]
    envs.close()
    got = {}
    for step, masks in zip(steps, learner.masks, strict=True):  # only now: a step must not change afterwards
        next_masks = np.ones((len(step), A), bool) if step.next_mask is None else step.next_mask
        assert (next_masks.dtype, next_masks.shape) == (np.dtype(bool), (len(step), A))
        shown = np.ones((len(step), A), bool) if step.mask is None else step.mask
        assert np.array_equal(shown, masks[step.env_ids]), "what was acted by is what is handed on"
        for obs, mask, next_mask in zip(step.obs, masks[step.env_ids], next_masks, strict=True):
            got[int(obs[0]), int(obs[1])] = mask.tolist(), next_mask.tolist()
    episodes = 30
    expected = by_script(3, episodes)
    assert {at: masks for at, masks in got.items() if at[0] % 1000 < episodes} == expected
    confusable = [
        expected[key, ending(key)[0] - 1][1] == expected[key + 1, 0][0]
        for key in range(episodes - 1)
        if not ending(key)[1]
    ]
    assert not any(confusable)


@pytest.mark.parametrize("mode", OWN)
def test_evaluation_plays_by_the_masks(mode: str) -> None:
    learner: Any = Recorder()
    config = EnvConfig(id="MaskedEpisodes-v0", vectorization=mode)
    evaluate(learner, config, ACTIONS, EvaluationConfig(num_envs=3), episodes=40)
    given = [mask.tolist() for masks in learner.masks for mask in masks]
    assert given == [allowed(obs) for rows in learner.obs for obs in rows]
    assert len(given) > 80


@pytest.mark.parametrize("mode", OWN)
def test_a_collector_restored_in_mid_episode_knows_the_masks(mode: str) -> None:
    def start() -> Collector:
        return Collector(
            make_vector_env(EnvConfig(id="MaskedEpisodes-v0", vectorization=mode), seeds(2)), ACTIONS
        )

    learner: Any = Recorder()
    original, masked = start(), 0
    for _ in range(12):
        original.step(learner)
        same: Any = Recorder()
        restored = start()
        assert restored.load_state_dict(copy.deepcopy(original.state_dict())) == "replayed"
        restored.step(same)
        restored.envs.close()
        given = [mask.tolist() for mask in same.masks[0]]
        assert given == [allowed(obs) for obs in same.obs[0]]
        masked += not np.all(given)
    original.envs.close()
    assert masked > 6


@pytest.mark.parametrize("mode", OWN)
def test_dqn_never_does_what_is_forbidden(mode: str, tmp_path: Path) -> None:
    config = {
        "env": {"num_envs": 2, "vectorization": mode},
        "network": {"hidden_sizes": [16]},
        "evaluation": {"frequency": 1000, "episodes": 10, "final_episodes": 20},
        "logging": {"tensorboard": False},
    }
    options: dict[str, Any] = {
        "learning_starts": 100,
        "batch_size": 16,
        "n_step_return": 2,
        "exploration_final_eps": 0.5,
    }
    agent = DQN("MaskedEpisodes-v0", config=config, run_dir=tmp_path / "run", **options)
    agent.learn(2000, progress_bar=False)
    assert agent.result is not None
    assert agent.result.steps == 2000
    assert len(agent.evaluate(30).returns) == 30


# What an environment may give


class Giving(gym.Env):
    """Gives the masks of its list, one after another, and ends with the last."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, masks, terminated=False, truncated=False, action_space=None):
        self.masks, self.ends = masks, (terminated, truncated)
        self.action_space = Discrete(3) if action_space is None else action_space

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {"action_mask": self.masks[0]}

    def step(self, action):
        self.t += 1
        last = self.t == len(self.masks) - 1
        ends = [end and last for end in self.ends]
        return np.zeros(1, np.float32), 0.0, *ends, {"action_mask": self.masks[self.t]}


class Still:
    """Does always the same, and is never shown an observation that allows nothing."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def act(self, obs, carry=None, *, explore, mask=None):
        assert mask is None or mask.any(1).all()
        return Decision(np.array([self.action] * len(obs)))

    def observe(self, obs):
        pass


def still(action: Any) -> Any:
    """The learner ``Still``, which is no whole ``Algorithm``."""
    return Still(action)


def second_of(masks, **options):
    """The mask that comes out of the first step."""
    env = JournaledEnv(Giving(masks, **options), EpisodeSeeds(np.random.SeedSequence(0)))
    env.reset()
    info = env.step(env.action_space.sample())[4]
    assert info.get("action_mask") is env.action_mask() or not isinstance(env.action_space, Discrete)
    return env.action_mask()


@pytest.mark.parametrize(
    "given",
    [
        [1, 0, 2],
        (True, False, True),
        np.array([1, 0, 1], np.int8),
        np.array([255, 0, 1], np.uint8),
        np.array([-1, 0, 1]),
    ],
)
def test_a_mask_of_any_int_or_bool_kind_becomes_bools(given: Any) -> None:
    mask = second_of([[1, 1, 1], given])
    assert mask.dtype == bool
    assert mask.tolist() == [True, False, True]


WRONG = [
    ([1, 1], "action_mask shape: expected (3,), got (2,)"),
    ([[1, 1, 1]], "action_mask shape: expected (3,), got (1, 3)"),
    (1, "action_mask shape: expected (3,), got ()"),
    ([[1], [1, 0]], "action_mask: expected an array of 3 bools, got a ragged one"),
    ([1.0, 0.0, np.nan], "action_mask dtype: expected bool or int, got float64"),
    (["a", "b", "c"], "action_mask dtype: expected bool or int, got <U1"),
    ([None, True, True], "action_mask dtype: expected bool or int, got object"),
    ([0, 0, 0], "action_mask: forbids every action, though this state is not terminal"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
@pytest.mark.parametrize("when", ["reset", "step"])
@pytest.mark.parametrize("mode", OWN)
def test_a_wrong_mask_is_one_line_that_names_its_env(given: Any, message: str, when: str, mode: str) -> None:
    right = [1, 0, 1]
    masks = [given, right] if when == "reset" else [right, given]
    envs = OWN[mode](
        [
            lambda m=m: JournaledEnv(Giving(m), EpisodeSeeds(np.random.SeedSequence(5)))
            for m in ([right] * 2, masks)
        ]
    )
    seed, t = next(EpisodeSeeds(np.random.SeedSequence(5))), int(when == "step")
    collector = Collector(envs, DiscreteActions(3))
    with pytest.raises(EnvError) as caught:
        collector.step(still(0))
    envs.close()
    assert str(caught.value) == f"env 1: {message} (episode seed {seed}, step {t})"


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_a_wrong_mask_of_somebody_elses_vector_env_is_named_too(given: Any, message: str) -> None:
    as_given = np.array(given) if message.startswith("action_mask shape") else given
    envs = gym.vector.SyncVectorEnv([lambda: Giving([[1, 0, 1], as_given])])
    collector = Collector(envs, DiscreteActions(3))
    with pytest.raises(EnvError) as caught:
        collector.step(still(0))
    assert str(caught.value) == f"env 0: {message}"


def test_where_nothing_is_left_to_choose_everything_may_be_forbidden() -> None:
    assert second_of([[1, 0, 0], [0, 0, 0]], terminated=True).all()
    assert second_of([[1, 0, 0], [0, 0, 0]], terminated=True, truncated=True).all()
    with pytest.raises(EnvError, match="forbids every action"):
        second_of([[1, 0, 0], [0, 0, 0]], truncated=True)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_truncated_episode_of_a_foreign_env_needs_an_action_too(mode: AutoresetMode) -> None:
    def collector(**ends: bool) -> Collector:
        envs = gym.vector.SyncVectorEnv(
            [lambda: Giving([np.array([1, 0, 0]), np.array([0, 0, 0])], **ends)], autoreset_mode=mode
        )
        return Collector(envs, DiscreteActions(3))

    step = collector(terminated=True).step(still(0))[0]
    assert step.next_mask is not None
    assert step.next_mask.tolist() == [[True] * 3]
    with pytest.raises(EnvError, match="forbids every action"):
        collector(truncated=True).step(still(0))


@pytest.mark.parametrize("mode", MODES)
def test_masks_of_actions_that_are_not_discrete_are_ignored(mode: str) -> None:
    space = Box(-1.0, 1.0, (3,), np.float32)
    envs = masked_envs(mode, 2, lambda _: Giving([[0, 0, 0]] * 9, truncated=True, action_space=space))
    collector = Collector(envs, ContinuousActions(space.low, space.high))
    for _ in range(12):
        step, _ = collector.step(still(np.zeros(3, np.float32)))
        assert step.next_mask is None
    envs.close()


def test_no_mask_this_time_is_none_and_not_the_last_one() -> None:
    assert second_of([[1, 0, 0], None]) is None


# Prediction


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose agent would push left or right, were it not for a mask."""
    path = tmp_path_factory.mktemp("masks") / "run"
    config = {
        "network": {"hidden_sizes": [8]},
        "evaluation": {"frequency": 0, "final_episodes": 0},
        "logging": {"tensorboard": False},
    }
    DQN("CartPole-v1", config=config, run_dir=path, learning_starts=100).learn(120, progress_bar=False)
    return path


OBS = [0.0, 0.1, 0.02, -0.3]


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_agent_predicts_what_a_mask_allows(run_dir: Path, deterministic: bool) -> None:
    agent = DQN.load(run_dir)
    for action in (0, 1):
        only = [action == 0, action == 1]
        assert agent.predict(OBS, action_mask=only, deterministic=deterministic)[0] == action
    given = np.array([[1, 0], [0, 1], [1, 0]], np.int8)
    batch = agent.predict([OBS] * 3, action_mask=given, deterministic=deterministic)[0]
    assert batch.tolist() == [0, 1, 0]
    free = agent.predict([OBS] * 3)[0]
    assert agent.predict([OBS] * 3, action_mask=np.ones((3, 2), bool))[0].tolist() == free.tolist()


REFUSED = [
    (OBS, [1, 0, 1], "action_mask: expected shape (2,), got (3,)"),
    (OBS, [[1, 0]], "action_mask: expected shape (2,), got (1, 2)"),
    ([OBS] * 2, [1, 0], "action_mask: expected shape (2, 2), got (2,)"),
    ([OBS] * 2, [[1, 0]], "action_mask: expected shape (2, 2), got (1, 2)"),
    (OBS, [0, 0], "action_mask: forbids every action"),
    ([OBS] * 2, [[1, 0], [0, 0]], "action_mask: forbids every action"),
    (OBS, [1.0, 0.0], "action_mask: not an array of bools"),
    (OBS, ["a", "b"], "action_mask: not an array of bools"),
    (OBS, [[1], [1, 0]], "action_mask: not an array of bools"),
]


@pytest.mark.parametrize(("obs", "mask", "message"), REFUSED)
def test_a_mask_that_does_not_fit_is_refused(
    cli: Callable[..., Any], run_dir: Path, obs: Any, mask: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        DQN.load(run_dir).predict(obs, action_mask=mask)
    assert str(caught.value) == message
    done = cli("predict", run_dir, "--obs", json.dumps(obs), "--action-mask", json.dumps(mask))
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")


def test_the_command_line_takes_a_mask(cli: Callable[..., Any], run_dir: Path) -> None:
    for mask, action in (("[1, 0]", "0\n"), ("[false, true]", "1\n")):
        assert cli("predict", run_dir, "--obs", json.dumps(OBS), "--action-mask", mask).out == action
    words = (
        "predict",
        run_dir,
        "--json",
        "--obs",
        json.dumps([OBS] * 2),
        "--action-mask",
        "[[0, 1], [1, 0]]",
    )
    assert json.loads(cli(*words).out) == {"action": [1, 0]}
    done = cli("predict", run_dir, "--obs", json.dumps(OBS), "--action-mask", "[1, 0")
    assert (done.code, done.err) == (2, "error: --action-mask: not valid JSON: '[1, 0'\n")


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_a_resumed_run_is_the_same_to_the_last_bit_with_masks(tmp_path: Path, vectorization: str) -> None:
    config = load_config(
        "rainbow/cartpole",
        {
            "total_timesteps": 600,
            "env.num_envs": 3,
            "env.vectorization": vectorization,
            "algo_kwargs.learning_starts": 60,
            "algo_kwargs.train_freq": 6,
            "algo_kwargs.gradient_steps": 1,
            "algo_kwargs.batch_size": 16,
            "network.hidden_sizes": [16],
            "evaluation.frequency": 0,
            "evaluation.final_episodes": 0,
            "checkpoint.frequency": 300,
            "logging.tensorboard": False,
        },
    )
    straight = registry.train(config, run_dir=tmp_path / "straight", env=Masked, console=False)
    half = next(path for path in straight.checkpoint.parent.iterdir() if path.name.endswith("000300"))
    branch = registry.resume(half, env=Masked, trust=True, console=False)
    trees = [load_checkpoint(result.checkpoint).tree for result in (straight, branch)]
    assert "next_masks" in trees[0]["replay"]["buffer"]
    for section in ("model", "optimizer", "replay", "rng", "envs"):
        assert tree_digest({section: trees[0][section]}) == tree_digest({section: trees[1][section]})


class SeveralMasked(gym.Env):
    """Two discrete actions at once, and a mask that nobody could heed."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {"action_mask": np.ones(5, np.int8)}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, True, {}


def test_masks_of_several_actions_at_once_are_refused_not_ignored(tmp_path):
    from rl_training import PPO
    from rl_training.errors import EnvError

    agent = PPO(SeveralMasked, n_steps=8, run_dir=tmp_path / "run")
    with pytest.raises(EnvError, match="action_mask: only Discrete actions can be forbidden"):
        agent.learn(16)


def test_what_is_forbidden_is_worse_than_the_worst_that_is_allowed() -> None:
    """In targets, by tensors, and in acting, by arrays: values may all be negative, and the mask rules out a zero."""
    q = np.array([[-5.0, -3.0, 0.0], [-1.0, -9.0, 7.0], [np.float32(-3e38), 1.0, 2.0]], np.float32)
    mask = np.array([[True, True, False], [False, True, False], [True, False, False]])
    assert greedy_actions(q, mask).tolist() == [1, 1, 0]
    assert greedy(torch.from_numpy(q), torch.from_numpy(mask)).tolist() == [1, 1, 0]
    assert greedy(torch.from_numpy(q)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("algo", ["qr_dqn", "c51"])
def test_targets_of_other_heads_are_made_of_allowed_actions(algo: str) -> None:
    """The best action is forbidden in every row. Compiled updates of DQN have tests of their own."""
    support = {"v_min": -50.0, "v_max": 50.0} if algo == "c51" else {}
    learner = make_learner(algo=algo, num_actions=4, **support)
    batch = random_batch(size=16, num_actions=4)
    with torch.no_grad():
        values = learner.expected(learner.target(batch.next_obs))
    batch.next_mask = torch.ones(16, 4, dtype=torch.bool).scatter_(1, values.argmax(1, keepdim=True), False)
    best = values.masked_fill(~batch.next_mask, -torch.inf).amax(1)
    _, head = learner._loss(batch)
    torch.testing.assert_close(head.target, batch.reward + batch.discount * best, rtol=1e-3, atol=1e-3)
