"""What finished runs left behind, as far as others rely on it: ``result.json``, read with suspicion."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_training.config.loading import read_mapping
from rl_training.errors import ConfigError
from rl_training.plain_files import read_plain

MAX_RESULT_BYTES = 16 * 2**20


@dataclass(frozen=True)
class RunResult:
    """The outcome of one run; without a final evaluation there is no ``mean``."""

    env: str | None
    steps: int
    seconds: float
    episodes: int
    mean: float | None
    stopped: bool
    """Whether something ended it before its budget was used up."""
    env_settings: str | None = None
    """The kwargs and the wrappers of its environment, as far as it says so."""


def read_result(run: Path) -> RunResult | None:
    """Return the outcome of a run, none if it is not finished; a damaged one is a ``ConfigError``.

    A run that was carried on still has the result of the shorter one; it is not finished before the budget in its
    ``config.yaml`` is used up, or something stopped it.
    """
    path = run / "result.json"
    if not os.path.lexists(path):
        return None
    try:
        held = json.loads(read_plain(path, MAX_RESULT_BYTES))
        evaluation = held["evaluation"]
        result = RunResult(
            None if held.get("env") is None else str(held["env"]),
            int(_number(held["steps"])),
            _number(held["seconds"]),
            0 if evaluation is None else len(evaluation["returns"]),
            None if evaluation is None else _number(evaluation["mean"]),
            bool(held.get("stop_reason")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise ConfigError(f"{path}: damaged: not the result of a run") from None
    try:
        config = _config(run)
    except ConfigError:
        if not result.stopped:
            raise
        return result  # finished whatever its budget was
    total = config.get("total_timesteps")
    if not result.stopped and isinstance(total, int | float) and result.steps < total:
        return None
    return replace(result, env_settings=_env_settings(config))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


def _config(run: Path) -> dict[str, Any]:
    """Return the config of a run; those of other packages have none."""
    return read_mapping(run / "config.yaml", follow=False) if os.path.lexists(run / "config.yaml") else {}


def _env_settings(config: dict[str, Any]) -> str | None:
    """Return the settings as text that is equal if they are: 10 and 10.0, or none and empty ones."""
    env = config.get("env")
    if not isinstance(env, dict):
        return None
    text = json.dumps({key: env.get(key) or None for key in ("kwargs", "wrappers")}, default=str)
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)
