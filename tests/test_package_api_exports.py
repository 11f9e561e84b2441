"""Names that users rely on."""

from __future__ import annotations

import importlib

import pytest

CLASSES = {
    "dqn": "DQN",
    "prioritized_dqn": "PrioritizedDQN",
    "c51": "C51",
    "qr_dqn": "QRDQN",
    "iqn": "IQN",
    "rainbow": "Rainbow",
    "drqn": "DRQN",
    "r2d2": "R2D2",
    "drqv2": "DrQv2",
    "ppo": "PPO",
    "a2c": "A2C",
    "recurrent_ppo": "RecurrentPPO",
    "trpo": "TRPO",
}
PROMISED = {
    "rl_training": [*CLASSES.values(), "load", "load_config", "ExperimentManager", "Callback", "__version__"],
    "rl_training.api": [*CLASSES.values(), "ManagedAlgorithm", "load"],
    "rl_training.algorithms": [*CLASSES.values(), "QLearner", "dqn_loss", "UpdateResult", "AlgorithmSpec"],
    "rl_training.data": ["ReplayBuffer", "PrioritizedReplayBuffer", "RecurrentReplayBuffer", "SequenceBatch"],
    "rl_training.data.rollout_buffer": ["RolloutBuffer", "Rollout"],
    "rl_training.data.recurrent_replay_buffer": ["RecurrentReplayBuffer"],
    "rl_training.data.image_replay_buffer": ["ImageReplayBuffer"],
    "rl_training.algorithms.drqv2": ["DrQv2"],
    "rl_training.models.cnn.drqv2": ["DrQv2Encoder", "DrQv2Actor", "DrQv2Critic", "DrQv2Network"],
    "rl_training.runtime.drqv2_trainer": ["train_drqv2"],
    "rl_training.data.replay_buffer": ["ReplayBuffer"],
    "rl_training.data.prioritized_replay_buffer": ["PrioritizedReplayBuffer"],
    "rl_training.models": [
        "MLPQNetwork",
        "MLPQRQNetwork",
        "MLPC51QNetwork",
        "MLPIQNQNetwork",
        "NoisyLinear",
        "MLPActorCritic",
    ],
    "rl_training.models.mlp_actor_critic": ["MLPActorCritic"],
    "rl_training.models.recurrent.lstm_actor_critic": ["LSTMActorCritic"],
    "rl_training.algorithms.ppo": ["PPO", "ppo_loss"],
    "rl_training.algorithms.recurrent_ppo": ["RecurrentPPO"],
    "rl_training.algorithms.trpo": ["TRPO"],
    "rl_training.runtime.ppo_trainer": ["train_ppo"],
    "rl_training.runtime.recurrent_ppo_trainer": ["train_recurrent_ppo"],
    "rl_training.runtime.trpo_trainer": ["train_trpo"],
    "rl_training.models.recurrent.lstm_q_network": ["LSTMQNetwork"],
    "rl_training.algorithms.drqn": ["DRQN", "R2D2"],
    "rl_training.runtime.drqn_trainer": ["train_drqn"],
    "rl_training.models.mlp_q_network": ["MLPQNetwork"],
    "rl_training.models.mlp_qr_q_network": ["MLPQRQNetwork"],
    "rl_training.algorithms.dqn": ["DQN", "PrioritizedDQN", "dqn_loss"],
    "rl_training.algorithms.qr_dqn": ["QRDQN", "qr_dqn_loss", "quantile_huber_loss"],
    "rl_training.algorithms.c51": ["C51", "Rainbow", "c51_loss", "project"],
    "rl_training.algorithms.iqn": ["IQN"],
    "rl_training.runtime.dqn_trainer": ["train_dqn"],
    "rl_training.runtime.workflows": ["start", "resume", "load_policy"],
    "rl_training.experiment.registry": ["train", "resume", "evaluate", "predict", "register"],
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in PROMISED.items() for name in names]
)
def test_name_exists(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize(("algo", "name"), list(CLASSES.items()))
def test_a_managed_class_shares_the_name_of_its_learner(algo: str, name: str) -> None:
    import rl_training
    from rl_training import algorithms
    from rl_training.api import ManagedAlgorithm

    managed = getattr(rl_training, name)
    assert managed is not getattr(algorithms, name)
    assert issubclass(managed, ManagedAlgorithm)
    assert managed.algo_name == algo


def test_unknown_names_are_refused_and_known_ones_listed() -> None:
    import rl_training

    with pytest.raises(AttributeError, match="no attribute 'PPOO'"):
        rl_training.PPOO  # type: ignore[attr-defined]  # noqa: B018
    assert set(CLASSES.values()) <= set(dir(rl_training))


HELPERS = ("actor_parameters", "critic_parameters", "act", "sample")


@pytest.mark.parametrize(
    ("module", "name"),
    [("mlp_actor_critic", "MLPActorCritic"), ("recurrent.lstm_actor_critic", "LSTMActorCritic")],
)
def test_actors_and_critics_share_one_shape_of_helpers(module: str, name: str) -> None:
    model = getattr(importlib.import_module(f"rl_training.models.{module}"), name)
    assert [helper for helper in HELPERS if not callable(getattr(model, helper, None))] == []


@pytest.mark.parametrize(
    "config",
    [
        "ppo/cartpole",
        "a2c/cartpole",
        "recurrent_ppo/cartpole_no_velocity",
        "trpo/cartpole",
    ],
)
def test_starter_configs_are_packaged(config: str) -> None:
    from rl_training import load_config

    assert load_config(config).algo == config.split("/")[0]
