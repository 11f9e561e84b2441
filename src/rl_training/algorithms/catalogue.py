"""Which algorithms there are: those of this package, those that others install, those registered by hand.

Importing this file imports no torch and none of the declarations; asking for an algorithm imports its declaration.
"""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.spec import AlgorithmSpec
from rl_training.config import ExperimentConfig
from rl_training.config.loading import build_config
from rl_training.errors import ConfigError, did_you_mean
from rl_training.installed import plugins

PACKAGED = (
    "dqn",
    "prioritized_dqn",
    "c51",
    "qr_dqn",
    "iqn",
    "rainbow",
    "drqn",
    "r2d2",
    "drqv2",
    "ppo",
    "a2c",
    "recurrent_ppo",
    "trpo",
    "ddpg",
    "td3",
    "sac",
    "tqc",
    "discrete_sac",
    "crossq",
)
"""The algorithms of this package, each declared in ``declared/NAME.py`` as ``SPEC``."""
ENTRY_POINT = "rl_training.algorithms"
"""The group of entry points under which other installed distributions name an ``AlgorithmSpec`` of theirs."""

RESERVED = frozenset(
    {
        *(
            "Algorithm",
            "AlgorithmSpec",
            "BuildContext",
            "Callback",
            "Decision",
            "ExperimentManager",
            "Learner",
            "evaluate_policy",
        ),
        *("ManagedAlgorithm", "QLearner", "UpdateResult", "dqn_loss", "load", "load_config", "managed_class"),
    }
)
"""What the packages export besides classes of algorithms."""

_registered: dict[str, AlgorithmSpec] = {}


def packaged(name: str) -> AlgorithmSpec:
    """Return the declaration of an algorithm of this package."""
    spec: AlgorithmSpec = importlib.import_module(f"rl_training.algorithms.declared.{name}").SPEC
    return spec


@functools.cache
def _installed() -> dict[str, AlgorithmSpec]:
    found: dict[str, AlgorithmSpec] = {}
    for point in plugins(ENTRY_POINT):
        try:
            spec = point.load()
            if not isinstance(spec, AlgorithmSpec):
                raise TypeError("not an AlgorithmSpec")
        except Exception as error:  # a plugin that is broken must not break every command
            warnings.warn(f"algorithm {point.value}: {type(error).__name__}: {error}", stacklevel=2)
            continue
        problem = _taken(spec, {**{name: packaged(name) for name in PACKAGED}, **found})
        if problem is not None:
            warnings.warn(f"algorithm {point.value}: {problem}", stacklevel=2)
            continue
        found[spec.name] = spec
    return found


def _taken(spec: AlgorithmSpec, known: Mapping[str, AlgorithmSpec]) -> str | None:
    """Say which of its names an algorithm cannot have, if there is one."""
    if not re.fullmatch("[a-z0-9_]+", spec.name):
        return f"'{spec.name}' should be lower-case letters, digits and underscores"
    if not spec.class_name.isidentifier() or spec.class_name in RESERVED:
        return f"the class name '{spec.class_name}' is not to be had"
    for other in known.values():
        if other is not spec and spec.name == other.name:
            return f"'{spec.name}' is taken by {other.title}"
        if other is not spec and spec.class_name == other.class_name:
            return f"the class name '{spec.class_name}' is taken by {other.title}"
    return None


def algorithms() -> dict[str, AlgorithmSpec]:
    """Return every known spec by name: built in, installed by entry point, registered by hand."""
    return {**{name: packaged(name) for name in PACKAGED}, **_installed(), **_registered}


def find(algo: str | AlgorithmSpec) -> AlgorithmSpec:
    """Return the spec of that name; a spec is returned as it is."""
    if isinstance(algo, AlgorithmSpec):
        return algo
    if algo in PACKAGED:
        return packaged(algo)
    known = algorithms()
    if algo not in known:
        hint = did_you_mean(algo, known) or f"; known are {', '.join(known)}"
        raise ConfigError(f"algo: '{algo}' is unknown{hint}")
    return known[algo]


def by_class_name(class_name: str) -> AlgorithmSpec | None:
    """Return the spec whose classes have that name, if there is one."""
    return next((spec for spec in algorithms().values() if spec.class_name == class_name), None)


def register(spec: AlgorithmSpec) -> AlgorithmSpec:
    """Make an algorithm of your own known by its name, everywhere in this process, and return its spec.

    :param spec: Its declaration. Its name and the name of its class should not be taken.
    """
    if not isinstance(spec, AlgorithmSpec):
        raise ConfigError(f"algo: register() takes an AlgorithmSpec, not {type(spec).__name__}")
    problem = _taken(spec, algorithms())
    if problem is not None:
        raise ConfigError(f"algo: {problem}")
    _registered[spec.name] = spec
    return spec


def others() -> dict[str, AlgorithmSpec]:
    """Return the specs that are not of this package."""
    return {**_installed(), **_registered}


def takers(kind: str) -> str:
    """Say which algorithms take actions of that kind."""
    names = [spec.name for spec in algorithms().values() if kind in spec.action_kinds]
    return f"{', '.join(names)} can" if names else "no installed algorithm can"


def experiment(data: Mapping[str, Any]) -> ExperimentConfig[Any]:
    """Validate a plain mapping by the options of the algorithm that it names."""
    return build_config(data, lambda name: find(name).config)
