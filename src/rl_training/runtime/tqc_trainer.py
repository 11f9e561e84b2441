"""Training of TQC."""

from rl_training.algorithms.declared.tqc import TQCConfig
from rl_training.runtime.trainer import Trainer

train_tqc = Trainer("train_tqc", TQCConfig)
