"""W&B, MLflow and Trackio as loggers: the protocol with a stand-in, and each package in its own offline mode."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.contracts import small_config
from rl_training.config import ExperimentConfig
from rl_training.experiment import registry
from rl_training.runtime import trackers
from rl_training.runtime.folder import RunFolder

Cli = Callable[..., Any]


class StandIn(trackers.Tracker):
    """Remembers what it is given; it may fail when it is opened, at a row or when it is closed."""

    made: list[StandIn] = []  # noqa: RUF012
    fails = ""

    def __init__(self, folder: RunFolder, config: ExperimentConfig[Any], name: str | None) -> None:
        if self.fails == "open":
            raise RuntimeError("no network")
        self.given, self.name = name, name or "fresh_1"
        self.project = config.logging.project
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = False
        StandIn.made.append(self)

    def _write(self, step: int, row: dict[str, float]) -> None:
        if self.fails == "write":
            raise RuntimeError("the server\nsaid no")
        self.rows.append((step, row))

    def _close(self) -> None:
        self.closed = True
        if self.fails == "close":
            raise RuntimeError("not finished")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    monkeypatch.setitem(trackers.TRACKERS, "wandb", StandIn)
    monkeypatch.setitem(trackers._MODULES, "wandb", "json")  # installed everywhere
    monkeypatch.setattr(StandIn, "made", [])
    monkeypatch.setattr(StandIn, "fails", "")
    return StandIn


def trained(folder: Path, *names: str, **changes: Any) -> list[dict[str, Any]]:
    config = small_config("ppo", logging__trackers=list(names), logging__frequency=64, **changes)
    registry.train(config, run_dir=folder, console=False)
    return rows_of(folder)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_tracker_gets_the_rows_of_the_log(tmp_path: Path, stand_in: type[StandIn]) -> None:
    rows = trained(tmp_path / "run", "wandb", logging__project="poles")
    (tracker,) = stand_in.made
    assert tracker.project == "poles"
    assert tracker.closed
    assert [step for step, _ in tracker.rows] == [row["step"] for row in rows]
    assert tracker.rows[-1][1] == {key: value for key, value in rows[-1].items() if key != "step"}


def test_a_resumed_run_goes_on_in_the_same_run_of_the_tracker(
    tmp_path: Path, stand_in: type[StandIn]
) -> None:
    trained(tmp_path / "run", "wandb")
    registry.resume(tmp_path / "run", overrides=["total_timesteps=320"], console=False)
    first, again = stand_in.made
    assert (first.given, again.given) == (None, "fresh_1")
    assert again.rows[-1][0] == 320


@pytest.mark.parametrize("content", ["", "[1]", '{"wandb": "../../x"}', '{"wandb": 7}'])
def test_names_that_make_no_sense_are_forgotten(
    tmp_path: Path, stand_in: type[StandIn], content: str
) -> None:
    trained(tmp_path / "run", "wandb")
    (tmp_path / "run" / trackers.NAMES_FILE).write_text(content)
    registry.resume(tmp_path / "run", overrides=["total_timesteps=320"], console=False)
    assert stand_in.made[-1].given is None
    assert json.loads((tmp_path / "run" / trackers.NAMES_FILE).read_text()) == {"wandb": "fresh_1"}


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("open", "wandb: cannot be opened: RuntimeError: no network"),
        ("write", "RuntimeError: the server said no"),
        ("close", ""),
    ],
)
def test_a_tracker_that_fails_costs_a_warning_and_no_bit(
    tmp_path: Path,
    stand_in: type[StandIn],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: str,
    said: str,
) -> None:
    without = trained(tmp_path / "without")
    capsys.readouterr()
    monkeypatch.setattr(StandIn, "fails", fails)
    rows = trained(tmp_path / "with", "wandb")
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(shown) == bool(said)
    assert all(said in line and "going on without it" in line for line in shown)
    timeless = [
        [{key: value for key, value in row.items() if not key.startswith("time/")} for row in some]
        for some in (without, rows)
    ]
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize("name", list(trackers.TRACKERS))
def test_a_missing_package_is_one_line_before_anything_begins(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(trackers._MODULES, name, "no_such_package_here")
    done = cli("train", "-c", "dqn/cartpole", f"logging.trackers=[{name}]", "--run-dir", tmp_path / "run")
    assert done.code == 2
    assert (
        done.err
        == f"error: logging.trackers: '{name}' is not installed: pip install \"rl_training[{name}]\"\n"
    )
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused(cli: Cli) -> None:
    done = cli("show", "dqn/cartpole", "logging.trackers=[tensorbored]")
    assert done.code == 2
    assert "logging.trackers" in done.err


# The packages themselves


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


@needs("wandb")
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    trained(run, "wandb")
    name = json.loads((run / trackers.NAMES_FILE).read_text())["wandb"]
    registry.resume(run, overrides=["total_timesteps=320"], console=False)
    files = sorted(run.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb"))
    assert len(files) == 2, "both have the same name, so that they become one run when they are synced"
    assert all(b"rollout/ep_rew_mean" in file.read_bytes() for file in files)


@needs("mlflow")
def test_mlflow_in_a_local_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    from mlflow import MlflowClient

    run = tmp_path / "run"
    trained(run, "mlflow", logging__project="poles")
    registry.resume(run, overrides=["total_timesteps=320"], console=False)
    client = MlflowClient(uri)
    (kept,) = client.search_runs([client.get_experiment_by_name("poles").experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["algo"] == "ppo"
    assert kept.data.params["algo_kwargs.n_steps"] == "32"
    logged = [
        (point.step, point.value) for point in client.get_metric_history(kept.info.run_id, "train/n_updates")
    ]
    assert logged == [
        (row["step"], row["train/n_updates"]) for row in rows_of(run) if "train/n_updates" in row
    ]
    assert not (tmp_path / "mlruns").exists()


@needs("trackio")
def test_trackio_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    run, project = tmp_path / "run", f"poles-{tmp_path.name}"
    trained(run, "trackio", logging__project=project)
    registry.resume(run, overrides=["total_timesteps=320"], console=False)
    assert capfd.readouterr().out == ""
    name = json.loads((run / trackers.NAMES_FILE).read_text())["trackio"]
    import trackio

    (kept,) = trackio.Api().runs(project)
    assert kept.name == name
