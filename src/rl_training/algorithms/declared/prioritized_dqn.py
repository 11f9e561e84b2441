"""Prioritized DQN, declared: DQN with other defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rl_training.algorithms.declared import dqn


class PrioritizedDQNConfig(dqn.DQNConfig):
    """Hyper-parameters of DQN with prioritized replay."""

    prioritized: Literal[True] = True


SPEC = replace(
    dqn.SPEC,
    name="prioritized_dqn",
    class_name="PrioritizedDQN",
    title="Prioritized DQN",
    summary="DQN with prioritized replay",
    paper="Schaul et al. 2016, Prioritized experience replay",
    url="https://arxiv.org/abs/1511.05952",
    config=PrioritizedDQNConfig,
)
