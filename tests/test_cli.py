"""The command line, verb by verb, as a person types it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.children import command, wait_for
from rl_training import load_config
from rl_training.experiment.registry import algorithms

TINY = (
    "total_timesteps=600",
    "algo_kwargs.learning_starts=100",
    "algo_kwargs.train_freq=4",
    "algo_kwargs.gradient_steps=1",
    "network.hidden_sizes=[16]",
    "evaluation.frequency=300",
    "evaluation.episodes=2",
    "evaluation.final_episodes=4",
    "logging.tensorboard=false",
)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    command = [
        sys.executable,
        "-m",
        "rl_training",
        "train",
        "--config",
        "dqn/cartpole",
        "--run-dir",
        str(path),
        *TINY,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return path


def test_train_ends_with_result_folder_and_what_to_type_next(cli: Callable[..., Any], tmp_path: Path) -> None:
    done = cli("train", "--config", "dqn/cartpole", "--run-dir", tmp_path / "run", "--seed", 3, *TINY)
    assert done.code == 0
    assert "over 4 evaluation episodes" in done.out
    assert str(tmp_path / "run") in done.out
    assert "rl-training eval" in done.out
    assert "environment" in done.out
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["seed"] == 3


def test_train_refuses_a_folder_that_holds_a_run(cli: Callable[..., Any], run_dir: Path) -> None:
    done = cli("train", "--config", "dqn/cartpole", "--run-dir", run_dir, *TINY)
    assert done.code == 2
    assert "resume" in done.err
    assert done.err.count("\n") == 1


def test_eval_repeats_the_final_evaluation_exactly(cli: Callable[..., Any], run_dir: Path) -> None:
    expected = json.loads((run_dir / "result.json").read_text())["evaluation"]["returns"]
    assert json.loads(cli("eval", run_dir, "--json").out)["returns"] == expected


def test_eval_takes_episodes_seed_best_and_checkpoint(cli: Callable[..., Any], run_dir: Path) -> None:
    own = json.loads(cli("eval", run_dir, "--episodes", 6, "--json").out)
    other = json.loads(cli("eval", run_dir, "--episodes", 6, "--seed", 9, "--json").out)
    assert len(own["returns"]) == len(other["returns"]) == 6
    assert own["returns"] != other["returns"]
    newest = sorted((run_dir / "checkpoints").glob("step-*"))[-1]
    assert json.loads(cli("eval", "--checkpoint", newest, "--episodes", 6, "--json").out) == own
    assert cli("eval", run_dir, "--best", "--episodes", 2).out.startswith("2 episodes: return")


def test_predict_one_and_a_batch(cli: Callable[..., Any], run_dir: Path) -> None:
    assert cli("predict", run_dir, "--obs", "[0, 0, 0.1, 0]").out.strip() in {"0", "1"}
    batch = json.loads(cli("predict", run_dir, "--json", "--obs", "[[0, 0, 1, 5], [0, 0, -1, -5]]").out)
    assert len(batch["action"]) == 2


@pytest.mark.parametrize("obs", ["[0, 0", "[0, 0]", '["a", 0, 0, 0]', "[NaN, 0, 0, 0]", "", "[]", "{}"])
def test_predict_refuses_a_bad_observation_in_one_line(
    cli: Callable[..., Any], run_dir: Path, obs: str
) -> None:
    done = cli("predict", run_dir, "--obs", obs)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


def test_resume_goes_on_to_a_larger_budget(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("train", "--config", "dqn/cartpole", "--run-dir", tmp_path / "run", *TINY)
    done = cli("resume", tmp_path / "run", "total_timesteps=900")
    assert done.code == 0
    assert "resuming at step 600 of 900; environments replayed" in done.err
    assert "Trained 900 steps" in done.out


def test_resume_refuses_another_env_seed_or_network(cli: Callable[..., Any], run_dir: Path) -> None:
    for override in ("env.num_envs=2", "seed=5", "network.hidden_sizes=[8]"):
        done = cli("resume", run_dir, override)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err


def test_resume_of_an_older_checkpoint_branches(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("train", "--config", "dqn/cartpole", "--run-dir", tmp_path / "run", "checkpoint.frequency=300", *TINY)
    before = sorted((tmp_path / "run" / "checkpoints").iterdir())
    older = before[[path.name for path in before].index("step-000000300")]
    done = cli("resume", "--checkpoint", older, "--quiet")
    assert done.code == 0, done.err
    assert sorted((tmp_path / "run" / "checkpoints").iterdir()) == before
    branch = tmp_path / "run_from-step-000000300"
    straight, branched = (
        json.loads((path / "result.json").read_text())["evaluation"]["returns"]
        for path in (tmp_path / "run", branch)
    )
    assert straight == branched


@pytest.mark.parametrize("algo", ["prioritized_dqn", "c51", "qr_dqn", "iqn", "rainbow", "drqn", "r2d2"])
def test_every_algorithm_trains_evaluates_predicts_and_resumes(
    cli: Callable[..., Any], tmp_path: Path, algo: str
) -> None:
    run = tmp_path / "run"
    tiny = [*TINY, "total_timesteps=200", "algo_kwargs.batch_size=16", "evaluation.frequency=0"]
    name = "r2d2/cartpole_no_velocity" if algo == "r2d2" else f"{algo}/cartpole"
    done = cli("train", "--config", name, "--run-dir", run, "--quiet", *tiny)
    assert done.code == 0, done.err
    expected = json.loads((run / "result.json").read_text())["evaluation"]["returns"]
    assert json.loads(cli("eval", run, "--json").out)["returns"] == expected
    obs = "[0, 0.1]" if algo == "r2d2" else "[0, 0, 0.1, 0]"
    assert cli("predict", run, "--obs", obs).out.strip() in {"0", "1"}
    assert "Trained 300 steps" in cli("resume", run, "total_timesteps=300").out


def test_list_and_show(cli: Callable[..., Any]) -> None:
    listed = json.loads(cli("list", "--json").out)
    plain = cli("list").out
    for algo in ("dqn", "prioritized_dqn", "c51", "qr_dqn", "iqn", "rainbow"):
        assert algo in listed["algorithms"]
        assert f"{algo}/cartpole" in listed["configs"]
        assert f"{algo}/cartpole" in plain
    shown = yaml.safe_load(cli("show", "dqn/cartpole", "algo_kwargs.gamma=0.5").out)
    assert shown["algo_kwargs"]["gamma"] == 0.5
    assert shown["logging"]["window"] == 100
    rainbow = yaml.safe_load(cli("show", "rainbow/cartpole").out)["algo_kwargs"]
    parts = ("double", "dueling", "noisy", "prioritized")
    assert [rainbow[part] for part in parts] == [True] * 4
    assert rainbow["n_step_return"] == 3


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--config", "nothing/here"),
        ("train", "--config", "missing.yaml"),
        ("train", "--config", "dqn/cartpole", "env.id=NoSuchEnv-v0"),
        ("train", "--config", "dqn/cartpole", "env.id=no_such_module:Env"),
        ("train", "--config", "dqn/cartpole", "env.id=os:system"),
        ("train", "--config", "dqn/cartpole", "env.id=Pendulum-v1"),
        ("train", "--config", "dqn/cartpole", "env.wrappers=[NoSuchWrapper]"),
        ("train", "--config", "dqn/cartpole", "env.kwargs={nonsense: 1}"),
        ("train", "--config", "dqn/cartpole", "device=cuda"),
        ("train", "--config", "dqn/cartpole", "network.factory=no_such_module:net"),
        ("train", "--config", "dqn/cartpole", "just-a-word"),
        ("train", "--config", "prioritized_dqn/cartpole", "algo_kwargs.alpha=1.5"),
        ("train", "--config", "prioritized_dqn/cartpole", "algo_kwargs.prioritized=false"),
        ("train", "--config", "c51/cartpole", "algo_kwargs.v_min=200"),
        ("train", "--config", "qr_dqn/cartpole", "algo_kwargs.num_quantiles=0"),
        ("train", "--config", "iqn/cartpole", "network.hidden_sizes=[]"),
        ("train", "--config", "rainbow/cartpole", "env.id=Pendulum-v1"),
        ("resume",),
        ("eval",),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli(*words)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_latest_and_best_stand_for_what_they_name(
    cli: Callable[..., Any], run_dir: Path, tmp_path: Path
) -> None:
    expected = json.loads(cli("eval", run_dir, "--json").out)
    assert json.loads(cli("eval", run_dir / "checkpoints" / "latest", "--json").out) == expected
    (tmp_path / "best").write_text("step-000000001\n")
    assert "names no checkpoint" in cli("eval", tmp_path / "best").err


@pytest.mark.parametrize("verb", ["eval", "resume", "predict"])
def test_a_path_that_holds_no_run_is_exit_1(cli: Callable[..., Any], tmp_path: Path, verb: str) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        done = cli(verb, path, *(["--obs", "[0]"] if verb == "predict" else []))
        assert (done.code, done.err.count("\n")) == (1, 1), done.err


def test_a_continuous_env_says_who_can_take_it(cli: Callable[..., Any]) -> None:
    done = cli("train", "--config", "dqn/cartpole", "env.id=Pendulum-v1")
    takers = [spec.name for spec in algorithms().values() if "continuous" in spec.action_kinds]
    assert takers[0] == "drqv2"
    line = "error: algo: 'dqn' takes discrete actions, not continuous ones; "
    assert done.err == f"{line}{', '.join(takers)} can\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train",), "error: CONFIG: is missing; give one, such as dqn/cartpole"),
        (("train", "--env", "CartPole-v1"), "error: CONFIG: is missing; give one, such as dqn/cartpole"),
        (("train", "--algo", "dqn"), "error: --env: is missing; --algo needs an environment"),
        (
            ("train", "--algo", "dqm", "--env", "CartPole-v1"),
            "error: algo: 'dqm' is unknown; did you mean 'dqn'?",
        ),
        (
            ("train", "dqn/cartpole", "--algo", "dqn"),
            "error: --algo: goes without a config, and dqn/cartpole is one",
        ),
        (("train", "dqn/cartpole", "--jobs", 2), "error: --jobs: goes with --seeds N only"),
        (("train", "dqn/cartpole", "--seed", 1, "seed=2"), "error: --seed: 1, but seed=2 is given, too"),
        (("train", "--algo", "dqn", "--env", "CartPole-v1", "lr=1"), "error: lr: unknown key; did you mean"),
        (
            ("train", "dqn/cartpol"),
            "error: config: 'dqn/cartpol' is neither a file nor a packaged config; did you",
        ),
        (("train", "--nonsense"), "error: No such option: --nonsense"),
        (("trian",), "error: No such command 'trian'. Did you mean 'train'"),
        (("train", "--seeds", 0), "error: Invalid value for '--seeds'"),
        (("predict", "--obs"), "error: Option '--obs' requires an argument"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    cli: Callable[..., Any], words: tuple[Any, ...], message: str
) -> None:
    done = cli(*words)
    assert done.code == 2
    assert done.err.startswith(message)
    assert done.err.count("\n") == 1
    assert not done.out


def test_without_words_there_is_help(cli: Callable[..., Any]) -> None:
    done = cli()
    assert done.code == 2
    assert "predict" in done.out + done.err


def test_a_run_that_was_stopped_is_told_without_calling_it_an_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = command(
        tmp_path,
        *("train", "--config", "dqn/cartpole", "--run-dir", run, "--quiet", *TINY),
        *("total_timesteps=100M", "evaluation.frequency=0", "logging.frequency=100"),
    )
    wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size)
    child.send(signal.SIGINT)
    assert child.wait() == 130
    step = int(next((run / "checkpoints").glob("step-*")).name[5:])
    assert child.err == (f"SIGINT: stopped, saved at step {step}; go on with: rl-training resume {run}\n")


def test_an_environment_in_the_working_folder_is_found_and_shadows_nothing(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As the console script has it: neither the working folder nor "" is on the path.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    text = "from gymnasium.envs.classic_control import CartPoleEnv as make\n"
    (tmp_path / "env_beside_me.py").write_text(text)
    done = cli("train", "--config", "dqn/cartpole", "--run-dir", "run", "env.id=env_beside_me:make", *TINY)
    assert done.code == 0, done.err
    assert str(tmp_path) not in sys.path
    assert "eval run --trust\n" in done.out
    done = cli("eval", "run")
    assert (done.code, "add --trust" in done.err) == (2, True)
    done = cli("eval", "run", "--trust", "--episodes", 1)
    assert done.code == 0, done.err


def test_a_config_needs_no_option_and_an_algorithm_no_config(cli: Callable[..., Any], tmp_path: Path) -> None:
    done = cli(
        "train", "dqn/cartpole", "--env", "CartPole-v0", "--run-dir", tmp_path / "one", "--seed", 4, *TINY
    )
    assert done.code == 0, done.err
    config = load_config(tmp_path / "one")
    assert (config.env.id, config.seed, config.network.hidden_sizes) == ("CartPole-v0", 4, (16,))
    words = ("train", "--algo", "DQN", "--env", "Acrobot-v1", "--run-dir", tmp_path / "two", "--quiet")
    once = ("evaluation.frequency=100", "evaluation.episodes=1", "evaluation.stop_at=-501")
    done = cli(*words, *once, "evaluation.final_episodes=0", "logging.tensorboard=false")
    assert done.code == 0, done.err
    said = "total_timesteps: 50000, enough for CartPole-v1; total_timesteps=N is another budget\n"
    assert done.err.startswith(said)
    config = load_config(tmp_path / "two")
    assert (config.algo, config.env.id, config.total_timesteps) == ("dqn", "Acrobot-v1", 50_000)


def test_several_seeds_are_gathered(cli: Callable[..., Any], tmp_path: Path) -> None:
    words = (
        "train",
        "--config",
        "dqn/cartpole",
        "--seeds",
        2,
        "--jobs",
        2,
        "--run-dir",
        tmp_path / "all",
        "--quiet",
    )
    done = cli(*words, *TINY)
    assert done.code == 0, done.err
    assert "IQM" in done.out
    assert (tmp_path / "all" / "curve.png").is_file()
    assert f"Report  {tmp_path / 'all' / 'report.html'}" in done.out
    assert "DQN on CartPole-v1" in (tmp_path / "all" / "report.html").read_text()
    assert {path.name for path in (tmp_path / "all").glob("seed-*")} == {"seed-0", "seed-1"}


def test_help_and_version_import_no_torch() -> None:
    lines = ["import sys", "from rl_training.cli import main", "try: main()", "except SystemExit: pass"]
    code = "\n".join([*lines, "assert 'torch' not in sys.modules"])
    for words in (["--help"], ["--version"], ["list"], ["show", "dqn/cartpole"], ["train", "--help"]):
        subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True, timeout=60)


def test_a_folder_of_seeds_points_at_one_of_them(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "all" / "seed-3").mkdir(parents=True)
    done = cli("eval", tmp_path / "all")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "seed-3" in done.err


def test_resume_says_what_changes_from_here_on(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("train", "--config", "dqn/cartpole", "--run-dir", tmp_path / "run", *TINY)
    done = cli("resume", tmp_path / "run", "total_timesteps=700", "algo_kwargs.batch_size=32")
    assert "changed from here on: algo_kwargs.batch_size\n" in done.err
    again = cli("resume", tmp_path / "run")
    assert "the run is complete; total_timesteps=N trains longer" in again.err
    assert "changed" not in again.err


def test_overrides_that_nothing_is_trained_with_are_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("train", "--config", "dqn/cartpole", "--run-dir", tmp_path / "run", *TINY)
    names = ("config.yaml", "result.json", "metrics.jsonl")
    before = [(tmp_path / "run" / name).read_bytes() for name in names]
    for key in ("algo_kwargs.learning_rate", "evaluation.final_episodes"):
        done = cli("resume", tmp_path / "run", f"{key}=1")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"error: {key}: has no effect, because the run is complete")
    assert [(tmp_path / "run" / name).read_bytes() for name in names] == before


def test_predict_without_an_observation_says_so(cli: Callable[..., Any], run_dir: Path) -> None:
    assert "--obs: is missing" in cli("predict", run_dir).err


def test_an_env_without_spaces_or_from_a_script_is_named(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spaceless_env.py").write_text("import gymnasium as gym\nclass Env(gym.Env): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    done = cli("train", "--config", "dqn/cartpole", "env.id=spaceless_env:Env")
    assert (done.code, done.err) == (2, "error: env.id: 'spaceless_env:Env' has no observation_space\n")
    done = cli("train", "--config", "dqn/cartpole", "env.id=__main__:Gone")
    assert done.code == 2
    assert "put it into a module" in done.err
