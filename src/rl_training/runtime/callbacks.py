"""Hooks for users: called while a run goes, able to look, to log and to stop it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.runtime.evaluator import Evaluation
    from rl_training.runtime.session import Session


class Callback:
    """Base of callbacks: override the methods that you need.

    ``training`` has ``steps``, ``mean_return``, ``log(values)``, ``evaluate(episodes)``, ``save()`` and
    ``stop(reason)``.
    """

    def on_start(self, training: Session) -> None:
        """Called once before the first step, also when a run is resumed."""

    def on_step(self, training: Session) -> bool | None:
        """Called after every step of the environments, before logging, evaluation and saving.

        Returning False ends training, as ``training.stop`` does.
        """
        return None

    def on_evaluation(self, training: Session, evaluation: Evaluation) -> None:
        """Called after every evaluation during training."""

    def on_end(self, training: Session) -> None:
        """Called once after the last step, before the final evaluation."""

    def state_dict(self) -> dict[str, Any]:
        """Return what should be saved in checkpoints: numbers, texts, lists and dicts."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; called when a run is resumed."""


class StopOnThreshold(Callback):
    """Ends training when the mean evaluation return reaches a threshold, as the option ``evaluation.stop_at`` does.

    :param threshold: The mean return to reach.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def on_evaluation(self, training: Session, evaluation: Evaluation) -> None:
        """Compare and stop."""
        if evaluation.mean >= self.threshold:
            training.stop(f"evaluation reached {evaluation.mean:g}, the threshold is {self.threshold:g}")


class FunctionCallback(Callback):
    """Makes a callback of a plain function of the training, called every step; returning False stops."""

    def __init__(self, function: Callable[[Session], bool | None]) -> None:
        self._function = function

    def on_step(self, training: Session) -> bool | None:
        """Call the function."""
        return self._function(training)


CallbackLike = Callback | Callable[["Session"], "bool | None"] | Iterable[Any] | None
_SB3_METHODS = {
    "_on_step": "on_step(self, training)",
    "_on_rollout_end": "on_step(self, training)",
    "_on_training_start": "on_start(self, training)",
    "_on_training_end": "on_end(self, training)",
}


INSTEAD = {
    "BaseCallback": "derive from rl_training.Callback and write on_step(self, training)",
    "CallbackList": "learn(callback=[one, another]) takes a list",
    "CheckpointCallback": "checkpoint={'frequency': 10_000, 'keep': 5} of the constructor saves while training",
    "DummyVecEnv": "num_envs=8 of the constructor makes that many environments",
    "EvalCallback": "evaluation={'frequency': 10_000, 'episodes': 10} of the constructor evaluates while training, and "
    "the best checkpoint is kept",
    "Monitor": "episodes are always counted; no wrapper is needed",
    "ProgressBarCallback": "learn(progress_bar=True)",
    "StopTrainingOnRewardThreshold": "evaluation={'stop_at': 475} of the constructor ends training there",
    "SubprocVecEnv": "num_envs=8 and config={'env.vectorization': 'subprocess'} of the constructor make environments "
    "in processes of their own",
    "VecFrameStack": "config={'env.wrappers': [{'id': 'FrameStackObservation', 'kwargs': {'stack_size': 4}}]}",
    "VecNormalize": "network={'normalize_obs': True}, and normalize_reward=True where the algorithm has it",
    "make_vec_env": "num_envs=8 of the constructor makes that many environments",
}
"""Names of Stable-Baselines3, and what to write instead of them."""


def as_callbacks(given: CallbackLike) -> list[Callback]:
    """Return a list of callbacks for one, several, a plain function, or none."""
    if given is None:
        return []
    kind = given if isinstance(given, type) else type(given)
    foreign = [name for name in _SB3_METHODS if name in dir(kind)]
    if foreign and kind.__name__ in INSTEAD:
        raise ConfigError(f"callback: {kind.__name__} is of another package; {INSTEAD[kind.__name__]}")
    if foreign:
        ours = _SB3_METHODS[foreign[0]]
        raise ConfigError(
            f"callback: {kind.__name__}.{foreign[0]} is never called here; derive from rl_training.Callback and write "
            f"{ours}, where training has steps, log(), save() and stop()"
        )
    if isinstance(given, type) and issubclass(given, Callback):
        raise ConfigError(f"callback: give one that is made: {given.__name__}(...)")
    if isinstance(given, Callback):
        return [given]
    if callable(given):
        function: Any = given
        return [FunctionCallback(function)]
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise ConfigError(
            f"callback: {given!r:.60} is none; give a function of the training, a Callback, or a list of them"
        )
    return [callback for item in given for callback in as_callbacks(item)]


def keyed(callbacks: Sequence[Callback], prefix: str = "") -> dict[str, Callback]:
    """Name each callback by its class and how many of that class came before, as its state is saved."""
    seen: Counter[str] = Counter()
    found: dict[str, Callback] = {}
    for callback in callbacks:
        name = type(callback).__name__
        seen[name] += 1
        found[f"{prefix}{name}-{seen[name]}"] = callback
    return found
