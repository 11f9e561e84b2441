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
