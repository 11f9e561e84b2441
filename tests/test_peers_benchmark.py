"""The harness of the contest with the peers, as far as it goes without any of them."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.experiment.configs import load_config

PEERS = Path(__file__).parent.parent / "benchmarks" / "peers"
INSTALLED = [
    name for name in ("stable_baselines3", "sbx", "tianshou", "rlox") if importlib.util.find_spec(name)
]


class Told:
    """A worker whose answers are made up."""

    def __init__(self, side: str, answer: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        self._side, self._answer = side, answer

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *error: object) -> None: ...

    def ask(self, **request: Any) -> dict[str, Any]:
        return self._answer(self._side, request)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PEERS / "run.py"), *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


@pytest.mark.usefixtures("peers_path")
def test_workers_keep_their_bytecode_and_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import worker

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    environment = worker.environment()
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    assert (environment["OMP_NUM_THREADS"], environment["SOMETHING_ELSE"]) == ("1", "kept")
    assert environment["OPENCV_FOR_THREADS_NUM"] == "1"


def test_an_interpreter_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("--peers", tmp_path / "python", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "does not exist; 'make bench-peers' installs it" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(bool(INSTALLED), reason="a peer is installed here")
def test_without_the_peers_ours_is_measured_and_theirs_is_one_line_each(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("--peers", sys.executable, "--only", "A", "--quick", "--turns", 1, "--out", out)
    assert done.returncode == 1
    failures = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert [line.split(":")[1].strip() for line in failures] == ["A, sb3", "A, sbx", "A, tianshou"]
    assert all("No module named" in line for line in failures)
    results = json.loads((out / "results.json").read_text())
    assert results["failures"] == failures
    ours = results["sections"]["A"]["ours"]
    assert (ours["steps"], ours["updates"]) == (2_000, 200)
    assert sum(ours["seconds"]) > 0
    assert ours["peak_rss"] > 50 * 2**20
    assert set(results["sections"]["A"]) == {"ours"}
    table = (out / "table.md").read_text()
    assert "| rl_training | " in table
    assert "Stable-Baselines3 |" not in table
    again = run("--peers", sys.executable, "--only", "A", "--out", out)
    assert again.returncode == 1
    assert "holds results already" in again.stderr


@pytest.mark.skipif(bool(INSTALLED), reason="a peer is installed here")
def test_without_the_peers_our_curves_are_drawn_and_nobody_is_compared(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("--peers", sys.executable, "--only", "curves-A", "--quick", "--seeds", 2, "--out", out)
    assert done.returncode == 1
    failures = [line.split(":")[1].strip() for line in done.stdout.splitlines() if line.startswith("error: ")]
    others = ("sb3", "sbx", "tianshou")
    assert sorted(failures) == sorted(f"curves-A, {side}, seed {seed}" for side in others for seed in (0, 1))
    runs = json.loads((out / "results.json").read_text())["sections"]["curves-A"]
    assert [(run["side"], run["seed"], len(run["means"])) for run in runs] == [
        ("ours", 0, 20),
        ("ours", 1, 20),
    ]
    table = (out / "table.md").read_text()
    first, second = (run["final"] for run in runs)
    assert f"| rl_training | {first:.1f}, {second:.1f} | {(first + second) / 2:.1f} |" in table
    assert "above" not in table
    assert not (out / "curves" / "A.png").exists()


def test_curves_of_two_sides_are_compared_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    import jobs
    import sections
    from context import Context
    from report import Report

    def write(side: str, request: dict[str, Any]) -> dict[str, Any]:
        """Write the results of a run at once: the first side's seeds end above all others'."""
        folder, seed = Path(request["folder"]), request["seed"]
        folder.mkdir(parents=True)
        score = seed + (100.0 if side == "ours" else 0.0)
        rows = [{"step": step, "eval/mean_reward": score} for step in (1, 2)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        evaluation = {"mean": score, "std": 0.0, "returns": [score], "lengths": [1]}
        result = {"steps": 2, "updates": 1, "seconds": 1.0, "evaluation": evaluation}
        (folder / "result.json").write_text(json.dumps(result))
        return {"done": True}

    monkeypatch.setattr(Context, "start", lambda self, side, name: Told(side, write))
    nobody = Path("python")
    report = Report(tmp_path, load_before=0.0)
    context = Context(nobody, nobody, tmp_path, turns=1, seeds=5, quick=True, report=report)
    task = replace(jobs.CURVES["B"], sides=("ours", "sb3"))
    monkeypatch.setitem(jobs.CURVES, "B", task)
    table = sections.curves("B")(context)
    assert [row[:3] for row in table.rows[:2]] == [
        ["rl_training", "100.0, 101.0, 102.0, 103.0, 104.0", "102.0"],
        ["Stable-Baselines3", "0.0, 1.0, 2.0, 3.0, 4.0", "2.0"],
    ]
    verdict = "1.00 of all pairs of seeds (1.00 to 1.00); rl_training is better (p = 0.0079)."
    for measure in ("Final scores", "Means of the curves"):
        assert f"{measure}: ours above Stable-Baselines3 in {verdict}" in table.notes
    assert (tmp_path / "curves" / "B.png").stat().st_size > 0


@pytest.fixture
def peers_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))


@pytest.mark.usefixtures("peers_path")
@pytest.mark.parametrize("name", ["A", "B", "qr", "per"])
def test_our_config_has_every_number_of_the_job(name: str) -> None:
    import job_kinds
    import jobs
    from workers.our_configs import experiment

    job = jobs.CONTESTS[name].job
    assert isinstance(job, job_kinds.Job)
    config = load_config(experiment(job, 5_000, 3))
    options = config.algo_kwargs
    assert (config.algo, config.env.id, config.env.num_envs) == (job.algo, job.env, job.num_envs)
    assert (config.seed, config.total_timesteps, config.threads) == (3, 5_000, 1)
    assert (tuple(config.network.hidden_sizes), config.network.activation) == (job.hidden, "relu")
    named = {field.name for field in dataclasses.fields(job)} - {
        "algo",
        "env",
        "num_envs",
        "hidden",
        "threads",
    }
    only = {
        "loss": ("dqn", "prioritized_dqn"),
        "num_quantiles": ("qr_dqn",),
        "alpha": ("prioritized_dqn",),
        "beta": ("prioritized_dqn",),
    }
    for field in named:
        if job.algo in only.get(field, (job.algo,)):
            assert getattr(options, field) == getattr(job, field), field
    assert (options.tau, options.double, options.dueling, options.n_step_return) == (1.0, False, False, 1)
    assert options.learning_rate_final is None
    if name == "per":
        assert options.beta_final == job.beta  # it does not move at the peer's
    assert not config.network.layer_norm
    assert not config.network.normalize_obs


ACTOR_CRITIC = ("sac", "sac-threads", "td3", "ddpg", "crossq", "discrete-sac")


@pytest.mark.usefixtures("peers_path")
@pytest.mark.parametrize("name", ACTOR_CRITIC)
def test_our_config_has_every_number_of_the_actor_critic_s_job(name: str) -> None:
    import job_kinds
    import jobs
    from workers.our_configs import experiment

    job = jobs.CONTESTS[name].job
    assert isinstance(job, job_kinds.ActorCriticJob)
    assert job_kinds.read_job(json.loads(json.dumps(dataclasses.asdict(job)))) == job
    config = load_config(experiment(job, 5_000, 3))
    assert (config.algo, config.env.id, config.env.num_envs) == (job.algo, job.env, job.num_envs)
    assert (config.seed, config.total_timesteps, config.threads) == (3, 5_000, job.threads)
    assert (tuple(config.network.hidden_sizes), config.network.activation) == (job.hidden, "relu")
    named = {field.name for field in dataclasses.fields(job)} - {
        "algo",
        "env",
        "num_envs",
        "hidden",
        "threads",
    }
    only = {"tau": ("sac", "td3", "ddpg", "discrete_sac"), "ent_coef": ("discrete_sac",)}
    for field in named:
        if job.algo in only.get(field, (job.algo,)):
            assert getattr(config.algo_kwargs, field) == getattr(job, field), field


ON_POLICY = {
    "ppo": 20,
    "ppo-pendulum": 640,
    "recurrent": 20,
    "trpo": 41,
    "ppo-native": 256,
    "ppo-native-large": 16,
}
"""Contests of the PPO family, and the gradient steps of one rollout of each."""


@pytest.mark.usefixtures("peers_path")
@pytest.mark.parametrize("name", ON_POLICY)
def test_our_config_has_every_number_of_the_on_policy_job(name: str) -> None:
    import job_kinds
    import jobs
    from workers.our_configs import experiment

    job = jobs.CONTESTS[name].job
    assert isinstance(job, job_kinds.OnPolicyJob)
    config = load_config(experiment(job, 8_192, 3))
    options, network = config.algo_kwargs, config.network
    assert (config.algo, config.env.id, config.env.num_envs) == (job.algo, job.env, job.num_envs)
    assert config.env.vectorization == ("native" if name.startswith("ppo-native") else "sync")
    assert (config.seed, config.total_timesteps, config.threads) == (3, 8_192, 1)
    shared = {"n_steps", "batch_size", "learning_rate", "adam_eps", "max_grad_norm", "gamma", "gae_lambda"}
    own = {"target_kl", "cg_max_steps", "cg_damping"}
    if name != "trpo":
        own = {"n_epochs", "clip_range", "ent_coef", "vf_coef"}
        assert (options.clip_range_final, options.target_kl) == (None, None)
        assert (options.value_clipping, options.recompute_advantages) == ("none", False)
    else:
        assert options.n_critic_updates == job.n_epochs
        assert (options.line_search_shrinking, options.line_search_steps) == (0.8, 10)  # sb3-contrib's own
    for field in shared | own:
        assert getattr(options, field) == getattr(job, field), field
    if name == "recurrent":
        assert (options.core, options.core_size, options.core_layers) == ("lstm", job.lstm, 1)
        assert (options.sequence_length, options.prev_action, options.prev_reward) == (None, False, False)
    behind = options.head_sizes if name == "recurrent" else network.hidden_sizes
    assert (tuple(behind), network.activation) == (job.hidden, "tanh")
    assert (options.shared_trunk, list(network.hidden_sizes) == []) == ((name == "recurrent",) * 2)
    assert options.learning_rate_final is None
    assert (options.normalize_advantage, options.orthogonal_init, options.normalize_reward) == (
        True,
        True,
        False,
    )
    assert not network.layer_norm
    assert not network.normalize_obs


@pytest.mark.usefixtures("peers_path")
def test_turns_of_on_policy_jobs_are_whole_rollouts() -> None:
    import job_kinds
    import jobs

    contests = {
        name: contest
        for name, contest in jobs.CONTESTS.items()
        if isinstance(contest.job, job_kinds.OnPolicyJob)
    }
    assert contests.keys() == ON_POLICY.keys()
    for name, contest in contests.items():
        job = contest.job
        assert isinstance(job, job_kinds.OnPolicyJob)
        assert job.updates_per_rollout == ON_POLICY[name]
        assert (contest.turn % job.rollout, contest.warm_up % job.rollout) == (0, 0)
        assert job_kinds.read_job(json.loads(json.dumps(dataclasses.asdict(job)))) == job
    assert job_kinds.read_job(dataclasses.asdict(jobs.PER)) == jobs.PER
    rollout = jobs.PPO_NATIVE.rollout
    assert (jobs.PPO_SCALING_TURN % rollout, jobs.PPO_SCALING_WARM_UP % rollout) == (0, 0)
    assert all(rollout % envs == 0 for envs in jobs.SCALING_ENVS)


def test_ours_makes_the_updates_of_every_on_policy_job(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--only", *ON_POLICY, "--sides", "ours", "--quick", "--turns", 6)
    done = run("--peers", sys.executable, *words, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "results.json").read_text())["sections"]
    assert results.keys() == ON_POLICY.keys()
    made = {name: (section["ours"]["steps"], section["ours"]["updates"]) for name, section in results.items()}
    # A reset is no step there, so a turn has one rollout more, and a rollout may have fewer minibatches.
    for name in ("ppo-native", "ppo-native-large"):
        steps, updates = made.pop(name)
        assert 6 * 16_384 <= steps < 6 * 5 * 4_096
        assert 0.93 * 6 * 5 * ON_POLICY[name] <= updates <= 6 * 5 * ON_POLICY[name]
    steps, updates = made.pop("trpo")  # the policy's step is not always made
    assert steps == 6 * 2_048
    assert 6 * 2 * 40 <= updates <= 6 * 2 * 41
    turn = {"ppo": (2_048, 160), "ppo-pendulum": (4_096, 640), "recurrent": (512, 40)}
    assert made == {name: (6 * steps, 6 * updates) for name, (steps, updates) in turn.items()}


@pytest.mark.usefixtures("peers_path")
def test_between_the_rollouts_of_a_run_no_update_is_owed() -> None:
    import jobs
    from workers.ours import build

    job = dataclasses.replace(jobs.PPO, num_envs=2, n_steps=8, batch_size=16, n_epochs=3)
    run = build(job, 64, 0)
    seen: list[tuple[int, int]] = []
    run.run(lambda: seen.append((run.steps, run.updates)))
    assert seen == [(16, 3), (32, 6), (48, 9), (64, 12)]


@pytest.mark.usefixtures("peers_path")
def test_environments_that_spend_steps_on_resets_may_differ_more(tmp_path: Path) -> None:
    import jobs
    from context import Context
    from report import Report
    from turns import Times, _check_updates

    context = Context(tmp_path, tmp_path, tmp_path, 1, 1, True, Report(tmp_path, 0.0))
    for updates, failures in ((16, 0), (16.7, 0), (17.1, 1)):
        times = Times([1.0], [1.0], 4_096_000, int(1_000 * updates))
        _check_updates(context, "ppo-native, ours", jobs.PPO_NATIVE_LARGE, times)
        assert len(context.report.failures) == failures


def test_ours_and_stable_baselines3_make_the_same_of_a_rollout() -> None:
    pytest.importorskip("stable_baselines3")
    command = [sys.executable, str(PEERS / "cross_check.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ours_and_the_peers_actor_critics_make_the_same_of_a_batch() -> None:
    pytest.importorskip("stable_baselines3")
    crossq = ["crossq"] if importlib.util.find_spec("sb3_contrib") else []
    command = [sys.executable, str(PEERS / "cross_check_actor_critic.py"), "sac", "td3", *crossq]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("peers_path")
def test_a_side_that_updates_less_is_a_failure(tmp_path: Path) -> None:
    import jobs
    from context import Context
    from report import Report
    from turns import Times, _check_updates

    context = Context(tmp_path, tmp_path, tmp_path, 1, 1, True, Report(tmp_path, 0.0))
    for updates, failures in ((100, 0), (99, 0), (97, 1), (103, 2)):
        _check_updates(context, "A, ours", jobs.A, Times([1.0], [1.0], 1_000, updates))
        assert len(context.report.failures) == failures
    assert "0.0970 updates a step, the job has 0.1000" in context.report.failures[0]


@pytest.mark.usefixtures("peers_path")
def test_a_side_that_updates_before_learning_starts_is_a_failure(tmp_path: Path) -> None:
    import jobs
    from context import Context
    from report import Report
    from turns import Times, _check_updates

    context = Context(tmp_path, tmp_path, tmp_path, 1, 1, True, Report(tmp_path, 0.0))
    for updates, failures in ((0, 0), (1, 1)):
        times = Times([1.0], [1.0], 1_000, updates)
        _check_updates(context, "dqn-pong-filling, ours", jobs.PONG, times, learns=False)
        assert len(context.report.failures) == failures
    _check_updates(context, "dqn-pong-learning, ours", jobs.PONG, Times([1.0], [1.0], 1_000, 0))
    assert "0.0000 updates a step, the job has 0.2500" in context.report.failures[1]


@pytest.mark.usefixtures("peers_path")
def test_our_config_of_pong_is_the_packaged_one() -> None:
    import job_kinds
    import jobs
    from workers.our_configs import experiment

    assert job_kinds.read_job(json.loads(json.dumps(dataclasses.asdict(jobs.PONG)))) == jobs.PONG
    one_thread = {"env.kwargs.num_threads": 1, "total_timesteps": 200_000}
    packaged, ours = load_config("dqn/pong", one_thread), load_config(experiment(jobs.PONG, 200_000, 0))
    for part in ("algo", "env", "network", "algo_kwargs", "total_timesteps", "threads"):
        assert getattr(packaged, part) == getattr(ours, part), part
    assert type(job_kinds.read_job(dataclasses.asdict(jobs.A))) is job_kinds.Job


@pytest.mark.usefixtures("peers_path")
def test_a_step_of_all_games_earns_whole_updates() -> None:
    import jobs

    assert jobs.PONG.updates_per_vector_step == 2
    assert replace(jobs.PONG, num_envs=4, gradient_steps=3).updates_per_vector_step == 3
    with pytest.raises(ValueError, match="num_envs: 6 environments with an update every 4 steps"):
        _ = replace(jobs.PONG, num_envs=6).updates_per_vector_step


@pytest.mark.usefixtures("peers_path")
def test_phases_of_pong_are_whole_steps_of_all_games_and_add_up_to_the_job() -> None:
    import jobs

    job = jobs.PHASED["dqn-pong"]
    assert {name: steps for name, (_, steps) in job.phases.items()} == {
        "filling": 100_000,
        "learning": 100_000,
    }
    assert [contest.learns for contest, _ in job.phases.values()] == [False, True]
    assert job.learning.job == replace(jobs.PONG, learning_starts=1_000)
    for contest, _ in job.phases.values():
        assert (contest.turn % jobs.PONG.num_envs, contest.warm_up % jobs.PONG.num_envs) == (0, 0)


@pytest.mark.usefixtures("peers_path")
def test_the_whole_job_takes_the_time_of_both_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jobs
    import sections
    from context import Context
    from report import Report

    speeds = {  # env steps a second
        "dqn-pong-filling-ours": 4_000.0,
        "dqn-pong-filling-sb3": 1_000.0,
        "dqn-pong-learning-ours": 200.0,
        "dqn-pong-learning-sb3": 100.0,
    }
    asked: dict[str, dict[str, Any]] = {}

    def answer(name: str, request: dict[str, Any]) -> dict[str, Any]:
        if "mode" in request:
            asked[name] = request
            return {}
        steps = request["steps"]
        seconds, updates = steps / speeds[name], steps / 4 if "learning" in name else 0
        return {"seconds": seconds, "cpu": seconds, "steps": steps, "updates": updates, "peak_rss": 1}

    monkeypatch.setattr(Context, "start", lambda self, side, name: Told(name, answer))
    context = Context(tmp_path, tmp_path, tmp_path, 2, 1, True, Report(tmp_path, 0.0))
    table = sections.SECTIONS["dqn-pong"](context)
    assert not context.report.failures
    filling, learning = (asked[f"dqn-pong-{phase}-sb3"] for phase in ("filling", "learning"))
    played = 2_000 + 3 * 2_000
    assert (filling["job"]["learning_starts"], filling["total"]) == (played, 2 * played)
    assert (learning["job"]["learning_starts"], learning["total"]) == (1_000, 2_000 + 3 * 400)
    for request in (filling, learning):  # exploration ends with the warm-up
        assert request["job"]["exploration_fraction"] * request["total"] == pytest.approx(2_000)
        assert request["job"]["env"] == jobs.PONG.env
    assert [row[:3] + row[5:6] for row in table.rows] == [
        ["before learning starts", "rl_training", "4,000", ""],
        ["before learning starts", "Stable-Baselines3", "1,000", "4.00"],
        ["learning", "rl_training", "200", ""],
        ["learning", "Stable-Baselines3", "100", "2.00"],
    ]
    assert table.data["seconds"] == pytest.approx({"ours": 25 + 500, "sb3": 100 + 1_000})
    whole = "200,000 steps, 100,000 before learning starts and 100,000 learning, take"
    assert table.notes[-2:] == [
        f"{whole} rl_training 525 s at these speeds.",
        f"{whole} Stable-Baselines3 1,100 s at these speeds; we are faster by 2.10.",
    ]


def test_ours_plays_both_phases_of_pong(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    out = tmp_path / "out"
    words = ("--only", "dqn-pong", "--sides", "ours", "--quick", "--turns", 1)
    done = run("--peers", sys.executable, *words, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "results.json").read_text())
    assert "ale-py" in results["versions"]["ours"]
    phases = results["sections"]["dqn-pong"]["phases"]
    made = {name: (phase["ours"]["steps"], phase["ours"]["updates"]) for name, phase in phases.items()}
    assert made == {"filling": (2_000, 0), "learning": (400, 100)}


@pytest.mark.usefixtures("peers_path")
def test_a_library_that_only_some_modes_need_may_be_missing() -> None:
    from importlib.metadata import PackageNotFoundError

    from protocol import versions

    assert versions(("numpy",), ("no-such-library", "gymnasium")).keys() == {"numpy", "gymnasium"}
    with pytest.raises(PackageNotFoundError):
        versions(("no-such-library",))


@pytest.mark.usefixtures("peers_path")
def test_grey_images_are_stacks_of_four() -> None:
    import images

    env = images.stacked_grey()
    obs, _ = env.reset(seed=0)
    assert (obs.shape, obs.dtype) == ((4, 84, 84), np.uint8)
    after = env.step(env.action_space.sample())[0]
    np.testing.assert_array_equal(after[:3], obs[1:])
    assert isinstance(env.action_space, gym.spaces.Discrete)
    assert images.stacked_channels().reset(seed=0)[0].shape == (9, 84, 84)


@pytest.mark.usefixtures("peers_path")
@pytest.mark.parametrize(("algo", "grey", "stack"), [("dqn", True, 4), ("drqv2", False, 3)])
def test_ours_stacks_as_many_images_as_the_peer(algo: str, grey: bool, stack: int) -> None:
    import jobs
    from workers.our_configs import image_experiment

    images = replace(jobs.DQN_IMAGES, algo=algo)
    config = load_config(image_experiment(dataclasses.asdict(images)))
    (wrapper,) = config.env.wrappers
    assert (config.algo, config.env.kwargs, wrapper.kwargs) == (algo, {"grey": grey}, {"stack_size": stack})
    options = config.algo_kwargs
    assert (options.buffer_size, options.learning_starts, options.batch_size) == (100_000, 100_000, 32)
    assert config.total_timesteps == 100_005


def test_ours_stores_grey_images_once(tmp_path: Path) -> None:
    """Five thousand stacks of four would be 135 MiB, and twice that with the next ones; as frames they are 34."""
    sizes = []
    for observations in (1_000, 6_000):
        out = tmp_path / str(observations)
        words = ("--only", "dqn-images", "--sides", "ours", "--observations", observations)
        done = run("--peers", sys.executable, *words, "--out", out)
        assert done.returncode == 0, done.stdout + done.stderr
        (found,) = json.loads((out / "results.json").read_text())["sections"]["dqn-images"]
        assert found["replay"] == f"images [4, 84, 84], {observations:,} of as many"
        assert (found["side"], found["steps"], found["updates"]) == (
            "rl_training, DQN",
            observations + 5,
            5,
        )
        sizes.append(found["peak_rss"])
    assert 25 * 2**20 < sizes[1] - sizes[0] < 60 * 2**20


@pytest.mark.usefixtures("peers_path")
@pytest.mark.parametrize(
    ("part", "algo", "observations"), [("dqn-images", "dqn", 100_000), ("memory", "drqv2", 60_000)]
)
def test_the_peer_stores_images_twice_and_once(
    part: str, algo: str, observations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sections
    from context import Context
    from report import Report

    asked: list[tuple[str, dict[str, Any]]] = []

    def answer(side: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append((side, request))
        return {"peak_rss": 3 * 2**20, "imported": 2**20, "updates": 5, "steps": 1}

    monkeypatch.setattr(Context, "start", lambda self, side, name: Told(side, answer))
    context = Context(tmp_path, tmp_path, tmp_path, 1, 1, False, Report(tmp_path, 0.0))
    table = sections.SECTIONS[part](context)
    images = [(side, request) for side, request in asked if request["mode"] == "images"]
    assert [(side, request.get("shared")) for side, request in images] == [
        ("ours", None),
        ("sb3", False),
        ("sb3", True),
    ]
    assert {(request["algo"], request["observations"]) for _, request in images} == {(algo, observations)}
    assert all(row[2:] == ["3", "1", "2", "5"] for row in table.rows)
    assert len(table.rows) == len(asked) == (3 if part == "dqn-images" else 5)


@pytest.mark.usefixtures("peers_path")
def test_evaluation_plays_every_episode_once_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import jobs
    import tasks

    class Counted(gym.Env[np.ndarray, np.int64]):
        """An episode of as many steps as its seed says; each brings the action."""

        action_space, observation_space = gym.spaces.Discrete(2), gym.spaces.Box(0, 99, (1,))

        def reset(
            self, *, seed: int | None = None, options: object = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            assert seed is not None
            self.left = 1 + (seed - jobs.EVALUATION_SEED) % 7
            return np.array([self.left], np.float32), {}

        def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            self.left -= 1
            return np.array([self.left], np.float32), float(action), self.left == 0, False, {}

    monkeypatch.setattr("gymnasium.make", lambda name: Counted())
    returns, lengths = tasks.play(lambda obs: np.ones(len(obs), int), "Counted", 23)
    assert lengths == [1 + k % 7 for k in range(23)]
    assert returns == lengths


@pytest.mark.usefixtures("peers_path")
@pytest.mark.parametrize(
    ("name", "config"), [("bar", "dqn/cartpole_quick"), ("ppo-bar", "ppo/cartpole_quick")]
)
def test_those_that_do_not_get_there_count_as_slower_than_all_others(
    name: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sections
    from context import Context
    from report import Report

    reached = {"ours": (True, True, False), "sb3": (True, False, False)}

    def answer(side: str, request: dict[str, Any]) -> dict[str, Any]:
        assert request["config"] == config
        return {"reached": reached[side][request["seed"]], "steps": 2_500, "best": 100.0}

    monkeypatch.setattr(Context, "start", lambda self, side, name: Told(side, answer))
    context = Context(tmp_path, tmp_path, tmp_path, 1, 3, True, Report(tmp_path, 0.0))
    ours, sb3 = sections.SECTIONS[name](context).rows
    assert ours[:2] == ["rl_training", "2 of 3"]
    assert float(ours[2]) >= 0.0
    assert sb3[:3] == ["Stable-Baselines3", "1 of 3", ""]  # no median
    assert ours[5].startswith("not in 2,500 steps")


@pytest.mark.usefixtures("peers_path")
def test_the_peer_in_the_race_of_ppo_has_the_settings_of_the_zoo() -> None:
    import jobs
    from workers.our_configs import experiment

    race = jobs.RACES["ppo-bar"]
    # As ppo/cartpole has them; ours runs with settings for getting there soon, as in the race of DQN.
    packaged, zoo = load_config("ppo/cartpole"), load_config(experiment(race.job, jobs.BAR_STEPS, 0))
    for part in ("algo", "env", "network", "algo_kwargs", "total_timesteps"):
        assert getattr(packaged, part) == getattr(zoo, part), part
    assert (zoo.algo_kwargs.learning_rate_final, zoo.algo_kwargs.clip_range_final) == (0.0, 0.0)


def test_ratios_are_those_of_the_total_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    from turns import Times, ratios

    ours = Times(seconds=[1.0, 1.0, 4.0], cpu=[1.0, 1.0, 1.0], steps=300, updates=30)
    theirs = Times(seconds=[3.0, 5.0, 4.0], cpu=[3.0, 3.0, 3.0], steps=300, updates=30)
    found = ratios(ours, theirs)
    assert found["wall"] == pytest.approx(2.0)
    assert found["cpu"] == pytest.approx(3.0)
    assert found["low"] == pytest.approx(1.4)
    assert found["high"] == pytest.approx(4.6)
    assert ours.updates_per_step == pytest.approx(0.1)
    longer = Times(seconds=[2.0, 2.0, 8.0], cpu=[1.0] * 3, steps=600, turn_steps=[200] * 3)
    assert [ratios(longer, theirs)[key] for key in ("low", "high")] == pytest.approx([1.4, 4.6])
