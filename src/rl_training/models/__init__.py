"""Networks: from observations to what a head needs."""

from rl_training.models.actors import DeterministicActor, SquashedGaussianActor
from rl_training.models.cnn import DrQv2Encoder, DrQv2Network
from rl_training.models.critics import TwinQ
from rl_training.models.mlp_c51_q_network import MLPC51QNetwork
from rl_training.models.mlp_iqn_q_network import MLPIQNQNetwork
from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.models.mlp_qr_q_network import MLPQRQNetwork
from rl_training.models.noisy import NoisyLinear
from rl_training.models.normalizer import RunningNormalizer
from rl_training.models.recurrent import LSTMQNetwork

__all__ = [
    "DeterministicActor",
    "DrQv2Encoder",
    "DrQv2Network",
    "LSTMQNetwork",
    "MLPC51QNetwork",
    "MLPIQNQNetwork",
    "MLPQNetwork",
    "MLPQRQNetwork",
    "NoisyLinear",
    "RunningNormalizer",
    "SquashedGaussianActor",
    "TwinQ",
]
