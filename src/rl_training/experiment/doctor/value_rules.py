"""Rules about values."""

from __future__ import annotations

import numpy as np

from rl_training.algorithms.declared.c51 import C51Config
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.log import Log, median

_TOO_LARGE, _FAR_TOO_LARGE = 5.0, 20.0
"""Times the largest value that the rewards can add up to."""
_OUTSIDE = 0.05
"""Share of targets beyond a support that is too much, as an untrained network's stray, too."""


def values(log: Log, section: Section) -> None:
    """Values far beyond what the rewards can add up to, or that never move."""
    series = log.series("train/q_value_mean")
    if len(series.values) < 3:
        return
    bound, late = log.largest_value(), np.abs(log.late("train/q_value_mean"))
    if not len(late):
        return
    largest = float(late.max())
    told = f"q_value_mean is {float(series.values[-1]):.4g} at the end; the rewards add up to about {bound:.4g} at most"
    if largest > _TOO_LARGE * bound:
        at = int(series.steps[np.abs(series.values) > _TOO_LARGE * bound][0])
        section.add(
            "problem" if largest > _FAR_TOO_LARGE * bound else "warning",
            "values",
            f"they explode: {told}, {largest / bound:.3g} times less; beyond {_TOO_LARGE:g} times since step {at:,}",
            "a smaller algo_kwargs.learning_rate, a slower target network (tau, target_update_interval), "
            "algo_kwargs.double, a smaller gamma; and check that ends of episodes are terminated",
            "values",
        )
    elif float(np.ptp(series.values)) == 0.0:
        section.add(
            "problem",
            "values",
            f"they are dead: q_value_mean is {float(series.values[0]):.4g} from step "
            f"{int(series.steps[0]):,} to {int(series.steps[-1]):,}",
            "check the network and whether rewards differ",
            "dead_network",
        )
    else:
        section.add("ok", "values", told)


def explained_variance(log: Log, section: Section) -> None:
    """Values of an on-policy algorithm that tell nothing about returns."""
    late = log.late("train/explained_variance")
    if len(late) < 3:
        return
    middle = median(late)
    if middle < -0.2 and not log.learned:
        section.add(
            "warning",
            "explained variance",
            f"{middle:.2f} in the second half (median): values are worse than a constant, so advantages are noise",
            "a larger algo_kwargs.n_steps, algo_kwargs.normalize_reward=true, network.normalize_obs=true, or another "
            "learning rate",
            "explained_variance",
        )
    else:
        section.add("ok", "explained variance", f"{middle:.2f} in the second half (median)")


def support(log: Log, section: Section) -> None:
    """Returns that a categorical critic cannot express."""
    options = log.config.algo_kwargs
    if not isinstance(options, C51Config):
        return
    ends, late = log.series("train/end_targets_outside"), log.late("train/targets_outside")
    proof = ends.steps[ends.values > 0.0]
    outside = float(late.max()) if len(late) else 0.0
    where = f"the support [{options.v_min:g}, {options.v_max:g}]"
    if len(proof) or outside > _OUTSIDE:
        since = f", returns at the end of episodes since step {int(proof[0]):,}" if len(proof) else ""
        section.add(
            "problem",
            "support",
            f"up to {outside:.0%} of the targets of the second half lie outside of {where}{since}: they are clipped",
            "widen algo_kwargs.v_min and v_max to the discounted returns that a good policy can have",
            "support",
        )
    else:
        section.add("ok", "support", f"{outside:.1%} of the targets lie outside of {where}")
