"""Two or more results side by side: curves, scores, and whether their seeds can tell them apart at all."""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.experiment.results import read_result
from rl_training.runtime.curves import EVAL_MEAN, Series, extract_series, plot_comparison, read_metrics
from rl_training.shell import quoted_path
from rl_training.statistics import (
    MIN_SCORES,
    holm,
    improvement_interval,
    interval_text,
    iqm,
    probability_of_improvement,
    rank_test,
    seeds_interval,
)

LEVEL = 0.05
"""A difference counts if chance alone would show one as large less often than this."""
Named = tuple[str, Sequence[float]]
"""A name and the scores of its seeds."""
MIN_SEEDS = 5
"""Fewer often lie all on one side of the others by chance, however many others there are."""


@dataclass(frozen=True)
class Result:
    """The finished seeds of one folder, in order; ``unfinished`` names the others."""

    name: str
    folder: Path
    env: str | None
    steps: tuple[int, ...]
    episodes: tuple[int, ...]
    scores: tuple[float, ...]
    seconds: tuple[float, ...]
    curves: tuple[Series, ...]
    unfinished: tuple[str, ...]
    env_settings: frozenset[str]
    """The kwargs and wrappers of the environments of all seeds, where they are known."""

    @property
    def iqm(self) -> float:
        """The interquartile mean of the scores."""
        return iqm(self.scores)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % bootstrap interval, if there are seeds enough for one."""
        return seeds_interval(self.scores)


@dataclass(frozen=True)
class Pair:
    """Two results: how often a seed of the first beats one of the second, and what chance has to do with it."""

    first: str
    second: str
    probability: float
    interval: tuple[float, float]
    p_value: float
    """Adjusted for the number of pairs that can be told apart at all, after Holm."""
    possible: bool
    """Whether there are seeds enough, by the rule of this package, for anything to be called better."""
    lead: float
    """By how much the interquartile mean of the first is above that of the second."""

    @property
    def better(self) -> str | None:
        """The name of the better one, if the seeds can tell: both by ranks and by the interquartile mean."""
        if not self.possible or self.p_value >= LEVEL or (self.probability - 0.5) * self.lead <= 0:
            return None
        return self.first if self.probability > 0.5 else self.second

    @property
    def verdict(self) -> str:
        """One honest sentence."""
        if self.better is not None:
            return f"{self.better} is better (p = {self.p_value:.2g})"
        if self.possible and self.p_value < LEVEL:
            return (
                f"these seeds cannot tell which is better: ranks and means disagree (p = {self.p_value:.2g})"
            )
        if not self.possible:
            return "these seeds cannot tell them apart: it takes five of each to tell anything"
        return f"these seeds cannot tell them apart (p = {self.p_value:.2g})"


@dataclass(frozen=True)
class Comparison:
    """All results, and every two of them."""

    results: tuple[Result, ...]
    pairs: tuple[Pair, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers has to know besides."""
        decidable = sum(pair.possible for pair in self.pairs)
        notes = [f"p is adjusted for {decidable} pairs"] if decidable > 1 else []
        notes += [
            f"{result.name}: left out as not finished: {', '.join(result.unfinished)}"
            for result in self.results
            if result.unfinished
        ]
        if len({steps for result in self.results for steps in result.steps}) > 1:
            notes.append("the numbers of steps differ, so that scores are not of equal effort")
        if len({episodes for result in self.results for episodes in result.episodes}) > 1:
            notes.append("the numbers of evaluation episodes differ")
        if len({settings for result in self.results for settings in result.env_settings}) > 1:
            notes.append(
                "the environments differ in their kwargs or wrappers, so scores may mean different things"
            )
        return notes

    def plot(self, out: Path) -> None:
        """Write the learning curves of all as one PNG picture."""
        env = next((result.env for result in self.results if result.env), None)
        few = any(len(result.curves) < MIN_SCORES for result in self.results)
        band = "95 % interval" + (" (of fewer than five: range)" if few else "")
        title = f"Evaluation return, IQM of seeds with {band}" + (f", {env}" if env else "")
        plot_comparison({result.name: result.curves for result in self.results}, out, title)

    def lines(self) -> list[str]:
        """Return the numbers for people: a table, the verdicts, the notes."""
        width = max(len(result.name) for result in self.results)
        table = [
            f"{result.name:<{width}}  {len(result.scores):5}  {max(result.steps):10,}  {result.iqm:10.2f}"
            f"  {statistics.median(result.seconds):13.0f}  {interval_text(result.scores)}"
            for result in self.results
        ]
        head = f"{'':<{width}}  seeds       steps         IQM  seconds a run"
        verdicts = [f"P({p.first} > {p.second}) = {p.probability:.2f}: {p.verdict}" for p in self.pairs]
        return [head, *table, *verdicts, *(f"Note    {note}" for note in self.notes)]

    def plain(self) -> dict[str, Any]:
        """Return the numbers for machines."""
        return {
            "results": [
                {
                    "name": result.name,
                    "folder": str(result.folder),
                    "env": result.env,
                    "total_timesteps": list(result.steps),
                    "scores": list(result.scores),
                    "iqm": result.iqm,
                    "interval": result.interval,
                    "seconds": list(result.seconds),
                    "unfinished": list(result.unfinished),
                }
                for result in self.results
            ],
            "notes": self.notes,
            "pairs": [
                {
                    "first": pair.first,
                    "second": pair.second,
                    "probability_of_improvement": pair.probability,
                    "interval": list(pair.interval),
                    "p_value": pair.p_value,
                    "better": pair.better,
                    "verdict": pair.verdict,
                }
                for pair in self.pairs
            ],
        }


def compare(folders: Mapping[str, Path]) -> Comparison:
    """Compare the results in two or more folders, by name; scores of different environments are refused."""
    if len(folders) < 2:
        raise ConfigError("compare: takes two results or more")
    results = tuple(read_results(name, folder) for name, folder in folders.items())
    envs = {result.env: result.name for result in results if result.env is not None}
    if len(envs) > 1:
        (one, first), (other, second) = list(envs.items())[:2]
        raise ConfigError(
            f"compare: {first} is of {one} and {second} of {other}: their scores cannot be compared"
        )
    named = [(result.name, result.scores) for result in results]
    return Comparison(results, judge(list(itertools.combinations(named, 2))))


def name_folders(words: Sequence[str]) -> dict[str, Path]:
    """Return folders by name: ``NAME=FOLDER`` gives one, else it is what tells the folder from the others."""
    given = [_split(word) for word in words]
    short = iter(_short_names([path for name, path in given if not name]))
    paths: dict[str, Path] = {}
    for name, path in given:
        own = name or next(short)
        if own in paths:
            raise ConfigError(f"two results are named '{own}'; NAME=FOLDER gives one another name")
        paths[own] = path
    return paths


def _split(word: str) -> tuple[str, Path]:
    name, equals, rest = word.partition("=")
    named = bool(equals and name and rest) and not Path(word).exists()
    return (name, Path(rest)) if named else ("", Path(word))


def read_results(name: str, folder: Path) -> Result:
    """Return what a folder holds: one run, or several seeds in folders ``seed-N``."""
    try:
        return _read_results(name, folder)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}") from None


def _read_results(name: str, folder: Path) -> Result:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    seeds = sorted(folder.glob("seed-*"), key=lambda path: (len(path.name), path.name))
    runs = {run: read_result(run) for run in seeds or [folder]}
    found = {run: result for run, result in runs.items() if result is not None}
    if not found:
        raise ConfigError(_nothing_in(folder))
    for run, result in found.items():
        if result.mean is None:
            raise ConfigError(f"{run}: was not evaluated at its end, so it has no score")
    envs = {result.env for result in found.values()} - {None}
    if len(envs) > 1:
        raise ConfigError(
            f"{folder}: holds runs of different environments: {', '.join(sorted(map(str, envs)))}"
        )
    results = list(found.values())
    return Result(
        name,
        folder,
        next(iter(envs), None),
        tuple(result.steps for result in results),
        tuple(result.episodes for result in results),
        tuple(result.mean for result in results if result.mean is not None),
        tuple(result.seconds for result in results),
        tuple(_curve(run) for run in found),
        _missing(folder, [run.name for run, result in runs.items() if result is None], bool(seeds)),
        frozenset(result.env_settings for result in results if result.env_settings is not None),
    )


def _missing(folder: Path, unfinished: list[str], several: bool) -> tuple[str, ...]:
    """Return what is not there of what should be; an experiment that was cut short has no summary yet."""
    begun = several and (folder / "config.yaml").is_file() and not (folder / "summary.json").is_file()
    return (*unfinished, *(["seeds that were never begun"] if begun and not unfinished else []))


def _curve(run: Path) -> Series:
    log = run / "metrics.jsonl"
    return extract_series(read_metrics(log) if os.path.lexists(log) else [], EVAL_MEAN)


def _nothing_in(folder: Path) -> str:
    entries = sorted(path.parent.name for path in folder.glob("*/summary.json"))
    if entries:
        return f"{folder}: holds several experiments; give one of them, such as {quoted_path(folder / entries[0])}"
    return f"{folder}: holds no finished run"


def judge(contests: Sequence[tuple[Named, Named]]) -> tuple[Pair, ...]:
    """Hold two named lists of scores against each other, for each contest; p is adjusted for all that can be told."""
    possible = [min(len(a), len(b)) >= MIN_SEEDS for (_, a), (_, b) in contests]
    p_values = [rank_test(a, b) for (_, a), (_, b) in contests]
    adjusted = iter(holm([p for p, can in zip(p_values, possible, strict=True) if can]))
    return tuple(
        Pair(
            first,
            second,
            probability_of_improvement(a, b),
            improvement_interval(a, b),
            next(adjusted) if can else p_value,
            can,
            iqm(a) - iqm(b),
        )
        for ((first, a), (second, b)), p_value, can in zip(contests, p_values, possible, strict=True)
    )


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that are all different; equal paths keep equal names."""
    parts = [path.resolve().parts for path in paths]
    for count in range(1, max((len(p) for p in parts), default=0) + 1):
        names = ["/".join(p[-count:]) for p in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(path) for path in paths]
