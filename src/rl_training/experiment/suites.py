"""Benchmark suites: which configs are run over which seeds, and what they have to reach."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from rl_training.config import ExperimentConfig
from rl_training.config.loading import check_depth, read_mapping, validate
from rl_training.config.schema import Count, Float, Kwargs, Model
from rl_training.errors import ConfigError
from rl_training.experiment.configs import check_source, find_packaged, load_config, packaged_suites
from rl_training.statistics import iqm

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_RESERVED = ("results.json", "card.md", "report.html", "facts.json", "benchmark.lock")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("should be letters, digits, '.', '_', '-' and '/', beginning with a letter or digit")
    if name in _RESERVED:
        raise ValueError("should be another one: a file of the benchmark has that name")
    return name


class EntryConfig(Model):
    """One line of a suite: a config, its seeds and its bar."""

    config: str
    """A packaged name or a YAML file, seen from where the command is called, or else from where the suite lies."""
    name: Annotated[str, AfterValidator(_checked_name)] | None = None
    """What the results are called; by default the name of the config."""
    seeds: Count = 5
    """How many, counted from the config's own."""
    overrides: Annotated[Kwargs, Field(default_factory=dict)]
    """Dotted keys and the values that take the place of the config's."""
    steps: Count | None = None
    """Takes the place of the config's ``total_timesteps``."""
    bar: Float | None = None
    """What the score has to reach; none: it is only reported."""
    below: Float | None = None
    """What the score must not reach: for runs that show that something is needed by leaving it out."""
    score: Literal["iqm", "worst"] = "iqm"
    """What of the seeds is held against the bar: their interquartile mean, or the worst of them."""


class SuiteConfig(Model):
    """What a suite's YAML says."""

    summary: str
    entries: Annotated[tuple[EntryConfig, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Entry:
    """An entry with its config resolved."""

    name: str
    plan: EntryConfig
    experiment: ExperimentConfig[Any]

    @property
    def folder(self) -> str:
        """Its name as that of a folder."""
        return self.name.replace("/", "-")

    @property
    def digest(self) -> str:
        """Twelve characters that two entries share only if they compute the same, whatever the seed."""
        return config_digest(self.experiment.model_dump(mode="json"))

    def score(self, scores: tuple[float, ...]) -> float:
        """Return what is held against the bar."""
        return iqm(scores) if self.plan.score == "iqm" else min(scores)

    def below_score(self, scores: tuple[float, ...]) -> float:
        """Return what is held against the bar that must not be reached: there, the worst seed is the highest."""
        return iqm(scores) if self.plan.score == "iqm" else max(scores)


@dataclass(frozen=True)
class Suite:
    """A suite with every config in it resolved and accepted."""

    name: str
    source: str
    summary: str
    entries: tuple[Entry, ...]


def load_suite(source: str | Path) -> Suite:
    """Return the suite of a file or of a packaged name; every problem in it is a one-line ``ConfigError``."""
    path = find_packaged(source, packaged_suites(), "suite")
    data = read_mapping(path)
    try:
        check_depth(data)
        plan = validate(SuiteConfig, data)
        entries = tuple(_entry(number, entry, path) for number, entry in enumerate(plan.entries))
        folders = [entry.folder for entry in entries]
        for entry in entries:
            if folders.count(entry.folder) > 1:
                raise ConfigError(f"entries: '{entry.name}' stands twice; give one of them another name")
    except ConfigError as error:
        hint = "; this is a config, not a suite" if "algo" in data and "entries" not in data else ""
        raise ConfigError(f"{path.name}: {error}{hint}") from None
    return Suite(path.stem, str(source), plan.summary, entries)


def config_digest(config: dict[str, Any]) -> str:
    """Return twelve characters that stand for a plain config without its seed."""
    text = json.dumps({**config, "seed": None}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _entry(number: int, plan: EntryConfig, source: Path) -> Entry:
    try:
        if plan.bar is not None and plan.below is not None and plan.bar >= plan.below:
            raise ConfigError(f"bar: {plan.bar:g} is not under below: {plan.below:g}, so that nothing passes")
        if plan.steps is not None and "total_timesteps" in plan.overrides:
            raise ConfigError("steps: stands beside an override of total_timesteps; give one of them")
        steps = {} if plan.steps is None else {"total_timesteps": plan.steps}
        beside = source.parent / plan.config
        found = beside if beside.is_file() and not Path(plan.config).is_file() else plan.config
        experiment = load_config(found, {**plan.overrides, **steps})
        check_source(found, experiment)
        if not experiment.evaluation.final_episodes:
            raise ConfigError("evaluation.final_episodes: 0 leaves nothing to score")
    except ConfigError as error:
        raise ConfigError(f"entries.{number}: {error}") from None
    name = plan.name or Path(plan.config).with_suffix("").as_posix().strip("./")
    try:
        return Entry(_checked_name(name), plan, experiment)
    except ValueError:
        raise ConfigError(f"entries.{number}: '{name}' cannot be the name of results; give a name") from None
