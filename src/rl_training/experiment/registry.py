"""Which algorithms there are, and how each is trained, loaded, evaluated and used, all by its spec."""

from __future__ import annotations

import functools
import warnings
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.spec import AlgorithmSpec
from rl_training.algorithms.specs import SPECS
from rl_training.config import AlgorithmConfig, ExperimentConfig
from rl_training.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from rl_training.runtime.evaluator import Evaluation
    from rl_training.runtime.policy import Policy
    from rl_training.runtime.session import TrainResult

ENTRY_POINT = "rl_training.algorithms"
_registered: dict[str, AlgorithmSpec] = {}


def register(spec: AlgorithmSpec) -> AlgorithmSpec:
    """Make an algorithm known by its name; the name must be free."""
    if spec.name in algorithms() and algorithms()[spec.name] is not spec:
        raise ConfigError(f"algo: '{spec.name}' is taken by {algorithms()[spec.name].title}")
    _registered[spec.name] = spec
    return spec


@functools.cache
def _installed() -> dict[str, AlgorithmSpec]:
    found = {spec.name: spec for spec in SPECS}
    for point in entry_points(group=ENTRY_POINT):
        try:
            spec = point.load()
            if not isinstance(spec, AlgorithmSpec):
                raise TypeError("not an AlgorithmSpec")
        except Exception as error:  # a plugin that is broken must not break every command
            warnings.warn(f"algorithm {point.value}: {type(error).__name__}: {error}", stacklevel=2)
            continue
        found.setdefault(spec.name, spec)
    return found


def algorithms() -> dict[str, AlgorithmSpec]:
    """Return every known spec by name: built in, installed by entry point, registered by hand."""
    return {**_installed(), **_registered}


def get(algo: str | AlgorithmSpec) -> AlgorithmSpec:
    """Return the spec of that name; a spec is returned as it is."""
    if isinstance(algo, AlgorithmSpec):
        return algo
    known = algorithms()
    if algo not in known:
        hint = did_you_mean(algo, known) or f"; known are {', '.join(known)}"
        raise ConfigError(f"algo: '{algo}' is unknown{hint}")
    return known[algo]


def config_class(algo: str) -> type[AlgorithmConfig]:
    """Return the typed hyper-parameters of an algorithm."""
    return get(algo).config


def takers(kind: str) -> str:
    """Say which algorithms take actions of that kind."""
    names = [spec.name for spec in algorithms().values() if kind in spec.action_kinds]
    return f"{', '.join(names)} can" if names else "no algorithm here can yet"


def train(config: ExperimentConfig[Any], **options: Any) -> TrainResult:
    """Train what the config describes; options as in ``runtime.workflows.start``."""
    from rl_training.runtime.run import ActionKindError
    from rl_training.runtime.workflows import start

    try:
        return start(config, get(config.algo), **options)
    except ActionKindError as error:
        raise ConfigError(f"{error}; {takers(error.kind)}") from None


def resume(path: str | Path, **options: Any) -> TrainResult:
    """Go on with a run; options as in ``runtime.workflows.resume``."""
    from rl_training.runtime.workflows import resume as resume_run

    return resume_run(Path(path), get, **options)


def evaluate(
    path: str | Path,
    episodes: int | None = None,
    *,
    best: bool = False,
    seed: int | None = None,
    video: Path | None = None,
    video_episodes: int = 1,
) -> Evaluation:
    """Evaluate a run or a checkpoint; ``video`` is an MP4 file for the first of the episodes."""
    from rl_training.runtime.workflows import evaluate_policy, load_checkpoint, load_policy, record_policy

    policy, config = load_policy(load_checkpoint(Path(path), best=best), get)
    if video is not None:
        record_policy(policy, config, video, video_episodes, seed=seed)
    count = (
        episodes if episodes is not None else config.evaluation.final_episodes or config.evaluation.episodes
    )
    return evaluate_policy(policy, config, count, seed=seed)


def predict(
    path: str | Path, obs: Any, *, best: bool = False, deterministic: bool = True, action_mask: Any = None
) -> Any:
    """Return the action of a run or a checkpoint for one raw observation or a batch that begin an episode."""
    return policy(path, best=best).predict(obs, deterministic=deterministic, action_mask=action_mask)[0]


def policy(path: str | Path, *, best: bool = False) -> Policy:
    """Return the agent of a run or a checkpoint, without its environment."""
    from rl_training.runtime.workflows import load_checkpoint, load_policy

    return load_policy(load_checkpoint(Path(path), best=best), get)[0]
