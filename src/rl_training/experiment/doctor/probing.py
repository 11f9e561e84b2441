"""The probes of a config one after the other, and what their failures mean."""

from __future__ import annotations

import time
from typing import Any

from rl_training.algorithms import catalogue
from rl_training.algorithms.options import MemoryOptions
from rl_training.config import ExperimentConfig
from rl_training.experiment.doctor.blame import blame
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.probe_config import probe_config, scaled, updates_for
from rl_training.experiment.doctor.probe_env import ADDS, Kind
from rl_training.experiment.doctor.probes import (
    Outcome,
    Plan,
    action_space,
    observation_space,
    run_probe,
)
from rl_training.experiment.doctor.sampling import Sample

SECONDS = 24.0
"""Of the whole examination of a config; on an idle machine, most take a third of that."""
KINDS: tuple[Kind, ...] = ("value", "discount", "policy", "both", "memory")
_SHARE = 0.3
"""Of the time for all probes that one may take; what is not decided by then is said to be so, and is no failure."""


def plan_for(config: ExperimentConfig[Any], sample: Sample | None) -> Plan:
    """Return what probes of a config are like."""
    kind = None if sample is None else sample.actions_spec.kind
    space = None if sample is None else sample.observation_space
    return Plan(config, action_space(config, kind), observation_space(config, space))


def check_probes(
    config: ExperimentConfig[Any], sample: Sample | None, section: Section, seconds: float
) -> None:
    """Run the probes until one fails, and look for the setting that makes it fail."""
    if not hasattr(config.algo_kwargs, "learning_rate"):
        section.add(
            "note", "probes", f"{config.algo} has no learning_rate, so nothing is known of how long it needs"
        )
        return
    plan, deadline, each = plan_for(config, sample), time.monotonic() + seconds, _SHARE * seconds
    _say_what_is_scaled(config, section)
    passed: list[Kind] = []
    for kind in KINDS:
        if kind == "memory" and not isinstance(config.algo_kwargs, MemoryOptions):
            continue
        outcome = run_probe(plan, kind, deadline=min(deadline, time.monotonic() + each))
        if outcome.verdict == "failed":  # by bad luck?
            again = run_probe(plan, kind, deadline=min(deadline, time.monotonic() + each), seed=1)
            if again.verdict == "failed":
                _failed(plan, again, passed, section, deadline + each)
                return
            outcome = again
        took = f"{outcome.updates} updates, {outcome.seconds:.1f} s"
        if outcome.verdict == "passed":
            passed.append(kind)
            section.add("ok", kind, f"{outcome.evidence} ({took})")
        else:
            section.add(
                "note", kind, f"undecided: {outcome.evidence}", f"--seconds {2 * SECONDS:g} allows more time"
            )


def _say_what_is_scaled(config: ExperimentConfig[Any], section: Section) -> None:
    said = scaled(config, probe_config(config, updates_for(config)))
    images = (
        "image" in catalogue.find(config.algo).obs_kinds and len(catalogue.find(config.algo).obs_kinds) == 1
    )
    shown = (
        "small images"
        if images
        else "of the environment's shape"
        if config.network.factory
        else "three numbers"
    )
    own = "its own settings" + (f", but {', '.join(said)}" if said else "")
    section.add("note", "scaled", f"{own}; observations are {shown}")


def _failed(plan: Plan, outcome: Outcome, passed: list[Kind], section: Section, deadline: float) -> None:
    kind = outcome.kind
    before = f"{', '.join(passed)} passed, so it is what this one adds" if passed else "the first one"
    text = f"{outcome.evidence}, after {outcome.updates} updates, with two seeds. {before}: {ADDS[kind]}"
    found = blame(plan, kind, deadline)
    if found is not None:
        cause, why, remedy = found
        section.add("problem", kind, f"{text}. {why}", remedy, cause)
        return
    section.add(
        "problem",
        kind,
        f"{text}. No single setting that differs from its default explains it",
        "if the network or the algorithm is your own, look there first",
        f"probe_{kind}",
    )
