"""Rules about returns, in training and in evaluation."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rl_training.config import EvaluationEnvConfig
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.log import FEW, Log, ends
from rl_training.runtime.curves import EVAL_MEAN, TRAIN_RETURN

_LENGTH = "rollout/ep_len_mean"
_FALL = 0.4
"""Share of what was gained until the peak that may be lost again."""
_LARGE_REWARD = 100.0


def learning(log: Log, section: Section) -> None:
    """Returns that are no better in the end than in the beginning."""
    series = log.series(TRAIN_RETURN)
    if len(series.values) < FEW:
        section.add(
            "note",
            "returns",
            "fewer than six rows with finished episodes; episodes may be longer than the run",
        )
        return
    (first, last), highest = ends(series.values), float(series.values.max())
    told = f"in training from {first:.4g} (first fifth) to {last:.4g} (last fifth)"
    if log.learned or last >= first + 0.05 * abs(first):
        section.add("ok", "returns", told)
    elif _solved(log, first) or (highest - float(series.values.min())) < 0.02 * abs(highest):
        section.add("note", "returns", f"{told}: as good from the beginning on")
    elif last < first - 0.3 * abs(first):
        section.add(
            "problem",
            "returns",
            f"the agent got worse by training: {told}",
            "run `doctor` on the config: its probes tell the algorithm from the task; then check the "
            "sign of the reward",
            "worse",
        )
    else:
        section.add(
            "warning",
            "returns",
            f"they did not rise: {told}",
            "check what the other rules say, and run `doctor` on the config: its probes tell the "
            "algorithm from the task",
            "not_learning",
        )


def _solved(log: Log, value: float) -> bool:
    spec = gym.registry.get(log.config.env.id)
    return spec is not None and spec.reward_threshold is not None and value >= float(spec.reward_threshold)


def fall(log: Log, section: Section) -> None:
    """Returns that fell after a peak and stayed low."""
    series = log.returns()
    values = series.values
    if len(values) < FEW:
        return
    width = max(3, len(values) // 10)
    smooth = np.convolve(values, np.ones(width) / width, "valid")
    peak = int(smooth.argmax())
    gained, last = float(smooth[peak] - smooth[: peak + 1].min()), float(smooth[-1])
    lost = float(smooth[peak]) - last
    at = int(series.steps[peak + width - 1])
    noise = float(np.abs(np.diff(values)).mean())
    if gained > 2 * noise and gained > 0.1 * abs(float(smooth[peak])) and lost > _FALL * gained:
        section.add(
            "warning",
            "peak",
            f"returns fell from {float(smooth[peak]):.4g} around step {at:,} to {last:.4g} at the end",
            "learning_rate_final=0, a smaller learning rate or a slower target network; the best "
            "checkpoint is kept (--best)",
            "fall",
        )
    else:
        section.add("ok", "peak", f"{float(smooth[peak]):.4g} around step {at:,}, {last:.4g} at the end")


def evaluation(log: Log, section: Section) -> None:
    """Evaluation returns that are far below those of training, or go the other way."""
    training, evaluated = log.series(TRAIN_RETURN), log.series(EVAL_MEAN)
    if len(evaluated.values) < 2 or len(training.values) < FEW:
        return
    train_first, train_last = ends(training.values)
    eval_first, eval_last = ends(evaluated.values)
    width = max(float(np.ptp(training.values)), 0.1 * abs(train_last), 1e-9)
    told = f"{eval_last:.4g} in evaluation, {train_last:.4g} in training (last fifth)"
    differs = log.config.evaluation.env != EvaluationEnvConfig()
    rose = train_last - train_first > 0.2 * abs(train_first) + 1e-9
    fell = eval_first - eval_last > 0.2 * abs(eval_first) + 1e-9
    on_training = np.interp(evaluated.steps, training.steps, training.values)
    opposite = len(evaluated.values) >= 4 and np.ptp(on_training) > 0 and np.ptp(evaluated.values) > 0
    if opposite and rose and fell and float(np.corrcoef(on_training, evaluated.values)[0, 1]) < -0.5:
        section.add(
            "problem",
            "evaluation",
            f"it falls ({eval_first:.4g} to {eval_last:.4g}) as training rises ({train_first:.4g} to {train_last:.4g})",
            "check the sign of the reward in wrappers that only one of them has"
            if differs
            else "check what the policy does without exploration",
            "sign" if differs else "evaluation",
        )
    elif (
        not differs
        and train_last - eval_last > 0.5 * width
        and train_last - eval_last > 0.3 * abs(train_last)
    ):
        section.add(
            "warning",
            "evaluation",
            f"it is far below training: {told}",
            "the policy may need its noise (memory, ties between actions), or evaluation its wrappers",
            "evaluation",
        )
    else:
        section.add("ok", "evaluation", told)


def short_episodes(log: Log, section: Section) -> None:
    """Agents that learned to end episodes because each step costs something."""
    lengths, returns = log.series(_LENGTH), log.series(TRAIN_RETURN)
    if len(lengths.values) < FEW or len(lengths.values) != len(returns.values):
        return
    (first, last), (before, after) = ends(lengths.values), ends(returns.values)
    spec = gym.registry.get(log.config.env.id)
    limit = spec.max_episode_steps if spec is not None else None
    early = limit is not None and first < 0.3 * limit
    if before < 0.0 and after > before and last < 0.7 * first and early:
        section.add(
            "warning",
            "episodes",
            f"they became shorter, {first:.4g} to {last:.4g} steps of {limit} possible, and each step costs "
            f"{abs(after / max(last, 1.0)):.3g}: the agent learned to end them",
            "if the end of an episode is a failure, the reward has the wrong sign, or lacks one for going on",
            "sign",
        )
    else:
        section.add("ok", "episodes", f"{first:.4g} to {last:.4g} steps long (first and last fifth)")


def reward_size(log: Log, section: Section) -> None:
    """Rewards that make values too large to be learned soon."""
    options = log.config.algo_kwargs
    returns, lengths = log.series(TRAIN_RETURN), log.series(_LENGTH)
    scaled = getattr(options, "normalize_reward", False) or getattr(options, "value_rescaling", False)
    if scaled or getattr(options, "reward_scale", 1.0) != 1.0 or len(returns.values) != len(lengths.values):
        return
    each = np.abs(returns.values) / np.maximum(lengths.values, 1.0)
    if len(each) and float(np.median(each)) > _LARGE_REWARD:
        section.add(
            "warning",
            "reward scale",
            f"{float(np.median(each)):.4g} per step (median): values are slow to learn",
            "algo_kwargs.normalize_reward=true, or the wrapper TransformReward",
            "reward_scale",
        )
