"""What a finished run says of itself: the result, ``result.json`` and the learning curve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config import EnvConfig
from rl_training.errors import RLTrainingError, printable
from rl_training.runtime.console import notice
from rl_training.runtime.curves import TRAINED_STEPS, plot_run
from rl_training.runtime.evaluator import Evaluation
from rl_training.runtime.folder import RunFolder

if TYPE_CHECKING:
    from rl_training.runtime.run import Run


_REPEATS = "rl_training.envs.pixels:ActionRepeat"


@dataclass(frozen=True)
class TrainResult:
    """Outcome of a run, ``agent.result``: where it is, how long it took, and its final evaluation."""

    run_dir: Path
    """The run folder."""
    checkpoint: Path
    """The newest checkpoint."""
    steps: int
    """Environment steps of the whole run."""
    updates: int
    """Gradient steps of the whole run."""
    episodes: int
    """Training episodes that ended."""
    seconds: float
    """How long it took."""
    time_split: str
    """What the time was spent on, in percent."""
    metrics: dict[str, float]
    """The last row of metrics, by name."""
    evaluation: Evaluation | None
    """The final evaluation, if there was one."""
    stop_reason: str | None
    """Why training ended before its budget, if it did."""


def write_report(run: Run, folder: RunFolder, result: TrainResult) -> None:
    """Write the outcome for machines, and draw the curve; a picture that cannot be drawn costs a warning only."""
    folder.write_result(_plain(run, result))
    title = printable(f"{run.spec.title} on {run.config.env.id}, seed {run.config.seed}")
    try:
        counted = steps_of(run.config.env)
        plot_run(folder.metrics, folder.curve, title, window=run.config.logging.window, steps=counted)
    except (OSError, RLTrainingError) as error:
        notice(f"warning: {folder.curve.name}: not drawn: {getattr(error, 'strerror', None) or error}")


def steps_of(env: EnvConfig) -> str:
    """Say what the steps of an environment are, where the agent's own are not the simulator's."""
    for wrapper in env.wrappers:
        if wrapper.id == _REPEATS:
            return f"steps of the agent, each {wrapper.kwargs.get('repeat', 2)} environment steps"
    return TRAINED_STEPS


def _plain(run: Run, result: TrainResult) -> dict[str, Any]:
    config, evaluation = run.config, result.evaluation
    return {
        "algo": config.algo,
        "env": config.env.id,
        "seed": config.seed,
        "steps": result.steps,
        "updates": result.updates,
        "episodes": result.episodes,
        "lost_episodes": run.collector.episodes_lost,
        "seconds": result.seconds,
        "time_split": {name: round(seconds, 3) for name, seconds in run.timer.seconds.items()},
        "stop_reason": result.stop_reason,
        "checkpoint": result.checkpoint.name,
        "evaluation": None
        if evaluation is None
        else {"mean": evaluation.mean, "std": evaluation.std, "returns": list(evaluation.returns)},
    }
