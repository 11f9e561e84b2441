"""Finding the runs in folders, and grouping seeds and results that belong together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.experiment.comparison import Comparison, Result, judge
from rl_training.experiment.report.runs import Run, is_run, open_run, read_object
from rl_training.experiment.results import MAX_RESULT_BYTES

MAX_RUNS = 400
_DEPTH = 5
_MOST_ENTRIES = 5_000


@dataclass
class Group:
    """Runs that differ in their seeds only; a single run is a group, too."""

    name: str
    folder: Path
    runs: list[Run]
    several: bool
    entry: Mapping[str, Any] = field(default_factory=dict)
    """What the benchmark that it is of says of it: its bar, and whether it was reached."""

    @property
    def first(self) -> Run:
        """The run that the others equal but for their seeds."""
        return self.runs[0]

    @property
    def env(self) -> str:
        """The environment."""
        return next((run.env for run in self.runs if run.env), "")

    @property
    def finished(self) -> list[Run]:
        """The runs that have a score."""
        return [run for run in self.runs if run.outcome is not None and run.outcome.mean is not None]

    @property
    def scores(self) -> list[float]:
        """The scores of those."""
        means = (run.outcome.mean for run in self.finished if run.outcome is not None)
        return [mean for mean in means if mean is not None]

    def result(self) -> Result:
        """Return its finished runs as ``compare`` knows them."""
        outcomes = [run.outcome for run in self.finished if run.outcome is not None]
        unfinished = [run.path.name for run in self.runs if run not in self.finished]
        return Result(
            self.name,
            self.folder,
            self.env or None,
            tuple(outcome.steps for outcome in outcomes),
            tuple(outcome.episodes for outcome in outcomes),
            tuple(self.scores),
            tuple(outcome.seconds for outcome in outcomes),
            tuple(run.evaluation for run in self.finished),
            tuple(unfinished),
            frozenset(o.env_settings for o in outcomes if o.env_settings is not None),
        )


@dataclass
class Panel:
    """All results of one environment, which can be held against each other."""

    env: str
    groups: list[Group]

    def comparison(self) -> Comparison | None:
        """Return what ``compare`` says of those with scores, none if there are fewer than two."""
        scored = [group for group in self.groups if group.scores]
        if len(scored) < 2:
            return None
        named = [(group.name, group.scores) for group in scored]
        pairs = judge(list(itertools.combinations(named, 2)))
        return Comparison(tuple(group.result() for group in scored), pairs)


def gather(folders: Mapping[str, Path]) -> list[Panel]:
    """Return the results in folders, by environment, with their metrics; ``ConfigError`` if there are none."""
    groups: list[Group] = []
    for name, folder in folders.items():
        found = find_groups(folder)
        for group in found:
            inner = group.name
            group.name = "/".join(part for part in (name if len(folders) > 1 else "", inner) if part) or name
        groups += found
    for run in (run for group in groups for run in group.runs):
        run.read_log()
    full = [group for group in groups if any(run.has_data for run in group.runs)]
    if not full:
        path = groups[0].first.path
        raise ConfigError(f"{path}: holds no metrics: metrics.jsonl is missing, empty or cannot be read")
    return panels_of(full)


def panels_of(groups: Sequence[Group]) -> list[Panel]:
    """Return groups by their environments."""
    panels: dict[str, Panel] = {}
    for group in groups:
        panels.setdefault(group.env, Panel(group.env, [])).groups.append(group)
    return list(panels.values())


def find_groups(folder: Path) -> list[Group]:
    """Return the groups in a folder, named by where they lie in it; what it is itself has no name."""
    return grouped(folder, [open_run(path) for path in list_runs(folder)])


def list_runs(folder: Path) -> list[Path]:
    """Return the folders of the runs in a folder, all or none."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    found = list(itertools.islice(find_runs(folder), MAX_RUNS + 1))
    if len(found) > MAX_RUNS:
        raise ConfigError(f"{folder}: holds more than {MAX_RUNS} runs; give a part of them")
    if not found:
        checkpoint = (folder / "manifest.json").exists()
        said = "is a checkpoint; give the folder of its run" if checkpoint else "holds no run"
        raise ConfigError(f"{folder}: {said}")
    return found


def grouped(folder: Path, runs: Sequence[Run]) -> list[Group]:
    """Return runs with the seeds of one experiment together."""
    apart: dict[Path, list[Run]] = {}
    for run in runs:
        seed = run.path.name.startswith("seed-") and run.path != folder
        apart.setdefault(run.path.parent if seed else run.path, []).append(run)
    entries = _entries(folder)
    groups = []
    for place, members in apart.items():
        name = "" if place == folder else str(place.relative_to(folder))
        entry = entries.get(name, {})
        groups.append(Group(str(entry.get("name", name)), place, members, members[0].path != place, entry))
    return groups


def find_runs(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the folders of runs at and below a folder, in order; links are not followed."""
    if is_run(folder):
        yield folder
    elif depth < _DEPTH:
        try:
            with os.scandir(folder) as entries:
                listed = list(itertools.islice(entries, _MOST_ENTRIES))
        except OSError:
            return
        below = [entry.name for entry in listed if entry.is_dir(follow_symlinks=False)]
        for name in sorted(below, key=lambda name: (_stem(name), len(name), name)):
            yield from find_runs(folder / name, depth + 1)


def _stem(name: str) -> str:
    """Return what seeds have in common, so that the tenth comes after the ninth."""
    return name.rstrip("0123456789")


def _entries(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return what the results of a benchmark say of its entries, by their folders."""
    entries = read_object(folder / "results.json", MAX_RESULT_BYTES).get("entries")
    named = [e for e in entries if isinstance(e, Mapping)] if isinstance(entries, list) else []
    return {e["name"].replace("/", "-"): e for e in named if isinstance(e.get("name"), str)}
