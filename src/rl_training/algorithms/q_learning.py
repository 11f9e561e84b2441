"""The core that all value-based learners share; what they differ in is a head of a few functions."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.optimizer import FlatAdam, flatten_parameters, polyak
from rl_training.algorithms.protocol import Decision, Means, UpdateResult
from rl_training.algorithms.randomness import TorchStream
from rl_training.algorithms.schedules import linear
from rl_training.algorithms.state import require_like
from rl_training.config import QLearningConfig
from rl_training.data.transitions import Batch, Carry
from rl_training.models.mirror import numpy_mirror
from rl_training.models.modes import has_modes
from rl_training.models.noisy import noise, noisy_layers
from rl_training.models.normalizer import RunningNormalizer, share_normalizers
from rl_training.spaces import Array

Config = TypeVar("Config", bound=QLearningConfig)
Role = Literal["online", "target", "policy"]
"""What an output is for: to be learned, to be learned from, or to choose the next action by."""


@dataclasses.dataclass(slots=True)
class HeadLoss:
    """What a head makes of a batch; only ``each`` has a graph."""

    each: torch.Tensor  # [B] loss of each sample; unweighted, unless it is said otherwise
    value: torch.Tensor  # [B] expected value of the action taken
    target: torch.Tensor  # [B] expected value of what it is drawn to
    error: torch.Tensor  # [B] value - target
    priority: torch.Tensor  # [B] how much there is to learn from the sample
    extra: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)  # further metrics, [B] or scalar


def pick(out: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return the entries [B, ...] of ``out`` [B, A, ...] that belong to ``action`` [B]."""
    return out[torch.arange(len(out), device=out.device), action]


def greedy(q: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Return the best actions [B] by Q-values [B, A] among those that ``mask`` [B, A] allows."""
    return (q if mask is None else q.masked_fill(~mask, -torch.inf)).argmax(1)


class QLearner(ABC, Generic[Config]):
    """An online and a target network, an optimizer, and acting by epsilon-greedy choice or by noisy weights.

    ``network`` maps observations [B, *obs] to an output [B, A, ...]. A head says what the expected values of an
    output are and what the loss between two outputs is. Target syncs, epsilon and the learning rate follow the
    env steps told by ``advance``.
    """

    def __init__(
        self,
        network: nn.Module,
        num_actions: int,
        config: Config,
        *,
        total_timesteps: int,
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config = config
        self.num_actions = num_actions
        self.device = torch.device(device)
        self.online = network.to(self.device).eval()
        self.target = copy.deepcopy(self.online)
        share_normalizers(self.online, self.target)
        self._flat_target = flatten_parameters(self.target)
        self._buffers = list(zip(self.target.buffers(), self.online.buffers(), strict=True))
        self.target.requires_grad_(False)
        self.optimizer = FlatAdam(
            self.online, lr=config.learning_rate, eps=config.adam_eps, max_grad_norm=config.max_grad_norm
        )
        self.last_td_errors: torch.Tensor | None = None
        self.updates = 0
        self._online_noise, self._target_noise = noisy_layers(self.online), noisy_layers(self.target)
        self._has_modes = has_modes(self.online)
        self._mirror = numpy_mirror(self.online)
        self._normalizer = next((m for m in self.online.modules() if isinstance(m, RunningNormalizer)), None)
        self._total = total_timesteps
        self._rng = rng if rng is not None else np.random.default_rng()
        self._torch_stream = TorchStream(int(self._rng.integers(2**63)))
        self._env_steps = 0
        self.epsilon = 1.0
        self.advance(0)

    # The head

    @abstractmethod
    def expected(self, out: torch.Tensor) -> torch.Tensor:
        """Return the expected values [B, A] of an output [B, A, ...]."""

    @abstractmethod
    def head_loss(self, chosen: torch.Tensor, following: torch.Tensor, batch: Batch) -> HeadLoss:
        """Compare the output of the actions taken with the target network's of the best next ones, [B, ...] both."""

    def output(self, network: nn.Module, obs: torch.Tensor, role: Role) -> torch.Tensor:
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

    def initial_carry(self, count: int) -> Carry | None:
        """Return none: what is no memory needs no beginning."""
        return None

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N] that ``mask`` [N, A] allows; when exploring, each environment tosses its own coin."""
        if not explore:
            return Decision(greedy_actions(self.q_values(obs), mask))
        if len(obs) == 1:  # so often that it is worth not making arrays of one coin
            if self._rng.random() < self.epsilon:
                return Decision(self._random_actions(1, mask))
            return Decision(greedy_actions(self.q_values(obs, noisy=True), mask))
        explores = self._rng.random(len(obs)) < self.epsilon
        if explores.all():
            return Decision(self._random_actions(len(obs), mask))
        action = greedy_actions(self.q_values(obs, noisy=True), mask)
        return Decision(self._with_random(action, explores, mask))

    def _with_random(self, action: Array, explores: Array, mask: Array | None) -> Array:
        """Replace the actions of those that explore by random ones, in place."""
        exploring = int(np.count_nonzero(explores))
        if exploring:
            action[explores] = self._random_actions(exploring, None if mask is None else mask[explores])
        return action

    def _random_actions(self, count: int, mask: Array | None) -> Array:
        if mask is None:
            return self._rng.integers(0, self.num_actions, count)
        return greedy_actions(self._rng.random(mask.shape), mask)

    def observe(self, obs: Array) -> None:
        """Move the normaliser's statistics, if there are any; acting alone leaves them as they are."""
        if self._normalizer is not None:
            self._normalizer.observe(obs)

    # Learning

    def update(self, batch: Any, weight: torch.Tensor | None = None) -> UpdateResult:
        """Make one gradient step on a batch, its samples weighted by ``weight`` [B] if given."""
        if weight is not None:
            batch = dataclasses.replace(batch, weight=weight)
        loss, head = self._loss(batch)
        norm = self.optimizer.step(loss)
        return self._report(loss.detach(), head, norm)

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

    def _loss(self, batch: Any) -> tuple[torch.Tensor, HeadLoss]:
        """Return the loss with its graph, and what it is made of."""
        with torch.no_grad():
            out = self._disturbed(self.target, batch.next_obs, "target")
            following = pick(out, greedy(self.expected(self._choosing(batch.next_obs, out)), batch.next_mask))
        with self._learning():
            chosen = pick(self._disturbed(self.online, batch.obs, "online"), batch.action)
        head = self.head_loss(chosen, following, batch)
        return (head.each if batch.weight is None else head.each * batch.weight).mean(), head

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Let dropout be active and batch statistics move: only in here, else all is in evaluation mode."""
        if not self._has_modes:
            yield
            return
        self.online.train()
        with self._torch_stream:
            yield
        self.online.eval()

    def _choosing(self, next_obs: torch.Tensor, target_out: torch.Tensor) -> torch.Tensor:
        """Return the output by which the next action is chosen: with Double, that of the online network."""
        return self._disturbed(self.online, next_obs, "policy") if self.config.double else target_out

    def _disturbed(self, network: nn.Module, obs: torch.Tensor, role: Role) -> torch.Tensor:
        """Return an output under a draw of noise of its own, if the network is a noisy one."""
        with noise(self._online_noise if network is self.online else self._target_noise, self._rng):
            return self.output(network, obs, role)

    def sync_target(self, times: int = 1) -> None:
        """Move the target network towards the online one by ``tau``, that often; buffers are copied."""
        polyak(self._flat_target, self.optimizer.flat, 1.0 - (1.0 - self.config.tau) ** times)
        for target, online in self._buffers:
            target.copy_(online)

    # Schedules and state

    def advance(self, env_steps: int) -> None:
        """Set epsilon and the learning rate, and sync the target when its interval has passed."""
        c = self.config
        interval = c.target_update_interval
        # Many environments can pass several multiples of a short interval in one step.
        passed = env_steps // interval - self._env_steps // interval
        if passed > 0:
            self.sync_target(passed)
        self._env_steps = env_steps
        if env_steps < c.learning_starts:
            self.epsilon = 1.0
        elif self._online_noise:
            self.epsilon = 0.0  # the noise explores
        else:
            fade = c.exploration_fraction * self._total
            self.epsilon = linear(c.exploration_initial_eps, c.exploration_final_eps, fade, env_steps)
        if c.learning_rate_final is not None:
            self.optimizer.lr = linear(c.learning_rate, c.learning_rate_final, self._total, env_steps)

    def status(self) -> dict[str, float]:
        """Return epsilon and the learning rate."""
        return {"exploration_rate": self.epsilon, "learning_rate": self.optimizer.lr}

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Return what a user should be told about a row of the log: nothing, unless a head knows something."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimizer and counters."""
        return {
            "model": {"online": dict(self.online.state_dict()), "target": dict(self.target.state_dict())},
            "optimizer": self.optimizer.state_dict(),
            "counters": {
                "updates": self.updates,
                "env_steps": self._env_steps,
                "torch_stream": self._torch_stream.state,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of the same networks; a missing or misshapen part is an error."""
        networks = {"online": self.online, "target": self.target}
        for name, network in networks.items():
            require_like(state["model"][name], network.state_dict(), f"model: {name}")
        for name, network in networks.items():
            network.load_state_dict(state["model"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        stream = {"torch_stream": state["counters"]["torch_stream"]}
        require_like(stream, {"torch_stream": self._torch_stream.state}, "loop")
        self._torch_stream.state = stream["torch_stream"].clone()
        self.updates = int(state["counters"]["updates"])
        self._env_steps = int(state["counters"]["env_steps"])
        self.advance(self._env_steps)


def greedy_actions(q: Array, mask: Array | None) -> Array:
    """Return the best actions [N] by Q-values [N, A] among those that ``mask`` [N, A] allows."""
    best: Array = (q if mask is None else np.where(mask, q, -np.inf)).argmax(1)
    return best
