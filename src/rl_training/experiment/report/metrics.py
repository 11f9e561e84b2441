"""What the metrics of a log are called, what they tell, and which of them come first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One metric: its key, a title, and a sentence on how to read it."""

    key: str
    title: str
    note: str
    telling: bool = True
    """Whether it is shown at once, and not only among all the others."""


_KNOWN = (
    Metric("rollout/ep_rew_mean", "Training return", "Mean of the latest episodes, with exploration."),
    Metric("rollout/ep_len_mean", "Episode length", "Mean steps of the latest training episodes."),
    Metric("train/loss", "Loss", "Need not fall: the target moves as the agent improves."),
    Metric("train/critic_loss", "Critic loss", "Need not fall: the target moves as the agent improves."),
    Metric("train/value_loss", "Value loss", "Large for as long as returns change quickly."),
    Metric(
        "train/policy_loss", "Policy loss", "Says little by itself; jumps point to steps that are too large."
    ),
    Metric(
        "train/actor_loss", "Actor loss", "The negative value of the actor's choices: falls as values rise."
    ),
    Metric(
        "train/q_value_mean", "Value", "Should settle near the discounted return, and not grow without end."
    ),
    Metric("train/target_mean", "Target value", "A value far above it, or below, is still being learned."),
    Metric("train/target_q_mean", "Target value", "A value far above it, or below, is still being learned."),
    Metric("train/td_error_mean", "TD error", "How far values are from their targets, on average."),
    Metric("train/grad_norm", "Gradient norm", "Before clipping; above max_grad_norm, steps are cut short."),
    Metric("train/critic_grad_norm", "Gradient norm, critic", "Before clipping."),
    Metric(
        "train/explained_variance",
        "Explained variance",
        "1: the critic predicts returns; 0 or less: it does not.",
    ),
    Metric("train/approx_kl", "KL divergence", "How far an update moves the policy; often 0.003 to 0.03."),
    Metric("train/kl", "KL divergence", "How far an update moves the policy; at most target_kl."),
    Metric(
        "train/clip_fraction", "Clipped share", "Samples whose ratio left the clip range; often 0.05 to 0.3."
    ),
    Metric(
        "train/entropy",
        "Entropy",
        "Falls as the policy commits itself; near 0 early means too little exploration.",
    ),
    Metric(
        "train/ent_coef", "Entropy coefficient", "The temperature that keeps the entropy near its target."
    ),
    Metric("train/std", "Action noise", "Standard deviation of a Gaussian policy."),
    Metric("train/surrogate_gain", "Surrogate gain", "What a step of the policy was expected to gain."),
    Metric("train/line_search_success", "Steps taken", "Share of line searches that found a step."),
    Metric(
        "train/clipped_mass",
        "Clipped mass",
        "Share of targets beyond the support; above 0, widen v_min and v_max.",
    ),
    Metric(
        "train/targets_outside",
        "Targets outside",
        "Share of targets beyond the support, at least in part.",
        False,
    ),
    Metric("train/end_targets_outside", "Final targets outside", "The same where episodes end.", False),
    Metric("train/exploration_rate", "Epsilon", "Share of random actions."),
    Metric("train/exploration_std", "Exploration noise", "Standard deviation of the noise on actions."),
    Metric("time/fps", "Steps per second", "Of training, without evaluations and checkpoints."),
    Metric("train/learning_rate", "Learning rate", "As scheduled.", False),
    Metric("train/clip_range", "Clip range", "As scheduled.", False),
    Metric("train/target_kl", "Target KL", "As scheduled.", False),
    Metric("train/epochs", "Epochs", "Passes over each rollout; fewer if the KL limit stopped them.", False),
    Metric("train/n_updates", "Updates", "Gradient steps so far.", False),
    Metric("train/actor_updates", "Actor updates", "Gradient steps of the actor so far.", False),
    Metric("rollout/episodes", "Episodes", "Finished so far.", False),
    Metric("eval/mean_ep_length", "Evaluation length", "Mean steps of evaluation episodes.", False),
    Metric("eval/std_reward", "Evaluation spread", "Standard deviation over evaluation episodes.", False),
    Metric("eval/min_reward", "Worst evaluation episode", "", False),
    Metric("eval/max_reward", "Best evaluation episode", "", False),
    Metric("time/time_elapsed", "Seconds", "Since the first step.", False),
)
_BY_KEY = {metric.key: (rank, metric) for rank, metric in enumerate(_KNOWN)}
_SHOWN_ABOVE = "eval/mean_reward"


def ordered(keys: set[str]) -> list[Metric]:
    """Return the metrics of these keys: first those that matter, then other packages' and a user's own."""

    def place(key: str) -> tuple[bool, int, str]:
        rank, metric = _BY_KEY.get(key, (len(_KNOWN), None))
        return (metric is None or not metric.telling, rank, key)

    found = sorted(keys - {_SHOWN_ABOVE}, key=place)
    return [_BY_KEY[key][1] if key in _BY_KEY else Metric(key, key, "", False) for key in found]
