"""What the actor-critics with replay share: warm-up, critics and their targets, the order of an update."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.declared.actor_critic import DelayedOptions
from rl_training.algorithms.learner import Learner
from rl_training.algorithms.optimizer import FlatAdam, flatten_parameters, polyak
from rl_training.algorithms.protocol import Decision, Means, UpdateResult
from rl_training.data.transitions import Batch, Carry

Config = TypeVar("Config", bound=DelayedOptions)
Model = TypeVar("Model", bound=nn.Module)
Metrics = dict[str, torch.Tensor]


@dataclasses.dataclass(slots=True)
class CriticLoss:
    """What critics make of a batch; only ``loss`` has a graph, unless its gradient was stored already."""

    loss: torch.Tensor  # scalar
    value: torch.Tensor  # [C, B] every critic's value of the action taken
    target: torch.Tensor  # [B] what it is drawn to
    priority: torch.Tensor  # [B] how much there is to learn from the sample


def squared_loss(values: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> CriticLoss:
    """Return the mean squared errors of values [C, B] to targets [B], added up over the critics."""
    error = values - target
    squares = error.square()
    loss = (squares if weight is None else squares * weight).mean(1).sum()
    return CriticLoss(loss, values.detach(), target, error.detach().abs().mean(0))


class SlowCopy:
    """A copy of a module that follows it."""

    def __init__(self, module: nn.Module, flat: torch.Tensor) -> None:
        """``flat`` is the vector in which the parameters of ``module`` lie."""
        self.module = copy.deepcopy(module)
        self.flat, self._source = flatten_parameters(self.module), flat
        self._buffers = list(zip(self.module.buffers(), module.buffers(), strict=True))
        self.module.requires_grad_(False)

    def follow(self, tau: float) -> None:
        """Go the share ``tau`` of the way."""
        polyak(self.flat, self._source, tau)
        for own, source in self._buffers:
            own.copy_(source)


@contextmanager
def frozen(optimizer: FlatAdam) -> Iterator[None]:
    """Let gradients flow through what an optimizer trains, but compute none for it."""
    for parameter in optimizer.parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in optimizer.parameters:
            parameter.requires_grad_(True)


class ActorCriticLearner(Learner[Config, Batch], Generic[Config, Model]):
    """Critics learn at every update, the actor at every ``policy_delay``-th; slow copies follow.

    A subclass says what the critics are drawn to (``_critic_loss``) and how the actor gets better (``_improve``).
    """

    counters: ClassVar[tuple[str, ...]] = ("actor_updates",)
    targets_wait: ClassVar[bool] = False
    """Whether slow copies move only with the actor, or at every update."""

    def __init__(
        self, model: Model, config: Config, *, action_shape: tuple[int, ...], **options: Any
    ) -> None:
        super().__init__(config, **options)
        self.network = self.own("online", model)
        self._action_shape = action_shape
        self._action_size = int(np.prod(action_shape))
        self._slow: list[SlowCopy] = []
        self.actor_updates = 0

    def _actor_adam(self, module: nn.Module, **options: Any) -> FlatAdam:
        """Return an optimizer with the learning rate of the actor."""
        rate = self.config.actor_rate()
        return self.adam(module, lr=self.config.learning_rate if rate is None else rate, **options)

    def _temperature_adam(self, temperature: nn.Module) -> FlatAdam:
        """Return an optimizer of a temperature; ``adam_betas`` are those of networks."""
        return self._actor_adam(temperature, betas=(0.9, 0.999))

    def _slow_copy(self, name: str, module: nn.Module, flat: torch.Tensor) -> Any:
        """Make a slow copy of a module, whose parameters lie in ``flat``, and take it into the state."""
        slow = SlowCopy(module, flat)
        self._slow.append(slow)
        return self.own(name, slow.module)

    def _warming_up(self, explore: bool) -> bool:
        return explore and self._env_steps < self.config.learning_starts

    def _at_random(self, count: int, carry: Carry | None) -> Decision:
        """Decide for ``count`` environments at random; what noise remembers stays as it was."""
        return Decision(self._uniform(count), self.exploration_carry(count) if carry is None else carry)

    def _uniform(self, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Draw actions [count, *action] from all that there are."""
        return self._rng.uniform(-1.0, 1.0, (count, *self._action_shape)).astype(np.float32)

    def _normal(self, count: int) -> torch.Tensor:
        """Draw standard normal noise [count, A]."""
        noise = self._rng.standard_normal((count, self._action_size), dtype=np.float32)
        return torch.as_tensor(noise, device=self.device)

    # Learning

    def update(self, batch: Batch) -> UpdateResult:
        """Make one gradient step of the critics and, if it is its turn, of the actor."""
        x, following = self._see(batch)
        found = self._critic_loss(batch, x, following)
        optimizer = self.optimizers["critic"]
        norm = optimizer.step(found.loss) if found.loss.requires_grad else optimizer.apply(found.loss)
        self.updates += 1
        metrics = {
            "critic_loss": found.loss.detach(),
            "q_value_mean": found.value,
            "target_q_mean": found.target,
            "critic_grad_norm": norm,
        }
        turn = self.updates % self.config.policy_delay == 0
        if turn:
            metrics.update(self._improve(batch, x.detach()))
            self.actor_updates += 1
        if turn or not self.targets_wait:
            for slow in self._slow:
                slow.follow(self.config.tau)
        return UpdateResult(Means(metrics), priorities=found.priority)

    def _see(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what actor and critics see of the observations [B, size], and of those that followed."""
        network: Any = self.network
        x = network.features(batch.obs)
        with torch.no_grad():  # targets are made of features as they are now
            return x, network.features(batch.next_obs)

    def _critic_adam(self) -> torch.Tensor:
        """Make the optimizer of the critics and what else they train; return the vector of their own parameters."""
        network: Any = self.network
        optimizer = self.optimizers["critic"] = self.adam(network.trained_by_critic())
        return optimizer.flat[-sum(parameter.numel() for parameter in network.critic.parameters()) :]

    @abstractmethod
    def _critic_loss(self, batch: Batch, x: torch.Tensor, following: torch.Tensor) -> CriticLoss:
        """Return the critics' loss with its graph."""

    def _move_temperature(self, slope: torch.Tensor) -> None:
        """Make one step of a learned temperature, along the slope of its loss."""
        optimizer = self.optimizers["temperature"]
        optimizer.grad.copy_(slope)
        optimizer.apply(slope)

    @abstractmethod
    def _improve(self, batch: Batch, x: torch.Tensor) -> Metrics:
        """Make one gradient step of the actor and what goes with it."""


def smallest(values: torch.Tensor, chosen: Sequence[int] | None = None) -> torch.Tensor:
    """Return the smallest of the critics' values [C, ...], or of those that are ``chosen``."""
    some = values if chosen is None else values[list(chosen)]
    return torch.minimum(some[0], some[1]) if len(some) == 2 else some.amin(0)
