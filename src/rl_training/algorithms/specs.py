"""The algorithms of this package, each one declaration. Importing this file imports no torch."""

from __future__ import annotations

from rl_training.algorithms.builders import (
    c51_learner,
    dqn_learner,
    drqn_learner,
    drqv2_learner,
    image_experience,
    iqn_learner,
    qr_dqn_learner,
    replay_experience,
    sequence_experience,
)
from rl_training.algorithms.spec import AlgorithmSpec
from rl_training.config import (
    C51Config,
    DQNConfig,
    DRQNConfig,
    DrQv2Config,
    IQNConfig,
    PrioritizedDQNConfig,
    QRDQNConfig,
    R2D2Config,
    RainbowConfig,
)

DQN_SPEC = AlgorithmSpec(
    name="dqn",
    title="DQN",
    paper="Mnih et al. 2015, Human-level control through deep reinforcement learning",
    summary="Q-learning with replay and a target network",
    config=DQNConfig,
    build_learner=dqn_learner,
    build_experience=replay_experience,
)
PRIORITIZED_DQN_SPEC = AlgorithmSpec(
    name="prioritized_dqn",
    title="Prioritized DQN",
    paper="Schaul et al. 2016, Prioritized experience replay",
    summary="DQN that replays in proportion to the TD error, with importance weights",
    config=PrioritizedDQNConfig,
    build_learner=dqn_learner,
    build_experience=replay_experience,
)
C51_SPEC = AlgorithmSpec(
    name="c51",
    title="C51",
    paper="Bellemare et al. 2017, A distributional perspective on reinforcement learning",
    summary="learns the return's distribution, categorical on a fixed support",
    config=C51Config,
    build_learner=c51_learner,
    build_experience=replay_experience,
)
QR_DQN_SPEC = AlgorithmSpec(
    name="qr_dqn",
    title="QR-DQN",
    paper="Dabney et al. 2018, Distributional reinforcement learning with quantile regression",
    summary="learns the return's distribution by quantiles at fixed fractions",
    config=QRDQNConfig,
    build_learner=qr_dqn_learner,
    build_experience=replay_experience,
)
IQN_SPEC = AlgorithmSpec(
    name="iqn",
    title="IQN",
    paper="Dabney et al. 2018, Implicit quantile networks for distributional reinforcement learning",
    summary="learns the return's whole quantile function, at fractions drawn anew each time",
    config=IQNConfig,
    build_learner=iqn_learner,
    build_experience=replay_experience,
)
RAINBOW_SPEC = AlgorithmSpec(
    name="rainbow",
    title="Rainbow",
    paper="Hessel et al. 2018, Rainbow: combining improvements in deep reinforcement learning",
    summary="C51 with Double, Dueling, noisy layers, 3-step returns and priorities",
    config=RainbowConfig,
    build_learner=c51_learner,
    build_experience=replay_experience,
)
DRQN_SPEC = AlgorithmSpec(
    name="drqn",
    title="DRQN",
    paper="Hausknecht & Stone 2015, Deep recurrent Q-learning for partially observable MDPs",
    summary="DQN with a memory (LSTM or GRU), trained on sequences",
    config=DRQNConfig,
    build_learner=drqn_learner,
    build_experience=sequence_experience,
)
R2D2_SPEC = AlgorithmSpec(
    name="r2d2",
    title="R2D2",
    paper="Kapturowski et al. 2019, Recurrent experience replay in distributed reinforcement learning",
    summary="DRQN with burn-in, priorities over sequences, n-step returns and rescaled values (not distributed)",
    config=R2D2Config,
    build_learner=drqn_learner,
    build_experience=sequence_experience,
)
DRQV2_SPEC = AlgorithmSpec(
    name="drqv2",
    title="DrQ-v2",
    paper="Yarats et al. 2021, Mastering visual continuous control: improved data-augmented reinforcement learning",
    summary="continuous control from pixels, by randomly shifted images",
    config=DrQv2Config,
    build_learner=drqv2_learner,
    build_experience=image_experience,
    action_kinds=frozenset({"continuous"}),
)

SPECS: tuple[AlgorithmSpec, ...] = (
    DQN_SPEC,
    PRIORITIZED_DQN_SPEC,
    C51_SPEC,
    QR_DQN_SPEC,
    IQN_SPEC,
    RAINBOW_SPEC,
    DRQN_SPEC,
    R2D2_SPEC,
    DRQV2_SPEC,
)
