"""Observations that are images: the wrappers, their frames at episode ends, and the DeepMind control suite."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import load_config
from rl_training.config import EnvConfig
from rl_training.envs import dm_control, make_env, make_vector_env
from rl_training.envs.journal import EpisodeSeeds, JournaledEnv
from rl_training.envs.pixels import ActionRepeat, PixelObservation
from rl_training.errors import ConfigError, EnvError

PIXELS = "rl_training.envs.pixels:PixelObservation"
REPEAT = "rl_training.envs.pixels:ActionRepeat"


class Counting(gym.Env[Any, Any]):
    """Its frames say where it is: red is the episode, green the step, blue the last action; one buffer for all."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 60}  # noqa: RUF012
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(8)

    def __init__(
        self, render_mode: str | None = None, length: int = 4, cut: bool = False, image: Any = None
    ) -> None:
        self.render_mode, self.length, self.cut, self.image = render_mode, length, cut, image
        self.episode, self.steps, self.renders = 0, 0, 0
        self.frame = np.zeros((6, 8, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        self.draw(0)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.draw(int(action))
        over = self.steps >= self.length
        return np.ones(2, np.float32), 1.0, over and not self.cut, over and self.cut, {"step": self.steps}

    def draw(self, action: int) -> None:
        self.frame[:] = (self.episode, self.steps, action)

    def render(self) -> Any:
        self.renders += 1
        return self.frame if self.image is None else self.image


def stacked(**options: Any) -> EnvConfig:
    stack = {"id": "FrameStackObservation", "kwargs": {"stack_size": 3}}
    pixels = {"id": PIXELS, "kwargs": {"size": [3, 4]}}
    kwargs = {"render_mode": "rgb_array"}
    return EnvConfig.model_validate(
        {"id": "test_pixels:Counting", "kwargs": kwargs, "wrappers": [pixels, stack], **options}
    )


def labels(obs: Any) -> list[tuple[int, ...]]:
    """Return the (episode, step, action) that each frame of a stack shows in all its pixels."""
    flat = obs.reshape(len(obs), 3, -1)
    assert (flat == flat[:, :, :1]).all()
    return [tuple(frame) for frame in flat[:, :, 0].tolist()]


# PixelObservation


@pytest.mark.parametrize(("size", "shape"), [(84, (3, 84, 84)), ([32, 48], (3, 32, 48)), ((5, 7), (3, 5, 7))])
def test_the_observation_is_the_picture(size: Any, shape: tuple[int, ...]) -> None:
    env = PixelObservation(gym.make("CartPole-v1", render_mode="rgb_array"), size)
    assert env.observation_space == gym.spaces.Box(0, 255, shape, np.uint8)
    for obs in (env.reset(seed=0)[0], env.step(0)[0]):
        assert (obs.shape, obs.dtype) == (shape, np.dtype(np.uint8))
        assert obs.flags.c_contiguous
        assert env.observation_space.contains(obs)
    env.close()


def test_a_picture_is_averaged_not_sampled() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    image[:2, :3, 0] = [[0, 60, 120], [60, 120, 180]]  # red, top left: 90 on average
    image[2:, 3:, 2] = 200
    env = PixelObservation(Counting("rgb_array", image=image), 2)
    red, green, blue = env.reset()[0].tolist()
    assert red == [[90, 0], [0, 0]]
    assert green == [[0, 0], [0, 0]]
    assert blue == [[0, 0], [0, 200]]


@pytest.mark.parametrize(
    ("crop", "rows", "columns"), [(1.0, (0, 6), (0, 8)), (0.5, (1, 4), (2, 6)), (0.01, (2, 3), (3, 4))]
)
def test_a_crop_is_the_middle_of_the_picture(
    crop: float, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    image = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    middle = image[slice(*rows), slice(*columns)]
    env = PixelObservation(Counting("rgb_array", image=image), middle.shape[:2], crop)
    assert np.array_equal(env.reset()[0], middle.transpose(2, 0, 1))


@pytest.mark.parametrize("crop", [0, -0.5, 1.01, True, "0.5", None, float("nan")])
def test_a_crop_that_is_no_share_is_refused(crop: Any) -> None:
    with pytest.raises(ValueError, match="crop: expected a share of the picture, above 0 and up to 1"):
        PixelObservation(Counting("rgb_array"), 84, crop)


@pytest.mark.parametrize("size", [[6, 8], [3, 4]])
def test_an_observation_does_not_change_afterwards(size: list[int]) -> None:
    env = PixelObservation(Counting("rgb_array"), size)
    first, _ = env.reset()
    kept = first.copy()
    env.step(5)
    assert np.array_equal(first, kept)


def test_nothing_is_drawn_before_the_reset_and_then_once_a_step() -> None:
    inner = Counting("rgb_array")
    env = PixelObservation(ActionRepeat(inner, 2))
    assert inner.renders == 0
    env.reset()
    assert inner.renders == 1
    env.step(0)
    assert inner.renders == 2


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: gym.make("CartPole-v1"), r"not None: add env.kwargs: \{render_mode: rgb_array\}"),
        (lambda: Counting("human"), r"not 'human': add env.kwargs: \{render_mode: rgb_array\}"),
        (lambda: gym.make("rl_training/TMaze-v0"), "no 'rgb_array', nor any other"),
    ],
)
def test_a_wrong_render_mode_shows_at_construction(env: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PixelObservation(env())


def test_an_env_that_only_opens_windows_is_refused() -> None:
    env = Counting("human")
    env.metadata = {"render_modes": ["human", "ansi"]}
    with pytest.raises(ValueError, match="no 'rgb_array', only human, ansi"):
        PixelObservation(env)


@pytest.mark.parametrize(
    "size", [0, -3, True, 84.0, "84", None, [], [84], [84, 0], [84, 84, 3], [84, 1.5], [True, 84]]
)
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="size: expected a whole number of at least 1, or"):
        PixelObservation(Counting("rgb_array"), size)


@pytest.mark.parametrize(
    ("image", "got"),
    [
        ([1, 2], "got list"),
        (np.zeros((4, 4, 3), np.float32), "got float32"),
        (np.zeros((4, 4), np.uint8), r"got uint8 \(4, 4\)"),
        (np.zeros((4, 4, 4), np.uint8), r"got uint8 \(4, 4, 4\)"),
        (np.zeros((0, 4, 3), np.uint8), r"got uint8 \(0, 4, 3\)"),
    ],
)
def test_what_is_no_image_is_named(image: Any, got: str) -> None:
    env = PixelObservation(Counting("rgb_array", image=image))
    with pytest.raises(EnvError, match=rf"render\(\): expected an image, uint8 \[H, W, 3\], {got}"):
        env.reset()


def test_same_seed_and_actions_same_frames() -> None:
    def frames(seed: int) -> Any:
        seen = [env.reset(seed=seed)[0]]
        seen += [env.step(np.array([torque], np.float32))[0] for torque in np.linspace(-2.0, 2.0, 20)]
        return np.stack(seen)

    env = PixelObservation(gym.make("Pendulum-v1", render_mode="rgb_array"), 48)
    first, other, again = frames(1), frames(2), frames(1)
    env.close()
    env = PixelObservation(gym.make("Pendulum-v1", render_mode="rgb_array"), 48)
    anew = frames(1)
    env.close()
    assert np.array_equal(first, again)
    assert np.array_equal(first, anew)
    assert not np.array_equal(first, other)
    assert len(np.unique(first.reshape(len(first), -1), axis=0)) > 15


def test_a_journal_brings_the_pictures_back() -> None:
    config = EnvConfig.model_validate(
        {
            "id": "Pendulum-v1",
            "kwargs": {"render_mode": "rgb_array"},
            "wrappers": [
                {"id": REPEAT},
                {"id": PIXELS, "kwargs": {"size": 32}},
                {"id": "FrameStackObservation", "kwargs": {"stack_size": 3}},
            ],
        }
    )
    seeds = EpisodeSeeds(np.random.SeedSequence(0))
    env, other = JournaledEnv(make_env(config), seeds), JournaledEnv(make_env(config), seeds)
    env.reset()
    for torque in (2.0, -1.0, 0.5, 2.0, 2.0):
        obs = env.step(np.array([torque], np.float32))[0]
    journal = env.journal()
    assert journal is not None
    assert np.array_equal(other.replay_journal(journal), obs)
    env.close()
    other.close()


# Stacks of frames


def test_a_stack_begins_with_the_first_frame_three_times() -> None:
    env = make_env(stacked())
    assert env.observation_space.shape == (3, 3, 3, 4)
    assert env.observation_space.dtype == np.uint8
    assert labels(env.reset()[0]) == [(1, 0, 0)] * 3
    assert labels(env.step(7)[0]) == [(1, 0, 0), (1, 0, 0), (1, 1, 7)]
    assert labels(env.step(5)[0]) == [(1, 0, 0), (1, 1, 7), (1, 2, 5)]
    assert labels(env.reset()[0]) == [(2, 0, 0)] * 3


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("kind", ["sync", "subprocess"])
def test_no_frame_crosses_the_end_of_an_episode(kind: str, cut: bool) -> None:
    kwargs = {"render_mode": "rgb_array", "cut": cut}
    root = np.random.SeedSequence(0)
    envs = make_vector_env(
        stacked(vectorization=kind, kwargs=kwargs), [EpisodeSeeds(root, i, 2) for i in range(2)]
    )
    try:
        obs, _ = envs.reset()
        assert [labels(one) for one in obs] == [[(1, 0, 0)] * 3] * 2
        for step in range(1, 5):
            obs, _, terminated, truncated, infos = envs.step(np.array([step, step]))
            assert (truncated if cut else terminated).all() == (step == 4)
        for i in range(2):
            assert labels(infos["final_obs"][i]) == [(1, 2, 2), (1, 3, 3), (1, 4, 4)]
            assert labels(obs[i]) == [(2, 0, 0)] * 3
    finally:
        envs.close()


# ActionRepeat


def test_repeated_actions_sum_their_rewards() -> None:
    env = ActionRepeat(Counting(length=5), 2)
    env.reset()
    results = [env.step(0)[1:] for _ in range(3)]
    assert results == [
        (2.0, False, False, {"step": 2}),
        (2.0, False, False, {"step": 4}),
        (1.0, True, False, {"step": 5}),
    ]


def test_repeating_stops_at_a_truncation() -> None:
    env = ActionRepeat(Counting(length=1, cut=True), 8)
    env.reset()
    assert env.step(0)[1:] == (1.0, False, True, {"step": 1})


def test_repeating_slows_the_pictures_and_leaves_the_env_alone() -> None:
    inner = Counting()
    assert ActionRepeat(inner, 4).metadata == {**Counting.metadata, "render_fps": 15.0}
    assert inner.metadata["render_fps"] == 60
    assert Counting.metadata["render_fps"] == 60


def test_repeating_an_env_that_names_no_speed() -> None:
    assert "render_fps" not in ActionRepeat(gym.make("rl_training/TMaze-v0")).metadata


@pytest.mark.parametrize("repeat", [0, -1, True, 2.0, "2", None])
def test_a_repeat_that_is_none_is_refused(repeat: Any) -> None:
    with pytest.raises(ValueError, match="repeat: expected a whole number of at least 1"):
        ActionRepeat(Counting(), repeat)


# In a config


def test_mistakes_in_a_config_are_one_line() -> None:
    def refused(wrapper: dict[str, Any], **settings: Any) -> str:
        with pytest.raises(ConfigError) as error:
            make_env(load_config("dqn/cartpole", {"env.wrappers": [wrapper], **settings}).env)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert refused({"id": PIXELS}).endswith("not None: add env.kwargs: {render_mode: rgb_array}")
    drawn = {"env.kwargs": {"render_mode": "rgb_array"}}
    assert "env.wrappers.0" in refused({"id": PIXELS, "kwargs": {"size": 0}}, **drawn)
    assert "repeat: expected" in refused({"id": REPEAT, "kwargs": {"repeat": 1.5}})


def test_the_suite_is_only_imported_when_named() -> None:
    code = "import sys, rl_training.envs; assert not {'dm_control', 'shimmy', 'mujoco', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# The DeepMind control suite


@pytest.mark.parametrize("missing", ["dm_control", "shimmy"])
def test_a_missing_suite_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        if name == missing:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("rl_training.envs.dm_control.importlib.import_module", absent)
    with pytest.raises(ConfigError) as error:
        make_env(EnvConfig(id="dm_control/cartpole-balance-v0"))
    assert str(error.value) == (
        f"env.id: 'dm_control/cartpole-balance-v0' needs {missing}: pip install \"rl_training[dm-control]\""
    )


def test_a_suite_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("Cannot initialize\na EGL device display")

    monkeypatch.setattr("rl_training.envs.dm_control.importlib.import_module", broken)
    with pytest.raises(ConfigError, match="ImportError: Cannot initialize a EGL device display"):
        make_env(EnvConfig(id="dm_control/cartpole-balance-v0"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "egl"),
        ({"DISPLAY": ":0"}, None),
        ({"WAYLAND_DISPLAY": "w"}, None),
        ({"MUJOCO_GL": "osmesa"}, "osmesa"),
    ],
)
def test_without_a_display_mujoco_renders_by_egl(
    given: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER", "SDL_NO_SIGNAL_HANDLERS"):
        monkeypatch.setenv(name, "")  # so that it is as before at the end, whatever is set below
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("rl_training.envs.headless.sys.platform", "linux")
    monkeypatch.setattr("rl_training.envs.dm_control.importlib.import_module", lambda name: None)
    dm_control.load("dm_control/x")
    assert os.environ.get("MUJOCO_GL") == expected


def suite_env(task: str = "cartpole-balance", **settings: Any) -> EnvConfig:
    pytest.importorskip("shimmy")
    pytest.importorskip("mujoco")
    return EnvConfig.model_validate({"id": f"dm_control/{task}-v0", **settings})


QUICK = {"shadow": False, "reflection": False}
"""What a machine without a graphics card draws much faster without."""


def suite_pixels(**settings: Any) -> EnvConfig:
    rendering = {"height": 84, "width": 84, "camera_id": 0, "render_flag_overrides": QUICK}
    kwargs = {"render_mode": "rgb_array", "render_kwargs": rendering}
    return suite_env(kwargs=kwargs, wrappers=[{"id": REPEAT}, {"id": PIXELS}], **settings)


def test_suite_episodes_are_cut_not_terminated() -> None:
    for wrappers, expected in (((), 1000), (({"id": REPEAT},), 500)):
        env = make_env(suite_env(wrappers=wrappers))
        env.reset(seed=0)
        steps, over = 0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(np.zeros(1))
            assert 0.0 <= float(reward) <= 1000 / expected
            assert not terminated
            steps, over = steps + 1, truncated
        assert steps == expected
        env.close()


@pytest.mark.parametrize(("task", "fps"), [("cartpole-balance", 100), ("walker-walk", 40)])
def test_suite_tasks_know_their_speed(task: str, fps: int) -> None:
    env = make_env(suite_env(task))
    other = make_env(suite_env("cheetah-run"))
    assert env.metadata["render_fps"] == fps
    env.close()
    other.close()


def test_a_suite_task_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"not registered; did you mean 'dm_control/cartpole-balance-v0'\?"):
        make_env(suite_env("cartpole-balanze"))


def test_suite_pictures_show_the_cart_and_are_those_of_the_seed() -> None:
    def frames(env: Any, seed: int) -> Any:
        return np.stack([env.reset(seed=seed)[0], *(env.step(np.ones(1))[0] for _ in range(5))])

    env, other = make_env(suite_pixels()), make_env(suite_pixels())
    first, different, again = frames(env, 1), frames(env, 2), frames(env, 1)
    assert np.array_equal(first, again)
    assert np.array_equal(first, frames(other, 1))
    assert not np.array_equal(first[0], different[0])
    assert first.shape == (6, 3, 84, 84)
    red, _, blue = first.astype(int).transpose(1, 0, 2, 3)
    orange = (red - blue) > 40  # cart and pole; sky, rail and floor are blue
    assert (orange.sum((1, 2)) > 60).all()
    assert orange[0, :, 30:54].sum() == orange[0].sum()  # in the middle, at first
    right = [np.nonzero(frame[39:46].any(0))[0].mean() for frame in orange]  # where the cart is
    assert right[-1] > right[0]  # it was pushed that way
    env.close()
    other.close()


WORKERS = """
import numpy as np
from rl_training.envs import make_vector_env
from rl_training.envs.journal import EpisodeSeeds
from rl_training.errors import EnvError
from test_pixels import suite_pixels

def play(kind):
    seeds = [EpisodeSeeds(np.random.SeedSequence(0), i, 2) for i in range(2)]
    envs = make_vector_env(suite_pixels(vectorization=kind), seeds)
    try:
        return np.stack([envs.reset()[0], *(envs.step(np.ones((2, 1)))[0] for _ in range(3))])
    finally:
        envs.close()

first = play("subprocess")
assert np.array_equal(first, play("sync"))
try:
    play("subprocess")
except EnvError as error:
    print(error)
"""


def test_suite_pictures_are_the_same_from_a_worker_and_no_worker_hangs() -> None:
    suite_env()
    paths = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", WORKERS],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot render in a worker if it has rendered in the main process before" in done.stdout
