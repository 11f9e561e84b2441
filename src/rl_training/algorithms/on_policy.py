"""What the on-policy learners share: acting by a distribution, and what a rollout is worth."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from rl_training.algorithms.declared.on_policy import OnPolicyConfig
from rl_training.algorithms.learner import Learner
from rl_training.algorithms.protocol import Decision
from rl_training.data.rollout_buffer import Rollout, advantages, next_values
from rl_training.data.transitions import Carry
from rl_training.models.mirror import policy_mirror
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
from rl_training.models.reward_scale import RewardScale
from rl_training.models.scorer import ScoreName, Scorer, memoryless
from rl_training.spaces import Array

Config = TypeVar("Config", bound=OnPolicyConfig)
Net = TypeVar("Net", bound=MLPActorCritic | LSTMActorCritic)

MAX_IMAGES = 1_024
"""Observations with images that go through convolutions at once."""


@dataclasses.dataclass(slots=True)
class Samples:
    """The steps of a rollout one by one, and what they were worth; R of them, or of a minibatch of them."""

    x: torch.Tensor  # [R, features], as the layers see the observations
    action: torch.Tensor  # [R, *action]
    log_prob: torch.Tensor  # [R], by the policy that acted
    value: torch.Tensor  # [R], by the critic before the update
    advantage: torch.Tensor  # [R]
    target: torch.Tensor  # [R], what values are drawn to
    mask: torch.Tensor | None = None  # [R, A] bool

    def take(self, rows: torch.Tensor) -> Samples:
        """Return some of them."""
        return Samples(
            self.x[rows],
            self.action[rows],
            self.log_prob[rows],
            self.value[rows],
            self.advantage[rows],
            self.target[rows],
            None if self.mask is None else self.mask[rows],
        )


@dataclasses.dataclass(slots=True)
class Epoch:
    """One pass over a rollout; it ended early if it looked at a minibatch without a step."""

    sums: dict[
        str, torch.Tensor
    ]  # of metrics, over the minibatches looked at; some only where a step was made
    looked: int
    steps: int


class OnPolicyLearner(Learner[Config, Rollout], Generic[Config, Net]):
    """A policy and a value, normalisers of observations and rewards, and samples made of rollouts.

    The statistics of the observations are those of the rollouts before: while one is collected and learned from,
    they stay as they are, so that the policy which is improved is exactly the one that acted.
    """

    def __init__(self, network: Net, config: Config, *, num_envs: int, **options: Any) -> None:
        super().__init__(config, **options)
        self.network = self.own("online", network)
        self.head = network.head
        self._num_envs = num_envs
        self.reward_scale: RewardScale | None = None
        if config.normalize_reward:
            self.reward_scale = self.own("reward_scale", RewardScale(num_envs, config.gamma))

    def _made(self) -> None:
        """Look at the parameters once they have found their final place."""
        self._mirror = policy_mirror(self.network)
        std = self.network.log_std
        self._log_std = None if std is None or std.device.type != "cpu" else std.detach().numpy()
        self.advance(0)

    # Acting

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action]: when exploring by their probabilities, else the most likely ones."""
        return self._decide(self.scores(obs), mask, explore)

    def scores(self, obs: Array, carry: Carry | None = None) -> Array:
        """Return what the policy's last layer gives [N, head.size]."""
        if self._mirror is not None and len(obs) <= self._mirror.max_batch:
            return self._mirror(obs)
        assert isinstance(self.network, MLPActorCritic)
        with torch.no_grad():
            return self.network.policy(torch.as_tensor(obs, device=self.device)).cpu().numpy()

    def scorer(self) -> Scorer:
        """Return what maps observations to logits or actions."""
        network = self.network
        assert isinstance(network, MLPActorCritic)

        def score(obs: Any) -> torch.Tensor:
            return self.head.scores(network.policy(obs))

        return memoryless(network, self._score_name, score)

    @property
    def _score_name(self) -> ScoreName:
        return "action" if self.head.log_stds else "logits"

    def _decide(self, out: Array, mask: Array | None, explore: bool, carry: Carry | None = None) -> Decision:
        std = self._log_std
        if std is None and self.network.log_std is not None:
            std = self.network.log_std.detach().cpu().numpy()
        action = self.head.choose(out, std, mask, self._rng if explore else None)
        played = self.head.played(action)
        return Decision(action, carry, None if played is action else played)

    def advance(self, env_steps: int) -> None:
        """Set what is scheduled to where the rollout under way began, so that the last update of a run counts, too."""
        rollout = self.config.n_steps * self._num_envs
        begun = max(env_steps - 1, 0) // rollout * rollout
        super().advance(begun)
        self._schedule(begun)
        self._env_steps = env_steps

    def _schedule(self, env_steps: int) -> None:
        """Set what is scheduled besides the learning rate."""

    def observe(self, obs: Array) -> None:
        """Do nothing: statistics move with the rollouts that were learned from."""

    # Learning

    def scaled_rewards(self, rollout: Rollout) -> Array:
        """Return the rewards [T, N] that are learned from."""
        if self.reward_scale is None:
            return rollout.reward
        return self.reward_scale.scale(rollout.reward, rollout.starts, rollout.valid)

    def note_observations(self, rollout: Rollout) -> None:
        """Move the statistics of the observations, after a rollout has been learned from."""
        for normalizer in self._normalizers:
            normalizer.observe(rollout.obs[rollout.valid])

    def worth(self, rollout: Rollout, reward: Array, values: Array, extra: Array) -> tuple[Array, Array]:
        """Return advantages and targets of the values [T, N]; ``extra`` [E] are values of ``extra_obs``."""
        c = self.config
        following = next_values(rollout, values, extra)
        gained = advantages(reward, values, following, rollout.done, rollout.valid, c.gamma, c.gae_lambda)
        return gained, gained + values

    def samples(self, rollout: Rollout, reward: Array) -> Samples:
        """Return the steps of a rollout with what they were worth by the weights as they are now."""
        network, steps = self.network, rollout.reward.shape
        assert isinstance(network, MLPActorCritic)
        everything = np.concatenate([rollout.obs.reshape(-1, *rollout.obs.shape[2:]), rollout.extra_obs])
        with torch.no_grad():
            x = network.features(torch.as_tensor(everything, device=self.device))
            count = rollout.reward.size
            out, value = self._outputs(network, x, count)
            values = value.cpu().numpy()
            gained, target = self.worth(rollout, reward, values[:count].reshape(steps), values[count:])
            rows = self._tensor(np.flatnonzero(rollout.valid.ravel()))
            action = self._tensor(rollout.action.reshape(count, *rollout.action.shape[2:]))
            mask = None if rollout.mask is None else self._tensor(rollout.mask.reshape(count, -1))
            chances = self.head.distribution(out, network.log_std, mask)
            every = Samples(
                x[:count],
                action,
                chances.log_prob(action),
                self._tensor(values[:count]),
                self._tensor(gained.ravel()),
                self._tensor(target.ravel()),
                mask,
            )
        return every if len(rows) == count else every.take(rows)

    def _outputs(
        self, network: MLPActorCritic, x: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs of the policy for the first ``count`` rows, and all values.

        Images are looked at in portions, since convolutions take a lot of memory.
        """
        if not network.learned:
            body = network.trunk(x)
            return network.actor(body[:count]), network.critic(body)[:, 0]
        outs, values = [], []
        for part in torch.split(x, MAX_IMAGES):
            body = network.trunk(part)
            outs.append(network.actor(body))
            values.append(network.critic(body)[:, 0])
        return torch.cat(outs)[:count], torch.cat(values)

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.as_tensor(array, device=self.device)


def explained_variance(value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the share of the variance of targets [R] that values [R] explain: 1 all of it, 0 none, below worse."""
    if len(target) < 2:
        return torch.zeros(())
    return 1.0 - (target - value).var(correction=0) / target.var(correction=0).clamp(min=1e-8)
