"""The card of a benchmark: its results as a Markdown page."""

from __future__ import annotations

import json
import re
import statistics

from rl_training.experiment.suite_results import BenchmarkResult, EntryResult
from rl_training.shell import command


def card(result: BenchmarkResult) -> str:
    """Return the results as a Markdown page."""
    facts = result.facts
    versions = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "numpy", "gymnasium"))
    lines = [
        f"# Benchmark `{result.suite}`",
        "",
        result.summary,
        "",
        f"rl_training {facts['rl_training']} (source {facts['source']}), {versions}; {facts['cpu']}, "
        f"{facts['cores']} cores, {facts['memory_gib']} GiB; runs at a time, in the last call: {result.at_once}. "
        f"Finished {result.finished}.",
        "",
        "Score of a seed: mean return of the final policy, greedy, over the episodes named. Interval: 95 %,",
        "bootstrap over seeds, from five on. Seconds: median of a run, from its first step, others beside it.",
        "",
        "| run | steps | episodes | scores by seed | IQM | interval | bar | | seconds | config |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(entry) for entry in result.entries),
        "",
        *(_what(entry) for entry in result.entries),
        "",
    ]
    for entry in result.entries:
        if entry.scores and not entry.errors:
            lines += [f"![{entry.name}]({entry.name.replace('/', '-')}/curve.png)", ""]
    lines += [f"Repeat: {_code(command('rl-training', 'benchmark', result.source))}", ""]
    return "\n".join(lines)


def _code(text: str) -> str:
    """Return text as code, fenced by more backticks than it has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}"


def _what(entry: EntryResult) -> str:
    changed = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in entry.overrides.items())
    own = f", with {changed}" if changed else ""
    return f"- `{entry.name}`: `{entry.algo}` on `{entry.env}`, config `{entry.config}`{own}"


def _row(entry: EntryResult) -> str:
    left = f"| `{entry.name}` | {entry.total_timesteps:,} | {entry.episodes} |"
    scores = ", ".join(f"{score:.1f}" for score in entry.scores)
    if entry.errors:
        scores = "; ".join(
            [*([scores] if scores else []), *(error.replace("|", "/") for error in entry.errors)]
        )
    mean = "" if entry.iqm is None else f"{entry.iqm:.1f}"
    interval = "" if entry.interval is None else "{:.1f} to {:.1f}".format(*entry.interval)
    verdict = entry.verdict if entry.verdict in ("", "reached", "held") else f"**{entry.verdict.lower()}**"
    seconds = f"{statistics.median(entry.seconds):.0f}" if entry.seconds else ""
    return (
        f"{left} {scores} | {mean} | {interval} | {entry.aim or 'none'} | {verdict} "
        f"| {seconds} | `{entry.digest}` |"
    )
