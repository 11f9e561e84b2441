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


def training_source(
    words: list[str] | None, config: str | None, algo: str | None, env: str | None, seed: int | None
) -> tuple[str | dict[str, Any], dict[str, Any], str]:
    """Return the config that is trained, what overrides it, and what is to be said about its budget.

    The config is a name, or that of an algorithm's defaults.
    """
    given = list(words or [])
    if config is None and given and "=" not in given[0]:
        config = given.pop(0)
    from rl_training.config.loading import parse_overrides

    overrides = parse_overrides(given)
    for option, key, value in (("--env", "env.id", env), ("--seed", "seed", seed)):
        if value is not None and overrides.setdefault(key, value) != value:
            raise ConfigError(f"{option}: {value}, but {key}={overrides[key]} is given, too")
    if config is not None:
        if algo is not None:
            raise ConfigError(f"--algo: goes without a config, and {config} is one")
        return config, overrides, ""
    if algo is None:
        raise ConfigError(
            "CONFIG: is missing; give one, such as dqn/cartpole (rl-training list shows all), or --algo and --env"
        )
    from rl_training.experiment import registry

    by_class = {spec.class_name: name for name, spec in registry.algorithms().items()}
    spec = registry.get(by_class.get(algo, algo))
    if not env and "env.id" not in overrides:
        raise ConfigError("--env: is missing; --algo needs an environment, such as --env CartPole-v1")
    said = ""
    if spec.classic is not None and "total_timesteps" not in overrides:
        overrides["total_timesteps"] = steps = spec.classic.steps
        said = f"total_timesteps: {steps}, enough for {spec.classic.env}; total_timesteps=N is another budget"
    return {"algo": spec.name}, overrides, said


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
