"""The measured results of the packaged configs: kept in ``benchmarks/results.json``, shown in the docs.

python tools/results.py FOLDER...   # take over finished seeds from folders of `train --seeds` or of `benchmark`

An entry knows what its config said when it was measured, so a config that has changed since is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from rl_training.algorithms.catalogue import PACKAGED, packaged
from rl_training.config.loading import read_mapping
from rl_training.experiment.configs import packaged_configs
from rl_training.experiment.results import read_result
from rl_training.statistics import iqm

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results.json"
DEFAULTS = ROOT / "benchmarks" / "defaults.json"
DECISIVE = ("algo", "env", "total_timesteps", "algo_kwargs", "network")
"""Sections of a config that decide what is learned."""

Entry = dict[str, Any]


def load() -> dict[str, Entry]:
    """Return the entries by the name of their config."""
    entries: dict[str, Entry] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return entries


def own_configs() -> dict[str, Path]:
    """Return the configs of this package, without those of other distributions that happen to be installed."""
    assets = ROOT / "src" / "rl_training" / "assets"
    return {name: path for name, path in packaged_configs().items() if path.is_relative_to(assets)}


def settings(config: str) -> str:
    """Return twelve characters that stand for what the packaged config says now."""
    data = read_mapping(own_configs()[config])
    decisive = {key: data.get(key) for key in DECISIVE}
    stop_at = data.get("evaluation", {}).get("stop_at")
    if stop_at is not None:  # it decides when training ends
        decisive["stop_at"] = stop_at
    text = json.dumps(decisive, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def scores(entry: Entry) -> list[float]:
    """Return the scores of all seeds."""
    return [float(score) for score in entry["scores"].values()]


def holding(entry: Entry) -> int:
    """Return how many seeds are at the bar or above it; of a bar that is not to be reached, below it."""
    if "below" in entry:
        return sum(score < entry["below"] for score in scores(entry))
    return sum(score >= entry["bar"] for score in scores(entry))


def table() -> str:
    """Return the table of all results, in Markdown."""
    lines = [
        "| config | env steps | seeds | IQM | worst | bar | seeds that hold it | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    why: list[str] = []
    for config, path in own_configs().items():
        entry = load().get(config)
        steps = f"{read_mapping(path)['total_timesteps']:,}"
        if entry is None or "scores" not in entry:
            lines.append(f"| `{config}` | {steps} | not measured | | | | | |")
            if entry is not None and "reason" in entry:
                why.append(f"- `{config}` was not measured: {entry['reason']}.")
            continue
        each = scores(entry)
        bar, held = "none", ""
        if "bar" in entry or "below" in entry:
            bar = f"below {entry['below']:g}" if "below" in entry else f"{entry['bar']:g}"
            held = f"{holding(entry)} of {len(each)}"
        seconds = f"{entry['seconds']:,.0f}" if "seconds" in entry else ""
        seeds = ", ".join(_ranges(sorted(map(int, entry["scores"]))))
        numbers = f"{_short(iqm(each))} | {_short(max(each) if 'below' in entry else min(each))}"
        lines.append(f"| `{config}` | {steps} | {seeds} | {numbers} | {bar} | {held} | {seconds} |")
    return "\n".join([*lines, *(["", *why] if why else []), ""])


def defaults_table() -> str:
    """Return the table of what the defaults learn, in Markdown."""
    lines = ["| algorithm | environment | env steps | scores | seconds |", "|---|---|---|---|---|"]
    entries = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    for name in PACKAGED:
        classic, entry = packaged(name).classic, entries.get(name)
        if classic is None:
            lines.append(f"| `{name}` | none: its settings depend on the images | | | |")
        elif entry is None:
            lines.append(f"| `{name}` | {classic.env} | {classic.steps:,} | not measured | |")
        else:
            each = ", ".join(_short(score) for score in entry["scores"].values())
            lines.append(
                f"| `{name}` | {entry['env']} | {entry['steps']:,} | {each} | {entry['seconds']:.0f} |"
            )
    return "\n".join([*lines, ""])


def measured(algo: str) -> str:
    """Return the scores of an algorithm's packaged configs in a line, in Markdown."""
    entries = load()
    found = [(config, entries.get(config, {})) for config in own_configs() if config.startswith(f"{algo}/")]
    each = [
        f"`{config.partition('/')[2]}` {_short(iqm(scores(entry)))}"
        for config, entry in found
        if "scores" in entry and "below" not in entry
    ]
    return ", ".join(each)


def _ranges(numbers: list[int]) -> list[str]:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in found]


def _short(score: float) -> str:
    digits = 0 if abs(score) >= 1000 else 1 if abs(score) >= 20 else 3 if abs(score) < 2 else 2
    return f"{score:,.{digits}f}"


def take_over(folder: Path) -> list[str]:
    """Add the finished seeds below a folder to the results; return the names of their configs."""
    entries, taken = load(), set()
    for run in sorted(path.parent for path in folder.rglob("seed-*/result.json")):
        result, config = read_result(run), _config_of(run)
        seed = re.sub(r"^seed-", "", run.name)
        if result is None or result.mean is None or config is None:
            print(f"{run}: left out: not finished, or its config is not a packaged one", file=sys.stderr)
            continue
        entry = entries.setdefault(config, {})
        if entry.get("settings") != settings(config):
            kept = {key: value for key, value in entry.items() if key in ("bar", "below")}
            entry = entries[config] = {**kept, "settings": settings(config), "scores": {}}
        entry.setdefault("scores", {})[seed] = round(result.mean, 4)
        entry["measured"] = time.strftime("%Y-%m-%d")
        entry.setdefault("took", {})[seed] = round(result.seconds, 1)
        took = sorted(entry["took"].values())
        entry["seconds"] = took[len(took) // 2]
        taken.add(config)
    RESULTS.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return sorted(taken)


def _config_of(run: Path) -> str | None:
    """Return the packaged config whose decisive sections a run has, none if there is no such."""
    from rl_training.experiment.configs import load_config

    held = load_config(run / "config.yaml").model_dump(mode="json")
    for name in own_configs():
        if name.startswith(f"{held['algo']}/"):
            wanted = load_config(name).model_dump(mode="json")
            if all(held[key] == wanted[key] for key in DECISIVE):
                return name
    return None


if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(f"{given}: {', '.join(take_over(Path(given)))}")
