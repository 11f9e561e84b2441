"""Atari games by ALE's own vector environment: true transitions, seeds, journals, exact resuming, real scores."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest

pytest.importorskip("ale_py")

from ale_py.vector_env import AtariVectorEnv

from helpers.command_line import command
from helpers.runs import outcome, stop_at
from rl_training.algorithms.protocol import Decision
from rl_training.config import EnvConfig, EvaluationConfig
from rl_training.envs import atari, make_vector_env
from rl_training.envs.atari_vector import AtariVector
from rl_training.envs.journal import EpisodeSeeds
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.runtime import workflows
from rl_training.runtime.evaluator import MAX_EPISODE_STEPS, evaluate
from rl_training.runtime.run import Run
from rl_training.runtime.session import Interrupted
from rl_training.runtime.streams import seed_sequence
from rl_training.spaces import DiscreteActions

SMALL = {"img_height": 20, "img_width": 18}
"""Images small enough for tests; Breakout's lives are soon lost."""
STICKY = {**SMALL, "repeat_action_probability": 0.25}


def streams(count: int) -> list[EpisodeSeeds]:
    return [EpisodeSeeds(np.random.SeedSequence(5, spawn_key=(i,))) for i in range(count)]


def games(count: int = 3, **kwargs: Any) -> AtariVector:
    config = EnvConfig(id="ALE/Breakout-v5", vectorization="native", kwargs={**STICKY, **kwargs})
    envs = make_vector_env(config, streams(count))
    assert isinstance(envs, AtariVector)
    return envs


def alone(**kwargs: Any) -> AtariVectorEnv:
    """One game, by ALE itself."""
    return AtariVectorEnv("breakout", 1, num_threads=1, **{**STICKY, **kwargs})


def begun(game: AtariVectorEnv, seed: int) -> Any:
    return game.reset(seed=np.array([seed]))[0][0]


def many_actions(count: int, steps: int) -> Any:
    return np.random.default_rng(0).integers(0, 4, (steps, count))


@pytest.mark.parametrize("kwargs", [{}, {"reward_clipping": False, "grayscale": False, "stack_num": 2}])
def test_episodes_are_those_of_fresh_games_with_their_seeds(kwargs: dict[str, Any]) -> None:
    envs = games(3, max_num_frames_per_episode=560, **kwargs)
    steps = many_actions(3, 450)
    played, ends = envs.reset()[0], {"terminated": 0, "truncated": 0}
    seeds, oracle = streams(3), [alone(max_num_frames_per_episode=560, **kwargs) for _ in range(3)]
    for i in range(3):
        assert np.array_equal(begun(oracle[i], next(seeds[i])), played[i])
    for actions in steps:
        before, kept = played, played.copy()
        played, reward, terminated, truncated, infos = envs.step(actions)
        assert np.array_equal(before, kept), "an observation that was handed out has changed"
        assert reward.dtype == np.float64
        for i in range(3):
            obs, (one,), (dead,), (cut,), _ = oracle[i].step(actions[i : i + 1])
            assert (reward[i], terminated[i], truncated[i]) == (one, dead, cut)
            if dead or cut:
                ends["terminated"] += dead
                ends["truncated"] += cut
                assert np.array_equal(infos["final_obs"][i], obs[0])
                obs = begun(oracle[i], next(seeds[i]))[None]
            assert np.array_equal(played[i], obs[0])
        assert ("final_obs" in infos) == bool((terminated | truncated).any())
    assert min(ends.values()) > 0


def test_a_lost_life_ends_the_episode_but_not_the_game() -> None:
    envs = games(2, episodic_life=True)
    played, seeds = envs.reset()[0], streams(2)
    oracle = [alone() for _ in range(2)]
    stacks = [[*np.zeros((3, 20, 18), np.uint8), begun(oracle[i], next(seeds[i]))[-1]] for i in range(2)]
    lives, seen = [5, 5], set()
    for actions in many_actions(2, 600):
        played, _, terminated, truncated, infos = envs.step(actions)
        for i in range(2):
            obs, _, (over,), _, info = oracle[i].step(actions[i : i + 1])
            stacks[i] = [*stacks[i][1:], obs[0, -1]]
            left, lost = int(info["lives"][0]), int(info["lives"][0]) < lives[i]
            assert (terminated[i], truncated[i]) == (lost, False)
            if lost:
                seen.add(left)
                assert np.array_equal(infos["final_obs"][i], stacks[i])
                newest = begun(oracle[i], next(seeds[i]))[-1] if over else stacks[i][-1]
                stacks[i] = [*np.zeros((3, 20, 18), np.uint8), newest]
            lives[i] = 5 if over else left
            assert np.array_equal(played[i], stacks[i])
    assert seen == {4, 3, 2, 1, 0}


class Scripted:
    """Three-life games in which everything can happen, played like ALE's: over means that the next step begins anew."""

    single_observation_space = gym.spaces.Box(0, 255, (4, 12, 12), np.uint8)
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, lives: list[int], over: list[bool]) -> None:
        self.script = list(zip(lives, over, strict=True))
        self.frame, self.place = 0, 0

    def reset(self, *, seed: Any, options: Any) -> Any:
        self.frame, self.place, self.ended = 1, 0, False
        return self.shown(), self.info(3)

    def step(self, actions: Any) -> Any:
        if self.ended:
            self.frame, self.ended = 1, False
            return self.shown(), np.zeros(1, np.int32), *[np.zeros(1, np.bool_)] * 2, self.info(3)
        before = self.script[self.place - 1][0] if self.place else 3
        lives, self.ended = self.script[self.place]
        self.frame, self.place = self.frame + 4, self.place + 1
        dead = np.array([self.ended or lives < before])
        return self.shown(), np.ones(1, np.int32), dead, np.zeros(1, np.bool_), self.info(lives)

    def shown(self) -> Any:
        return np.full((1, 4, 12, 12), self.frame, np.uint8)

    def info(self, lives: int) -> Any:
        return {
            "lives": np.array([lives], np.int32),
            "episode_frame_number": np.array([self.frame], np.int32),
        }


def test_a_game_that_is_over_with_lives_left_is_begun_anew_from_its_seed() -> None:
    envs = AtariVector(Scripted([3, 3, 2, 2], [False, True, False, False]), streams(1), 99, 4, episodic=True)
    first = next(streams(1)[0])
    envs.reset()
    assert envs.call_each("journal")[0]["seed"] == first
    envs.step(np.zeros(1, np.int64))
    *_, terminated, _, _ = envs.step(np.zeros(1, np.int64))  # over, but no life was lost
    assert terminated[0]
    journal = envs.call_each("journal")[0]
    assert journal["seed"] != first
    assert not len(journal["actions"])


def test_a_game_that_ended_with_a_lost_life_shows_that_a_step_later() -> None:
    envs = AtariVector(Scripted([3, 2, 2], [False, True, False]), streams(1), 99, 4, episodic=True)
    envs.reset()
    envs.step(np.zeros(1, np.int64))
    obs, reward, terminated, _, _ = envs.step(np.zeros(1, np.int64))
    assert terminated[0]
    assert obs[0, :, 0, 0].tolist() == [0, 0, 0, 9]
    obs, reward, terminated, truncated, infos = envs.step(np.zeros(1, np.int64))
    assert (reward[0], terminated[0], truncated[0]) == (0.0, True, False)
    assert infos["final_obs"][0][:, 0, 0].tolist() == [0, 0, 9, 9], "no frame of the next game"
    assert obs[0, :, 0, 0].tolist() == [0, 0, 0, 1]
    assert not len(envs.call_each("journal")[0]["actions"])


def test_the_time_limit_begins_a_new_game_even_when_a_life_is_lost_then() -> None:
    envs = AtariVector(Scripted([3, 2], [False, True]), streams(1), 2, 4, episodic=True)
    envs.reset()
    for _ in range(2):
        obs, *_ = envs.step(np.zeros(1, np.int64))
    assert obs[0, :, 0, 0].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("episodic", [False, True])
def test_journals_bring_every_game_back(episodic: bool, threads: int) -> None:
    envs = games(3, episodic_life=episodic)
    obs, _ = envs.reset()
    checked = set()
    for step, actions in enumerate(many_actions(3, 420)):
        uneven = 0 == min(envs._steps) < max(envs._steps)  # a game has just begun beside older ones
        if step % 140 == 0 or (uneven and "new" not in checked):
            checked.add("new" if uneven else "old")
            journals = copy.deepcopy(envs.call_each("journal"))
            again = games(3, episodic_life=episodic, num_threads=threads)
            found = again.call_each("replay_journal", [(journal,) for journal in journals])
            assert all(np.array_equal(one, other) for one, other in zip(found, obs, strict=True))
            assert np.array_equal(again._lives, envs._lives)
            for later in many_actions(3, 60):
                assert_equal(again.step(later), ahead := envs.step(later))
            obs = ahead[0]
        obs = envs.step(actions)[0]
    assert checked == {"new", "old"}


def assert_equal(ours: Any, theirs: Any) -> None:
    for one, other in zip(ours[:4], theirs[:4], strict=True):
        assert np.array_equal(one, other)
    ends = [i for i in range(len(ours[0])) if ours[2][i] or ours[3][i]]
    assert all(np.array_equal(ours[4]["final_obs"][i], theirs[4]["final_obs"][i]) for i in ends)


def test_a_journal_that_leads_past_the_end_of_its_game_is_refused() -> None:
    envs = games(2)
    envs.reset()
    for actions in many_actions(2, 20):
        envs.step(actions)
    journals = envs.call_each("journal")
    journals[1]["actions"] = np.zeros(3000, np.int64)
    journals[1]["actions"][::7] = 1
    assert games(2).call_each("replay_journal", [(journal,) for journal in journals]) == [None, None]


def test_a_game_that_outgrows_its_journal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.envs.atari_vector.MAX_JOURNAL", 5)
    envs = games(2)
    envs.reset()
    for _ in range(5):
        envs.step(np.zeros(2, np.int64))
    assert None not in envs.call_each("journal")
    envs.step(np.zeros(2, np.int64))
    assert envs.call_each("journal") == [None, None]


# What may be said in env.kwargs


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"frame_skip": 4},
            "env.kwargs.frame_skip: unknown key of ALE's vector environment; did you mean 'frameskip'?",
        ),
        ({"batch_size": 2}, "env.kwargs.batch_size: cannot be set with vectorization 'native'"),
        ({"life_loss_info": True}, "env.kwargs.life_loss_info: .*use episodic_life"),
        ({"grayscale": 1}, "env.kwargs.grayscale: 1 is not allowed: should be true or false"),
        (
            {"img_height": 0},
            "env.kwargs.img_height: 0 is not allowed: should be a whole number from 1 to 1024",
        ),
        ({"noop_max": -1}, "env.kwargs.noop_max: -1 is not allowed"),
        ({"frameskip": 4.5}, "env.kwargs.frameskip: 4.5 is not allowed: should be a whole number"),
        ({"repeat_action_probability": 2}, "env.kwargs.repeat_action_probability: 2 is not allowed"),
        ({"repeat_action_probability": None}, "env.kwargs.repeat_action_probability: None is not allowed"),
    ],
)
def test_kwargs_are_checked_by_name(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as error:
        games(**kwargs)
    assert "\n" not in str(error.value)


def test_other_mistakes_are_named() -> None:
    def refused(**settings: Any) -> str:
        with pytest.raises(ConfigError) as error:
            make_vector_env(
                EnvConfig(**{"id": "ALE/Pong-v5", "vectorization": "native", **settings}), streams(1)
            )
        return str(error.value)

    assert "did you mean 'ALE/Pong-v5'?" in refused(id="ALE/Pogn-v5")
    assert refused(wrappers=["FlattenObservation"]).startswith(
        "env.wrappers: wrappers of single environments"
    )


def test_an_old_ale_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.envs.atari.importlib.metadata.version", lambda name: "0.11.2")
    with pytest.raises(ConfigError, match=r"needs ale-py 0.12.1 or newer, not 0.11.2: pip install"):
        games()


def test_what_the_id_says_holds_and_what_the_config_says_wins() -> None:
    config = EnvConfig(id="ALE/Breakout-v5", vectorization="native")
    assert atari._options(config)["repeat_action_probability"] == 0.25
    calm = config.model_copy(update={"kwargs": {"repeat_action_probability": 0.0}})
    assert atari._options(calm)["repeat_action_probability"] == 0.0
    limit = atari.bounded(config, 10).kwargs["max_num_frames_per_episode"]
    assert limit == 40
    assert atari.bounded(config, MAX_EPISODE_STEPS).kwargs["max_num_frames_per_episode"] == 108_000


# Runs


def config_of(algo: str = "dqn", overrides: Mapping[str, Any] | None = None) -> Any:
    options = {
        "dqn": {"buffer_size": 300, "learning_starts": 60, "batch_size": 4, "n_step_return": 2},
        "ppo": {"n_steps": 40, "batch_size": 16},
    }
    settings = {
        "algo": algo,
        "env": {
            "id": "ALE/Breakout-v5",
            "vectorization": "native",
            "num_envs": 2,
            "kwargs": {**STICKY, "episodic_life": True},
        },
        "seed": 2,
        "total_timesteps": 360,
        "algo_kwargs": options[algo],
        "network": {"hidden_sizes": [16]},
        "evaluation": {
            "frequency": 0,
            "final_episodes": 0,
            "env": {"kwargs": {"episodic_life": False, "reward_clipping": False, "noop_max": 0}},
        },
        "checkpoint": {"frequency": 100},
        "logging": {"frequency": 60, "csv": False, "tensorboard": False},
    }
    return load_config(settings, overrides or {})


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_a_run_that_is_stopped_goes_on_exactly(tmp_path: Path, algo: str) -> None:
    config = config_of(algo)
    workflows.start(config, run_dir=tmp_path / "straight", console=False)
    begin, path = (
        functools.partial(workflows.start, config, run_dir=tmp_path / "stopped"),
        tmp_path / "stopped",
    )
    for step in (62, 154, 266):
        go_on = functools.partial(workflows.resume, path) if path.exists() else begin
        with pytest.raises(Interrupted):
            go_on(callback=stop_at(step), console=False)
    workflows.resume(tmp_path / "stopped", console=False)
    straight = outcome(tmp_path / "straight")
    assert outcome(tmp_path / "stopped") == straight
    checkpoint = workflows.load_checkpoint(tmp_path / "stopped")
    assert checkpoint.info["env_restore"] == "replayed"


class Alternating:
    """An agent for whom only the number of its steps counts."""

    def __init__(self, actions: int = 4) -> None:
        self.steps, self.actions = 0, actions

    def act(self, obs: Any, carry: Any, *, explore: bool, mask: Any = None) -> Any:
        self.steps += 1
        return Decision(np.full(len(obs), self.steps % self.actions), None)


def test_evaluation_plays_whole_games_for_their_real_score() -> None:
    config = config_of()
    options = config.evaluation
    result = evaluate(Alternating(), config.env, DiscreteActions(4), options, 2)  # type: ignore[arg-type]
    game = alone(reward_clipping=False, noop_max=0)
    lengths, scores = [], []
    for episode in range(2):
        stream = EpisodeSeeds(seed_sequence(options.seed, "evaluation"), offset=episode)
        begun(game, next(stream))
        over, length, score = False, 0, 0.0
        while not over:
            length += 1
            _, (reward,), (over,), _, _ = game.step(np.array([length % 4]))
            score += float(reward)
        lengths.append(length)
        scores.append(score)
    assert result.lengths == tuple(lengths)
    assert result.returns == tuple(scores)
    clipped = evaluate(Alternating(), config.env, DiscreteActions(4), EvaluationConfig(), 2)  # type: ignore[arg-type]
    assert min(lengths) > max(clipped.lengths), "an episode of training is one life"


def test_environments_of_evaluation_have_the_same_spaces() -> None:
    with pytest.raises(ConfigError, match=r"^evaluation.env: its observation space is .*, that of training"):
        Run(config_of(overrides={"evaluation.env.kwargs.img_height": 22}))
    with pytest.raises(ConfigError, match=r"^evaluation.env: its action space is Discrete\(18\)"):
        Run(config_of(overrides={"evaluation.env.kwargs.full_action_space": True}))
    with pytest.raises(ConfigError, match=r"^env.kwargs.img_hieght: unknown key"):
        Run(config_of(overrides={"evaluation.env.kwargs.img_hieght": 22}))


def test_wrappers_of_evaluation_stand_instead_of_those_of_training() -> None:
    config = load_config(
        "dqn/cartpole",
        {
            "env.wrappers": [{"id": "ClipReward", "kwargs": {"max_reward": 0.5}}],
            "evaluation.env.wrappers": [],
        },
    )
    act = Alternating(2)
    clipped = evaluate(act, config.env, DiscreteActions(2), EvaluationConfig(), 2)  # type: ignore[arg-type]
    assert clipped.returns[0] == clipped.lengths[0] / 2
    whole = EvaluationConfig.model_validate({"env": {"wrappers": []}})
    act = Alternating(2)
    result = evaluate(act, config.env, DiscreteActions(2), whole, 2)  # type: ignore[arg-type]
    assert result.returns[0] == result.lengths[0]
    code, out, _ = command("show", "dqn/cartpole", "evaluation.env.kwargs.sutton_barto_reward=true")
    assert code == 0
    assert "sutton_barto_reward: true" in out
    code, _, err = command("train", "--config", "dqn/cartpole", "evaluation.env.wrapper=[]")
    assert (code, err) == (2, "error: evaluation.env.wrapper: unknown key; did you mean 'wrappers'?\n")


def test_eval_uses_them_and_films_what_the_agent_sees(tmp_path: Path) -> None:
    run = tmp_path / "run"
    short = {"evaluation.env.kwargs.max_num_frames_per_episode": 60, "total_timesteps": 80}
    workflows.start(config_of(overrides=short), run_dir=run, console=False)
    video = tmp_path / "game.mp4"
    code, out, err = command("eval", run, "--episodes", 2, "--video", video, "--json")
    assert code == 0, err
    assert json.loads(out)["lengths"] == [15, 15]
    frames = imageio_ffmpeg.read_frames(str(video))
    facts = next(frames)
    assert facts["size"] == (18 * 17, 20 * 17)
    assert facts["fps"] == 15
    assert sum(1 for _ in frames) == 16  # the beginning, and one after each step


# One by one


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_single_games_with_gymnasiums_wrappers_resume_exactly(tmp_path: Path, vectorization: str) -> None:
    pytest.importorskip("cv2")
    wrappers = [
        {"id": "AtariPreprocessing", "kwargs": {"screen_size": 20, "noop_max": 10}},
        {"id": "FrameStackObservation", "kwargs": {"stack_size": 4}},
    ]
    env = {
        "id": "ALE/Breakout-v5",
        "num_envs": 2,
        "vectorization": vectorization,
        "kwargs": {"frameskip": 1},
        "wrappers": wrappers,
    }
    plain = {"env": env, "evaluation.env": {}, "total_timesteps": 240}
    config = config_of(overrides=plain)
    workflows.start(config, run_dir=tmp_path / "straight", console=False)
    with pytest.raises(Interrupted):
        workflows.start(config, run_dir=tmp_path / "stopped", callback=stop_at(154), console=False)
    workflows.resume(tmp_path / "stopped", console=False)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")
    assert workflows.load_checkpoint(tmp_path / "stopped").info["env_restore"] == "replayed"
