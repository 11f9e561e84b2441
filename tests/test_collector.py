"""From environments to transitions: what the collector emits is what happened, restorable and seeded."""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

from rl_training.algorithms import DQN, Decision
from rl_training.algorithms.declared.dqn import DQNConfig
from rl_training.config import EnvConfig, EvaluationConfig, ExperimentConfig
from rl_training.data import NStepFolder, ReplayBuffer, ReplayExperience
from rl_training.data.transitions import carry_on
from rl_training.envs import JournaledEnv, describe_spaces, make_env, make_vector_env
from rl_training.envs.journal import EpisodeSeeds
from rl_training.envs.subprocess import SubprocessVectorEnv
from rl_training.envs.sync import SyncVectorEnv
from rl_training.errors import EnvError
from rl_training.models import MLPQNetwork
from rl_training.runtime.collector import Collector
from rl_training.runtime.evaluator import evaluate
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.runtime.streams import seed_sequence
from rl_training.spaces import ContinuousActions, DiscreteActions

OWN = {"sync": SyncVectorEnv, "subprocess": SubprocessVectorEnv}


class CounterEnv(gym.Env):
    """obs = (env, episode, t), always written into the same array; episodes end as the env's script says."""

    observation_space = Box(-1.0, np.inf, (3,), np.float32)
    action_space = Discrete(3)

    def __init__(self, env=0):
        self.script = script_of(env)
        self.obs = np.array([env, -1, 0], np.float32)

    def reset(self, *, seed=None, options=None):
        self.obs[1:] = self.obs[1] + 1, 0
        return self.obs, {"note": "reset"}

    def step(self, action):
        self.obs[2] += 1
        _, episode, t = self.obs.astype(int)
        length, terminated, truncated = self.script[episode]
        ended = t == length
        return self.obs, reward_of(t, action), terminated and ended, truncated and ended, {"note": "step"}


class FreshObs(gym.ObservationWrapper):
    """A new array each time, which Gymnasium's own SAME_STEP and frame stack need."""

    def observation(self, obs):
        return obs.copy()


def script_of(env):
    """(length, terminated, truncated) of each episode."""
    rng = np.random.default_rng(env)
    endings = [(True, False), (False, True), (True, True)]
    return [(int(rng.integers(1, 7)), *endings[rng.integers(3)]) for _ in range(100)]


def reward_of(t, action):
    return float(10 * t + action)


def action_of(episode, t):
    return (episode + t) % 3


def row(obs, action, reward, next_obs, terminated, truncated):
    return (
        *(int(x) for x in obs),
        int(action),
        float(reward),
        *(int(x) for x in next_obs),
        terminated,
        truncated,
    )


def rows_by_script(num_envs, episodes):
    rows = []
    for env in range(num_envs):
        for episode, (length, terminated, truncated) in enumerate(script_of(env)[:episodes]):
            for t in range(length):
                action, last = action_of(episode, t), t + 1 == length
                ends = (terminated and last, truncated and last)
                rows.append(
                    row((env, episode, t), action, reward_of(t + 1, action), (env, episode, t + 1), *ends)
                )
    return rows


class Acting:
    """An algorithm that only acts, by a function of the observations."""

    def __init__(self, act):
        self._act = act

    def act(self, obs, carry=None, *, explore):
        return Decision(self._act(obs))

    def observe(self, obs):
        pass


def acting(act) -> Any:
    """The algorithm ``Acting``, which is no whole ``Algorithm``."""
    return Acting(act)


SCRIPTED = acting(lambda obs: action_of(obs[:, 1], obs[:, 2]).astype(np.int64))


def counter_envs(mode, num_envs):
    if mode in OWN:
        return OWN[mode](
            [
                lambda env=env: JournaledEnv(CounterEnv(env), EpisodeSeeds(np.random.SeedSequence(env)))
                for env in range(num_envs)
            ]
        )
    fns = [lambda env=env: FreshObs(CounterEnv(env)) for env in range(num_envs)]
    autoreset = AutoresetMode(mode.removesuffix(" without copies"))
    return gym.vector.SyncVectorEnv(fns, copy=not mode.endswith("without copies"), autoreset_mode=autoreset)


MODES = [*OWN, *(mode.value for mode in AutoresetMode), "NextStep without copies"]


def rows_of(step):
    fields = (
        step.obs,
        step.action,
        step.reward,
        step.next_obs,
        step.terminated.tolist(),
        step.truncated.tolist(),
    )
    return [row(*values) for values in zip(*fields, strict=True)]


# Autoreset


@pytest.mark.parametrize("mode", MODES)
def test_every_autoreset_mode_gives_exactly_the_transitions_of_the_script(mode):
    envs = counter_envs(mode, 3)
    collector = Collector(envs, DiscreteActions(3))
    episodes: list[list[Any]] = [[] for _ in range(3)]
    rows, steps = [], []
    while min(len(done) for done in episodes) < 12:
        step, ended = collector.step(SCRIPTED)
        steps.append(step)  # turned into rows only later: a step must not change afterwards
        envs_ended = step.env_ids[step.terminated | step.truncated]
        for env, episode in zip(envs_ended, ended, strict=True):
            episodes[env].append(episode)
    envs.close()
    for step in steps:
        assert np.array_equal(step.env_ids, step.obs[:, 0])
        rows += [row for row in rows_of(step) if row[1] < 12]
    expected = rows_by_script(3, 12)
    assert sorted(rows) == sorted(expected)
    for env in range(3):
        for number, (total, length) in enumerate(episodes[env][:12]):
            of_episode = [row for row in expected if row[:2] == (env, number)]
            assert (total, length) == (sum(row[4] for row in of_episode), len(of_episode))


class Reusing(gym.vector.VectorEnv):
    """Writes observations, rewards and flags into the same arrays at every step."""

    num_envs = 2
    single_action_space = action_space = Discrete(3)

    def __init__(self, obs_space):
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = obs_space
        self.observation_space = gym.vector.utils.batch_space(obs_space, 2)
        self.t = 0
        self.arrays: list[Any] = [np.zeros((2, *obs_space.shape), obs_space.dtype)]
        self.arrays += [np.zeros(2, kind) for kind in (np.float32, bool, bool)]

    def reset(self, *, seed=None, options=None):
        return self.arrays[0], {}

    def step(self, actions):
        self.t += 1
        obs, reward, terminated, truncated = self.arrays
        obs[:] = self.t % 2
        reward[:] = self.t, -self.t
        terminated[:] = self.t % 5 == 4
        truncated[:] = False, self.t % 5 == 2
        return obs, reward, terminated, truncated, {}


class Remembering(Acting):
    """Notes the last reward."""

    def act(self, obs, carry=None, *, explore):
        held = {"reward": np.zeros(len(obs), np.float32)} if carry is None else carry
        return Decision(self._act(obs), held)


@pytest.mark.parametrize("space", [Box(0.0, 1.0, (3,), np.float32), gym.spaces.MultiBinary(3)])
def test_a_vector_env_may_reuse_all_its_arrays(space):
    collector = Collector(Reusing(space), DiscreteActions(3))
    remembering: Any = Remembering(lambda obs: np.zeros(len(obs), np.int64))
    steps = [collector.step(remembering)[0] for _ in range(12)]
    fields = ("obs", "reward", "terminated", "truncated")
    by_env: list[list[Any]] = [[], []]
    for step in steps:
        for i, env in enumerate(step.env_ids):
            row = [getattr(step, name)[i] for name in fields]
            last = 0.0 if step.carry is None else float(step.carry["reward"][i])
            by_env[env].append([int(row[0].flat[0]), *(float(x) for x in row[1:]), last])
    expected: list[list[Any]] = [[], []]
    for env, sign in enumerate((1, -1)):
        reset, last = False, 0.0
        for t in range(1, 13):
            ends = t % 5 == 4 or (env == 1 and t % 5 == 2)
            if not reset:
                flags = [float(t % 5 == 4), float(env == 1 and t % 5 == 2)]
                expected[env].append([(t - 1) % 2, sign * float(t), *flags, last])
            last = 0.0 if reset else sign * float(t)
            reset = ends and not reset
    assert by_env == expected


def test_a_memory_keeps_the_reward_that_it_noted():
    reward = np.array([1.0, 2.0], np.float32)
    noted = carry_on({"reward": np.zeros(2, np.float32)}, reward, np.zeros(2, bool))
    reward[:] = 9.0
    assert noted["reward"].tolist() == [1.0, 2.0]


class Observing(Acting):
    """Remembers what it was shown."""

    def __init__(self, act):
        super().__init__(act)
        self.shown = []

    def observe(self, obs):
        assert len(obs)
        self.shown += [tuple(one) for one in obs.astype(int)]


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_statistics_see_the_observations_acted_on_once_each_and_no_last_ones(mode, num_envs):
    envs = counter_envs(mode, num_envs)
    collector = Collector(envs, DiscreteActions(3))
    watching: Any = Observing(SCRIPTED._act)
    acted = []
    for _ in range(60):
        step, _ = collector.step(watching)
        acted += [tuple(one) for one in step.obs.astype(int)]
    envs.close()
    assert len(acted) > 20
    assert watching.shown == acted


# Truncation


class ConstantEnv(gym.Env):
    """One state, one reward, no end."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.ones(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), 1.0, False, False, {}


def learned_constant(steps, gamma):
    """Q of the only state after learning from these steps."""
    folder = NStepFolder(1, gamma, 2, (1,), np.float32, (), np.int64)
    buffer = ReplayBuffer(1000, (1,))
    experience = ReplayExperience(
        buffer, folder, batch_size=1, learning_starts=0, train_freq=1, gradient_steps=1
    )
    for step in steps:
        experience.add(step)
    options = DQNConfig(learning_rate=0.05, loss="mse", max_grad_norm=None, tau=1.0)
    learner = DQN(MLPQNetwork((1,), 2, ()), 2, options, total_timesteps=1)
    everything = buffer.gather(np.arange(len(buffer)))
    for _ in range(25):
        for _ in range(25):
            learner.update(everything)
        learner.sync_target()
    return learner.q_values(np.ones((1, 1), np.float32))[0]


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_a_time_limit_does_not_change_the_value_of_a_state(limit):
    gamma, num_steps = 0.8, 30
    wrappers = ({"id": "TimeLimit", "kwargs": {"max_episode_steps": limit}},)
    config = EnvConfig(id="tests:Constant", wrappers=wrappers)
    seeds = [EpisodeSeeds(np.random.SeedSequence(i)) for i in range(2)]
    collector = Collector(make_vector_env(config, seeds, ConstantEnv), DiscreteActions(2))
    alternating = acting(lambda obs: np.arange(2))
    steps = [collector.step(alternating)[0] for _ in range(num_steps)]
    assert sum(step.truncated.sum() for step in steps) == 2 * (num_steps // limit)
    assert learned_constant(steps, gamma) == pytest.approx(1 / (1 - gamma), abs=0.05)

    as_terminal = [dataclasses.replace(step, terminated=step.terminated | step.truncated) for step in steps]
    wrong = 1 / (1 - gamma * (1 - 1 / limit))
    assert learned_constant(as_terminal, gamma) == pytest.approx(wrong, abs=0.05)
    assert abs(wrong - 1 / (1 - gamma)) > 1


# Frame stacking


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_stacked_frames_never_mix_episodes(vectorization):
    stack = {"id": "FrameStackObservation", "kwargs": {"stack_size": 3}}
    config = EnvConfig(id="tests:Counter", wrappers=(stack,), vectorization=vectorization)
    seeds = [EpisodeSeeds(np.random.SeedSequence(i)) for i in range(2)]
    envs = make_vector_env(config, seeds, lambda: FreshObs(CounterEnv()))
    collector = Collector(envs, DiscreteActions(3))
    lengths = [length for length, _, _ in script_of(0)]
    ends = 0
    for _ in range(40):
        step, _ = collector.step(acting(lambda obs: np.zeros(len(obs), np.int64)))
        for obs, next_obs, ended in zip(
            step.obs, step.next_obs, step.terminated | step.truncated, strict=True
        ):
            episode, t = obs[-1, 1:].astype(int)
            assert obs[:, 1:].tolist() == [[episode, max(t - k, 0)] for k in (2, 1, 0)]
            assert next_obs[:, 1:].tolist() == [[episode, max(t + 1 - k, 0)] for k in (2, 1, 0)]
            assert ended == (t + 1 == lengths[episode])
            ends += ended
    envs.close()
    assert ends > 10


# Actions

LOW, HIGH = np.array([-3.0, 0.1, -0.7], np.float32), np.array([-1.0, 0.3, 1000.1], np.float32)


class RecordingEnv(gym.Env):
    """Remembers the actions it was given."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, action_space):
        self.action_space = action_space
        self.received = []

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.received.append(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


def received(action_space, actions):
    """What the env got, and what the transitions say, when a learner chose ``actions`` one after another."""
    env = RecordingEnv(action_space)
    envs = SyncVectorEnv([lambda: JournaledEnv(env, EpisodeSeeds(np.random.SeedSequence(0)))])
    _, spec = describe_spaces(envs.single_observation_space, envs.single_action_space)
    collector, queue = Collector(envs, spec), list(actions)
    steps = [collector.step(acting(lambda obs: queue.pop(0)[None]))[0] for _ in actions]
    return np.array(env.received), np.concatenate([step.action for step in steps])


def test_continuous_actions_reach_the_env_scaled_with_exact_bounds():
    actions = np.array([[-1, -1, -1], [1, 1, 1], [0, 0, 0], [-1, 1, 0.5], [7, -7, 1]], np.float32)
    got, stored = received(Box(LOW, HIGH), actions)
    middle = (LOW.astype(np.float64) + HIGH) / 2
    assert np.array_equal(got[0], LOW)
    assert np.array_equal(got[1], HIGH)
    assert got[2] == pytest.approx(middle, rel=1e-6)
    assert got[3] == pytest.approx([LOW[0], HIGH[1], LOW[2] + 0.75 * (HIGH[2] - LOW[2])], rel=1e-6)
    assert np.array_equal(got[4], [HIGH[0], LOW[1], HIGH[2]])
    assert np.array_equal(stored, actions)


def test_continuous_actions_survive_the_way_to_the_env_and_back():
    spec = ContinuousActions(LOW, HIGH)
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, 3)).astype(np.float32)
    scaled = spec.to_env(actions)
    assert scaled.dtype == np.float32
    assert ((scaled >= LOW) & (scaled <= HIGH)).all()
    assert spec.from_env(scaled) == pytest.approx(actions, abs=5e-6)


def test_discrete_actions_reach_the_env_counted_from_its_start():
    actions = np.array([0, 2, 1])
    got, stored = received(Discrete(3, start=5), actions)
    assert got.tolist() == [5, 7, 6]
    assert stored.tolist() == [0, 2, 1]
    spec = DiscreteActions(3, start=5)
    assert np.array_equal(spec.from_env(spec.to_env(actions)), actions)


# Seeds


def cartpole_run(seed=0, **algo_kwargs):
    options = DQNConfig(**{"learning_starts": 100, "batch_size": 16, "n_step_return": 1, **algo_kwargs})
    config = ExperimentConfig[DQNConfig](
        algo="dqn",
        env=EnvConfig(id="CartPole-v1", num_envs=4),
        seed=seed,
        total_timesteps=1000,
        algo_kwargs=options,
        network={"hidden_sizes": (16,)},
    )
    return Run(config)


def trained(seed, evaluate_every=None):
    run = cartpole_run(seed)
    for clock in train(run):
        if evaluate_every and clock.steps % evaluate_every == 0:
            options = EvaluationConfig(num_envs=2)
            evaluate(run.algorithm, run.config.env, run.policy.actions, options, episodes=3)
    run.close()
    transitions = run.experience.buffer.storage[:1000].clone()
    obs = run.experience.buffer.gather(np.arange(1000)).obs.numpy()
    return transitions, run.algorithm.optimizer.flat.clone(), {tuple(one) for one in obs}


def test_one_seed_gives_one_run_and_evaluation_does_not_touch_it():
    transitions, weights, obs = trained(0)
    again, same_weights, _ = trained(0, evaluate_every=200)
    assert torch.equal(again, transitions)
    assert torch.equal(same_weights, weights)
    _, _, other_obs = trained(1)
    assert obs.isdisjoint(other_obs)


def test_no_two_runs_envs_or_episodes_share_a_seed():
    streams = [EpisodeSeeds(seed_sequence(seed, "env", env)) for seed in range(10) for env in range(8)]
    streams += [EpisodeSeeds(seed_sequence(seed, "evaluation")) for seed in range(10)]
    seeds = [next(stream) for stream in streams for _ in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_episode_seeds_are_dealt_out_to_several_envs_without_change():
    root = np.random.SeedSequence(3)
    whole = EpisodeSeeds(root)
    dealt = [EpisodeSeeds(root, offset=i, stride=3) for i in range(3)]
    assert [next(whole) for _ in range(9)] == [next(dealt[k % 3]) for k in range(9)]


def test_a_foreign_vector_env_repeats_under_its_seed_and_not_after_a_restart():
    def first_obs(root, state=None):
        collector = Collector(
            gym.make_vec("CartPole-v1", 2), DiscreteActions(2), np.random.SeedSequence(root)
        )
        if state is not None:
            assert collector.load_state_dict(state) == "restarted"
        return collector.obs.copy(), collector.state_dict()

    obs, state = first_obs(0)
    assert np.array_equal(first_obs(0)[0], obs)
    assert not np.isin(first_obs(1)[0], obs).any()
    assert not np.isin(first_obs(0, state)[0], obs).any()


# Restoring


def journaled(vectorization, env_id, count=2):
    config = EnvConfig(id=env_id, vectorization=vectorization)
    return make_vector_env(
        config, [EpisodeSeeds(np.random.SeedSequence(7, spawn_key=(i,))) for i in range(count)]
    )


def by_obs(actions):
    """Actions that look random but depend on the observation alone."""
    if isinstance(actions, DiscreteActions):
        return acting(lambda obs: (np.abs(obs).sum(1) * 1e4).astype(np.int64) % actions.n)
    return acting(lambda obs: np.sin(1e4 * obs.sum(1, keepdims=True)).astype(np.float32))


@pytest.mark.parametrize("vectorization", OWN)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_collector_restored_in_mid_episode_goes_on_exactly(vectorization, env_id):
    def start():
        envs = journaled(vectorization, env_id)
        _, actions = describe_spaces(envs.single_observation_space, envs.single_action_space)
        return Collector(envs, actions), by_obs(actions)

    original, policy = start()
    for _ in range(37):
        original.step(policy)
    state = copy.deepcopy(original.state_dict())
    restored, _ = start()
    assert state["restore"] == "replayed"
    assert restored.load_state_dict(state) == "replayed"
    for _ in range(200):
        (step, episodes), (same_step, same_episodes) = original.step(policy), restored.step(policy)
        for field in dataclasses.fields(step):
            assert np.array_equal(getattr(step, field.name), getattr(same_step, field.name))
        assert episodes == same_episodes
    for collector in (original, restored):
        collector.envs.close()


class UnseededEnv(gym.Env):
    """Walks by chance whatever the seed; a fragile one cannot walk as far as the others."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, fragile=False):
        self.fragile = fragile
        self.chance = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.chance.random(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.fragile and self.steps > 3:
            raise RuntimeError("fell over")
        return self.chance.random(1, np.float32), 1.0, False, False, {}


def unseeded_run(vectorization, fragile):
    config = ExperimentConfig[DQNConfig](
        algo="dqn",
        env=EnvConfig(id="tests:Unseeded", num_envs=2, vectorization=vectorization),
        total_timesteps=100,
        algo_kwargs=DQNConfig(n_step_return=3, learning_starts=50),
    )
    return Run(config, env=functools.partial(UnseededEnv, fragile=fragile))


@pytest.mark.parametrize("vectorization", OWN)
@pytest.mark.parametrize("fragile", [False, True], ids=["elsewhere", "raising"])
def test_an_env_that_does_not_replay_is_restarted_and_its_open_windows_dropped(vectorization, fragile):
    run = unseeded_run(vectorization, fragile=False)
    steps = train(run)
    for _ in range(5):
        next(steps)
    tree = copy.deepcopy(run.state_dict())
    run.close()
    assert tree["replay"]["n_step"]["open"].tolist() == [2, 2]

    resumed = unseeded_run(vectorization, fragile)
    assert resumed.load_state_dict(tree) == "restarted"
    assert resumed.experience.state_dict()["n_step"]["open"].tolist() == [0, 0]
    steps = train(resumed)
    sizes = []
    for _ in range(3):
        next(steps)
        sizes.append(len(resumed.experience.buffer))
    stored = tree["replay"]["buffer"]["next"]
    assert sizes == [stored, stored, stored + 2]
    assert resumed.collector.state_dict()["started"].tolist() == [2, 2]
    resumed.close()


def test_a_restarted_env_begins_the_next_episode_of_its_stream():
    envs = journaled("sync", "CartPole-v1")
    collector = Collector(envs, DiscreteActions(2))
    policy = by_obs(DiscreteActions(2))
    for _ in range(60):
        collector.step(policy)
    state = collector.state_dict(lost=True)
    assert state["restore"] == "restarted"
    restored = Collector(journaled("sync", "CartPole-v1"), DiscreteActions(2))
    assert restored.load_state_dict(state) == "restarted"
    assert restored.obs.shape == (2, 4)
    assert isinstance(restored.envs, SyncVectorEnv)
    seeds = restored.envs.call_each("journal")
    for env, started in enumerate(state["started"]):
        stream = EpisodeSeeds(np.random.SeedSequence(7, spawn_key=(env,)), offset=int(started))
        assert seeds[env]["seed"] == next(stream)


@pytest.mark.parametrize("vectorization", OWN)
def test_every_restart_begins_episodes_that_were_never_played(vectorization):
    """Restarted again and again, before the first step or in the middle, a run plays no episode of its stream twice."""
    begun: list[list[int]] = [[], []]

    def play(steps, state):
        collector = Collector(journaled(vectorization, "CartPole-v1"), DiscreteActions(2))
        if state is not None:
            assert collector.load_state_dict(state) == "restarted"
        policy = by_obs(DiscreteActions(2))
        for _ in range(steps):
            collector.step(policy)
            envs: Any = collector.envs
            for env, journal in enumerate(envs.call_each("journal")):
                if journal["seed"] not in begun[env][-1:]:
                    begun[env].append(journal["seed"])
        lost = collector.state_dict(lost=True)
        collector.envs.close()
        return lost

    state = None
    for steps in (60, 3, 90, 40):
        state = play(steps, copy.deepcopy(state))
    for env, seeds in enumerate(begun):
        stream = EpisodeSeeds(np.random.SeedSequence(7, spawn_key=(env,)))
        assert seeds == [next(stream) for _ in seeds], "each once, in order"
        assert len(seeds) > 6


# Checks of what an env returns


class FaultyEnv(gym.Env):
    """Returns or does something wrong in the third step, or in the second reset."""

    def __init__(self, fault):
        self.fault = fault
        self.observation_space = Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = Discrete(2)
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        self.steps = 0
        if self.resets == 2 and self.fault == "raise in reset":
            raise RuntimeError("no\nmore")
        if self.resets == 2 and self.fault == "spaces":
            self.action_space = Discrete(3)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        obs: Any = np.zeros(2, np.float32)
        reward = 0.0
        if self.steps == 3:
            match self.fault:
                case "nan obs":
                    obs[1] = np.nan
                case "shape":
                    obs = np.zeros((1, 2), np.float32)
                case "dtype":
                    obs = np.zeros(2, np.int64)
                case "nan reward":
                    reward = np.nan
                case "raise in step":
                    raise ZeroDivisionError("a\nb")
        return obs, reward, self.steps == 3, False, {}


@pytest.mark.parametrize(
    ("fault", "message", "step"),
    [
        ("nan obs", "observation: expected finite numbers, got 1 NaN or infinite", 3),
        ("shape", "observation shape: expected (2,), got (1, 2)", 3),
        ("dtype", "observation dtype: expected float32, got int64", 3),
        ("nan reward", "reward: expected a finite number, got nan", 3),
        ("raise in step", "ZeroDivisionError: a b", 3),
        ("raise in reset", "RuntimeError: no more", 0),
        (
            "spaces",
            "the spaces: expected Box(-10.0, 10.0, (2,), float32), Discrete(2) as at the start, got",
            0,
        ),
    ],
)
@pytest.mark.parametrize("vectorization", OWN)
def test_a_faulty_env_is_named_with_what_was_expected_and_where_it_happened(
    fault, message, step, vectorization
):
    root = np.random.SeedSequence(5)
    faults = [None, fault]
    envs = OWN[vectorization]([lambda f=f: JournaledEnv(FaultyEnv(f), EpisodeSeeds(root)) for f in faults])
    collector = Collector(envs, DiscreteActions(2))
    policy = acting(lambda obs: np.zeros(2, np.int64))
    collector.step(policy)
    collector.step(policy)
    with pytest.raises(EnvError) as caught:
        collector.step(policy)
    envs.close()
    stream = EpisodeSeeds(root, offset=0 if step else 1)
    text = str(caught.value)
    assert text.startswith(f"env 1: {message}")
    assert text.endswith(f"(episode seed {next(stream)}, step {step})")
    assert "\n" not in text
    if "raise" in fault:
        assert "Traceback" in caught.value.details


@pytest.mark.filterwarnings("ignore:overflow")
def test_large_finite_observations_are_not_taken_for_infinite():
    class Huge(FaultyEnv):
        def reset(self, *, seed=None, options=None):
            return np.full(2, 3e38, np.float32), {}

    obs, _ = JournaledEnv(Huge(None), EpisodeSeeds(np.random.SeedSequence(0))).reset()
    assert np.isfinite(obs).all()


class Ragged(gym.Env):
    """Returns an observation that is no array."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return [[0.0], [0.0, 1.0]], 0.0, False, False, {}


def test_an_observation_that_is_no_array_is_an_error_of_its_env():
    env = JournaledEnv(Ragged(), EpisodeSeeds(np.random.SeedSequence(0)))
    env.reset()
    with pytest.raises(EnvError, match=r"ValueError: .*\(episode seed \d+, step 1\)"):
        env.step(0)


def test_a_foreign_vector_env_that_raises_is_an_env_error():
    envs: Any = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    envs.step = lambda actions: 1 / 0
    collector = Collector(envs, DiscreteActions(2))

    class Still:
        def observe(self, obs):
            pass

        def act(self, obs, carry=None, *, explore):
            return Decision(np.zeros(len(obs), np.int64))

    still: Any = Still()
    with pytest.raises(EnvError, match="vector environment: ZeroDivisionError"):
        collector.step(still)


# Making


def test_an_env_is_made_without_the_check_of_the_order_of_calls_and_can_be_made_again():
    env = make_env(EnvConfig(id="CartPole-v1"))
    assert str(env) == "<TimeLimit<CartPoleEnv<CartPole-v1>>>"
    assert env.spec is not None
    assert (env.spec.id, env.spec.max_episode_steps, env.spec.order_enforce) == ("CartPole-v1", 500, False)
    assert str(gym.make(env.spec)) == str(env)
    assert gym.spec("CartPole-v1").order_enforce


@pytest.mark.parametrize(
    ("env_id", "word"), [("CartPole-v0", "out of date"), ("CartPole", "latest versioned")]
)
def test_gymnasium_still_says_what_it_has_to_say_of_an_id(env_id, word):
    with pytest.warns(Warning, match=word):
        make_env(EnvConfig(id=env_id))


def test_steps_that_share_their_flags_cannot_change_each_others():
    envs = journaled("sync", "CartPole-v1")
    envs.reset()
    _, _, terminated, truncated, _ = envs.step(np.zeros(2, np.int64))
    for flags in (terminated, truncated):
        with pytest.raises(ValueError, match="read-only"):
            flags[0] = True
