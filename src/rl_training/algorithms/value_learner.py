"""What all value-based learners share, with a memory or without: two networks, random actions, target updates."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.declared.value_based import QLearningConfig
from rl_training.algorithms.learner import Learner
from rl_training.algorithms.optimizer import flatten_parameters, polyak
from rl_training.algorithms.protocol import Means, UpdateResult
from rl_training.algorithms.randomness import TorchStream
from rl_training.algorithms.schedules import linear
from rl_training.data.transitions import Batch, SequenceBatch
from rl_training.models.noisy import noisy_layers
from rl_training.models.normalizer import share_normalizers
from rl_training.spaces import Array

Config = TypeVar("Config", bound=QLearningConfig)
B = TypeVar("B", Batch, SequenceBatch)


@dataclasses.dataclass(slots=True)
class HeadLoss:
    """What a head makes of a batch; only ``each`` has a graph."""

    each: torch.Tensor  # [B] loss of each sample; unweighted, unless it is said otherwise
    value: torch.Tensor  # [B] expected value of the action taken
    target: torch.Tensor  # [B] expected value of what it is drawn to
    error: torch.Tensor  # [B] value - target
    priority: torch.Tensor  # [B] how much there is to learn from the sample
    extra: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)  # further metrics, [B] or scalar


class ValueLearner(Learner[Config, B]):
    """An online and a target network, an optimizer, and epsilon.

    Target syncs, epsilon and the learning rate follow the env steps told by ``advance``.
    """

    def __init__(self, network: nn.Module, num_actions: int, config: Config, **options: Any) -> None:
        super().__init__(config, **options)
        self.num_actions = num_actions
        # Always, and by the first number drawn, as it has always been: else runs would not be what they were.
        self._torch_stream = TorchStream(int(self._rng.integers(2**63)))
        self.online: Any = self.own("online", network)
        copied = copy.deepcopy(network)
        share_normalizers(self.online, copied)
        self.target: Any = self.own("target", copied)
        self._flat_target = flatten_parameters(self.target)
        self._buffers = list(zip(self.target.buffers(), self.online.buffers(), strict=True))
        self.target.requires_grad_(False)
        self.optimizer = self.optimizers["all"] = self.adam(self.online)
        self._online_noise, self._target_noise = noisy_layers(self.online), noisy_layers(self.target)
        self.last_td_errors: torch.Tensor | None = None
        self.epsilon = 1.0
        self.advance(0)

    def with_random(self, action: Array, explores: Array, mask: Array | None) -> Array:
        """Replace the actions of those that explore [N] by random ones, in place."""
        exploring = int(np.count_nonzero(explores))
        if exploring:
            action[explores] = self.random_actions(exploring, None if mask is None else mask[explores])
        return action

    def random_actions(self, count: int, mask: Array | None) -> Array:
        """Draw actions [count] uniformly among those that ``mask`` [count, A] allows."""
        if mask is None:
            return self._rng.integers(0, self.num_actions, count)
        return greedy_actions(self._rng.random(mask.shape), mask)

    def update(self, batch: B, weight: torch.Tensor | None = None) -> UpdateResult:
        """Make one gradient step on a batch, its samples weighted by ``weight`` [B] if given."""
        if weight is not None:
            batch = dataclasses.replace(batch, weight=weight)
        loss, head = self._loss(batch)
        norm = self.optimizer.step(loss)
        return self._report(loss.detach(), head, norm)

    @abstractmethod
    def _loss(self, batch: B) -> tuple[torch.Tensor, HeadLoss]:
        """Return the loss with its graph, and what it is made of."""

    def _report(self, loss: torch.Tensor, head: HeadLoss, norm: torch.Tensor) -> UpdateResult:
        metrics = {
            "loss": loss,
            "q_value_mean": head.value,
            "target_mean": head.target,
            "td_error_mean": head.error.abs(),
            "grad_norm": norm,
            **head.extra,
        }
        self.updates += 1
        self.last_td_errors = head.error
        return UpdateResult(Means(metrics), priorities=head.priority)

    def sync_target(self, times: int = 1) -> None:
        """Move the target network towards the online one by ``tau``, that often; buffers are copied."""
        polyak(self._flat_target, self.optimizer.flat, 1.0 - (1.0 - self.config.tau) ** times)
        for target, online in self._buffers:
            target.copy_(online)

    def advance(self, env_steps: int) -> None:
        """Set epsilon and the learning rate, and sync the target when its interval has passed."""
        c = self.config
        interval = c.target_update_interval
        # Many environments can pass several multiples of a short interval in one step.
        passed = env_steps // interval - self._env_steps // interval
        if passed > 0:
            self.sync_target(passed)
        self._env_steps = env_steps
        if c.learning_rate_final is not None:
            super().advance(env_steps)
        if env_steps < c.learning_starts:
            self.epsilon = 1.0
        elif self._online_noise:
            self.epsilon = 0.0  # the noise explores
        else:
            fade = c.exploration_fraction * self._total
            self.epsilon = linear(c.exploration_initial_eps, c.exploration_final_eps, fade, env_steps)

    def status(self) -> dict[str, float]:
        """Return epsilon and the learning rate."""
        return {"exploration_rate": self.epsilon, **super().status()}


def greedy(q: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Return the best actions [B] by Q-values [B, A] among those that ``mask`` [B, A] allows."""
    return (q if mask is None else q.masked_fill(~mask, -torch.inf)).argmax(1)


def greedy_actions(q: Array, mask: Array | None) -> Array:
    """Return the best actions [N] by Q-values [N, A] among those that ``mask`` [N, A] allows."""
    best: Array = (q if mask is None else np.where(mask, q, -np.inf)).argmax(1)
    return best
