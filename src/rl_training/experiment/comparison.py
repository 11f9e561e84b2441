"""Two or more results side by side: curves, scores, and whether their seeds can tell them apart at all."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.runtime.curves import EVAL_MEAN, Series, extract_series, plot_comparison, read_metrics
from rl_training.statistics import (
    bootstrap_interval,
    holm,
    improvement_interval,
    iqm,
    probability_of_improvement,
    rank_test,
    smallest_p,
)

LEVEL = 0.05
"""A difference counts if chance alone would show one as large less often than this."""


@dataclass(frozen=True)
class Result:
    """The finished seeds of one folder; ``unfinished`` names the others."""

    name: str
    folder: Path
    env: str | None
    steps: int
    episodes: int
    scores: tuple[float, ...]
    seconds: tuple[float, ...]
    curves: tuple[Series, ...]
    unfinished: tuple[str, ...]

    @property
    def iqm(self) -> float:
        """The interquartile mean of the scores."""
        return iqm(self.scores)

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % bootstrap interval."""
        return bootstrap_interval(self.scores)


@dataclass(frozen=True)
class Pair:
    """Two results: how often a seed of the first beats one of the second, and what chance has to do with it."""

    first: str
    second: str
    probability: float
    interval: tuple[float, float]
    p_value: float
    """Adjusted for the number of pairs looked at."""
    possible: bool
    """Whether so few seeds could have told anything apart, however unlike."""

    @property
    def better(self) -> str | None:
        """The name of the better one, if the seeds can tell."""
        if self.p_value >= LEVEL:
            return None
        return self.first if self.probability > 0.5 else self.second

    @property
    def verdict(self) -> str:
        """One honest sentence."""
        if self.better is not None:
            return f"{self.better} is better (p = {self.p_value:.2g})"
        if not self.possible:
            return "these seeds cannot tell them apart: there are too few to tell anything"
        return f"these seeds cannot tell them apart (p = {self.p_value:.2g})"


@dataclass(frozen=True)
class Comparison:
    """All results, and every two of them."""

    results: tuple[Result, ...]
    pairs: tuple[Pair, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers has to know besides."""
        notes = [
            f"{result.name}: left out as not finished: {', '.join(result.unfinished)}"
            for result in self.results
            if result.unfinished
        ]
        if len({result.steps for result in self.results}) > 1:
            notes.append("the numbers of steps differ, so that scores are not of equal effort")
        if len({result.episodes for result in self.results}) > 1:
            notes.append("the numbers of evaluation episodes differ")
        return notes

    def plot(self, out: Path) -> None:
        """Write the learning curves of all as one PNG picture."""
        env = next((result.env for result in self.results if result.env), None)
        title = "Evaluation return, IQM of seeds with 95 % interval" + (f", {env}" if env else "")
        plot_comparison({result.name: result.curves for result in self.results}, out, title)

    def plain(self) -> dict[str, Any]:
        """Return the numbers for machines."""
        return {
            "results": [
                {
                    "name": result.name,
                    "folder": str(result.folder),
                    "env": result.env,
                    "total_timesteps": result.steps,
                    "scores": list(result.scores),
                    "iqm": result.iqm,
                    "interval": list(result.interval),
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
    results = tuple(read_result(name, folder) for name, folder in folders.items())
    envs = {result.env: result.name for result in results if result.env is not None}
    if len(envs) > 1:
        (one, first), (other, second) = list(envs.items())[:2]
        raise ConfigError(
            f"compare: {first} is of {one} and {second} of {other}: their scores mean nothing together"
        )
    return Comparison(results, _pairs(results))


def name_folders(words: Sequence[str]) -> dict[str, Path]:
    """Return folders by name: ``NAME=FOLDER`` gives one, else it is what tells the folder from the others."""
    paths: dict[str, Path] = {}
    unnamed: list[Path] = []
    for word in words:
        name, equals, rest = word.partition("=")
        if equals and name and not Path(word).exists():
            if name in paths:
                raise ConfigError(f"compare: two results are named '{name}'")
            paths[name] = Path(rest)
        else:
            unnamed.append(Path(word))
    for path, name in zip(unnamed, _short_names(unnamed), strict=True):
        if name in paths:
            raise ConfigError(f"compare: {path} stands twice; NAME=FOLDER gives a result another name")
        paths[name] = path
    return paths


def read_result(name: str, folder: Path) -> Result:
    """Return what a folder holds: one run, or several seeds in folders ``seed-N``."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    seeds = sorted(folder.glob("seed-*"), key=lambda path: (len(path.name), path.name))
    runs = seeds or [folder]
    found = {run.name: held for run in runs if (held := _read_run(run)) is not None}
    unfinished = tuple(run.name for run in runs if run.name not in found)
    if not found:
        raise ConfigError(f"{folder}: holds no finished run{_suites_hint(folder)}")
    results = [held for held, _ in found.values()]
    return Result(
        name,
        folder,
        next((str(result["env"]) for result in results if result.get("env")), None),
        max(int(result["steps"]) for result in results),
        max(len(result["evaluation"]["returns"]) for result in results),
        tuple(float(result["evaluation"]["mean"]) for result in results),
        tuple(float(result["seconds"]) for result in results),
        tuple(curve for _, curve in found.values()),
        unfinished,
    )


def _read_run(run: Path) -> tuple[dict[str, Any], Series] | None:
    """Return the result and the curve of a finished run, none if it is not finished."""
    path = run / "result.json"
    if not path.is_file():
        return None
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        mean = float(result["evaluation"]["mean"]) if result["evaluation"] is not None else None
        steps, seconds = int(result["steps"]), float(result["seconds"])
        if mean is not None:
            len(result["evaluation"]["returns"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: damaged: no result of a run") from None
    if mean is None:
        raise ConfigError(f"{path}: the run was not evaluated at its end, so it has no score")
    if not (math.isfinite(mean) and math.isfinite(seconds) and steps >= 0):
        raise ConfigError(f"{path}: damaged: its score is not a finite number")
    log = run / "metrics.jsonl"
    records = read_metrics(log) if log.is_file() else []
    return result, extract_series(records, EVAL_MEAN)


def _suites_hint(folder: Path) -> str:
    entries = sorted(path.parent.name for path in folder.glob("*/summary.json"))
    return f"; give one of its entries, such as {folder / entries[0]}" if entries else ""


def _pairs(results: Sequence[Result]) -> tuple[Pair, ...]:
    both = list(itertools.combinations(results, 2))
    adjusted = holm([rank_test(a.scores, b.scores) for a, b in both])
    return tuple(
        Pair(
            a.name,
            b.name,
            probability_of_improvement(a.scores, b.scores),
            improvement_interval(a.scores, b.scores),
            p_value,
            smallest_p(len(a.scores), len(b.scores)) * len(both) < LEVEL,
        )
        for (a, b), p_value in zip(both, adjusted, strict=True)
    )


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that are all different; equal paths keep equal names."""
    parts = [path.resolve().parts for path in paths]
    for count in range(1, max((len(p) for p in parts), default=0) + 1):
        names = ["/".join(p[-count:]) for p in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(path) for path in paths]
