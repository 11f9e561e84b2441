"""Experience: what is kept of the transitions, and what a learner is given of them."""

from rl_training.data.experience import PrioritizedExperience, ReplayExperience
from rl_training.data.n_step import NStepFolder
from rl_training.data.prioritized_replay_buffer import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.sum_tree import SumTree
from rl_training.data.transitions import Batch, Transitions

__all__ = [
    "Batch",
    "NStepFolder",
    "PrioritizedExperience",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "ReplayExperience",
    "SumTree",
    "Transitions",
]
