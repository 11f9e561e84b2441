"""DrQ-v2 (Yarats et al. 2021): deterministic policy gradients from randomly shifted images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from rl_training.algorithms.actor_critic import (
    ActorCriticLearner,
    CriticLoss,
    Metrics,
    frozen,
    smallest,
    squared_loss,
)
from rl_training.algorithms.augmentation import draw_shifts, shift_images
from rl_training.algorithms.ddpg import deterministic_policy_loss
from rl_training.algorithms.declared.drqv2 import DrQv2Config
from rl_training.algorithms.protocol import Decision
from rl_training.algorithms.schedules import linear
from rl_training.data.transitions import Batch, Carry
from rl_training.models.actors import with_noise
from rl_training.models.cnn.drqv2 import DrQv2Network
from rl_training.models.scorer import Scorer, memoryless
from rl_training.spaces import Array


class DrQv2(ActorCriticLearner[DrQv2Config, DrQv2Network]):
    """Learns a deterministic policy and twin values of it on the features of one encoder.

    The encoder follows the critic's loss alone, and has no target of its own: what a target is made of is the
    next observation's features as they are now, and a slow copy of the critic behind the encoder.
    """

    targets_wait: ClassVar[bool] = True

    def __init__(self, network: DrQv2Network, config: DrQv2Config, **options: Any) -> None:
        super().__init__(network, config, **options)
        # Adam treats every number by itself, so that one of them over two parts is the same as one for each.
        critic = self.optimizers["critic"] = self.adam(nn.ModuleList([network.encoder, network.critic]))
        self.optimizers["actor"] = self._actor_adam(network.actor)
        size = sum(parameter.numel() for parameter in network.critic.parameters())
        self.target = self._slow_copy("target", network.critic, critic.flat[-size:])
        self.std = config.std_initial
        self.advance(0)

    # Acting

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action]; when exploring, with noise, and before learning starts, at random."""
        if self._warming_up(explore):
            return self._at_random(len(obs), carry)
        with torch.no_grad():
            action = self.network.act(torch.as_tensor(obs, device=self.device))
            if explore:
                action = with_noise(action, self._noise(len(obs)))
        return Decision(action.cpu().numpy().reshape(-1, *self._action_shape))

    def scorer(self) -> Scorer:
        """Return what maps images to actions."""
        return memoryless(self.network, "action", self.network.act)

    def _noise(self, count: int) -> torch.Tensor:
        return self._normal(count) * self.std

    # Learning

    def _see(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features [B, size] of shifted images, with their graph, and of those that followed."""
        with self.learning(self.network):
            features = self.network.encoder(self._augmented(batch.obs))
        with torch.no_grad():
            return features, self.network.encoder(self._augmented(batch.next_obs))

    def _critic_loss(self, batch: Batch, x: torch.Tensor, following: torch.Tensor) -> CriticLoss:
        with torch.no_grad():
            value = smallest(self.target(following, self._smoothed(self.network.actor(following))))
            target = self.config.reward_scale * batch.reward + batch.discount * value
        return squared_loss(self.network.critic(x, batch.action.reshape(len(batch.action), -1)), target, None)

    def _improve(self, batch: Batch, x: torch.Tensor) -> Metrics:
        with frozen(self.optimizers["critic"]):
            values = self.network.critic(x, self._smoothed(self.network.actor(x)))
        loss = deterministic_policy_loss(smallest(values))
        self.optimizers["actor"].step(loss)
        return {"actor_loss": loss.detach()}

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
