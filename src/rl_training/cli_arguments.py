"""What the words on the command line mean, as far as typer cannot tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError


def run_path(
    run: Path | None, checkpoint: Path | None, overrides: list[str] | None
) -> tuple[Path, list[str]]:
    """Return the run that was named, by its place or by ``--checkpoint``, and the overrides that are left."""
    given = list(overrides or [])
    if checkpoint is not None and run is not None and "=" in str(run):
        given, run = [str(run), *given], None  # with --checkpoint, the first word is an override already
    if (run is None) == (checkpoint is None):
        raise ConfigError("RUN: give one run folder or checkpoint")
    path = run if run is not None else checkpoint
    assert path is not None
    from rl_training.runtime.folder import locate

    return locate(path)[0], given


def parse_json(text: str, option: str) -> Any:
    """Return what the JSON of an option says."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{option}: not valid JSON: {text[:60]!r}") from None


def check_memory_options(policy: Any, state: Path | None, begins: Any, gained: Any) -> None:
    """Refuse what only means something to an agent with a memory, and tell its user that he gave it none."""
    carry = policy.algorithm.initial_carry(1)
    for option, given in (("--state", state), ("--episode-start", begins), ("--reward", gained)):
        if carry is None and given is not None:
            raise ConfigError(f"{option}: this agent has no memory")
    if carry is not None and state is None:
        from rl_training.runtime.console import notice

        notice("no --state: an episode begins")
