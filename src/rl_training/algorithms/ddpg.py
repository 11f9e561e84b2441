"""DDPG (Lillicrap et al. 2016): a deterministic policy that follows the gradient of its critic."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch

from rl_training.algorithms.actor_critic import CriticLoss, Metrics, frozen, smallest
from rl_training.algorithms.continuous_learner import ContinuousLearner
from rl_training.algorithms.declared.ddpg import DDPGConfig, DeterministicConfig
from rl_training.algorithms.direct import direct_mlp
from rl_training.algorithms.exploration import ActionNoise
from rl_training.algorithms.protocol import Decision
from rl_training.data.transitions import Batch, Carry
from rl_training.models.continuous import DeterministicModel
from rl_training.spaces import Array

Config = TypeVar("Config", bound=DeterministicConfig)


def deterministic_policy_loss(values: torch.Tensor) -> torch.Tensor:
    """Return the loss of a policy whose actions have these values [B]."""
    return -values.mean()


class DeterministicLearner(ContinuousLearner[Config, DeterministicModel]):
    """What DDPG and TD3 share."""

    targets_wait: ClassVar[bool] = True

    def __init__(self, model: DeterministicModel, config: Config, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.target_critic = self._slow_copy("target_critic", model.critic, self._critic_flat)
        self.target_actor = self._slow_copy("target_actor", model.actor, self.optimizers["actor"].flat)
        self._slow_actor = direct_mlp(self.target_actor.net)
        c = config
        self.noise = ActionNoise(c.action_noise, c.action_noise_std, theta=c.ou_theta, dt=c.ou_dt)
        self.advance(0)

    def exploration_carry(self, count: int) -> Carry | None:
        """Return what the noise remembers of ``count`` episodes that are about to begin."""
        return self.noise.initial(count, self._action_size)

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action]: when exploring with noise, and before learning starts at random."""
        if self._warming_up(explore):
            return self._at_random(len(obs), carry)
        action = self._acting.mode(obs)
        if explore:
            action, carry = self.noise.add(action, carry, self._rng)
        return Decision(action.reshape(-1, *self._action_shape), carry if explore else None)

    def _critic_loss(self, batch: Batch, x: torch.Tensor, following: torch.Tensor) -> CriticLoss:
        with torch.no_grad():
            value = smallest(self._slow_outputs(following, self._next_action(following)))[:, 0]
            target = batch.reward + batch.discount * value
        return self._fit(batch, x, target)

    def _next_action(self, following: torch.Tensor) -> torch.Tensor:
        """Return the actions [B, A] by whose values targets are made."""
        if self._slow_actor is not None:
            return torch.tanh(self._slow_actor.forward(following).out)
        action: torch.Tensor = self.target_actor(following)
        return action

    def _improve(self, batch: Batch, x: torch.Tensor) -> Metrics:
        optimizer = self.optimizers["actor"]
        if self._actor is not None and self._critics is not None:
            made = self._actor.forward(x, learning=True)
            action = torch.tanh(made.out)
            value, slope = self._critics.first_slope(x, action)
            loss = deterministic_policy_loss(value)
            grad = torch.ops.aten.tanh_backward(slope * (-1.0 / len(x)), action)
            self._actor.store(made, grad)
            optimizer.apply(loss)
            return {"actor_loss": loss, "action_saturation": at_bounds(action)}
        with frozen(self.optimizers["critic"]), self.learning(self.network.critic):
            action = self.network.actor(x)
            loss = deterministic_policy_loss(self.network.critic(x, action)[0])
        optimizer.step(loss)
        return {"actor_loss": loss.detach(), "action_saturation": at_bounds(action.detach())}


def at_bounds(action: torch.Tensor) -> torch.Tensor:
    """Return the share of numbers in actions [B, A] that are at the bounds -1 and 1, where tanh has no slope left."""
    return (action.abs() > 0.99).float().mean()


class DDPG(DeterministicLearner[DDPGConfig]):
    """The learner of DDPG."""
