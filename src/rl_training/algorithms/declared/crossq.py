"""CrossQ, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rl_training.algorithms.building import refuse_network_options, replay_experience
from rl_training.algorithms.declared.actor_critic import SMALLEST, continuous_learner, model_options
from rl_training.algorithms.declared.sac import EntropyConfig, check_target_entropy
from rl_training.algorithms.options import Decay, Share
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count, CountOrZero, ExperimentConfig, PositiveFloat

if TYPE_CHECKING:
    from rl_training.algorithms.crossq import CrossQ


class CrossQConfig(EntropyConfig):
    """Hyper-parameters of CrossQ, which has no target networks."""

    fixed: ClassVar[tuple[str, ...]] = ("batch_norm_momentum", "renorm_warm_up")
    absent: ClassVar[tuple[str, ...]] = ("tau", "critic_layer_norm", "critic_dropout")

    learning_rate: PositiveFloat = 1e-3
    adam_betas: tuple[Decay, Decay] = (0.5, 0.999)
    policy_delay: Count = 3
    batch_norm_momentum: Share = 0.01
    """Share of a batch's statistics that the running statistics take over."""
    renorm_warm_up: CountOrZero = 100_000
    """Batches before batch normalisation turns into batch renormalisation."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse what belongs to other critics, and batches that have no statistics."""
        super().check(experiment)
        if self.batch_size < 2:
            raise ValueError(
                "algo_kwargs.batch_size: 1 has no batch statistics, which crossq normalises by; take 2 or more"
            )
        for name in self.changed(*self.absent):
            raise ValueError(
                f"algo_kwargs.{name}: not for crossq, which has no slow copies and its own normalisation"
            )


def build_learner(context: BuildContext) -> CrossQ:
    """Build the learner."""
    from rl_training.algorithms.crossq import CrossQ
    from rl_training.models.mlp_crossq import MLPCrossQModel

    options: CrossQConfig = context.options
    refuse_network_options(context, "not for crossq, whose layers are batch-normalised", "layer_norm")
    check_target_entropy(context)
    names = ("hidden_sizes", "critic_hidden_sizes", "activation", "normalize_obs", "cnn", "n_critics")
    shape = {name: value for name, value in model_options(context).items() if name in names}
    norm = {"momentum": options.batch_norm_momentum, "warm_up": options.renorm_warm_up}
    return continuous_learner(context, CrossQ, MLPCrossQModel, **shape, **norm)


SPEC = AlgorithmSpec(
    name="crossq",
    class_name="CrossQ",
    title="CrossQ",
    summary="SAC without target networks, with batch normalisation in its critics",
    paper="Bhatt et al. 2024, CrossQ: batch normalization in deep reinforcement learning for greater sample efficiency "
    "and simplicity",
    url="https://arxiv.org/abs/1902.05605",
    config=CrossQConfig,
    learner="rl_training.algorithms.crossq:CrossQ",
    build_learner=build_learner,
    build_experience=replay_experience,
    action_kinds=frozenset({"continuous"}),
    obs_kinds=EVERY_OBS,
    smallest=SMALLEST,
    classic=Task("Pendulum-v1", 20_000),
)
