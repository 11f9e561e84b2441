"""A run with everything around it: logging, evaluation, checkpoints, callbacks, signals, faults."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError, EnvError, NonFiniteError, StorageError
from rl_training.plain_files import reason
from rl_training.runtime.callbacks import Callback, keyed
from rl_training.runtime.checkpoint import LATEST, Checkpoint, read_hint
from rl_training.runtime.checkpoint_format import Tree
from rl_training.runtime.console import EpisodeProgress, notice
from rl_training.runtime.evaluator import Abandoned, Evaluation, EvaluationError, evaluate
from rl_training.runtime.folder import RunFolder, environment_facts
from rl_training.runtime.loggers import LogBook
from rl_training.runtime.loop import train
from rl_training.runtime.milestones import Milestones
from rl_training.runtime.report import TrainResult
from rl_training.runtime.run import Run
from rl_training.runtime.saving import Saver
from rl_training.runtime.signals import Interrupted, SignalGuard
from rl_training.runtime.soundness import check_whole, sound
from rl_training.runtime.trust import needs_trust
from rl_training.shell import command

__all__ = ["Interrupted", "Session", "TrainResult"]


FINAL_STEPS = 100_000
"""Env steps after which the final evaluation begins no further episode, if training did not take more."""
_STATE = frozenset(
    ["best", "best_at", "log_offset", "logged_at", "evaluation_due", "stop_reason", "callbacks"]
)


class Session:
    """Drives a run to its end and keeps its folder; callbacks know it as ``training``."""

    def __init__(
        self,
        run: Run,
        folder: RunFolder,
        guard: SignalGuard,
        callbacks: Sequence[Callback] = (),
        *,
        built_in: Sequence[Callback] = (),
        console: bool = True,
    ) -> None:
        self.run = run
        self.folder = folder
        self._guard = guard
        self._callbacks = [*built_in, *callbacks]
        # Apart, so that a setting which brings a callback along does not shift the state of the user's own.
        self._keyed = {**keyed(built_in, "built-in-"), **keyed(callbacks)}
        self._console = console and run.config.logging.console
        self._saver = Saver(folder.checkpoints, run.config.checkpoint.keep)
        self._log: LogBook | None = None
        self._offset = 0
        self._best: float | None = None
        self._best_at = -1
        self._evaluation_due = False
        self._saved_at: tuple[int, Path] | None = None
        self._logged_at = -1
        self._warned: set[str] = set()
        self.stop_reason: str | None = None
        self.last_row: dict[str, float] = {}

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
        self.stop_reason = reason
        self._saved_at = None  # a checkpoint of this step does not know of the stop

    def log(self, values: Mapping[str, float]) -> None:
        """Write values at the current step to every logger."""
        if self._log is not None:
            self._log.write(self.steps, values)

    def evaluate(self, episodes: int, *, stoppable: bool = False, **options: Any) -> Evaluation:
        """Play evaluation episodes with the current weights; if ``stoppable``, a signal ends the run in between.

        ``options`` are those of ``evaluator.evaluate``.
        """
        run, guard = self.run, self._guard
        run.timer.lap("other")
        try:
            return evaluate(
                run.algorithm,
                run.config.env,
                run.policy.actions,
                run.config.evaluation,
                episodes,
                run.env_factory,
                lambda: stoppable and guard.received is not None,
                **options,
            )
        except Abandoned:
            pass  # for a signal, which is heeded below and not as an error of this one
        finally:
            run.timer.lap("evaluation")
        self.heed_signal()
        raise AssertionError("an evaluation was abandoned without a signal")

    def save(self) -> Path | None:
        """Save a checkpoint; a disk that refuses costs a warning, and the run only if it keeps on refusing."""
        return self._save()

    # The run itself

    def load(self, checkpoint: Checkpoint, *, forget_stop: bool = False) -> str:
        """Take over a checkpoint; return how the environments came back.

        A run that had been stopped stays stopped, unless it is told to ``forget_stop``.
        """
        check_whole(checkpoint)
        restored = self.run.load_state_dict(checkpoint.tree)
        try:
            state = checkpoint.tree["session"]
            self._best = None if state["best"] is None else float(state["best"])
            self._best_at = int(state["best_at"])
            self._offset = int(state["log_offset"])
            if self._offset < 0:
                raise ValueError("log_offset is negative")
            self._logged_at = int(state["logged_at"])
            self._evaluation_due = bool(state["evaluation_due"])
            reason = state["stop_reason"]
            if not (reason is None or isinstance(reason, str)) or not isinstance(
                state["evaluation_due"], bool
            ):
                raise TypeError("stop_reason or evaluation_due")
            self.stop_reason = None if reason is None or forget_stop else str(reason)
            saved_callbacks = dict(state["callbacks"])
            if state.keys() - _STATE:
                raise ValueError(f"{min(state.keys() - _STATE)[:60]!r} is not expected")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CheckpointError(f"{checkpoint.path}: session: {type(error).__name__}: {error}") from error
        for key, callback in self._keyed.items():
            if key in saved_callbacks:
                with sound(f"{checkpoint.path}: session: callback {key}"):
                    callback.load_state_dict(saved_callbacks.pop(key))
        if saved_callbacks:
            notice(
                f"warning: saved state of callbacks that are not given: {', '.join(sorted(saved_callbacks))}"
            )
        self._saver.go_on_from(checkpoint)
        if checkpoint.path.absolute().parent == self.folder.checkpoints:
            self._recognise(checkpoint.path)
        return restored

    def execute(self) -> TrainResult:
        """Train to the end of the budget, a stop or a fault."""
        config, clock = self.run.config, self.run.clock
        self._log = LogBook(self.folder, config, clock, offset=self._offset, console=self._console)
        try:
            for callback in self._callbacks:
                callback.on_start(self)
            self._train()
            for callback in self._callbacks:
                callback.on_end(self)
            return self._finish()
        except EvaluationError as error:
            self._save_after(error)
            self._add_way_on(error)
            raise
        except EnvError as error:
            # The environments are in the middle of a step that failed: what they knew cannot be saved.
            self._save_after(error, envs_lost=True)
            self._add_way_on(error)
            raise
        except NonFiniteError as error:
            kept = read_hint(self.folder.checkpoints, "latest")
            after = f"; {kept} is the last checkpoint" if kept else "; there is no checkpoint yet"
            raise NonFiniteError(f"step {self.steps}: {error}{after}") from error
        finally:
            self._log.close()

    def heed_signal(self) -> None:
        """Save, if this step is not saved yet, and end the run if a signal has come."""
        number = self._guard.received
        if number is None:
            return
        saved = self._save_once()
        name = signal.Signals(number).name
        where = f"saved at step {self.steps}" if saved else self._saver.left()
        raise Interrupted(f"{name}: stopped, {where}{self._way_on()}", number)

    def _way_on(self) -> str:
        """Say which command goes on with this run."""
        if not self.folder.config.exists():
            return ""
        trust = ["--trust"] if needs_trust(self.run.config) else []
        return f"; go on with: {command('rl-training', 'resume', self.folder.path, *trust)}"

    def _add_way_on(self, error: EnvError) -> None:
        """Let an error end with the newest checkpoint, and the command that goes on from it."""
        error.args = (f"{error}; {self._saver.left()}{self._way_on()}",)

    def _train(self) -> None:
        run, config = self.run, self.run.config
        clock = run.clock
        due = Milestones(config, clock.steps)
        hooks = [
            callback.on_step for callback in self._callbacks if type(callback).on_step is not Callback.on_step
        ]
        if self._evaluation_due and config.evaluation.frequency:
            self._evaluate_periodically()
        self._evaluation_due = False
        if self._stopped():
            return
        if (
            not clock.steps
            and 0 < config.evaluation.frequency <= config.total_timesteps
            and not self._logged()
        ):
            # The first point of the curve: what there is before anything is learned. It is no candidate for the best.
            self.log(self.evaluate(config.evaluation.episodes, stoppable=True).row())
        next_due = due.next
        run.timer.lap("other")
        for _ in train(run):
            for hook in hooks:
                if hook(self) is False:
                    self.stop("a callback returned False")
            steps = clock.steps
            if steps >= next_due:
                if due.log.due(steps):
                    self._log_row()
                saved = due.evaluation.due(steps) and self._evaluate_periodically()
                if due.checkpoint.due(steps) and not saved:
                    self._save()
                next_due = due.next
            if self._guard.received is not None:
                self.heed_signal()
            if self._stopped():
                return

    def _logged(self) -> bool:
        """Say whether the log has rows: those of an earlier session that failed before its first step."""
        try:
            return self.folder.metrics.stat().st_size > 0
        except OSError:
            return False

    def _stopped(self) -> bool:
        return self.stop_reason is not None

    def _evaluate_periodically(self) -> bool:
        """Evaluate and log; return whether a new best was found, and its checkpoint tried."""
        # A checkpoint made before the evaluation is through says that a resumed run has to repeat it.
        self._evaluation_due, self._saved_at = True, None
        result = self.evaluate(self.run.config.evaluation.episodes, stoppable=True)
        self._evaluation_due = False
        self.log(result.row())
        for callback in self._callbacks:
            callback.on_evaluation(self, result)
        if self._best is not None and result.mean <= self._best:
            return False
        before = self._best, self._best_at
        self._best, self._best_at = result.mean, self.steps
        if self._save(best=True) is None:
            self._best, self._best_at = before
        return True

    def _log_row(self) -> None:
        run = self.run
        row = run.metrics.row()
        row["rollout/episodes"] = run.clock.episodes
        if run.collector.episodes_lost:
            row["rollout/lost_episodes"] = run.collector.episodes_lost
        row["train/n_updates"] = run.clock.updates
        row.update({f"train/{name}": value for name, value in run.algorithm.status().items()})
        seconds = max(run.timer.training, 1e-9)
        row["time/fps"] = run.clock.steps / seconds
        row["time/time_elapsed"] = run.timer.total
        self.last_row = row
        self._logged_at = self.steps
        self.log(row)
        for kind, text in run.algorithm.warnings(row).items():
            if kind not in self._warned:
                self._warned.add(kind)
                notice(f"warning: step {self.steps}: {text}")

    def _finish(self) -> TrainResult:
        run = self.run
        if self._logged_at != self.steps:
            self._log_row()
        elif not self.last_row and self._log is not None:
            self.last_row = self._log.last_row()
        kept = self._save_once(last=True)
        assert kept is not None
        self.heed_signal()
        evaluation = None
        if run.config.evaluation.final_episodes:
            evaluation = self._evaluate_finally(run.config.evaluation.final_episodes)
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
            self.stop_reason,
        )

    def _evaluate_finally(self, episodes: int) -> Evaluation:
        """Play the episodes that decide the result; of those that never end, not more than make sense."""
        most = max(FINAL_STEPS, self.run.config.total_timesteps)
        if self._log is not None:
            self._log.end_bar()
        with EpisodeProgress("final evaluation", episodes, console=self._console) as progress:
            evaluation = self.evaluate(episodes, stoppable=True, tell=progress.tell, max_steps=most)
        if (played := len(evaluation.returns)) < episodes:
            notice(
                f"final evaluation: {played} of {episodes} episodes, as they took {sum(evaluation.lengths):,} steps; "
                f"none begins after {most:,}"
            )
        self.log(evaluation.row("final"))
        return evaluation

    # Checkpoints

    def _save(self, *, best: bool = False, envs_lost: bool = False, last: bool = False) -> Path | None:
        try:
            tree, info = self._state(envs_lost)
        except OSError as error:  # the log, which has to be on the disk before its length is noted
            self._saver.refused(error, last=last)
            return None
        path = self._saver.save(self.steps, tree, info, best=best, last=last)
        self.run.timer.lap("checkpoint")
        if path is not None:
            self._saved_at = (self.steps, path)
        return path

    def _save_once(self, *, last: bool = False) -> Path | None:
        """Return the checkpoint of this step, made now if there is none."""
        if self._saved_at is not None and self._saved_at[0] == self.steps:
            return self._saved_at[1]
        return self._save(last=last)

    def _save_after(self, error: EnvError, *, envs_lost: bool = False) -> None:
        """Keep the traceback and the state; a disk that refuses them must not hide the error itself."""
        try:
            path = self.folder.write_error(error.details or "".join(traceback.format_exception(error)))
            notice(f"traceback: {path}")
        except (OSError, ValueError) as refused:
            notice(f"warning: the traceback could not be kept: {reason(refused)}")
        try:
            _ = self._save(envs_lost=True) if envs_lost else self._save_once()
        except StorageError as refused:
            notice(f"warning: {refused}")

    def _recognise(self, path: Path) -> None:
        """Note what the checkpoint that the run goes on from, which lies in its own folder, makes needless."""
        if not self._evaluation_due:
            self._saved_at = (self.steps, path)
        # A kill may have come between saving a checkpoint and naming it.
        named = read_hint(self.folder.checkpoints, LATEST)
        if named is None or named.name != path.name:
            self._saver.name(LATEST, path)
        if self._best_at == self.steps:
            self._saver.name("best", path)
        elif read_hint(self.folder.checkpoints, "best") is None:
            # A branch comes without the best checkpoint of its origin; its own next one is its best.
            self._best, self._best_at = None, -1

    def _state(self, envs_lost: bool) -> tuple[Tree, dict[str, Any]]:
        assert self._log is not None
        config = self.run.config
        callbacks = {key: state for key, callback in self._keyed.items() if (state := callback.state_dict())}
        session = {
            "best": self._best,
            "best_at": self._best_at,
            "log_offset": self._log.offset(),
            "logged_at": self._logged_at,
            "evaluation_due": self._evaluation_due,
            "stop_reason": self.stop_reason,
            "callbacks": callbacks,
        }
        tree = {**self.run.state_dict(envs_lost=envs_lost), "session": session}
        info = {
            "algo": config.algo,
            "env_restore": tree["envs"]["restore"],
            "versions": environment_facts(config.threads, config.device),
            **({} if config.checkpoint.replay else {"left_out": ["replay"]}),
            **({"lost_episodes": lost} if (lost := self.run.collector.episodes_lost) else {}),
        }
        return tree, info
