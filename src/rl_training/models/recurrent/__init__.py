"""Networks with a memory."""

from rl_training.models.recurrent.lstm_q_network import LSTMQNetwork, State

__all__ = ["LSTMQNetwork", "State"]
