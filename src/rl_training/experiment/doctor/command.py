"""What the command ``doctor`` does with its words; torch is imported once they are accepted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rl_training import current_folder
from rl_training.errors import ConfigError
from rl_training.experiment.configs import check_source, load_config, packaged_configs
from rl_training.experiment.doctor.findings import Report, Section


def examine(
    source: str, overrides: Sequence[str], *, full: bool, seconds: float | None, trust: bool, as_json: bool
) -> bool:
    """Print what was found; return whether that is nothing."""
    run = is_run(source)
    if full and not run:
        raise ConfigError("--full: goes with the folder of a run; of a config, everything is checked anyway")
    if run and overrides and not full:
        raise ConfigError(f"{overrides[0]}: settings can be overridden with a config, or with --full")
    config = load_config(source, overrides)
    if not run or full:
        check_source(source, config, trust=trust)
        if trust or not run:
            current_folder.offer()
    from rl_training.experiment.doctor.examine import examine_config, examine_run
    from rl_training.experiment.doctor.probing import SECONDS

    shown = _silent if as_json else _print
    reports: list[Report] = []
    if run:
        reports.append(examine_run(Path(source), show=shown))
    if not run or full:
        reports.append(examine_config(config, seconds=seconds or SECONDS, show=shown))
    both = Report(reports[0].about, [section for one in reports for section in one.sections])
    both.seconds = sum(one.seconds for one in reports)
    print(json.dumps(both.plain()) if as_json else both.verdict(), flush=True)
    return not both.bad


def is_run(source: str) -> bool:
    """Say whether this names the folder of a run, and refuse folders that hold none, or several."""
    path = Path(source)
    try:
        if not path.is_dir() or source in packaged_configs():
            return False
    except OSError:
        return False
    seeds = sorted(entry.name for entry in path.glob("seed-*") if entry.is_dir())
    if (path / "config.yaml").is_file() and not seeds:
        return True
    if seeds:
        raise ConfigError(f"{path}: holds one run per seed; give one of them, such as {path / seeds[0]}")
    raise ConfigError(f"{path}: not the folder of a run: it has no config.yaml")


def _silent(section: Section) -> None:
    pass


def _print(section: Section) -> None:
    print("\n".join(section.lines()), end="\n\n", flush=True)
