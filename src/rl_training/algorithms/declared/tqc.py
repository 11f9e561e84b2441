"""TQC, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared.actor_critic import SMALLEST, continuous_learner
from rl_training.algorithms.declared.sac import SACConfig, sac_model_options
from rl_training.algorithms.declared.value_based import Quantiles
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import CountOrZero, ExperimentConfig

if TYPE_CHECKING:
    from rl_training.algorithms.tqc import TQC


class TQCConfig(SACConfig):
    """Hyper-parameters of TQC."""

    aliases: ClassVar[dict[str, str]] = {
        "n_quantiles": "num_quantiles",
        "top_quantiles_to_drop_per_net": "drop_quantiles",
    }
    fixed: ClassVar[tuple[str, ...]] = ("num_quantiles",)

    num_quantiles: Quantiles = 25
    """Quantiles of each critic."""
    drop_quantiles: CountOrZero = 2
    """Number of largest quantiles per critic that targets leave out."""
    target_critics: Literal[None] = None
    """Not for TQC, whose targets pool the quantiles of all critics."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse to leave everything out."""
        super().check(experiment)
        if self.drop_quantiles >= self.num_quantiles:
            raise ValueError(
                f"algo_kwargs.drop_quantiles: {self.drop_quantiles} leaves nothing of "
                f"algo_kwargs.num_quantiles={self.num_quantiles}"
            )


def build_learner(context: BuildContext) -> TQC:
    """Build the learner."""
    from rl_training.algorithms.tqc import TQC
    from rl_training.models.mlp_sac import MLPSACModel

    quantiles = context.options.num_quantiles
    return continuous_learner(context, TQC, MLPSACModel, **sac_model_options(context), quantiles=quantiles)


SPEC = AlgorithmSpec(
    name="tqc",
    class_name="TQC",
    title="TQC",
    summary="SAC with quantile critics whose targets leave out the largest quantiles",
    paper="Kuznetsov et al. 2020, Controlling overestimation bias with truncated mixture of continuous distributional "
    "quantile critics",
    url="https://arxiv.org/abs/2005.04269",
    config=TQCConfig,
    learner="rl_training.algorithms.tqc:TQC",
    build_learner=build_learner,
    build_experience=replay_experience,
    action_kinds=frozenset({"continuous"}),
    obs_kinds=EVERY_OBS,
    smallest={
        **SMALLEST,
        "algo_kwargs": {**SMALLEST["algo_kwargs"], "num_quantiles": 5, "drop_quantiles": 1},
    },
    classic=Task("Pendulum-v1", 20_000),
)
