"""Networks for images."""

from rl_training.models.cnn.drqv2 import DrQv2Encoder, DrQv2Network

__all__ = ["DrQv2Encoder", "DrQv2Network"]
