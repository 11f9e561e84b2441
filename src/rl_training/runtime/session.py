"""A run with everything around it: logging, evaluation, checkpoints, callbacks, signals, faults."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError, EnvError, NonFiniteError, RLTrainingError, StorageError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint import (
    Checkpoint,
    SaveFailed,
    read_hint,
    retire,
    save_checkpoint,
    write_hint,
)
from rl_training.runtime.clock import Every
from rl_training.runtime.console import ConsoleLogger, notice
from rl_training.runtime.evaluator import Evaluation, evaluate
from rl_training.runtime.folder import RunFolder, environment_facts
from rl_training.runtime.loggers import CsvLogger, JsonLinesLogger, Logger, TensorBoardLogger
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.runtime.signals import SignalGuard

MAX_FAILED_SAVES = 3


class Interrupted(RLTrainingError):
    """A signal ended the run after its state was saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


@dataclass(frozen=True)
class TrainResult:
    """What a finished run says of itself."""

    run_dir: Path
    checkpoint: Path
    steps: int
    updates: int
    episodes: int
    seconds: float
    time_split: str
    metrics: dict[str, float]
    evaluation: Evaluation | None
    stop_reason: str | None


class Session:
    """Drives a run to its end and keeps its folder; callbacks know it as ``training``."""

    def __init__(
        self,
        run: Run,
        folder: RunFolder,
        guard: SignalGuard,
        callbacks: Sequence[Callback] = (),
        *,
        console: bool = True,
    ) -> None:
        self.run = run
        self.folder = folder
        self._guard = guard
        self._callbacks = list(callbacks)
        self._console = console and run.config.logging.console
        self._loggers: list[Logger] = []
        self._jsonl: JsonLinesLogger | None = None
        self._offset = 0
        self._best: float | None = None
        self._best_at = -1
        self._failed_saves = 0
        self._complained: set[str] = set()
        self._saved_at: tuple[int, Path] | None = None
        self._logged_at = -1
        self.last_row: dict[str, float] = {}
        self.last_evaluation: Evaluation | None = None

    # What callbacks use

    @property
    def steps(self) -> int:
        """Env steps made so far."""
        return self.run.clock.steps

    @property
    def mean_return(self) -> float | None:
        """Mean return of the latest training episodes."""
        return self.run.metrics.mean_return

    def stop(self, reason: str) -> None:
        """End training after this step, in good order."""
        self.run.stop(reason)

    def log(self, values: Mapping[str, float]) -> None:
        """Write values at the current step to every logger."""
        for logger in self._loggers:
            try:
                logger.write(self.steps, values)
            except OSError as error:  # noqa: PERF203 - one that fails must not keep the others
                name = type(logger).__name__
                if name not in self._complained:
                    notice(
                        f"warning: {name}: step {self.steps} not logged: {error.strerror}; training goes on"
                    )
                self._complained.add(name)

    def evaluate(self, episodes: int) -> Evaluation:
        """Play evaluation episodes with the current weights."""
        run = self.run
        self.run.timer.lap("other")
        result = evaluate(
            run.algorithm,
            run.config.env,
            run.policy.actions,
            run.config.evaluation,
            episodes,
            run.env_factory,
        )
        self.run.timer.lap("evaluation")
        return result

    def save(self, *, best: bool = False, envs_lost: bool = False) -> Path | None:
        """Save a checkpoint; a disk that refuses costs a warning, and the run only at the third time in a row."""
        folder, keep = self.folder.checkpoints, self.run.config.checkpoint.keep
        try:
            path = save_checkpoint(folder, self.steps, self._tree(envs_lost), self._info(envs_lost))
            self._saved_at = (self.steps, path)
            if best:
                write_hint(folder, "best", path)
            best_path = read_hint(folder, "best")
            retire(folder, keep, {best_path.name} if best_path else set())
        except (SaveFailed, OSError) as error:
            self._failed_saves += 1
            if self._failed_saves >= MAX_FAILED_SAVES:
                raise StorageError(
                    f"{MAX_FAILED_SAVES} checkpoints in a row could not be saved: {error}"
                ) from error
            notice(f"warning: {error}; training goes on, the previous checkpoint is intact")
            return None
        finally:
            self.run.timer.lap("checkpoint")
        self._failed_saves = 0
        return path

    # The run itself

    def load(self, checkpoint: Checkpoint) -> str:
        """Take over a checkpoint; return how the environments came back."""
        restored = self.run.load_state_dict(checkpoint.tree)
        try:
            state = checkpoint.tree["session"]
            self._best = None if state["best"] is None else float(state["best"])
            self._best_at = int(state["best_at"])
            self._offset = int(state["log_offset"])
            if self._offset < 0:
                raise ValueError("log_offset is negative")
            self._logged_at = int(state["logged_at"])
            saved_callbacks = dict(state["callbacks"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{checkpoint.path}: session: {type(error).__name__}: {error}") from error
        for key, callback in self._keyed_callbacks():
            if key in saved_callbacks:
                callback.load_state_dict(saved_callbacks[key])
        if self._best_at == self.steps and checkpoint.path.absolute().parent == self.folder.checkpoints:
            # A kill may have come between saving the best checkpoint and naming it.
            write_hint(self.folder.checkpoints, "best", checkpoint.path)
        return restored

    def execute(self) -> TrainResult:
        """Train to the end of the budget, a stop or a fault."""
        self._open_loggers()
        try:
            for callback in self._callbacks:
                callback.on_start(self)
            self._train()
            for callback in self._callbacks:
                callback.on_end(self)
            return self._finish()
        except EnvError as error:
            self._keep_traceback(error)
            # The environments are in the middle of a step that failed: what they knew cannot be saved.
            self.save(envs_lost=True)
            raise
        except NonFiniteError as error:
            kept = read_hint(self.folder.checkpoints, "latest")
            after = f"; {kept} is the last checkpoint" if kept else "; there is no checkpoint yet"
            raise NonFiniteError(f"step {self.steps}: {error}{after}") from error
        finally:
            for logger in self._loggers:
                logger.close()

    def _train(self) -> None:
        run, config = self.run, self.run.config
        clock, guard = run.clock, self._guard
        log = Every(config.logging.frequency, clock.steps)
        evaluation = Every(config.evaluation.frequency, clock.steps)
        checkpoint = Every(config.checkpoint.frequency, clock.steps)
        hooks = [
            callback.on_step for callback in self._callbacks if type(callback).on_step is not Callback.on_step
        ]
        run.timer.lap("other")
        for _ in train(run):
            for hook in hooks:
                hook(self)
            steps = clock.steps
            if log.due(steps):
                self._log_row()
            improved = evaluation.due(steps) and self._evaluate_periodically()
            if checkpoint.due(steps) or improved:
                self.save(best=improved)
            if guard.received is not None:
                self._interrupt(guard.received)
            if run.stop_reason is not None:
                return

    def _evaluate_periodically(self) -> bool:
        result = self.evaluate(self.run.config.evaluation.episodes)
        self.last_evaluation = result
        self.log(result.row())
        for callback in self._callbacks:
            callback.on_evaluation(self, result)
        improved = self._best is None or result.mean > self._best
        if improved:
            self._best, self._best_at = result.mean, self.steps
        return improved

    def _log_row(self) -> None:
        run = self.run
        row = run.metrics.row()
        row["rollout/episodes"] = run.clock.episodes
        row["train/n_updates"] = run.clock.updates
        row.update({f"train/{name}": value for name, value in run.algorithm.status().items()})
        seconds = max(run.timer.training, 1e-9)
        row["time/fps"] = run.clock.steps / seconds
        row["time/time_elapsed"] = run.timer.total
        self.last_row = row
        self._logged_at = self.steps
        self.log(row)

    def _interrupt(self, number: int) -> None:
        saved = self.save()
        name = {2: "SIGINT", 15: "SIGTERM"}.get(number, f"signal {number}")
        where = f"saved at step {self.steps}" if saved else "the last checkpoint is intact"
        raise Interrupted(
            f"{name}: stopped, {where}; go on with: rl-training resume {self.folder.path}", number
        )

    def _finish(self) -> TrainResult:
        run = self.run
        if self._logged_at != self.steps:
            self._log_row()
        if self._saved_at is None or self._saved_at[0] != self.steps:
            self.save()
        if self._saved_at is None or self._saved_at[0] != self.steps:
            raise StorageError(
                f"{self.folder.checkpoints}: the checkpoint of the last step could not be saved"
            )
        kept = read_hint(self.folder.checkpoints, "latest")
        if kept is None:
            raise StorageError(f"{self.folder.checkpoints}: no checkpoint could be saved")
        evaluation = None
        if run.config.evaluation.final_episodes:
            evaluation = self.evaluate(run.config.evaluation.final_episodes)
            self.log(evaluation.row())
        return TrainResult(
            self.folder.path,
            kept,
            self.steps,
            run.clock.updates,
            run.clock.episodes,
            run.timer.total,
            run.timer.split(),
            self.last_row,
            evaluation,
            run.stop_reason,
        )

    def _open_loggers(self) -> None:
        options, path = self.run.config.logging, self.folder.path
        self._jsonl = JsonLinesLogger(self.folder.metrics, self._offset)
        self._loggers = [self._jsonl]
        if options.csv:
            self._loggers.append(CsvLogger(path / "metrics.csv", self.folder.metrics))
        if options.tensorboard:
            self._loggers.append(TensorBoardLogger(path / "tensorboard", self.steps))
        if self._console:
            self._loggers.append(ConsoleLogger(self.run.clock.total, self.steps))

    def _tree(self, envs_lost: bool) -> dict[str, Any]:
        assert self._jsonl is not None
        callbacks = {
            key: state for key, callback in self._keyed_callbacks() if (state := callback.state_dict())
        }
        session = {
            "best": self._best,
            "best_at": self._best_at,
            "log_offset": self._jsonl.offset(),
            "logged_at": self._logged_at,
            "callbacks": callbacks,
        }
        return {**self.run.state_dict(envs_lost=envs_lost), "session": session}

    def _info(self, envs_lost: bool) -> dict[str, Any]:
        config = self.run.config
        return {
            "algo": config.algo,
            "env_restore": "restarted" if envs_lost else self.run.collector.restores(),
            "versions": environment_facts(config.threads, config.device),
        }

    def _keyed_callbacks(self) -> list[tuple[str, Callback]]:
        return [(f"{i}-{type(callback).__name__}", callback) for i, callback in enumerate(self._callbacks)]

    def _keep_traceback(self, error: EnvError) -> None:
        path = self.folder.write_error(error.details or "".join(traceback.format_exception(error)))
        notice(f"traceback: {path}")
