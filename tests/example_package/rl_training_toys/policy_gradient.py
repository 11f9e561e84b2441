"""A policy gradient with a value as its baseline."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.learner import Learner
from rl_training.algorithms.protocol import Decision, Means, UpdateResult
from rl_training.data.transitions import Carry, Transitions
from rl_training.spaces import Array
from rl_training_toys.declared import PolicyGradientConfig


def discounted_returns(rollout: list[Transitions], following: list[Array], gamma: float) -> list[Array]:
    """Return what each step was worth; ``following`` holds the values of the observations after it."""
    worth: dict[int, float] = {}
    returns = []
    for step, value in zip(reversed(rollout), reversed(following), strict=True):
        for i, env in enumerate(step.env_ids.tolist()):
            if step.terminated[i]:
                worth[env] = 0.0
            elif step.truncated[i] or env not in worth:
                worth[env] = float(value[i])
            worth[env] = float(step.reward[i]) + gamma * worth[env]
        returns.append(np.array([worth[env] for env in step.env_ids.tolist()], np.float32))
    return returns[::-1]


class ToyPolicyGradient(Learner[PolicyGradientConfig, list[Transitions]]):
    """``network`` maps observations [B, *obs] to logits and a value [B, A + 1]."""

    def __init__(self, network: nn.Module, config: PolicyGradientConfig, **options: object) -> None:
        super().__init__(config, **options)  # type: ignore[arg-type]
        self.network = self.own("policy", network)
        self.optimizers["policy"] = self.adam(network)
        self.advance(0)

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N], when exploring by their probabilities."""
        with torch.no_grad():
            logits = self.network(torch.as_tensor(obs, device=self.device))[:, :-1].cpu().numpy()
        if mask is not None:
            logits = np.where(mask, logits, -np.inf)
        if explore:
            logits = logits + self._rng.gumbel(size=logits.shape)
        return Decision(logits.argmax(1))

    def update(self, batch: list[Transitions]) -> UpdateResult:
        """Make several gradient steps on a whole rollout."""
        obs, next_obs = (
            torch.as_tensor(np.concatenate([getattr(step, name) for step in batch]), device=self.device)
            for name in ("obs", "next_obs")
        )
        with torch.no_grad():
            following = self.network(next_obs)[:, -1].cpu().numpy()
        ends = np.cumsum([len(step) for step in batch])[:-1]
        returns = discounted_returns(batch, np.split(following, ends), self.config.gamma)
        target = torch.as_tensor(np.concatenate(returns), device=self.device)
        action = torch.as_tensor(np.concatenate([step.action for step in batch]), device=self.device)
        for _ in range(self.config.passes):
            out = self.network(obs)
            value, logs = out[:, -1], out[:, :-1].log_softmax(1)
            advantage = target - value
            chosen = logs.gather(1, action[:, None])[:, 0]
            loss = (0.5 * advantage.square() - chosen * advantage.detach()).mean()
            norm = self.optimizers["policy"].step(loss)
            self.updates += 1
        metrics = {"loss": loss.detach(), "value_mean": value.detach(), "grad_norm": norm}
        return UpdateResult(Means(metrics), gradient_steps=self.config.passes)
