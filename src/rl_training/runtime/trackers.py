"""Experiment trackers of others: W&B, MLflow and Trackio, each behind an extra of its name.

What they raise costs a warning, never the run. Where they send or keep what they are given is up to their own settings.
The name under which a tracker knows a run is kept in the run's folder, so that a resumed run goes on there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import re
import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_training.config import ExperimentConfig, LoggingConfig
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.plain_files import read_plain
from rl_training.runtime.folder import MAX_METADATA_BYTES, RunFolder, write_whole

NAMES_FILE = "trackers.json"
"""Of a run folder: under which name each tracker knows the run."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MODULES = {"wandb": "wandb", "mlflow": "mlflow", "trackio": "trackio"}
_LONGEST_PARAM = 500
"""Characters that MLflow takes for a parameter in every version."""
Row = Mapping[str, float]


class TrackerError(RLTrainingError):
    """A tracker has failed."""


def check_trackers(options: LoggingConfig) -> None:
    """Refuse trackers whose package is not installed, before a run begins."""
    for name in options.trackers:
        if importlib.util.find_spec(_MODULES[name]) is None:
            raise ConfigError(
                f"logging.trackers: '{name}' is not installed: pip install \"rl_training[{name}]\""
            )


def open_tracker(name: str, folder: RunFolder, config: ExperimentConfig[Any]) -> Tracker:
    """Begin a run of a tracker, or go on with the one that this folder began."""
    names = _read_names(folder)
    with _as_tracker_error():
        tracker = TRACKERS[name](folder, config, names.get(name))
    if names.get(name) != tracker.name:
        write_whole(folder.path / NAMES_FILE, json.dumps({**names, name: tracker.name}, indent=2) + "\n")
    return tracker


def _read_names(folder: RunFolder) -> dict[str, str]:
    """Return the names of this run, none if the file is missing or makes no sense."""
    try:
        found = json.loads(read_plain(folder.path / NAMES_FILE, MAX_METADATA_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str) and _NAME.fullmatch(value)}


class Tracker(ABC):
    """A logger that hands rows on; ``name`` is what the tracker calls the run."""

    name: str

    def write(self, step: int, row: Row) -> None:
        """Log one row."""
        with _as_tracker_error():
            self._write(step, {key: float(value) for key, value in row.items() if math.isfinite(value)})

    def close(self) -> None:
        """End the run of the tracker."""
        with _as_tracker_error():
            self._close()

    @abstractmethod
    def _write(self, step: int, row: dict[str, float]) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


class WandbLogger(Tracker):
    """Weights & Biases. Rows are drawn over ``env_step``, as a resumed run may walk the same steps again."""

    def __init__(self, folder: RunFolder, config: ExperimentConfig[Any], name: str | None) -> None:
        import wandb

        self.name = name or secrets.token_hex(8)
        # Our output stays ours, and no code of the user is sent anywhere.
        settings = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False)
        self._run = wandb.init(
            project=config.logging.project,
            id=self.name,
            name=folder.path.name,
            dir=str(folder.path),
            config=config.model_dump(mode="json"),
            resume="allow",
            settings=settings,
        )
        self._run.define_metric("*", step_metric="env_step")

    def _write(self, step: int, row: dict[str, float]) -> None:
        self._run.log({**row, "env_step": step})

    def _close(self) -> None:
        self._run.finish()


class MlflowLogger(Tracker):
    """MLflow, by the client alone: no run becomes the active one of this process."""

    def __init__(self, folder: RunFolder, config: ExperimentConfig[Any], name: str | None) -> None:
        from mlflow import MlflowClient, entities

        self._client, self._entities = MlflowClient(), entities
        run = None if name is None else self._known(name)
        if run is None:
            project = config.logging.project
            experiment = self._client.get_experiment_by_name(project)
            where = (
                self._client.create_experiment(project) if experiment is None else experiment.experiment_id
            )
            run = self._client.create_run(where, run_name=folder.path.name)
            params = list(_flat(config.model_dump(mode="json")))
            for start in range(0, len(params), 100):  # as many as it takes at once
                some = [entities.Param(key, value) for key, value in params[start : start + 100]]
                self._client.log_batch(run.info.run_id, params=some)
        else:
            self._client.set_terminated(run.info.run_id, "RUNNING")
        self.name = run.info.run_id

    def _known(self, name: str) -> Any:
        """Return the run of that name, none if this store has never heard of it."""
        from mlflow.exceptions import MlflowException

        with contextlib.suppress(MlflowException):
            return self._client.get_run(name)
        return None

    def _write(self, step: int, row: dict[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(key, value, now, step) for key, value in row.items()]
        self._client.log_batch(self.name, metrics=metrics)

    def _close(self) -> None:
        self._client.set_terminated(self.name)


class TrackioLogger(Tracker):
    """Trackio, which keeps runs in a database on this machine."""

    def __init__(self, folder: RunFolder, config: ExperimentConfig[Any], name: str | None) -> None:
        import trackio

        self.name = name or f"{re.sub(r'[^A-Za-z0-9_-]+', '-', folder.path.name)[:40]}-{secrets.token_hex(4)}"
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for what commands answer
            self._run = trackio.init(
                project=config.logging.project,
                name=self.name,
                config=config.model_dump(mode="json"),
                resume="allow",
                embed=False,
            )

    def _write(self, step: int, row: dict[str, float]) -> None:
        self._run.log(row, step=step)

    def _close(self) -> None:
        import trackio

        with contextlib.redirect_stdout(sys.stderr):
            trackio.finish()  # of the run itself, it would be finished again when Python ends


TRACKERS: dict[str, Callable[[RunFolder, ExperimentConfig[Any], str | None], Tracker]] = {
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
    "trackio": TrackioLogger,
}


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the settings by their dotted keys."""
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)[:_LONGEST_PARAM]


@contextlib.contextmanager
def _as_tracker_error() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever the package of somebody else raises
        raise TrackerError(f"{type(error).__name__}: {error}") from error
