"""A run that is killed, stopped and resumed ends with the same bits as one that never was."""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.children import Child
from helpers.image_envs import FRAMES
from helpers.runs import LEARNING, final_tree, learned, outcome, rows, stop_at
from helpers.survey import survey
from rl_training.algorithms.catalogue import PACKAGED
from rl_training.experiment.configs import load_config
from rl_training.runtime import workflows
from rl_training.runtime.checkpoint import newest_checkpoint, read_hint, save_checkpoint
from rl_training.runtime.loop import train as loop
from rl_training.runtime.run import Run
from rl_training.runtime.session import Interrupted
from rl_training.runtime.storage import DiskStorage

SMALL = {
    "algo": "dqn",
    "env": {"id": "CartPole-v1", "num_envs": 2},
    "seed": 3,
    "total_timesteps": 1200,
    "algo_kwargs": {
        "learning_rate_final": 1e-5,
        "buffer_size": 700,
        "learning_starts": 100,
        "batch_size": 16,
        "n_step_return": 3,
        "target_update_interval": 150,
    },
    "network": {"hidden_sizes": [16]},
    "evaluation": {"frequency": 500, "episodes": 2, "final_episodes": 0},
    "checkpoint": {"frequency": 200},
    "logging": {"frequency": 100, "csv": False, "tensorboard": False},
}


def configured(**settings: Any) -> Any:
    """Of the small config, with ``algo_kwargs`` as a whole instead of its own."""
    base = {**SMALL, "algo_kwargs": settings.pop("algo_kwargs", SMALL["algo_kwargs"])}
    return load_config(base, {name.replace("__", "."): value for name, value in settings.items()})


def start(path: Path, callback: Any = None, **settings: Any) -> None:
    config = configured(**settings)
    workflows.start(config, run_dir=path, callback=callback, console=False)


def resume(path: Path, *overrides: str) -> None:
    workflows.resume(path, overrides=overrides, trust=True, console=False)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of the run that nobody disturbs."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("straight") / "run"
    start(path)
    return outcome(path)


# Kills


def go_on(path: Path, **settings: Any) -> None:
    """Resume, or start where a kill came before there was a run."""
    if (path / "config.yaml").exists():
        resume(path)
    else:
        start(path, **settings)


FILE_CALLS = ("make_folder", "create", "write", "sync", "sync_folder", "rename", "unlink", "remove_folder")


def before_each_file_call(then: Callable[[], None], swap: Callable[[str, Any], None]) -> None:
    """Have a function called before each operation on a checkpoint's files."""

    def noted(method: Callable[..., Any], *args: Any) -> Any:
        then()
        return method(*args)

    for name in FILE_CALLS:
        method = getattr(DiskStorage, name)
        swap(name, functools.partialmethod(functools.partial(_swap, noted, method)))


def go_on_until_call(path: Path, calls: int, **settings: Any) -> None:
    """Go on, but die at the ``calls``-th operation on a checkpoint's files."""
    count = itertools.count(1)

    def deadly() -> None:
        if next(count) == calls:
            os.kill(os.getpid(), signal.SIGKILL)

    before_each_file_call(deadly, functools.partial(setattr, DiskStorage))
    go_on(path, **settings)


def _swap(wrapper: Callable[..., Any], method: Callable[..., Any], *args: Any) -> Any:
    return wrapper(method, *args)


def _count(calls: Iterator[int]) -> None:
    next(calls)


def one_more_session(
    folder: Path, path: Path, rng: random.Random, number: int, most_calls: int, **settings: Any
) -> bool:
    """Let a child go on and kill it, at a random moment or inside a save; return whether the kill struck."""
    if number % 2:
        calls = rng.randint(1, most_calls)
        child = Child(folder, functools.partial(go_on_until_call, path, calls, **settings))
    else:
        child = Child(folder, functools.partial(go_on, path, **settings))
        time.sleep(rng.uniform(0.0, 0.4))
        child.send(signal.SIGKILL)
    code = child.wait()
    assert code in (0, -signal.SIGKILL), child.err
    return code != 0


FROM_PIXELS = {"learning_starts": 100, "batch_size": 8, "shift_pad": 1, "feature_dim": 4, "train_freq": 4}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "prioritized_dqn": {"algo": "prioritized_dqn"},
    "c51": {"algo": "c51", "algo_kwargs__v_min": 0, "algo_kwargs__v_max": 100},
    "qr_dqn": {"algo": "qr_dqn", "algo_kwargs__num_quantiles": 16},
    "iqn": {"algo": "iqn", "algo_kwargs__num_quantiles": 8, "algo_kwargs__num_target_quantiles": 8},
    "iqn, noisy": {"algo": "iqn", "algo_kwargs__num_quantiles": 8, "algo_kwargs__noisy": True},
    "rainbow": {"algo": "rainbow", "algo_kwargs__v_min": 0, "algo_kwargs__v_max": 100},
    "drqn": {"algo": "drqn", "algo_kwargs__sequence_length": 9, "algo_kwargs__core_size": 8},
    "drqn, gru": {"algo": "drqn", "algo_kwargs__core": "gru", "algo_kwargs__core_layers": 2},
    "r2d2": {"algo": "r2d2", "algo_kwargs__sequence_length": 8, "algo_kwargs__burn_in": 3},
    "drqv2": {
        "algo": "drqv2",
        "env__id": "helpers.image_envs:Track",
        "env__wrappers": [FRAMES, {"id": "TimeLimit", "kwargs": {"max_episode_steps": 17}}],
        "algo_kwargs": {**FROM_PIXELS, "policy_delay": 2, "buffer_size": 640},
    },
}

# Rollouts of 96 steps, so that every checkpoint but one is in the middle of one.
ON_POLICY = {"n_steps": 48, "batch_size": 32, "learning_rate_final": 1e-5, "normalize_reward": True}
# Checkpoints before and after the end of the warm-up.
REPLAYED = {
    "learning_starts": 300,
    "buffer_size": 700,
    "batch_size": 16,
    "train_freq": 4,
    "learning_rate_final": 1e-5,
}
KILLED: dict[str, dict[str, Any]] = {
    "dqn": {},
    "ppo": {"algo": "ppo", "algo_kwargs": {**ON_POLICY, "clip_range_final": 0.1}},
    "recurrent_ppo": {
        "algo": "recurrent_ppo",
        "algo_kwargs": {**ON_POLICY, "core_size": 8, "prev_action": True, "prev_reward": True},
    },
    "trpo": {"algo": "trpo", "algo_kwargs": {**ON_POLICY, "target_kl_final": 1e-3}},
    "sac": {
        "algo": "sac",
        "env__id": "Pendulum-v1",
        "algo_kwargs": {
            **REPLAYED,
            "use_sde": True,
            "sde_sample_freq": 7,
            "prioritized": True,
            "n_step_return": 3,
        },
    },
    "ddpg": {"algo": "ddpg", "env__id": "Pendulum-v1", "algo_kwargs": {**REPLAYED, "action_noise": "ou"}},
    "crossq": {
        "algo": "crossq",
        "env__id": "Pendulum-v1",
        "algo_kwargs": {**REPLAYED, "renorm_warm_up": 60, "policy_delay": 3},
    },
    "discrete_sac": {"algo": "discrete_sac", "algo_kwargs": REPLAYED},
    "a2c": {"algo": "a2c", "algo_kwargs": {"n_steps": 48, "learning_rate_final": 1e-5}},
    "td3": {"algo": "td3", "env__id": "Pendulum-v1", "algo_kwargs": REPLAYED},
    "tqc": {"algo": "tqc", "env__id": "Pendulum-v1", "algo_kwargs": {**REPLAYED, "num_quantiles": 8}},
    **{name: ALGORITHMS[name] for name in PACKAGED if name in ALGORITHMS and name != "drqv2"},
    "drqv2": {**ALGORITHMS["drqv2"], "total_timesteps": 600},
}
ALL_KILLS = 1000
"""Of all algorithms together, with ``--slow``."""


def test_every_algorithm_is_killed() -> None:
    assert sorted(KILLED) == sorted(PACKAGED)


@pytest.mark.parametrize("name", KILLED)
def test_kills_at_random_moments_change_no_bit(
    tmp_path: Path,
    name: str,
    slow: bool,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    torch.set_num_threads(1)
    settings = KILLED[name]
    if name not in ("dqn", "drqv2"):
        settings = {**settings, "network__normalize_obs": True}
    calls = itertools.count()
    with monkeypatch.context() as patch:
        before_each_file_call(functools.partial(_count, calls), functools.partial(patch.setattr, DiskStorage))
        start(tmp_path / "straight", **settings)
    expected = outcome(tmp_path / "straight")
    most_calls = next(calls) // 2  # of a session, so that it gets through a save or two
    rng = random.Random(name)
    wanted, kills = (math.ceil(ALL_KILLS / len(KILLED)) if slow else 10), 0
    for trial in itertools.count():
        path = tmp_path / f"run-{trial}"
        while one_more_session(tmp_path, path, rng, kills, most_calls, **settings):
            kills += 1
        assert outcome(path) == expected
        shutil.rmtree(path)
        if kills >= wanted:
            record_property("kills", kills)
            record_property("most_calls", most_calls)
            record_property("finished_runs", trial + 1)
            return


def die_naming(hint: str, step: str, path: Path) -> None:
    """Die after the checkpoint of a step was saved, but before it is called what it is."""

    def rename(self: DiskStorage, source: Path, target: Path) -> None:
        if target.name == hint and (path / "checkpoints" / step).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        os.rename(source, target)

    DiskStorage.rename = rename  # type: ignore[method-assign]
    start(path)


def test_a_kill_before_the_best_checkpoint_is_named_does_not_lose_it(
    tmp_path: Path, straight: dict[str, Any]
) -> None:
    child = Child(tmp_path, functools.partial(die_naming, "best", "step-000000500", tmp_path / "run"))
    assert child.wait() == -signal.SIGKILL, child.err
    assert read_hint(tmp_path / "run" / "checkpoints", "best") is None
    resume(tmp_path / "run", "total_timesteps=600")
    assert outcome(tmp_path / "run")["hints"]["best"] == "step-000000500"


def test_a_kill_before_the_last_checkpoint_is_named_leaves_no_stale_name(
    tmp_path: Path, straight: dict[str, Any]
) -> None:
    child = Child(tmp_path, functools.partial(die_naming, "latest", "step-000001200", tmp_path / "run"))
    assert child.wait() == -signal.SIGKILL, child.err
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == straight


def test_a_run_killed_before_its_first_checkpoint_starts_again(
    tmp_path: Path, straight: dict[str, Any]
) -> None:
    child = Child(tmp_path, functools.partial(start, tmp_path / "run", callback=stop_at(150, signal.SIGKILL)))
    assert child.wait() == -signal.SIGKILL, child.err
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == straight


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_kill_changes_no_bit_of_any_algorithm(tmp_path: Path, algorithm: str) -> None:
    settings = {"total_timesteps": 500, "evaluation__frequency": 250, **ALGORITHMS[algorithm]}
    start(tmp_path / "straight", **settings)
    kill = stop_at(354, signal.SIGKILL)
    child = Child(tmp_path, functools.partial(start, tmp_path / "killed", callback=kill, **settings))
    assert child.wait() == -signal.SIGKILL, child.err
    killed = final_tree(tmp_path / "killed")
    assert killed["loop"]["clock"]["steps"] == 250, "the last checkpoint before the kill"
    resume(tmp_path / "killed")
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")

    buffers = [tree["replay"]["buffer"] for tree in (killed, final_tree(tmp_path / "straight"))]
    prioritized = algorithm in ("prioritized_dqn", "rainbow", "r2d2")
    assert all(("priorities" in buffer) == prioritized for buffer in buffers)
    if prioritized:
        saved, final = (np.asarray(buffer["priorities"]) for buffer in buffers)
        assert len(np.unique(saved)) > (10 if algorithm == "r2d2" else 20)
        assert not np.array_equal(saved, final[: len(saved)])


# Stops

VARIANTS: dict[str, dict[str, Any]] = {
    "two envs": {},
    "subprocess envs": {"env__vectorization": "subprocess"},
    "three envs": {"env__num_envs": 3},
    "one env": {"env__num_envs": 1, "algo_kwargs__n_step_return": 1},
    "normalized obs": {"network__normalize_obs": True},
    "normalized layers": {"network__layer_norm": True},
    "dueling": {"algo_kwargs__dueling": True, "algo_kwargs__tau": 0.1},
    "memory": {"algo": "drqn", "algo_kwargs__sequence_length": 9, "algo_kwargs__prev_reward": True},
    "pixels": {
        "algo": "drqv2",
        "env__id": "Pendulum-v1",
        "env__kwargs": {"render_mode": "rgb_array"},
        "env__wrappers": [
            {"id": "TimeLimit", "kwargs": {"max_episode_steps": 60}},
            {"id": "rl_training.envs.pixels:ActionRepeat", "kwargs": {"repeat": 2}},
            {"id": "rl_training.envs.pixels:PixelObservation", "kwargs": {"size": 16}},
            FRAMES,
        ],
        "algo_kwargs": {**FROM_PIXELS, "buffer_size": 300},
    },
    "overlapping sequences": {"algo": "drqn", "algo_kwargs__sequence_length": 9, "algo_kwargs__burn_in": 4},
    "a memory that restarts": {
        "algo": "drqn",
        "algo_kwargs__sequence_length": 9,
        "algo_kwargs__burn_in": 4,
        "algo_kwargs__restart_memory": True,
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stop_in_mid_episode_changes_no_bit(tmp_path: Path, variant: str) -> None:
    settings = {"total_timesteps": 600, "evaluation__frequency": 300, **VARIANTS[variant]}
    start(tmp_path / "straight", **settings)
    with pytest.raises(Interrupted):
        start(tmp_path / "stopped", callback=stop_at(354), **settings)
    stopped = final_tree(tmp_path / "stopped")
    journals = stopped["envs"]["journals"]
    assert all(len(journal["actions"]) for journal in journals.values()), "each env should be in an episode"
    if settings.get("algo") == "drqn":
        assert np.asarray(stopped["envs"]["carry"]["hidden"]).any(), "there should be something to remember"
        assert np.asarray(stopped["replay"]["buffer"]["age"]).all(), "there should be unfinished chunks"
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


def test_subprocess_envs_train_like_those_in_this_process(tmp_path: Path) -> None:
    for kind in ("sync", "subprocess"):
        start(tmp_path / kind, total_timesteps=400, env__vectorization=kind)
    assert learned(tmp_path / "sync") == learned(tmp_path / "subprocess")


def test_the_seed_decides_every_bit(tmp_path: Path) -> None:
    for name, seed in (("first", 5), ("again", 5), ("other", 6)):
        start(tmp_path / name, seed=seed, total_timesteps=400)
    assert outcome(tmp_path / "first") == outcome(tmp_path / "again")
    same = {
        name
        for name, value in learned(tmp_path / "other").items()
        if value == learned(tmp_path / "first")[name]
    }
    assert not same


CADENCES: dict[str, dict[str, Any]] = {
    "no evaluation": {"evaluation__frequency": 0},
    "more evaluation": {"evaluation__frequency": 70, "evaluation__episodes": 3, "evaluation__num_envs": 1},
    "other evaluation episodes": {"evaluation__seed": 9},
    "frequent checkpoints": {"checkpoint__frequency": 30},
    "no checkpoints": {"checkpoint__frequency": 0},
    "frequent rows": {"logging__frequency": 6, "logging__window": 3, "logging__csv": True},
}


@pytest.mark.parametrize("cadence", CADENCES)
def test_evaluating_saving_and_logging_change_no_training_bit(
    tmp_path: Path, straight: dict[str, Any], cadence: str
) -> None:
    start(tmp_path / "run", **CADENCES[cadence])
    assert learned(tmp_path / "run") == {name: straight["digests"][name] for name in LEARNING}


def test_a_larger_budget_goes_on_from_the_same_step_with_every_row_once(tmp_path: Path) -> None:
    path = tmp_path / "run"
    start(path, total_timesteps=500, evaluation__final_episodes=2)
    before = rows(path)
    resume(path, "total_timesteps=1000")
    after = rows(path)
    trained = [row["step"] for row in after if "train/n_updates" in row]
    evaluated = [row["step"] for row in after if "eval/mean_reward" in row]
    assert trained == list(range(100, 1001, 100))
    assert evaluated == [0, 500, 1000]
    assert [row["step"] for row in after if "final/mean_reward" in row] == [1000], (
        "the end of the first budget is no longer the end of the run"
    )
    assert after[: len(before) - 1] == before[:-1]
    updates = [row["train/n_updates"] for row in after if "train/n_updates" in row]
    assert updates == [step - 100 for step in trained]


def test_resuming_a_finished_run_repeats_its_end_only(tmp_path: Path) -> None:
    path = tmp_path / "run"
    start(path, total_timesteps=500, evaluation__final_episodes=2)
    before = outcome(path)
    resume(path)
    assert outcome(path) == before


# Every live value


@pytest.fixture
def make_run() -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(**settings: Any) -> Run:
        config = configured(**settings)
        runs.append(Run(config))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"network__normalize_obs": True, "network__layer_norm": True, "algo_kwargs__dueling": True},
        *ALGORITHMS.values(),
    ],
    ids=str,
)
def test_every_live_value_comes_back(
    tmp_path: Path, make_run: Callable[..., Run], settings: dict[str, Any]
) -> None:
    trained, resumed = make_run(**settings), make_run(**settings)
    deque(itertools.islice(loop(trained), 301), maxlen=0)
    fresh = survey(resumed)
    resumed.load_state_dict(newest(save_checkpoint(tmp_path / "c", 602, trained.state_dict(), {})))
    want, got = survey(trained), survey(resumed)
    differing = sorted(path for path in want.keys() | got.keys() if want.get(path) != got.get(path))
    assert not differing
    moved = {path for path in want if want[path] != fresh.get(path)}
    for part in (
        ".clock.steps",
        ".experience._env_steps",
        "._generators['sampling']",
        "._exp_avg",
        "._elapsed_steps",
    ):
        assert any(part in path for path in moved), f"training should change {part}"


def newest(path: Path) -> dict[str, Any]:
    return newest_checkpoint(path.parent)[0].tree
