"""Names that users rely on."""

from __future__ import annotations

import importlib

import pytest

PROMISED = {
    "rl_training": ["DQN", "load", "load_config", "ExperimentManager", "Callback", "__version__"],
    "rl_training.api": ["DQN", "ManagedAlgorithm", "load"],
    "rl_training.algorithms": ["DQN", "dqn_loss", "UpdateResult", "AlgorithmSpec"],
    "rl_training.data": ["ReplayBuffer"],
    "rl_training.data.replay_buffer": ["ReplayBuffer"],
    "rl_training.models": ["MLPQNetwork"],
    "rl_training.models.mlp_q_network": ["MLPQNetwork"],
    "rl_training.algorithms.dqn": ["DQN", "dqn_loss"],
    "rl_training.runtime.dqn_trainer": ["train_dqn"],
    "rl_training.runtime.workflows": ["start", "resume", "load_policy"],
    "rl_training.experiment.registry": ["train", "resume", "evaluate", "predict", "register"],
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in PROMISED.items() for name in names]
)
def test_name_exists(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


def test_two_classes_share_the_name_dqn() -> None:
    import rl_training
    from rl_training import algorithms
    from rl_training.api import ManagedAlgorithm

    assert rl_training.DQN is not algorithms.DQN
    assert issubclass(rl_training.DQN, ManagedAlgorithm)
    assert rl_training.DQN.algo_name == "dqn"


def test_unknown_names_are_refused_and_known_ones_listed() -> None:
    import rl_training

    with pytest.raises(AttributeError, match="no attribute 'PPOO'"):
        rl_training.PPOO  # noqa: B018
    assert "DQN" in dir(rl_training)
