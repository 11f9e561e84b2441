"""DrQ-v2 (Yarats et al. 2021): deterministic policy gradients from randomly shifted images."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.augmentation import draw_shifts, shift_images
from rl_training.algorithms.declared.drqv2 import DrQv2Config
from rl_training.algorithms.learner import Learner
from rl_training.algorithms.optimizer import flatten_parameters, polyak
from rl_training.algorithms.protocol import Decision, Means, UpdateResult
from rl_training.algorithms.schedules import linear
from rl_training.data.transitions import Batch, Carry
from rl_training.models.actors import with_noise
from rl_training.models.cnn.drqv2 import DrQv2Network
from rl_training.spaces import Array


class DrQv2(Learner[DrQv2Config, Batch]):
    """Learns a deterministic policy and twin values of it on the features of one encoder.

    The encoder follows the critic's loss alone, and has no target of its own: what a target is made of is the
    next observation's features as they are now, and a slow copy of the critic behind the encoder.
    """

    counters: ClassVar[tuple[str, ...]] = ("actor_updates",)

    def __init__(
        self, network: DrQv2Network, config: DrQv2Config, *, action_shape: tuple[int, ...], **options: Any
    ) -> None:
        super().__init__(config, **options)
        self.network = self.own("online", network)
        self.target = self.own("target", copy.deepcopy(network.critic))
        self._action_shape = action_shape
        # Adam treats every number by itself, so that one of them over two parts is the same as one for each.
        self.critic_optimizer = self.adam(nn.ModuleList([network.encoder, network.critic]))
        self.actor_optimizer = self.adam(network.actor)
        self.optimizers = {"critic": self.critic_optimizer, "actor": self.actor_optimizer}
        self._flat_target = flatten_parameters(self.target)
        self.target.requires_grad_(False)
        self._flat_critic = self.critic_optimizer.flat[-len(self._flat_target) :]
        self.actor_updates = 0
        self.std = config.std_initial
        self.advance(0)

    # Acting

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action]; when exploring, with noise, and before learning starts, at random."""
        shape = (len(obs), *self._action_shape)
        if explore and self._env_steps < self.config.learning_starts:
            return Decision(self._rng.uniform(-1.0, 1.0, shape).astype(np.float32))
        with torch.no_grad():
            action = self.network.act(torch.as_tensor(obs, device=self.device))
            if explore:
                action = with_noise(action, self._noise(len(obs)))
        return Decision(action.cpu().numpy().reshape(shape))

    def _noise(self, count: int) -> torch.Tensor:
        size = int(np.prod(self._action_shape))
        noise = self._rng.standard_normal((count, size), dtype=np.float32) * np.float32(self.std)
        return torch.as_tensor(noise, device=self.device)

    # Learning

    def update(self, batch: Batch) -> UpdateResult:
        """Make one gradient step of critic and encoder, and every ``policy_delay``-th time one of the actor."""
        features, target = self._critic_inputs(batch)
        action = batch.action.flatten(1)
        first, second = self.network.critic(features, action)
        loss = nn.functional.mse_loss(first, target) + nn.functional.mse_loss(second, target)
        norm = self.critic_optimizer.step(loss)
        self.updates += 1
        metrics = {
            "critic_loss": loss.detach(),
            "q_value_mean": torch.minimum(first, second).detach(),
            "target_q_mean": target,
            "critic_grad_norm": norm,
        }
        if self.updates % self.config.policy_delay == 0:
            metrics["actor_loss"] = self._update_actor(features.detach())
            polyak(self._flat_target, self._flat_critic, self.config.tau)
        return UpdateResult(Means(metrics))

    def _critic_inputs(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features [B, size] of the observations, with their graph, and targets [B] of the values."""
        with self.learning(self.network):
            features = self.network.encoder(self._augmented(batch.obs))
        with torch.no_grad():
            following = self.network.encoder(self._augmented(batch.next_obs))
            action = self._smoothed(self.network.actor(following))
            value = torch.minimum(*self.target(following, action))
            target = self.config.reward_scale * batch.reward + batch.discount * value
        return features, target

    def _update_actor(self, features: torch.Tensor) -> torch.Tensor:
        action = self._smoothed(self.network.actor(features))
        loss: torch.Tensor = -torch.minimum(*self.network.critic(features, action)).mean()
        self.actor_optimizer.step(loss)
        self.actor_updates += 1
        return loss.detach()

    def _smoothed(self, action: torch.Tensor) -> torch.Tensor:
        return with_noise(action, self._noise(len(action)), self.config.std_clip)

    def _augmented(self, images: torch.Tensor) -> torch.Tensor:
        """Shift each image by a draw of its own."""
        pad = self.config.shift_pad
        return shift_images(images, draw_shifts(self._rng, len(images), pad), pad) if pad else images

    # Schedules and state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; one from before custom encoders were switched to training mode holds no stream for it."""
        counters = dict(state["counters"])
        if self._torch_stream is not None:
            counters.setdefault("torch_stream", self._torch_stream.state)
        super().load_state_dict({**state, "counters": counters})

    def advance(self, env_steps: int) -> None:
        """Set the standard deviation of the noise, and the learning rate."""
        super().advance(env_steps)
        c = self.config
        self.std = linear(c.std_initial, c.std_final, c.std_duration, env_steps)

    def status(self) -> dict[str, float]:
        """Return the noise, the learning rate and how often the actor was updated."""
        return {"exploration_std": self.std, **super().status()}
