"""Experience: what is kept of the transitions, and what a learner is given of them."""

from rl_training.data.experience import (
    PrioritizedExperience,
    PrioritizedSequenceExperience,
    ReplayExperience,
    SequenceExperience,
)
from rl_training.data.image_replay_buffer import ImageReplayBuffer
from rl_training.data.n_step import NStepFolder
from rl_training.data.prioritized_image_replay_buffer import PrioritizedImageReplayBuffer
from rl_training.data.prioritized_recurrent_replay_buffer import PrioritizedRecurrentReplayBuffer
from rl_training.data.prioritized_replay_buffer import PrioritizedReplayBuffer
from rl_training.data.recurrent_replay_buffer import RecurrentReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.rollout_buffer import Rollout, RolloutBuffer
from rl_training.data.sum_tree import SumTree
from rl_training.data.transitions import Batch, Carry, SequenceBatch, Transitions, carry_on

__all__ = [
    "Batch",
    "Carry",
    "ImageReplayBuffer",
    "NStepFolder",
    "PrioritizedExperience",
    "PrioritizedImageReplayBuffer",
    "PrioritizedRecurrentReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedSequenceExperience",
    "RecurrentReplayBuffer",
    "ReplayBuffer",
    "ReplayExperience",
    "Rollout",
    "RolloutBuffer",
    "SequenceBatch",
    "SequenceExperience",
    "SumTree",
    "Transitions",
    "carry_on",
]
