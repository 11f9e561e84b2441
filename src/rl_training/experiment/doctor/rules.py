"""Rules over the metrics of a run that has been trained: what they look for, with the evidence, and what helps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.log import FEW, Log
from rl_training.experiment.doctor.policy_rules import (
    action_bounds,
    divergence,
    entropy,
    exploration,
    line_search,
    temperature,
)
from rl_training.experiment.doctor.return_rules import evaluation, fall, learning, reward_size, short_episodes
from rl_training.experiment.doctor.value_rules import explained_variance, support, values

Rule = Callable[[Log, Section], None]


def finite(log: Log, section: Section) -> None:
    """Numbers that were not finite are logged as null."""
    for row in log.records:
        for name, value in row.items():
            if value is None:
                section.add(
                    "problem",
                    "finite numbers",
                    f"{name} was not finite at step {row['step']:,}",
                    "a smaller algo_kwargs.learning_rate, algo_kwargs.max_grad_norm, or rewards and observations of a "
                    "smaller size",
                    "finite",
                )
                return
    section.add("ok", "finite numbers", f"in all of {len(log.records)} rows")


def gradients(log: Log, section: Section) -> None:
    """Gradients that are zero mean that nothing is learned."""
    for name in ("train/grad_norm", "train/critic_grad_norm"):
        late = log.late(name)
        if len(late) < FEW // 2:
            continue
        if float(np.max(late)) < 1e-9:
            section.add(
                "problem",
                "gradients",
                f"{name} was {float(np.max(late)):.2g} at most in the second half of the run: nothing is learned",
                "check the network (units that are 0 for every observation have no gradient) and the rewards (do "
                "they differ at all?)",
                "dead_network",
            )
            return
        section.add("ok", "gradients", f"{name} is {float(np.median(late)):.3g} in the second half (median)")
        return


RULES: tuple[Rule, ...] = (
    finite,
    learning,
    fall,
    evaluation,
    short_episodes,
    reward_size,
    gradients,
    values,
    explained_variance,
    support,
    entropy,
    temperature,
    exploration,
    action_bounds,
    divergence,
    line_search,
)


def check_metrics(log: Log, section: Section) -> None:
    """Apply all rules; a log too short for them is said to be so."""
    if len(log.rows) < FEW:
        finite(log, section)
        section.add(
            "note",
            "metrics",
            f"{len(log.rows)} rows of training are too few for the other rules; logging.frequency is "
            f"{log.config.logging.frequency:,} steps",
        )
        return
    for rule in RULES:
        rule(log, section)
