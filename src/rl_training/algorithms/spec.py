"""The one declaration from which everything about an algorithm is derived. Importing this file imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config import AlgorithmConfig, ExperimentConfig

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from rl_training.algorithms.protocol import Algorithm, Experience
    from rl_training.observations import ObsSpec
    from rl_training.spaces import ActionSpec

OBS_KINDS = {
    "vector": "vectors",
    "binary": "bits",
    "discrete": "discrete numbers",
    "image": "images",
    "several": "several parts at once",
}
"""What observations can be made of, and what that is called in messages."""
EVERY_OBS = frozenset(OBS_KINDS)
NetworkFactory = Callable[[tuple[int, ...], int], "nn.Module"]


@dataclass(frozen=True)
class BuildContext:
    """What the builders of a spec may use: the config, the spaces, random streams, and where to compute."""

    config: ExperimentConfig[Any]
    obs: ObsSpec
    actions: ActionSpec
    stream: Callable[[str], np.random.Generator]
    device: torch.device
    network: NetworkFactory | None = None
    """A user's own network instead of the built-in one; of a Dict or Tuple it is told the ``ObsSpec``, not a shape."""

    @property
    def options(self) -> Any:
        """The hyper-parameters, of the type that the spec says."""
        return self.config.algo_kwargs

    def for_learner(self) -> dict[str, Any]:
        """Return the keywords that every ``Learner`` takes."""
        return {
            "total_timesteps": self.config.schedule_length,
            "rng": self.stream("exploration"),
            "device": self.device,
        }


@dataclass(frozen=True)
class Task:
    """What an algorithm learns without any setting: an environment, and how many env steps that takes."""

    env: str
    steps: int


@dataclass(frozen=True, eq=False)
class AlgorithmSpec:
    """An algorithm: what it is called, its options, what it takes, and how its two parts are built."""

    name: str
    """As in ``algo: NAME`` of a config."""
    class_name: str
    """Of the managed class, and of the learner."""
    title: str
    summary: str
    paper: str
    url: str
    config: type[AlgorithmConfig]
    learner: str
    """``package.module:Class`` of the learner, for exports; nothing is imported before somebody asks for it."""
    build_learner: Callable[[BuildContext], Algorithm[Any]]
    build_experience: Callable[[BuildContext], Experience[Any]]
    smallest: Mapping[str, Any]
    """The settings of a run that is over in seconds and yet updates: a config without ``algo``, for tests."""
    action_kinds: frozenset[str] = field(default_factory=lambda: frozenset({"discrete"}))
    obs_kinds: frozenset[str] = frozenset({"vector"})
    """Of what observations may be made: ``vector``, ``binary``, ``discrete``, ``image``, and ``several`` of them, as
    of a Dict, in one row of bytes (see ``observations.py``). Networks by ``models.encoders`` take them all."""
    classic: Task | None = None
    """The classic task that the defaults learn (``benchmarks/defaults.py``); none where there is no such task."""
    configs: Path | None = None
    """A folder of starter configs, for algorithms of other distributions: FILE.yaml is known as NAME/FILE."""

    def learner_class(self) -> Any:
        """Import and return the class of the learner."""
        module, _, name = self.learner.partition(":")
        return getattr(importlib.import_module(module), name)
