"""What the doctor does before a run and after one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.config import ExperimentConfig
from rl_training.envs import EnvFactory
from rl_training.errors import ConfigError, EnvError, RLTrainingError
from rl_training.experiment.configs import load_config
from rl_training.experiment.doctor.environment import check_environment
from rl_training.experiment.doctor.findings import Report, Section
from rl_training.experiment.doctor.log import Log
from rl_training.experiment.doctor.network import check_network
from rl_training.experiment.doctor.observability import check_memory
from rl_training.experiment.doctor.probing import SECONDS, check_probes
from rl_training.experiment.doctor.rules import check_metrics
from rl_training.experiment.doctor.sampling import Sample, take_sample
from rl_training.experiment.doctor.settings import check_settings
from rl_training.runtime.curves import read_metrics

METRICS = "metrics.jsonl"
Show = Callable[[Section], None]


def examine_config(
    config: ExperimentConfig[Any],
    *,
    env: EnvFactory | None = None,
    seconds: float = SECONDS,
    show: Show = lambda section: None,
) -> Report:
    """Check the environment, the network and the settings of a config, and run its probes.

    ``show`` is given each section of the report as soon as it is done.
    """
    begun = time.monotonic()
    report = Report(f"{config.algo} on {config.env.id}")

    def done(section: Section) -> None:
        report.sections.append(section)
        show(section)

    section, sample = Section(f"Environment: {config.env.id}"), None
    sample = _sample(config, env, section, min(4.0, seconds / 5))
    if sample is not None:
        check_environment(config, sample, section)
    check_memory(config, sample, section)
    done(section)
    section = Section("Settings and network")
    check_settings(config, section, _episode(sample))
    if sample is not None:
        check_network(config, sample, section)
    done(section)
    section = Section("Probes: tiny tasks with known answers")
    left = max(seconds - (time.monotonic() - begun), seconds / 2)
    check_probes(config, sample, section, left)
    done(section)
    report.seconds = time.monotonic() - begun
    return report


def _sample(
    config: ExperimentConfig[Any], env: EnvFactory | None, section: Section, seconds: float
) -> Sample | None:
    """Play the environment; one that cannot be made for want of a package is left out."""
    try:
        return take_sample(config.env, factory=env, seconds=seconds)
    except ConfigError as error:
        if "pip install" not in str(error):
            raise
        section.add("note", "environment", f"not checked: {error}")
    except EnvError as error:
        section.add(
            "problem",
            "environment",
            f"random actions made it fail: {error}",
            "see what it returns there",
            "environment",
        )
    return None


def _episode(sample: Sample | None) -> float | None:
    """Return the usual length of an episode in steps."""
    if sample is None:
        return None
    lengths = [episode.stop - episode.start for episode in sample.episodes()]
    if not lengths:
        return float(sample.limit or len(sample.reward))
    return float(sum(lengths) / len(lengths))


def examine_run(folder: Path, *, show: Show = lambda section: None) -> Report:
    """Apply the rules to what a run has logged, and look at its settings; none of its code is imported."""
    begun = time.monotonic()
    config = load_config(folder)
    try:
        records = read_metrics(folder / METRICS)
    except OSError as error:
        raise ConfigError(f"{folder / METRICS}: {error.strerror}; nothing was logged") from None
    except RLTrainingError as error:
        raise ConfigError(str(error)) from None
    if not records:
        raise ConfigError(
            f"{folder / METRICS}: has no rows yet; the first one comes after logging.frequency steps"
        )
    log = Log(config, records)
    report = Report(
        f"{config.algo} on {config.env.id}: {log.last_step:,} of {config.total_timesteps:,} steps"
    )
    for title, check in (("Metrics", partial(check_metrics, log)), ("Settings", partial(_settings, log))):
        section = Section(title)
        check(section)
        report.sections.append(section)
        show(section)
    report.seconds = time.monotonic() - begun
    return report


def _settings(log: Log, section: Section) -> None:
    lengths = log.series("rollout/ep_len_mean").values
    check_settings(log.config, section, float(lengths.mean()) if len(lengths) else None)
    check_memory(log.config, None, section)
