"""SAC (Haarnoja et al. 2018): a stochastic policy that maximises reward and entropy."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import torch

from rl_training.algorithms.actor_critic import CriticLoss, Metrics, frozen, smallest
from rl_training.algorithms.continuous_learner import ContinuousLearner
from rl_training.algorithms.declared.sac import EntropyConfig, SACConfig
from rl_training.algorithms.direct import Direct, DirectCritics
from rl_training.algorithms.exploration import MatrixNoise
from rl_training.algorithms.protocol import Decision
from rl_training.algorithms.temperature import Temperature, initial_temperature, temperature_gradient
from rl_training.data.transitions import Batch, Carry
from rl_training.models.actors import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    GaussianActor,
    StateDependentActor,
    squashed,
)
from rl_training.models.continuous import ContinuousModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.spaces import Array

Config = TypeVar("Config", bound=EntropyConfig)
Model = TypeVar("Model", bound=ContinuousModel[GaussianActor, Any])


def soft_policy_loss(log_prob: torch.Tensor, value: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """Return the loss of a policy whose actions have these log-densities [B] and values [B]."""
    return (alpha * log_prob - value).mean()


def soft_policy_slopes(
    action: torch.Tensor, moved: torch.Tensor, slope: torch.Tensor, alpha: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the slopes [B, A] of ``soft_policy_loss`` by mean and log-deviation of a squashed Gaussian.

    ``moved`` is the deviation times the noise, ``slope`` that of the value by the action.
    """
    share = 1.0 / len(action)
    # d log(1 - tanh(u)^2) / du = -2 tanh(u)
    of_mean = (2.0 * alpha * action - slope * (1.0 - action.square())) * share
    return of_mean, of_mean * moved - alpha * share


class EntropyLearner(ContinuousLearner[Config, Model], Generic[Config, Model]):
    """What SAC, TQC and CrossQ share: a squashed Gaussian, and a temperature."""

    temperature: Temperature

    def __init__(self, model: Model, config: Config, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.temperature = self.own("temperature", initial_temperature(config.ent_coef, config.ent_coef_init))
        if config.ent_coef == "auto":
            self.optimizers["temperature"] = self._temperature_adam(self.temperature)
        auto = config.target_entropy == "auto"
        self.target_entropy = -float(self._action_size) if auto else float(config.target_entropy)
        self._matrices: MatrixNoise | None = None

    # Acting

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action]: when exploring drawn from the policy, and before learning starts at random."""
        if self._warming_up(explore):
            return self._at_random(len(obs), carry)
        if not explore:
            action = self._acting.mode(obs)
        elif self._matrices is None:
            noise = self._rng.standard_normal((len(obs), self._action_size), dtype=np.float32)
            action = self._acting.sample(obs, noise)
        else:
            carry = self._matrices.draw(carry, len(obs), self._rng)
            action = self._with_matrices(obs, carry["matrix"])
        found = action.reshape(-1, *self._action_shape)
        return Decision(found, carry if explore and self._matrices is not None else None)

    def exploration_carry(self, count: int) -> Carry | None:
        """Return the noise of ``count`` episodes that are about to begin, if it lasts longer than a step."""
        return None if self._matrices is None else self._matrices.initial(count)

    def _with_matrices(self, obs: Array, matrix: Array) -> Array:
        actor = self.network.actor
        assert isinstance(actor, StateDependentActor)
        with torch.no_grad():
            x = self.network.features(torch.as_tensor(obs, device=self.device))
            return actor.explored(x, torch.as_tensor(matrix, device=self.device)).cpu().numpy()

    # Learning

    def _sample(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw actions [B, A] for inputs [B, in], without a graph; return them and the log of their density [B]."""
        noise = self._normal(len(x))
        if self._actor is None:
            return self.network.actor.sample(x, noise)
        mean, log_std = self._actor.forward(x).out.chunk(2, dim=1)
        return squashed(mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX), noise)

    def _actors_value(self, values: torch.Tensor) -> torch.Tensor:
        """Return what the actor takes for the value [B] of its actions, of the critics' [C, B, K]."""
        return smallest(values)[:, 0]

    def _improve(self, batch: Batch, x: torch.Tensor) -> Metrics:
        alpha, noise = self.temperature(), self._normal(len(x))
        if self._actor is not None and self._critics is not None:
            loss, log_prob = self._direct_step(self._actor, self._critics, x, noise, alpha)
        else:
            with self.learning(self.network.actor):
                action, log_prob = self.network.actor.sample(x, noise)
            with frozen(self.optimizers["critic"]), self._critics_for_actor():
                value = self._actors_value(self.network.critic(x, action))
            loss = soft_policy_loss(log_prob, value, alpha)
            self.optimizers["actor"].step(loss)
        entropy = -log_prob.detach()
        metrics = {"actor_loss": loss.detach(), "entropy": entropy, "ent_coef": alpha}
        if "temperature" in self.optimizers:
            self._move_temperature(temperature_gradient(entropy, self.target_entropy))
        return metrics

    def _direct_step(
        self,
        actor: Direct,
        critics: DirectCritics,
        x: torch.Tensor,
        noise: torch.Tensor,
        alpha: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Make one step of the actor without autograd; return its loss and the log-densities [B]."""
        made = actor.forward(x, learning=True)
        mean, given = made.out.chunk(2, dim=1)
        log_std = given.clamp(LOG_STD_MIN, LOG_STD_MAX)
        action, log_prob = squashed(mean, log_std, noise)
        value, slope = self._actors_slope(critics, x, action)
        loss = soft_policy_loss(log_prob, value, alpha)
        of_mean, of_std = soft_policy_slopes(action, log_std.exp() * noise, slope, alpha)
        of_std.masked_fill_(given != log_std, 0.0)
        actor.store(made, torch.cat((of_mean, of_std), 1))
        self.optimizers["actor"].apply(loss)
        return loss, log_prob

    def _actors_slope(
        self, critics: DirectCritics, x: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``_actors_value`` of actions [B, A], and its slope [B, A]."""
        return critics.smallest_slope(x, action)

    def _critics_for_actor(self) -> Any:
        """Return the mode in which critics value the actor's actions."""
        return self.learning(self.network.critic)


class SAC(EntropyLearner[SACConfig, MLPSACModel]):
    """The learner of SAC."""

    def __init__(self, model: MLPSACModel, config: SACConfig, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.target_critic = self._slow_copy("target", model.critic, self._critic_flat)
        if isinstance(model.actor, StateDependentActor):
            shape = model.actor.log_std.shape
            self._matrices = MatrixNoise((shape[0], shape[1]), config.sde_sample_freq)
        self.advance(0)

    def _critic_loss(self, batch: Batch, x: torch.Tensor, following: torch.Tensor) -> CriticLoss:
        with torch.no_grad():
            values, log_prob = self._next_outputs(following)
            value = smallest(values, self._chosen())[:, 0] - self.temperature() * log_prob
            target = batch.reward + batch.discount * value
        return self._fit(batch, x, target)

    def _next_outputs(self, following: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the slow critics say [C, B, K] of new actions, and the log-densities [B] of these."""
        action, log_prob = self._sample(following)
        return self._slow_outputs(following, action), log_prob

    def _chosen(self) -> list[int] | None:
        """Draw the critics whose smallest value makes the target (REDQ, Chen et al. 2021); none: all of them."""
        c = self.config
        if c.target_critics is None or c.target_critics >= c.n_critics:
            return None
        return [int(i) for i in self._rng.permutation(c.n_critics)[: c.target_critics]]

    def _actors_value(self, values: torch.Tensor) -> torch.Tensor:
        """Return the smallest value; of an ensemble of which targets take a part, the mean."""
        return (
            values.mean(0)[:, 0] if self.config.target_critics is not None else super()._actors_value(values)
        )

    def _actors_slope(
        self, critics: DirectCritics, x: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``_actors_value`` of actions [B, A], and its slope [B, A]."""
        part = self.config.target_critics is not None
        return critics.mean_slope(x, action) if part else super()._actors_slope(critics, x, action)
