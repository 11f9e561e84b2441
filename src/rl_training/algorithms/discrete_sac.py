"""Discrete SAC (Christodoulou 2019): SAC whose expectations over actions are exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.actor_critic import (
    ActorCriticLearner,
    CriticLoss,
    Metrics,
    smallest,
    squared_loss,
)
from rl_training.algorithms.declared.discrete_sac import DiscreteSACConfig
from rl_training.algorithms.direct import direct_ensemble, direct_mlp, missing_library
from rl_training.algorithms.protocol import Decision
from rl_training.algorithms.temperature import initial_temperature, temperature_gradient
from rl_training.data.transitions import Batch, Carry
from rl_training.models.features import Features
from rl_training.models.mirror import ACTIVATIONS, NumpyFeatures, NumpyMLP, max_batch, on_cpu
from rl_training.models.mlp_discrete_sac import MLPDiscreteSACModel, masked_logits
from rl_training.models.scorer import Scorer, memoryless
from rl_training.spaces import Array


def expected(log_prob: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    """Return the expectation [B] of ``each`` [B, A] under a policy; what has no probability adds nothing."""
    return torch.where(log_prob == -torch.inf, 0.0, log_prob.exp() * each).sum(1)


def entropy_of(log_prob: torch.Tensor) -> torch.Tensor:
    """Return the entropy [B] of a policy with these logarithms of probabilities [B, A]."""
    return -expected(log_prob, log_prob.clamp(min=torch.finfo(log_prob.dtype).min))


def discrete_policy_loss(
    log_prob: torch.Tensor, values: torch.Tensor, alpha: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of a policy [B, A] by the values [B, A] of all actions, and its entropy [B].

    Summed over the actions, then averaged over the batch.
    """
    entropy = entropy_of(log_prob)
    return -(expected(log_prob, values) + alpha * entropy).mean(), entropy.detach()


def discrete_policy_slope(
    log_prob: torch.Tensor, values: torch.Tensor, alpha: torch.Tensor, entropy: torch.Tensor
) -> torch.Tensor:
    """Return the slope [B, A] of ``discrete_policy_loss`` by the logits."""
    # With p = softmax(logits) and g = alpha log p - Q, the slope of sum p g is p (g - sum p g).
    gain = torch.where(log_prob == -torch.inf, 0.0, alpha * log_prob - values)
    mean = -alpha * entropy - expected(log_prob, values)
    return log_prob.exp() * (gain - mean[:, None]) / len(log_prob)


class DiscreteSAC(ActorCriticLearner[DiscreteSACConfig, MLPDiscreteSACModel]):
    """The learner of Discrete SAC."""

    def __init__(self, model: MLPDiscreteSACModel, config: DiscreteSACConfig, **options: Any) -> None:
        super().__init__(model, config, **options)
        flat = self._critic_adam()
        self.optimizers["actor"] = self._actor_adam(model.actor)
        self.temperature = self.own("temperature", initial_temperature(config.ent_coef, config.ent_coef_init))
        if config.ent_coef == "auto":
            self.optimizers["temperature"] = self._temperature_adam(self.temperature)
        self.target_critic = self._slow_copy("target", model.critic, flat)
        self._num_actions = model.actor.sizes[-1]
        learned = model.features.learned
        self._critics = None if learned else direct_ensemble(model.critic, self.optimizers["critic"])
        self._slow_critics = direct_ensemble(self.target_critic)
        self._actor = direct_mlp(model.actor, self.optimizers["actor"])
        self._mlp: NumpyMLP | None = None
        features = model.features
        if isinstance(features, Features) and on_cpu(model) and model.actor.activation in ACTIVATIONS:
            self._mlp, self._features = NumpyMLP(model.actor), NumpyFeatures(features)
            self._most = max_batch(*self._mlp.weights)
        self.advance(0)

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Say so if only the missing library keeps updates from being compiled ones."""
        return missing_library(self.network)

    # Acting

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N]: when exploring by their probabilities, before learning starts at random."""
        warming_up = self._warming_up(explore)
        logits: Array = np.zeros((len(obs), self._num_actions)) if warming_up else self.scores(obs)
        if mask is not None:
            logits = np.where(mask, logits, -np.inf)
        if explore:  # the largest of logits with Gumbel noise is a draw by their probabilities
            logits = logits + self._rng.gumbel(size=logits.shape)
        return Decision(logits.argmax(1))

    def scores(self, obs: Array, carry: Carry | None = None) -> Array:
        """Return the logits [N, A] of the policy."""
        if self._mlp is not None and len(obs) <= self._most:
            return self._mlp(self._features(obs))
        with torch.no_grad():
            return self.network.logits(torch.as_tensor(obs, device=self.device)).cpu().numpy()

    def scorer(self) -> Scorer:
        """Return what maps observations to logits."""
        return memoryless(self.network, "logits", self.network.logits)

    # Learning

    def _value_of(self, values: torch.Tensor) -> torch.Tensor:
        """Return one value [B, A] of every action, of all critics' [C, B, A]."""
        return values.mean(0) if self.config.target == "mean" else smallest(values)

    def _critic_loss(self, batch: Batch, x: torch.Tensor, following: torch.Tensor) -> CriticLoss:
        with torch.no_grad():
            logits = (
                self.network.actor(following) if self._actor is None else self._actor.forward(following).out
            )
            log_prob = masked_logits(logits, batch.next_mask).log_softmax(1)
            with self.learning(self.target_critic):
                critics = self.target_critic if self._slow_critics is None else self._slow_critics.values
                value = expected(log_prob, self._value_of(critics(following)))
            if self.config.critic_entropy:
                value = value + self.temperature() * entropy_of(log_prob)
            target = batch.reward + batch.discount * value
        if self._critics is not None:
            return self._critics.fit(x, batch.action, target, batch.weight)
        with self.learning(self.network.critic):
            values = self.network.critic(x)
        taken = batch.action.expand(len(values), -1)[:, :, None]
        return squared_loss(values.gather(2, taken)[:, :, 0], target, batch.weight)

    def _improve(self, batch: Batch, x: torch.Tensor) -> Metrics:
        alpha = self.temperature()
        with torch.no_grad(), self.learning(self.network.critic):
            critics = self.network.critic if self._critics is None else self._critics.values
            values = self._value_of(critics(x))
        made = None if self._actor is None else self._actor.forward(x, learning=True)
        logits = self.network.actor(x) if made is None else made.out
        log_prob = masked_logits(logits, batch.mask).log_softmax(1)
        loss, entropy = discrete_policy_loss(log_prob, values, alpha)
        if self._actor is None or made is None:
            self.optimizers["actor"].step(loss)
        else:
            grad = discrete_policy_slope(log_prob, values, alpha, entropy)
            self._actor.store(made, grad)
            self.optimizers["actor"].apply(loss)
        if "temperature" in self.optimizers:
            self._move_temperature(temperature_gradient(entropy, self._target_entropy(batch)))
        return {"actor_loss": loss.detach(), "entropy": entropy, "ent_coef": alpha}

    def _target_entropy(self, batch: Batch) -> torch.Tensor:
        """Return the entropy [B] to keep: a share of what the allowed actions can have at most."""
        if batch.mask is None:
            most = torch.full_like(batch.reward, float(np.log(self._num_actions)))
        else:
            most = batch.mask.sum(1).to(batch.reward.dtype).log()
        return self.config.target_entropy_ratio * most
