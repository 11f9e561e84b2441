"""The command ``doctor``: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.experiment import registry
from rl_training.experiment.configs import load_config

Cli = Callable[..., Any]
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SMALL = {"total_timesteps": 4_000, "evaluation.final_episodes": 0, "logging.frequency": 250}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    registry.train(
        load_config("ppo/cartpole_quick", {**SMALL, "evaluation.frequency": 0}), run_dir=folder, console=False
    )
    return folder


def test_a_sound_config_and_exit_0(cli: Cli) -> None:
    done = cli("doctor", "ppo/cartpole", "--seconds", "60")
    assert done.code == 0, done.out
    assert "Nothing found in" in done.out
    for check in ("determinism", "rewards", "speed", "value", "discount", "policy", "both"):
        assert f"ok       {check}" in done.out
    assert max(map(len, done.out.splitlines())) <= 120


def test_a_broken_config_and_exit_1(cli: Cli) -> None:
    done = cli("doctor", "dqn/cartpole", "algo_kwargs.gamma=0", "--json", "--seconds", "60")
    assert done.code == 1
    report = json.loads(done.out)
    bad = [one for section in report["sections"] for one in section["findings"] if one["level"] == "problem"]
    assert report["found"] == len(bad) == 2
    assert {one["cause"] for one in bad} == {"gamma"}
    assert "value, discount, policy passed" in bad[1]["text"]
    assert bad[1]["remedy"] == "algo_kwargs.gamma=0.99"


def test_a_run_is_judged_by_its_metrics(cli: Cli, run: Path) -> None:
    done = cli("doctor", run)
    assert done.code == 0, done.out
    assert "ok       returns" in done.out
    assert "Probes" not in done.out
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("gamma: 0.995", "gamma: 0.1"))
    done = cli("doctor", run)
    assert done.code == 1
    assert "problem  discount" in done.out
    assert "1 problem: discount" in done.out


def test_environments_that_lack_a_package_are_left_out(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minatar", None)
    done = cli("doctor", "ppo/minatar_breakout", "--seconds", "60")
    assert done.code == 0, done.out
    assert "not checked: env.id: 'MinAtar/Breakout-v1' needs MinAtar" in done.out
    assert "ok       both" in done.out


class Poisoned(gym.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return observation * np.float32("nan")


def test_failing_environments_are_a_finding(cli: Cli) -> None:
    done = cli("doctor", "dqn/cartpole", f"env.wrappers=[{__name__}:Poisoned]", "--seconds", "3")
    assert done.code == 1
    assert "problem  environment  random actions made it fail: " in done.out
    assert "4 NaN or infinite" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no/such"], "is neither a file nor a packaged config"),
        (["dqn/cartpole", "algo_kwargs.gama=1"], "did you mean 'gamma'"),
        (["dqn/cartpole", "env.id=Nope-v0"], "is not registered"),
        (["dqn/cartpole", "--full"], "--full: goes with the folder of a run"),
        (["."], "not the folder of a run"),
        (["seeds"], "one run per seed; give one of them, such as seeds/seed-0"),
        (["empty"], "has no rows yet"),
        (["torn"], "not a JSON object"),
        (["linked"], "not a regular file"),
        (["nolog"], "nothing was logged"),
        (["empty", "seed=1"], "settings can be overridden with a config, or with --full"),
        (["theirs", "--full"], "add --trust"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seeds" / "seed-0").mkdir(parents=True)
    config = "algo: dqn\nenv: {id: CartPole-v1}\ntotal_timesteps: 20_000\n"
    rows = {"empty": "", "torn": "{\n{}\n", "theirs": '{"step": 1}\n'}
    for name in ("empty", "torn", "linked", "nolog", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(
            config.replace("CartPole-v1", "evil:Env") if name == "theirs" else config
        )
        if name in rows:
            (tmp_path / name / "metrics.jsonl").write_text(rows[name])
    (tmp_path / "linked" / "metrics.jsonl").symlink_to("/dev/zero")
    done = cli("doctor", *words)
    assert done.code == 2
    assert done.out == ""
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_the_broken_setups_that_need_no_probes_are_named_by_the_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    done = cli("doctor", "sac/pendulum", "env.wrappers=[broken_setups:WithoutSpeed]", "--seconds", "3")
    assert done.code == 1
    assert "but sac has no memory" in done.out


@pytest.mark.slow
def test_all_twelve_broken_setups_and_all_packaged_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import doctor

    assert doctor.main("broken")
    assert doctor.main("packaged")


def test_a_folder_of_seeds_is_told_which_run_to_take(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "config.yaml").write_text("algo: dqn\n")
    done = cli("doctor", tmp_path)
    assert done.code == 2
    assert (
        done.err
        == f"error: {tmp_path}: holds one run per seed; give one of them, such as {tmp_path}/seed-0\n"
    )
