"""Distributions over actions: one small class each, the same for learning, masks, trust regions and acting.

A head says how many numbers it wants of a network and what distribution they mean. Learning uses the tensor side, which
can be differentiated (twice); acting uses the NumPy side, which draws from the learner's own stream.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from rl_training.spaces import Array

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)


class Distribution(ABC):
    """Of B actions; everything that is returned is [B]."""

    @abstractmethod
    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the probability, or density, of actions [B, *action]."""

    @abstractmethod
    def entropy(self) -> torch.Tensor:
        """Return the entropy; of a squashed distribution that before squashing."""

    @abstractmethod
    def kl_from(self, old: Distribution) -> torch.Tensor:
        """Return KL(old || self)."""


class Categorical(Distribution):
    """Over the last dimension of ``logits`` [B, A], among the actions that ``mask`` [B, A] allows."""

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        self.mask = mask
        self.log = (logits if mask is None else logits.masked_fill(~mask, -torch.inf)).log_softmax(-1)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the probability of actions [B]."""
        return self.log.gather(-1, action[..., None])[..., 0]

    def entropy(self) -> torch.Tensor:
        """Return the entropy: what is forbidden adds nothing."""
        return -(self.log.exp() * self._finite(self.log)).sum(-1)

    def kl_from(self, old: Distribution) -> torch.Tensor:
        """Return KL(old || self)."""
        assert isinstance(old, Categorical)
        return (old.log.exp() * (self._finite(old.log) - self._finite(self.log))).sum(-1)

    def _finite(self, log: torch.Tensor) -> torch.Tensor:
        """Return logarithms with zeros for those of what is forbidden: 0 * -inf is not a number."""
        return log if self.mask is None else log.masked_fill(~self.mask, 0.0)


class Joint(Distribution):
    """Independent distributions, one for each component [B] of an action [B, K]."""

    def __init__(self, parts: Sequence[Distribution]) -> None:
        self.parts = parts

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the sum over the components."""
        return _sum([part.log_prob(action[:, i]) for i, part in enumerate(self.parts)])

    def entropy(self) -> torch.Tensor:
        """Return the sum over the components."""
        return _sum([part.entropy() for part in self.parts])

    def kl_from(self, old: Distribution) -> torch.Tensor:
        """Return the sum over the components."""
        assert isinstance(old, Joint)
        return _sum([mine.kl_from(his) for mine, his in zip(self.parts, old.parts, strict=True)])


class Bernoulli(Distribution):
    """Independent coins by their ``logits`` [B, K], for actions [B, K] of zeros and ones."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the sum over the coins."""
        return -F.binary_cross_entropy_with_logits(self.logits, action.float(), reduction="none").sum(-1)

    def entropy(self) -> torch.Tensor:
        """Return the sum over the coins."""
        chance = self.logits.sigmoid()
        return F.binary_cross_entropy_with_logits(self.logits, chance, reduction="none").sum(-1)

    def kl_from(self, old: Distribution) -> torch.Tensor:
        """Return the sum over the coins of KL(old || self)."""
        assert isinstance(old, Bernoulli)
        chance = old.logits.sigmoid()
        crossed = F.binary_cross_entropy_with_logits(self.logits, chance, reduction="none").sum(-1)
        return crossed - old.entropy()


class Gaussian(Distribution):
    """Independent normal distributions by ``mean`` [B, K] and ``log_std`` [K]."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self.mean, self.log_std = mean, log_std.expand_as(mean)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the sum of the log-densities over the dimensions."""
        distance = (action.flatten(1) - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * distance.square() - self.log_std - _HALF_LOG_2PI).sum(-1)

    def entropy(self) -> torch.Tensor:
        """Return the sum over the dimensions."""
        return (self.log_std + 0.5 + _HALF_LOG_2PI).sum(-1)

    def kl_from(self, old: Distribution) -> torch.Tensor:
        """Return the sum over the dimensions of KL(old || self)."""
        assert isinstance(old, Gaussian)
        scaled = (old.mean - self.mean) * torch.exp(-self.log_std)
        wider = torch.exp(2.0 * (old.log_std - self.log_std))
        return (self.log_std - old.log_std + 0.5 * (wider + scaled.square()) - 0.5).sum(-1)


class TanhGaussian(Gaussian):
    """A Gaussian squashed by tanh. Actions are given as they were before squashing, so nothing is ever inverted."""

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the log-density of tanh(action) [B, K]."""
        raw = action.flatten(1)
        # log(1 - tanh(u)^2), in a form that does not cancel for large u.
        slope = 2.0 * (_LOG_2 - raw - F.softplus(-2.0 * raw))
        return super().log_prob(action) - slope.sum(-1)


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


class ActionHead(ABC):
    """What a policy's last layer means."""

    size: int
    """Numbers that are wanted of the network."""
    log_stds: int = 0
    """Logarithms of standard deviations that are parameters of their own."""

    @abstractmethod
    def distribution(
        self, out: torch.Tensor, log_std: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> Distribution:
        """Return the distributions that outputs [B, size] stand for."""

    @abstractmethod
    def choose(
        self, out: Array, log_std: Array | None, mask: Array | None, rng: np.random.Generator | None
    ) -> Array:
        """Return actions [N, *action] for outputs [N, size]: drawn from ``rng``, or the most likely ones without."""

    def played(self, action: Array) -> Array:
        """Return what actions [N, *action] mean to the environment, in the learner's units."""
        return action

    def scores(self, out: torch.Tensor) -> torch.Tensor:
        """Return the numbers among outputs [B, size] by which the likeliest actions are known: logits, or actions."""
        return out


class CategoricalHead(ActionHead):
    """One of ``n`` actions."""

    def __init__(self, n: int) -> None:
        self.size = n

    def distribution(
        self, out: torch.Tensor, log_std: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> Distribution:
        """Return a categorical distribution over the allowed actions."""
        return Categorical(out, mask)

    def choose(
        self, out: Array, log_std: Array | None, mask: Array | None, rng: np.random.Generator | None
    ) -> Array:
        """Draw by the largest of disturbed logits (Gumbel), which needs no probabilities."""
        if mask is not None:
            out = np.where(mask, out, -np.inf)
        chosen: Array = (out if rng is None else out - np.log(rng.standard_exponential(out.shape))).argmax(-1)
        return chosen


class MultiCategoricalHead(ActionHead):
    """One of ``counts[k]`` for each component k."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)
        self.size = sum(self.counts)
        self._ends = np.cumsum(self.counts)[:-1].tolist()
        self._part = CategoricalHead(0)

    def distribution(
        self, out: torch.Tensor, log_std: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> Distribution:
        """Return independent categorical distributions."""
        return Joint([Categorical(part) for part in torch.split(out, self.counts, -1)])

    def choose(
        self, out: Array, log_std: Array | None, mask: Array | None, rng: np.random.Generator | None
    ) -> Array:
        """Choose each component by itself."""
        parts = np.split(out, self._ends, -1)
        return np.stack([self._part.choose(part, None, None, rng) for part in parts], -1)


class BernoulliHead(ActionHead):
    """``n`` independent zeros or ones."""

    def __init__(self, n: int) -> None:
        self.size = n

    def distribution(
        self, out: torch.Tensor, log_std: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> Distribution:
        """Return independent coins."""
        return Bernoulli(out)

    def choose(
        self, out: Array, log_std: Array | None, mask: Array | None, rng: np.random.Generator | None
    ) -> Array:
        """Toss each coin by itself, or take the likelier side."""
        if rng is None:
            return (out > 0).astype(np.int8)
        chance = 1.0 / (1.0 + np.exp(-out))
        return (rng.random(out.shape) < chance).astype(np.int8)


class GaussianHead(ActionHead):
    """A normal distribution in every dimension; the environment's bounds cut off what lies beyond them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = self.log_stds = math.prod(shape)

    def distribution(
        self, out: torch.Tensor, log_std: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> Distribution:
        """Return the distribution of actions before they are cut off."""
        assert log_std is not None
        return Gaussian(out, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX))

    def choose(
        self, out: Array, log_std: Array | None, mask: Array | None, rng: np.random.Generator | None
    ) -> Array:
        """Return the mean, with noise if there is a stream to draw it from."""
        if rng is not None:
            assert log_std is not None
            std = np.exp(log_std.clip(LOG_STD_MIN, LOG_STD_MAX))
            out = out + std * rng.standard_normal(out.shape, np.float32)
        return out.reshape(len(out), *self.shape)


class TanhGaussianHead(GaussianHead):
    """A normal distribution squashed into (-1, 1); actions are kept as they were before squashing."""

    def distribution(
        self, out: torch.Tensor, log_std: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> Distribution:
        """Return the squashed distribution of actions that are given unsquashed."""
        assert log_std is not None
        return TanhGaussian(out, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX))

    def played(self, action: Array) -> Array:
        """Return the squashed actions."""
        return np.tanh(action)

    def scores(self, out: torch.Tensor) -> torch.Tensor:
        """Return the squashed means."""
        return torch.tanh(out)
