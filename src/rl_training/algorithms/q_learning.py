"""The core of the value-based learners without a memory; what they differ in is a head of a few functions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import torch
from torch import nn

from rl_training.algorithms.protocol import Decision
from rl_training.algorithms.value_learner import Config, HeadLoss, ValueLearner, greedy, greedy_actions
from rl_training.data.transitions import Batch, Carry
from rl_training.models.mirror import numpy_mirror
from rl_training.models.noisy import noise
from rl_training.models.scorer import Observed, Scorer, memoryless
from rl_training.spaces import Array

Role = Literal["online", "target", "policy"]
"""What an output is for: to be learned, to be learned from, or to choose the next action by."""


def pick(out: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return the entries [B, ...] of ``out`` [B, A, ...] that belong to ``action`` [B]."""
    return out[torch.arange(len(out), device=out.device), action]


class QLearner(ValueLearner[Config, Batch]):
    """Q-learning on transitions, acting by epsilon-greedy choice or by noisy weights.

    ``network`` maps observations [B, *obs] to an output [B, A, ...]. A head says what the expected values of an
    output are and what the loss between two outputs is.
    """

    def __init__(self, network: nn.Module, num_actions: int, config: Config, **options: Any) -> None:
        super().__init__(network, num_actions, config, **options)
        self._mirror = numpy_mirror(self.online)

    # The head

    @abstractmethod
    def expected(self, out: torch.Tensor) -> torch.Tensor:
        """Return the expected values [B, A] of an output [B, A, ...]."""

    @abstractmethod
    def head_loss(self, chosen: torch.Tensor, following: torch.Tensor, batch: Batch) -> HeadLoss:
        """Compare the output of the actions taken with the target network's of the best next ones, [B, ...] both."""

    def output(self, network: nn.Module, obs: Observed, role: Role) -> torch.Tensor:
        """Return a network's output [B, A, ...]; heads that draw something for it know what it is for."""
        out: torch.Tensor = network(obs)
        return out

    # Acting

    def q_values(self, obs: Array, *, noisy: bool = False) -> Array:
        """Return the online network's Q-values [N, A] of raw observations [N, *obs]; ``noisy`` draws for each."""
        layers = self._online_noise if noisy else []
        with torch.no_grad():
            if self._mirror is not None and len(obs) <= self._mirror.max_batch:
                return self.expected(
                    torch.from_numpy(self._mirror(obs, self._rng if layers else None))
                ).numpy()
            with noise(layers, self._rng, len(obs)):
                out = self.output(self.online, torch.as_tensor(obs, device=self.device), "policy")
            return self.expected(out).cpu().numpy()

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N] that ``mask`` [N, A] allows; when exploring, each environment tosses its own coin."""
        if not explore:
            return Decision(greedy_actions(self.q_values(obs), mask))
        if len(obs) == 1:  # so often that it is worth not making arrays of one coin
            if self._rng.random() < self.epsilon:
                return Decision(self.random_actions(1, mask))
            return Decision(greedy_actions(self.q_values(obs, noisy=True), mask))
        explores = self._rng.random(len(obs)) < self.epsilon
        if explores.all():
            return Decision(self.random_actions(len(obs), mask))
        action = greedy_actions(self.q_values(obs, noisy=True), mask)
        return Decision(self.with_random(action, explores, mask))

    def scores(self, obs: Array, carry: Carry | None = None) -> Array:
        """Return the Q-values [N, A]."""
        return self.q_values(obs)

    def scorer(self) -> Scorer:
        """Return what maps observations to Q-values."""
        return memoryless(
            self.online, "q_values", lambda obs: self.expected(self.output(self.online, obs, "policy"))
        )

    # Learning

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, HeadLoss]:
        with torch.no_grad():
            out = self._disturbed(self.target, batch.next_obs, "target")
            following = pick(out, greedy(self.expected(self._choosing(batch.next_obs, out)), batch.next_mask))
        with self.learning(self.online):
            chosen = pick(self._disturbed(self.online, batch.obs, "online"), batch.action)
        head = self.head_loss(chosen, following, batch)
        return (head.each if batch.weight is None else head.each * batch.weight).mean(), head

    def _choosing(self, next_obs: torch.Tensor, target_out: torch.Tensor) -> torch.Tensor:
        """Return the output by which the next action is chosen: with Double, that of the online network."""
        return self._disturbed(self.online, next_obs, "policy") if self.config.double else target_out

    def _disturbed(self, network: nn.Module, obs: torch.Tensor, role: Role) -> torch.Tensor:
        """Return an output under a draw of noise of its own, if the network is a noisy one."""
        with noise(self._online_noise if network is self.online else self._target_noise, self._rng):
            return self.output(network, obs, role)
