"""DQN (Mnih et al. 2015), with Double (van Hasselt et al. 2016) and Dueling (Wang et al. 2016) as options."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from rl_training.algorithms.optimizer import FlatAdam, flatten_parameters, polyak
from rl_training.algorithms.protocol import Decision, Means, UpdateResult
from rl_training.algorithms.randomness import TorchStream
from rl_training.algorithms.schedules import linear
from rl_training.algorithms.state import require_like
from rl_training.config import DQNConfig
from rl_training.data.transitions import Batch
from rl_training.models.mirror import numpy_mirror
from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.models.normalizer import RunningNormalizer, share_normalizers
from rl_training.spaces import Array

LossName = Literal["huber", "mse"]
_LOSSES: dict[LossName, Callable[..., torch.Tensor]] = {"huber": F.huber_loss, "mse": F.mse_loss}


def dqn_loss(
    q: torch.Tensor,
    next_q_target: torch.Tensor,
    next_q_online: torch.Tensor | None,
    batch: Batch,
    loss_name: LossName = "huber",
) -> tuple[torch.Tensor, torch.Tensor, Means]:
    """Return the scalar loss, the TD errors [B], and named metrics.

    ``q``, ``next_q_target`` and ``next_q_online`` are [B, A]: Q-values of ``obs`` by the online network, and of
    ``next_obs`` by the target and, for Double DQN, the online network. The gradient flows through ``q`` only.
    """
    assert q.ndim == 2, q.shape
    assert q.shape == next_q_target.shape, (q.shape, next_q_target.shape)
    chosen = q.gather(1, batch.action[:, None]).squeeze(1)
    with torch.no_grad():
        if next_q_online is None:
            next_value = next_q_target.amax(1)
        else:  # Double: the online network chooses, the target network values.
            next_value = next_q_target.gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)
        target = batch.reward + batch.discount * next_value
    element_loss = _LOSSES[loss_name]
    if batch.weight is None:
        loss = element_loss(chosen, target)
    else:
        loss = (element_loss(chosen, target, reduction="none") * batch.weight).mean()
    value = chosen.detach()
    td_error = value - target
    metrics = {
        "loss": loss.detach(),
        "q_value_mean": value,
        "target_mean": target,
        "td_error_mean": td_error.abs(),
    }
    return loss, td_error, Means(metrics)


def dqn_gradient(
    q: torch.Tensor, td_error: torch.Tensor, batch: Batch, loss_name: LossName = "huber"
) -> torch.Tensor:
    """Return the gradient [B, A] of ``dqn_loss`` by ``q``, which autograd would find at ten times the cost."""
    # Huber's slope is the error cut off at 1, that of the square is twice the error; the loss is a mean over B.
    slope = td_error.clamp(-1.0, 1.0) if loss_name == "huber" else 2.0 * td_error
    if batch.weight is not None:
        slope = slope * batch.weight
    return torch.zeros_like(q).scatter_(1, batch.action[:, None], (slope / len(slope))[:, None])


class DQN:
    """The learner: an online and a target network, an optimizer, and epsilon-greedy acting.

    ``network`` maps observations [B, *obs] to Q-values [B, A]. Target syncs, epsilon and the learning rate
    follow the env steps told by ``advance``.
    """

    def __init__(
        self,
        network: nn.Module,
        num_actions: int,
        config: DQNConfig,
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
        self._traced = _traceable(self.online, self.target)
        self._mirror = numpy_mirror(self.online)
        self._normalizer = next((m for m in self.online.modules() if isinstance(m, RunningNormalizer)), None)
        self._total = total_timesteps
        self._rng = rng if rng is not None else np.random.default_rng()
        self._torch_stream = TorchStream(int(self._rng.integers(2**63)))
        self._env_steps = 0
        self.epsilon = 1.0
        self.advance(0)

    def q_values(self, obs: Array) -> Array:
        """Return the online network's Q-values [N, A] of raw observations [N, *obs]."""
        if self._mirror is not None and len(obs) <= self._mirror.max_batch:
            return self._mirror(obs)
        with torch.no_grad():
            q: torch.Tensor = self.online(torch.as_tensor(obs, device=self.device))
        return q.cpu().numpy()

    def act(self, obs: Array, carry: Any = None, *, explore: bool) -> Decision:
        """Choose actions [N]; when exploring, each environment tosses its own coin."""
        if not explore:
            return Decision(self.q_values(obs).argmax(1))
        count = len(obs)
        explores = self._rng.random(count) < self.epsilon
        exploring = int(np.count_nonzero(explores))
        if exploring == count:
            return Decision(self._rng.integers(0, self.num_actions, count))
        action = self.q_values(obs).argmax(1)
        if exploring:
            action[explores] = self._rng.integers(0, self.num_actions, exploring)
        return Decision(action)

    def observe(self, obs: Array) -> None:
        """Move the normaliser's statistics, if there are any; acting alone leaves them as they are."""
        if self._normalizer is not None:
            self._normalizer.observe(obs)

    def update(self, batch: Batch, weight: torch.Tensor | None = None) -> UpdateResult:
        """Make one gradient step on a batch, its samples weighted by ``weight`` [B] if given."""
        if weight is not None:
            batch = dataclasses.replace(batch, weight=weight)
        if self._traced is None:
            loss, td_error, metrics = self._loss(batch)
            norm = self.optimizer.step(loss)
        else:
            loss, td_error, metrics = self._traced_loss(batch, *self._traced)
            norm = self.optimizer.apply(loss)
        metrics.samples["grad_norm"] = norm
        self.updates += 1
        self.last_td_errors = td_error
        return UpdateResult(metrics, priorities=metrics.samples["td_error_mean"])

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, Means]:
        """Return the loss with its graph."""
        with torch.no_grad():
            next_q_target = self.target(batch.next_obs)
            next_q_online = self.online(batch.next_obs) if self.config.double else None
        # Only here is dropout active and do batch statistics move; else everything is in evaluation mode.
        self.online.train()
        with self._torch_stream:
            q = self.online(batch.obs)
        self.online.eval()
        return dqn_loss(q, next_q_target, next_q_online, batch, self.config.loss)

    @torch.no_grad()
    def _traced_loss(
        self, batch: Batch, online: MLPQNetwork, target: MLPQNetwork
    ) -> tuple[torch.Tensor, torch.Tensor, Means]:
        """Return the loss, and write its gradient to where the optimizer takes it from; no graph is needed."""
        next_q_target, _ = target.trace(batch.next_obs)
        next_q_online = online.trace(batch.next_obs)[0] if self.config.double else None
        q, trace = online.trace(batch.obs)
        loss, td_error, metrics = dqn_loss(q, next_q_target, next_q_online, batch, self.config.loss)
        online.gradients(trace, dqn_gradient(q, td_error, batch, self.config.loss), self.optimizer.grads)
        return loss, td_error, metrics

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
        if env_steps < c.learning_starts:
            self.epsilon = 1.0
        else:
            fade = c.exploration_fraction * self._total
            self.epsilon = linear(c.exploration_initial_eps, c.exploration_final_eps, fade, env_steps)
        if c.learning_rate_final is not None:
            self.optimizer.lr = linear(c.learning_rate, c.learning_rate_final, self._total, env_steps)

    def status(self) -> dict[str, float]:
        """Return epsilon and the learning rate."""
        return {"exploration_rate": self.epsilon, "learning_rate": self.optimizer.lr}

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


def _traceable(online: nn.Module, target: nn.Module) -> tuple[MLPQNetwork, MLPQNetwork] | None:
    """Return both networks if gradients can be had without autograd; a subclass may compute something else."""
    if type(online) is MLPQNetwork and type(target) is MLPQNetwork and online.mlp.fused:
        return online, target
    return None
