"""The settings of runs: what differs from the defaults, and what differs between results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.config.explain import as_written, experiment_options, value_of
from rl_training.experiment.report.runs import Run

_LONGEST = 300
_OWN = frozenset({"seed", "device", "threads"})
"""What says nothing about what a result is of."""


@dataclass(frozen=True)
class Setting:
    """One option, its value and its default; none where the default is not known."""

    key: str
    value: str
    default: str | None
    meaning: str = ""

    @property
    def changed(self) -> bool:
        """Whether it is known to differ from its default."""
        return self.default is not None and self.value != self.default


def settings_of(run: Run) -> list[Setting]:
    """Return all settings of a run; if its config is not valid here, as they stand in the file."""
    if run.config is None:
        return [Setting(key, _cut(value), None) for key, value in flat(run.raw).items()]
    options = experiment_options(type(run.config.algo_kwargs))
    known = [
        Setting(
            o.key, _cut(as_written(value_of(run.config, o.key))), o.default_text, o.meaning.replace("`", "")
        )
        for o in options
    ]
    return [
        Setting("algo", run.config.algo, "required", "The algorithm."),
        *(s for s in known if s.key != "algo"),
    ]


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the options that all runs have and in which they differ, with the value of each run."""
    tables = [{setting.key: setting.value for setting in settings_of(run)} for run in runs]
    keys = [key for key in tables[0] if key not in _OWN and all(key in table for table in tables)]
    rows = {key: [table[key] for table in tables] for key in keys}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def flat(data: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, str]:
    """Return a mapping with dotted keys."""
    found: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value and depth < 8:
            found |= flat(value, f"{prefix}{key}.", depth + 1)
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, str) else _as_json(value)
    return found


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except ValueError:  # Python writes no whole numbers of more than 4,300 digits
        return "a number too long to show"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
