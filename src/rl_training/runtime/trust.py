"""Which code the config of a run folder may name, unless its user trusts it.

A name that was typed, or stands in a config file that was passed, is the user's own. One from a run folder or a
checkpoint may only mean what is registered with Gymnasium, and classes of environments, wrappers and networks of
installed packages. Anything else needs ``--trust``.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import gymnasium as gym

from rl_training.config import ExperimentConfig
from rl_training.envs.extras import packages_of
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.installed import is_installed

_LEGACY = ("GymV21Environment", "GymV26Environment")
"""Ids whose kwargs name another environment, which may name a module."""


class Untrusted(ConfigError):
    """A run folder names code that only ``--trust`` lets it run."""


def check_names(
    config: ExperimentConfig[Any],
    trust: bool,
    *,
    env: bool = True,
    network: bool = True,
    wrappers: bool = True,
) -> None:
    """Refuse names of a config from a run folder that need trust; ``env``, ``network``: which parts are to be used."""
    if trust:
        return
    for key, name in _names(config, env, network, wrappers):
        refused = _refused(key, name)
        if refused is not None:
            raise Untrusted(f"{key}: {refused}; add --trust (in Python trust=True) if you trust this run")


def needs_trust(config: ExperimentConfig[Any]) -> bool:
    """Say whether a run with this config can only be used with ``--trust``."""
    try:
        check_names(config, False)
    except Untrusted:
        return True
    except RLTrainingError:  # what cannot be imported is no better for being trusted
        return False
    return False


def _names(
    config: ExperimentConfig[Any], env: bool, network: bool, wrappers: bool
) -> Iterator[tuple[str, str]]:
    if env:
        yield "env.id", config.env.id
    if wrappers:
        for section, listed in (
            ("env", config.env.wrappers),
            ("evaluation.env", config.evaluation.env.wrappers or ()),
        ):
            for index, wrapper in enumerate(listed):
                yield f"{section}.wrappers.{index}", wrapper.id
    if network and config.network.factory is not None:
        yield "network.factory", config.network.factory


def _refused(key: str, name: str) -> str | None:
    """Say why a name needs trust, or none if it does not."""
    module, colon, attribute = name.partition(":")
    if not colon:
        return _refused_plain(key, name)
    if not is_installed(module):
        return f"'{name}' would import '{module}', which is not an installed package"
    try:
        found = vars(importlib.import_module(module)).get(attribute)
    except Exception as error:  # whatever a module does when it is imported
        raise ConfigError(f"{key}: '{name}': {type(error).__name__}: {error}") from error
    if key == "env.id" and attribute in gym.registry:
        return _refused_plain(key, attribute)
    base, what = _wanted(key)
    own = isinstance(found, type) and found.__module__ == module and found.__qualname__ == attribute
    if not own or not issubclass(found, base) or issubclass(found, gym.wrappers.RecordVideo):  # type: ignore[arg-type]
        return f"'{name}' would import '{module}' and call '{attribute}', which is no {what} class of that module"
    return None


def _refused_plain(key: str, name: str) -> str | None:
    if key == "network.factory":
        return None  # no name at all, which is said later
    if key != "env.id":
        # It writes files where its kwargs say.
        return "'RecordVideo' would write files" if name == "RecordVideo" else None
    if name.startswith(_LEGACY):
        return f"'{name}' would import what its kwargs say"
    for module in packages_of(name):
        if importlib.util.find_spec(module) is not None and not is_installed(module):
            return f"'{name}' would import '{module}', which is not an installed package"
    return None


def _wanted(key: str) -> tuple[type, str]:
    if key == "network.factory":
        from torch import nn

        return nn.Module, "network"
    return (gym.Env, "environment") if key == "env.id" else (gym.Wrapper, "wrapper")
