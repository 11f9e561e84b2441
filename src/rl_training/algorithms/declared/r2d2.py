"""R2D2, declared: DRQN with everything else switched on."""

from __future__ import annotations

from dataclasses import replace

from rl_training.algorithms.declared import drqn
from rl_training.algorithms.options import Steps
from rl_training.config.schema import CountOrZero, Fraction, PositiveFloat


class R2D2Config(drqn.DRQNConfig):
    """Hyper-parameters of R2D2."""

    adam_eps: PositiveFloat = 1e-3
    n_step_return: Steps = 5
    dueling: bool = True
    prioritized: bool = True
    alpha: Fraction = 0.9
    beta: Fraction = 0.6
    beta_final: Fraction = 0.6
    prev_action: bool = True
    prev_reward: bool = True
    sequence_length: drqn.SequenceLength = 80
    burn_in: CountOrZero = 40
    value_rescaling: bool = True


SPEC = replace(
    drqn.SPEC,
    name="r2d2",
    class_name="R2D2",
    title="R2D2",
    summary="DRQN with burn-in, priorities over sequences, n-step returns and rescaled values (not distributed)",
    paper="Kapturowski et al. 2019, Recurrent experience replay in distributed reinforcement learning",
    url="https://openreview.net/forum?id=r1lyTjAqYX",
    config=R2D2Config,
    smallest={
        **drqn.SPEC.smallest,
        "algo_kwargs": {**drqn.SPEC.smallest["algo_kwargs"], "sequence_length": 8, "burn_in": 3},
    },
)
