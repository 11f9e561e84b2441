"""Networks: from observations to what a head needs."""

from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.models.normalizer import RunningNormalizer

__all__ = ["MLPQNetwork", "RunningNormalizer"]
