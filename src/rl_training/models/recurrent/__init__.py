"""Networks with a memory."""

from rl_training.models.recurrent.body import RecurrentBody, State
from rl_training.models.recurrent.lstm_q_network import LSTMQNetwork

__all__ = ["LSTMQNetwork", "RecurrentBody", "State"]
