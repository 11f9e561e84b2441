"""TRPO (Schulman et al. 2015): the natural gradient's direction, as far as the KL divergence allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rl_training.algorithms.declared.trpo import TRPOConfig
from rl_training.algorithms.on_policy import OnPolicyLearner, Samples, explained_variance
from rl_training.algorithms.ppo import minibatches, standardised
from rl_training.algorithms.protocol import Means, UpdateResult
from rl_training.algorithms.schedules import linear
from rl_training.data.rollout_buffer import Rollout
from rl_training.errors import NonFiniteError
from rl_training.models.distributions import Distribution
from rl_training.models.mlp_actor_critic import MLPActorCritic

Product = Callable[[torch.Tensor], torch.Tensor]


def conjugate_gradients(
    product: Product, target: torch.Tensor, steps: int, tolerance: float = 1e-10
) -> torch.Tensor:
    """Return x with ``product(x)`` = ``target`` [P], for a positive definite product; zeros for a target of zeros.

    All but the product is in double precision: in single, residuals stop shrinking long before they are small.
    """
    rest = target.double().clone()
    x, direction = torch.zeros_like(rest), rest.clone()
    size = rest.dot(rest)
    for _ in range(steps):
        if float(size) < tolerance:
            break
        image = product(direction.to(target.dtype)).double()
        curvature = direction.dot(image)
        if float(curvature) <= 0.0:  # by rounding: further on it would only get worse
            break
        share = size / curvature
        x += share * direction
        rest -= share * image
        before, size = size, rest.dot(rest)
        direction = rest + (size / before) * direction
    return x.to(target.dtype)


class TRPO(OnPolicyLearner[TRPOConfig, MLPActorCritic]):
    """The learner of TRPO; ``network`` has to be one that can be differentiated twice (``fused=False``)."""

    def __init__(self, network: MLPActorCritic, config: TRPOConfig, **options: Any) -> None:
        super().__init__(network, config, **options)
        self.optimizers["critic"] = self.adam(network.critic)
        self._policy = list(network.actor_parameters())
        self.target_kl = config.target_kl
        self._made()

    def _schedule(self, env_steps: int) -> None:
        c = self.config
        if c.target_kl_final is not None:
            self.target_kl = linear(c.target_kl, c.target_kl_final, self._total, env_steps)

    def status(self) -> dict[str, float]:
        """Return how far the policy may move in one step, and the critic's learning rate."""
        return {"target_kl": self.target_kl, **super().status()}

    def update(self, batch: Rollout) -> UpdateResult:
        """Make one step of the policy on a whole rollout, and several passes of the critic."""
        samples = self.samples(batch, self.scaled_rewards(batch))
        explained = explained_variance(samples.value, samples.target)
        metrics = self._policy_step(samples)
        losses, steps = [], 0
        for _ in range(self.config.n_critic_updates):
            order = torch.from_numpy(self._rng.permutation(len(samples.value)))
            for rows in minibatches(order, self.config.batch_size):
                some = samples.take(rows.to(self.device))
                loss = (self.network.critic(some.x)[:, 0] - some.target).square().mean()
                self.optimizers["critic"].step(loss)
                losses.append(loss.detach())
                steps += 1
        steps += int(metrics["line_search_success"])
        self.updates += steps
        self.note_observations(batch)
        if self.network.log_std is not None:
            metrics["std"] = self.network.log_std.detach().exp().mean()
        metrics.update(value_loss=torch.stack(losses).mean(), explained_variance=explained)
        return UpdateResult(Means(metrics), gradient_steps=steps)

    def _chances(self, samples: Samples) -> Distribution:
        return self.head.distribution(self.network.actor(samples.x), self.network.log_std, samples.mask)

    def _policy_step(self, samples: Samples) -> dict[str, torch.Tensor]:
        """Move the policy as far as the KL divergence and the surrogate allow, or not at all."""
        c = self.config
        advantage = standardised(samples.advantage) if c.normalize_advantage else samples.advantage
        with torch.no_grad():
            old = self._chances(samples)
        now = self._chances(samples)
        gain = self._surrogate(now, samples, advantage)
        slope = self._flat(torch.autograd.grad(gain, self._policy, retain_graph=True))
        if not torch.isfinite(slope).all() or not torch.isfinite(gain):
            raise NonFiniteError(
                f"the surrogate is {float(gain):g}, or its gradient not finite; no step was made"
            )
        # The gradient of KL(old || now) is zero here; its own gradient is the Fisher matrix.
        first = self._flat(torch.autograd.grad(now.kl_from(old).mean(), self._policy, create_graph=True))

        def fisher(vector: torch.Tensor) -> torch.Tensor:
            second = torch.autograd.grad(first.dot(vector), self._policy, retain_graph=True)
            return self._flat(second) + c.cg_damping * vector

        direction = conjugate_gradients(fisher, slope, c.cg_max_steps)
        curvature = float(direction.double().dot(fisher(direction).double()))
        metrics = {"policy_loss": -gain.detach(), "entropy": now.entropy().mean().detach()}
        moved, better, kl = False, torch.zeros(()), torch.zeros(())
        if curvature > 0.0:
            moved, better, kl = self._line_search(
                (2.0 * self.target_kl / curvature) ** 0.5 * direction, samples, advantage, old, gain.detach()
            )
        success = torch.tensor(float(moved))
        return {**metrics, "kl": kl, "surrogate_gain": better, "line_search_success": success}

    def _line_search(
        self,
        step: torch.Tensor,
        samples: Samples,
        advantage: torch.Tensor,
        old: Distribution,
        before: torch.Tensor,
    ) -> tuple[bool, torch.Tensor, torch.Tensor]:
        """Shorten a step until it keeps to the KL divergence and gains something; else leave everything as it was."""
        c = self.config
        with torch.no_grad():
            start = [parameter.clone() for parameter in self._policy]
            moves = [part.view_as(p) for part, p in zip(self._split(step), self._policy, strict=True)]
            share = 1.0
            for _ in range(c.line_search_steps):
                for parameter, origin, move in zip(self._policy, start, moves, strict=True):
                    parameter.copy_(origin + share * move)
                now = self._chances(samples)
                better = self._surrogate(now, samples, advantage) - before
                kl = now.kl_from(old).mean()
                if float(kl) < self.target_kl and float(better) > 0.0:
                    return True, better, kl
                share *= c.line_search_shrinking
            for parameter, origin in zip(self._policy, start, strict=True):
                parameter.copy_(origin)
        return False, torch.zeros(()), torch.zeros(())

    @staticmethod
    def _surrogate(now: Distribution, samples: Samples, advantage: torch.Tensor) -> torch.Tensor:
        return ((now.log_prob(samples.action) - samples.log_prob).exp() * advantage).mean()

    def _split(self, vector: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(vector, [parameter.numel() for parameter in self._policy])

    @staticmethod
    def _flat(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return torch.cat([part.reshape(-1) for part in parts])
