"""Videos of what an agent does: the file, what is in it, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import rl_training
from helpers.children import Child
from helpers.contracts import ALGORITHMS, small_config
from rl_training import DQN
from rl_training.cli import main
from rl_training.config import EnvConfig
from rl_training.envs import rendering
from rl_training.errors import ConfigError, EnvError, StorageError
from rl_training.experiment import registry
from rl_training.runtime import evaluator
from rl_training.runtime.mp4 import Mp4Writer, frame_rate

SMALL: dict[str, Any] = {
    "network": {"hidden_sizes": [8]},
    "evaluation": {"frequency": 0, "episodes": 2, "final_episodes": 0},
    "logging": {"tensorboard": False},
    "checkpoint": {"frequency": 0},
}


class Signs(gym.Env[Any, Any]):
    """Shows by colours what happens: red the episode, green the step, blue the action; one buffer for all."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(
        self, render_mode: str | None = None, height: int = 33, width: int = 47, grows: bool = False
    ) -> None:
        self.render_mode, self.grows = render_mode, grows
        self.episode, self.steps, self.action = -1, 0, 0
        self.frame = np.empty((height, width, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.steps, self.action = self.episode + 1, 0, 0
        return self.obs(), {"action_mask": [0, 0, 1]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps, self.action = self.steps + 1, int(action)
        return self.obs(), 1.0, self.steps == 4, False, {"action_mask": [0, 0, 1]}

    def obs(self) -> Any:
        return np.array([self.steps / 4, 0.0], np.float32)

    def render(self) -> Any:
        self.frame[:] = (self.episode * 40, self.steps * 40, self.action * 40)
        return np.pad(self.frame, ((0, self.steps), (0, 0), (0, 0))) if self.grows else self.frame


class Endless(Signs):
    """Its episodes do not end by themselves."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, _, _, info = super().step(action)
        self.steps %= 4
        return obs, reward, False, False, info


class AlwaysDrawn(CartPoleEnv):
    """Takes no render mode, and renders images all the same."""

    def __init__(self) -> None:
        super().__init__(render_mode="rgb_array")


class Blind(CartPoleEnv):
    """Takes no render mode and renders nothing."""

    def __init__(self) -> None:
        super().__init__()


class Passing(CartPoleEnv):
    """Takes anything, but does not render images."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()


class NoPicture(Signs):
    """Promises images and renders something else."""

    def render(self) -> Any:
        return None


def trained(tmp_path: Path, make: Any, **config: Any) -> DQN:
    settings = {**SMALL, **config}
    agent = DQN(make, config=settings, run_dir=tmp_path / "run", learning_starts=8, batch_size=8)
    agent.learn(16, progress_bar=False)
    return agent


def read(path: Path) -> tuple[dict[str, Any], Any]:
    frames = imageio_ffmpeg.read_frames(str(path))
    meta = next(frames)
    width, height = meta["size"]
    return meta, np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames])


def levels(frames: Any) -> list[tuple[int, ...]]:
    """Return what the frames of ``Signs`` say, undisturbed by the compression."""
    means = frames[:, 4:-4, 4:-4].mean((1, 2))
    assert np.abs(frames - means[:, None, None]).max() < 20
    return [tuple(np.round(mean / 40).astype(int).tolist()) for mean in means]


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on CartPole."""
    folder = tmp_path_factory.mktemp("video")
    trained(folder, "CartPole-v1")
    return folder / "run"


# What is in it


@pytest.mark.parametrize("kind", ["sync", "subprocess"])
def test_every_frame_of_the_episodes_is_there_and_no_other(tmp_path: Path, kind: str) -> None:
    agent = trained(tmp_path, Signs, env={"vectorization": kind})
    result = agent.record(tmp_path / "film.mp4", 2)
    assert result.lengths == (4, 4)
    meta, frames = read(tmp_path / "film.mp4")
    assert meta["codec"] == "h264"
    assert meta["pix_fmt"].startswith("yuv420p")
    assert meta["fps"] == 7
    assert frames.shape[1:] == (34, 48, 3)
    steps = [(0, 0), *((step, 2) for step in range(1, 5))]  # the mask leaves action 2 only
    assert levels(frames) == [(episode, *what) for episode in (0, 1) for what in steps]
    assert {path.name for path in tmp_path.iterdir()} == {"film.mp4", "run"}


@pytest.mark.parametrize("seed", [None, 5])
def test_the_episodes_are_those_of_the_evaluation(cartpole: Path, tmp_path: Path, seed: int | None) -> None:
    agent = rl_training.load(cartpole)
    expected = agent.evaluate(5, seed=seed)
    result = agent.record(tmp_path / "film.mp4", 3, seed=seed)
    assert result.returns == expected.returns[:3]
    assert result.lengths == expected.lengths[:3]
    meta, frames = read(tmp_path / "film.mp4")
    assert len(frames) == sum(result.lengths) + 3
    assert meta["fps"] == 50
    assert frames.shape[1:] == (400, 600, 3)
    assert len(np.unique(frames[:, ::4, ::4].reshape(len(frames), -1), axis=0)) > len(frames) // 2


def test_a_frame_is_what_the_environment_draws(cartpole: Path, tmp_path: Path) -> None:
    agent = rl_training.load(cartpole)
    agent.record(tmp_path / "film.mp4")
    first = read(tmp_path / "film.mp4")[1][0].astype(int)
    from rl_training.envs.journal import EpisodeSeeds
    from rl_training.runtime.streams import seed_sequence

    assert agent.config is not None
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=next(EpisodeSeeds(seed_sequence(agent.config.evaluation.seed, "evaluation"))))
    drawn: Any = env.render()
    grey = np.abs(first - drawn.astype(int)).mean(-1)
    assert grey.mean() < 0.2
    assert grey.max() < 90
    assert first.min() < 30  # the rail, one pixel thin, is still black
    env.close()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_can_be_filmed(algo: str, tmp_path: Path) -> None:
    discrete = "discrete" in registry.get(algo).action_kinds
    env = {"env": {"id": "rl_training/CartPoleNoVelocity-v0"}} if discrete else {}
    config = small_config(algo, **env)
    result = registry.train(config, run_dir=tmp_path / "run", console=False)
    agent = rl_training.load(result.run_dir)
    played = agent.record(tmp_path / "film.mp4", 2)
    evaluated = agent.evaluate(2)  # with the memory, if there is one
    assert played.lengths == evaluated.lengths
    # Two environments at once round differently than one.
    assert played.returns == pytest.approx(evaluated.returns, rel=0.0 if discrete else 1e-6)
    assert len(read(tmp_path / "film.mp4")[1]) == sum(played.lengths) + 2


def test_repeated_actions_slow_the_video_and_other_wrappers_count(tmp_path: Path) -> None:
    repeat = {"id": "rl_training.envs.pixels:ActionRepeat", "kwargs": {"repeat": 2}}
    agent = trained(tmp_path, Signs, env={"wrappers": [repeat]})
    agent.record(tmp_path / "film.mp4")
    meta, frames = read(tmp_path / "film.mp4")
    assert meta["fps"] == 3.5
    assert [step for _, step, _ in levels(frames)] == [0, 2, 4]


def test_an_endless_episode_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "MAX_EPISODE_STEPS", 6)
    agent = trained(tmp_path, Endless)
    assert agent.record(tmp_path / "film.mp4").lengths == (6,)
    assert len(read(tmp_path / "film.mp4")[1]) == 7


def test_a_factory_that_draws_by_itself_needs_no_render_mode(tmp_path: Path) -> None:
    agent = trained(tmp_path, AlwaysDrawn)
    agent.record(tmp_path / "film.mp4")
    assert read(tmp_path / "film.mp4")[0]["size"] == (600, 400)


def test_an_older_video_is_replaced(cartpole: Path, tmp_path: Path) -> None:
    target = tmp_path / "film.mp4"
    target.write_text("old")
    (tmp_path / ".film.mp4.partial").write_text("left by a kill")
    rl_training.load(cartpole).record(target)
    assert read(target)[0]["codec"] == "h264"
    assert list(tmp_path.iterdir()) == [target]


# On the command line


def test_eval_writes_a_video_besides(cli: Callable[..., Any], cartpole: Path, tmp_path: Path) -> None:
    target = tmp_path / "film.mp4"
    plain = json.loads(cli("eval", cartpole, "--episodes", 3, "--json").out)
    done = cli("eval", cartpole, "--episodes", 3, "--json", "--video", target, "--video-episodes", 2)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == {**plain, "video": str(target)}
    assert len(read(target)[1]) == sum(plain["lengths"][:2]) + 2
    done = cli("eval", cartpole, "--episodes", 3, "--seed", 4, "--video", target)
    first, second = done.out.splitlines()
    assert first.startswith("3 episodes: return")
    assert second == f"Video   {target}"
    other = json.loads(cli("eval", cartpole, "--episodes", 1, "--seed", 4, "--json").out)
    assert len(read(target)[1]) == other["lengths"][0] + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--video", "film.avi"), "film.avi: a video is an MP4 file, so its name has to end in .mp4"),
        (("--video", "film"), "film: a video is an MP4 file"),
        (("--video", "folder.mp4"), "folder.mp4: is a folder, not a file"),
        (("--video", "nowhere/film.mp4"), "nowhere/film.mp4: there is no folder 'nowhere'"),
        (("--video", "x" * 300 + ".mp4"), "x" * 300 + ".mp4: File name too long"),
        (("--video-episodes", "2"), "--video-episodes: goes with --video FILE.mp4 only"),
        (("--video", "film.mp4", "--video-episodes", "0"), "Invalid value for '--video-episodes'"),
        (("--video",), "Option '--video' requires an argument"),
    ],
)
def test_misuse_is_one_line_and_exit_2(
    cli: Callable[..., Any],
    cartpole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.mp4").mkdir()
    done = cli("eval", cartpole, *words)
    assert done.code == 2
    assert done.err.startswith(f"error: {message}")
    assert done.err.count("\n") == 1
    assert not done.out
    assert [path.name for path in tmp_path.iterdir()] == ["folder.mp4"]


def test_an_environment_without_pictures_is_one_line_and_exit_2(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    trained(tmp_path, "rl_training/TMaze-v0")
    done = cli("eval", tmp_path / "run", "--video", tmp_path / "film.mp4")
    line = "error: env: 'rl_training/TMaze-v0' cannot be filmed: it has no render_mode 'rgb_array'\n"
    assert (done.code, done.out, done.err) == (2, "", line)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_mistake_in_the_name_is_found_without_torch(cartpole: Path) -> None:
    lines = ["import sys", "from rl_training.cli import main", "try: main()", "except SystemExit: pass"]
    code = "\n".join([*lines, "assert not {'torch', 'imageio_ffmpeg'} & set(sys.modules)"])
    words = ["eval", str(cartpole), "--video", "film.avi"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    assert "a video is an MP4 file" in done.stderr


def test_the_encoder_is_imported_when_a_video_is_written() -> None:
    code = (
        "import sys, rl_training.runtime.workflows, rl_training.api.managed; "
        "assert not {'imageio_ffmpeg', 'PIL', 'dm_control'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# What goes wrong


@pytest.mark.parametrize("env", [Blind, Passing])
def test_a_factory_that_cannot_draw_is_refused(env: Any) -> None:
    config = EnvConfig(id=f"test_video:{env.__name__}")
    for factory in (None, env):
        with pytest.raises(ConfigError, match=r"cannot be filmed: it has no render_mode 'rgb_array'"):
            rendering(config, factory)


def test_another_render_mode_gives_way() -> None:
    config = EnvConfig(id="CartPole-v1", kwargs={"render_mode": "human", "sutton_barto_reward": True})
    assert rendering(config).kwargs == {"render_mode": "rgb_array", "sutton_barto_reward": True}


def test_other_mistakes_keep_their_own_message() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        rendering(EnvConfig(id="CartPole-v1", kwargs={"nonsense": 1}))


def test_what_is_no_picture_is_the_environments_fault(tmp_path: Path) -> None:
    agent = trained(tmp_path, NoPicture)
    with pytest.raises(EnvError, match=r"render\(\): expected an image, uint8 \[H, W, 3\], got NoneType"):
        agent.record(tmp_path / "film.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_pictures_that_change_their_size_are_refused(tmp_path: Path) -> None:
    agent = trained(tmp_path, Signs, env={"kwargs": {"grows": True}})
    with pytest.raises(EnvError, match=r"frames of \(33, 47, 3\) became \(34, 47, 3\)"):
        agent.record(tmp_path / "film.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("episodes", [0, -1, True, 1.5, "2"])
def test_a_number_of_episodes_that_is_none_is_refused(cartpole: Path, tmp_path: Path, episodes: Any) -> None:
    with pytest.raises(ConfigError, match="episodes: expected a whole number of at least 1"):
        rl_training.load(cartpole).record(tmp_path / "film.mp4", episodes)


def test_an_agent_that_has_not_learned_cannot_be_filmed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has not learned anything yet"):
        DQN("CartPole-v1").record(tmp_path / "film.mp4")


# The file


PICTURES = [np.full((16, 16, 3), 40 * i, np.uint8) for i in range(5)]


def test_nothing_has_the_name_before_all_is_written(tmp_path: Path) -> None:
    target = tmp_path / "film.mp4"
    with Mp4Writer(target) as video:
        for picture in PICTURES:
            video.add(picture, 10.0)
            assert not target.exists()
    assert len(read(target)[1]) == 5
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "film.mp4"
    target.write_text("old")

    def interrupted() -> None:
        with Mp4Writer(target) as video:
            video.add(PICTURES[0], 10.0)
            raise error

    with pytest.raises(error):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("script", ["exit 1", "cat > /dev/null; exit 0", "head -c 700; kill -9 $$"])
def test_an_encoder_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    broken = tmp_path / "ffmpeg"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    monkeypatch.setattr(imageio_ffmpeg._io, "get_ffmpeg_exe", lambda: str(broken))
    monkeypatch.setattr(imageio_ffmpeg._io, "get_first_available_h264_encoder", lambda: "libx264")
    folder = tmp_path / "videos"
    folder.mkdir()

    def write() -> None:
        with Mp4Writer(folder / "film.mp4") as video:
            for picture in PICTURES * 50:
                video.add(picture, 10.0)

    with pytest.raises(StorageError, match=r"film.mp4: not written: "):
        write()
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"), Mp4Writer(tmp_path / "film.mp4"):
        pass


def test_a_video_without_a_frame_is_none(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="0 of 0 frames"), Mp4Writer(tmp_path / "film.mp4"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "fps"),
    [
        (50, 50.0),
        (12.5, 12.5),
        (np.float32(20), 20.0),
        (0.01, 1.0),
        (5000, 120.0),
        *((bad, 30.0) for bad in (None, 0, -5, True, "50", float("nan"), float("inf"))),
    ],
)
def test_the_speed_is_one_that_can_be_shown(given: Any, fps: float) -> None:
    assert frame_rate(given) == fps


def test_without_ffmpeg_there_is_one_line(
    cartpole: Path, tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "nowhere"))
    done = cli("eval", cartpole, "--episodes", "1", "--video", tmp_path / "film.mp4")
    assert done.code != 0
    assert len(done.err.strip().splitlines()) == 1
    assert "film.mp4: not written: no ffmpeg" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("video", [False, True])
def test_an_evaluation_that_renders_can_be_ended(tmp_path: Path, video: bool) -> None:
    """SDL would take SIGTERM for a window that is closed."""
    pixels = {"id": "rl_training.envs.pixels:PixelObservation", "kwargs": {"size": 20}}
    env = {"id": "Pendulum-v1", "kwargs": {"render_mode": "rgb_array"}, "wrappers": [pixels]}
    config = small_config("drqv2", env=env, **{"evaluation.num_envs": 1, "total_timesteps": 60})
    result = registry.train(config, run_dir=tmp_path / "run", console=False)
    words = ["eval", result.run_dir, "--episodes", "500"]
    words += ["--video", tmp_path / "film.mp4", "--video-episodes", "500"] if video else []

    def run() -> None:
        os.environ.pop("SDL_NO_SIGNAL_HANDLERS", None)
        sys.argv = ["rl-training", *map(str, words)]
        main()

    child = Child(tmp_path, run)
    time.sleep(3.0)
    child.send(signal.SIGTERM)
    assert child.wait(10.0) == -signal.SIGTERM
