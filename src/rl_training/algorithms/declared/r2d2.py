"""R2D2, declared: DRQN with everything else switched on."""

from __future__ import annotations

from dataclasses import replace

from rl_training.algorithms.declared import drqn
from rl_training.algorithms.options import Steps
from rl_training.config.schema import Count, CountOrZero, Fraction, PositiveFloat


class R2D2Config(drqn.DRQNConfig):
    """Hyper-parameters of R2D2. A sequence has 80 steps to learn from, and 40 of burn-in before them."""

    adam_eps: PositiveFloat = 1e-3
    gamma: Fraction = 0.997
    batch_size: Count = 64
    n_step_return: Steps = 5
    target_update_interval: Count = 10_000
    """Env steps between updates of the target network. The default is the paper's 2,500 updates, with one every four
    steps."""
    dueling: bool = True
    prioritized: bool = True
    alpha: Fraction = 0.9
    beta: Fraction = 0.6
    beta_final: Fraction = 0.6
    prev_action: bool = True
    prev_reward: bool = True
    sequence_length: drqn.SequenceLength = 120
    """Steps of a sequence, including the burn-in."""
    burn_in: CountOrZero = 40
    sequence_period: Count | None = 40
    """Steps from the start of one sequence to the start of the next; ``null`` takes as many as are learned from."""
    value_rescaling: bool = True

    @property
    def period(self) -> int:
        """Steps from one sequence to the next."""
        period = super().period
        return period if self.changed("sequence_period") else min(period, self.sequence_length - self.burn_in)


SPEC = replace(
    drqn.SPEC,
    name="r2d2",
    class_name="R2D2",
    title="R2D2",
    summary="DRQN with burn-in, prioritized sequences, n-step returns and rescaled values, in one process",
    paper="Kapturowski et al. 2019, Recurrent experience replay in distributed reinforcement learning",
    url="https://openreview.net/forum?id=r1lyTjAqYX",
    config=R2D2Config,
    smallest={
        **drqn.SPEC.smallest,
        "algo_kwargs": {**drqn.SPEC.smallest["algo_kwargs"], "sequence_length": 8, "burn_in": 3},
    },
)
