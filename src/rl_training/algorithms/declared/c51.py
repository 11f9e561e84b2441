"""C51, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared.value_based import SMALLEST, MemorylessConfig, q_learner
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import ExperimentConfig, Float, PositiveFloat, parse_number

if TYPE_CHECKING:
    from rl_training.algorithms.c51 import C51


class C51Config(MemorylessConfig):
    """Hyper-parameters of C51."""

    aliases: ClassVar[dict[str, str]] = {"n_atoms": "num_atoms"}
    fixed: ClassVar[tuple[str, ...]] = ("num_atoms", "v_min", "v_max")

    adam_eps: PositiveFloat = 0.01 / 32
    double: bool = False
    num_atoms: Annotated[int, BeforeValidator(parse_number), Field(ge=2, le=10_001)] = 101
    """Atoms: the evenly spaced returns to which the distribution gives probabilities."""
    v_min: Float = -100.0
    """Smallest atom. All discounted returns should lie between ``v_min`` and ``v_max``. With ``gamma`` 0.99, rewards
    of at most 1 per step keep them between -100 and 100."""
    v_max: Float = 100.0
    """Largest atom."""

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse a support that is none, also in the single precision in which it is used."""
        super().check(experiment)
        if self.v_min >= self.v_max:
            raise ValueError(
                f"algo_kwargs.v_min: {self.v_min:g} is not below algo_kwargs.v_max={self.v_max:g}"
            )
        furthest = max(abs(self.v_min), abs(self.v_max))
        name = "v_max" if abs(self.v_max) == furthest else "v_min"
        if not 1e-30 <= furthest <= 1e30:
            raise ValueError(f"algo_kwargs.{name}: {getattr(self, name):g} is too large for single precision")
        if (self.v_max - self.v_min) / (self.num_atoms - 1) < 1e-5 * furthest:
            raise ValueError(
                f"algo_kwargs.{name}: {getattr(self, name):g} is so large that {self.num_atoms} atoms between "
                f"{self.v_min:g} and {self.v_max:g} cannot be told apart in single precision"
            )


def build_learner(context: BuildContext) -> C51:
    """Build the learner, which is that of Rainbow, too."""
    from rl_training.algorithms.c51 import C51
    from rl_training.models.mlp_c51_q_network import MLPC51QNetwork

    options: C51Config = context.options
    extra: dict[str, Any] = {"num_atoms": options.num_atoms, "v_min": options.v_min, "v_max": options.v_max}
    return q_learner(context, C51, MLPC51QNetwork, options.num_atoms, **extra)


SPEC = AlgorithmSpec(
    name="c51",
    class_name="C51",
    title="C51",
    summary="learns the distribution of returns on a fixed grid of values",
    paper="Bellemare et al. 2017, A distributional perspective on reinforcement learning",
    url="https://arxiv.org/abs/1707.06887",
    config=C51Config,
    learner="rl_training.algorithms.c51:C51",
    build_learner=build_learner,
    build_experience=replay_experience,
    obs_kinds=EVERY_OBS,
    smallest={**SMALLEST, "algo_kwargs": {**SMALLEST["algo_kwargs"], "v_min": 0, "v_max": 100}},
    classic=Task("CartPole-v1", 50_000),
)
