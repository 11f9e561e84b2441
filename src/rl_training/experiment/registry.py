"""Which algorithms there are, and how each is trained, loaded, evaluated and used, all by its spec.

The catalogue itself is ``rl_training.algorithms.catalogue``; this is what users and the command line go through.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.catalogue import algorithms as algorithms
from rl_training.algorithms.catalogue import find as get
from rl_training.algorithms.catalogue import register as register
from rl_training.config import ExperimentConfig
from rl_training.importing import collector_paused, left_alone

if TYPE_CHECKING:
    from rl_training.experiment.export.writing import Exported
    from rl_training.runtime.evaluator import Evaluation
    from rl_training.runtime.policy import Policy
    from rl_training.runtime.report import TrainResult

__all__ = ["algorithms", "evaluate", "export", "get", "policy", "predict", "register", "resume", "train"]


def _import_torch() -> None:
    """Import what computes, and torch with it."""
    import rl_training.runtime.workflows  # noqa: F401


def _load_torch() -> None:
    """Do that as fast as it goes."""
    with collector_paused():
        _import_torch()


def train(config: ExperimentConfig[Any], **options: Any) -> TrainResult:
    """Train what the config describes; options as in ``runtime.workflows.start``."""
    with left_alone(_import_torch):
        from rl_training.runtime.workflows import start

        return start(config, **options)


def resume(path: str | Path, **options: Any) -> TrainResult:
    """Go on with a run; options as in ``runtime.workflows.resume``."""
    with left_alone(_import_torch):
        from rl_training.runtime.workflows import resume as resume_run

        return resume_run(Path(path), **options)


def evaluate(
    path: str | Path,
    episodes: int | None = None,
    *,
    best: bool = False,
    seed: int | None = None,
    video: Path | None = None,
    video_episodes: int = 1,
    trust: bool = False,
    console: bool = False,
) -> Evaluation:
    """Evaluate a run or a checkpoint; ``video`` is an MP4 file for the first of the episodes.

    With ``console``, a terminal shows how far it is. With ``trust`` it may name any code, not only that of installed
    packages.
    """
    _load_torch()
    from rl_training.runtime.workflows import evaluate_policy, load_checkpoint, load_policy, record_policy

    policy, config = load_policy(load_checkpoint(Path(path), best=best), trust=trust)
    if video is not None:
        record_policy(policy, config, video, video_episodes, seed=seed, trust=trust)
    count = (
        episodes if episodes is not None else config.evaluation.final_episodes or config.evaluation.episodes
    )
    return evaluate_policy(policy, config, count, seed=seed, trust=trust, console=console)


def predict(
    path: str | Path,
    obs: Any,
    *,
    best: bool = False,
    deterministic: bool = True,
    action_mask: Any = None,
    trust: bool = False,
) -> Any:
    """Return the action of a run or a checkpoint for one raw observation or a batch that begin an episode."""
    agent = policy(path, best=best, trust=trust)
    return agent.predict(obs, deterministic=deterministic, action_mask=action_mask)[0]


def policy(path: str | Path, *, best: bool = False, trust: bool = False) -> Policy:
    """Return the agent of a run or a checkpoint, without its environment; ``trust`` as in ``evaluate``."""
    _load_torch()
    from rl_training.runtime.workflows import load_checkpoint, load_policy

    return load_policy(load_checkpoint(Path(path), best=best), trust=trust)[0]


def export(
    path: str | Path, to: str | Path, *, best: bool = False, overwrite: bool = False, trust: bool = False
) -> Exported:
    """Write the agent of a run or a checkpoint to an ONNX or safetensors file; ``trust`` as in ``evaluate``."""
    _load_torch()
    from rl_training.experiment.export.writing import check_target, export_policy
    from rl_training.runtime.workflows import load_checkpoint, load_policy

    check_target(Path(to), overwrite)
    checkpoint = load_checkpoint(Path(path), best=best)
    loaded, config = load_policy(checkpoint, trust=trust)
    return export_policy(loaded, config, Path(to), step=checkpoint.step, trust=trust, overwrite=overwrite)
