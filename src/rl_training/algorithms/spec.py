"""The one declaration from which everything about an algorithm is derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rl_training.config import AlgorithmConfig, ExperimentConfig

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from rl_training.algorithms.protocol import Algorithm, Experience
    from rl_training.spaces import ActionSpec, ObsSpec

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
    """A user's own network instead of the built-in one."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm: its name, its options, what it takes, and how its two parts are built."""

    name: str
    title: str
    paper: str
    config: type[AlgorithmConfig]
    build_learner: Callable[[BuildContext], Algorithm]
    build_experience: Callable[[BuildContext], Experience]
    action_kinds: frozenset[str] = field(default_factory=lambda: frozenset({"discrete"}))
    summary: str = ""
