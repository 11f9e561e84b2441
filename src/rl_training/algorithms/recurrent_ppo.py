"""PPO with a memory: whole sequences of a rollout, each from the memory that the agent had when it acted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.compiled_ppo import compiled_surrogate
from rl_training.algorithms.declared.recurrent_ppo import RecurrentPPOConfig
from rl_training.algorithms.on_policy import Epoch, OnPolicyLearner, Samples, explained_variance
from rl_training.algorithms.ppo import (
    Metrics,
    add_up,
    clip_range_at,
    loss_options,
    pass_over,
    ppo_loss,
    too_far,
)
from rl_training.algorithms.protocol import Decision, UpdateResult
from rl_training.data.rollout_buffer import Rollout
from rl_training.data.transitions import Carry
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
from rl_training.models.recurrent.mirror import actor_critic_mirror
from rl_training.models.recurrent.packing import Packing
from rl_training.models.scorer import Memory, Observed, Scorer
from rl_training.spaces import Array


@dataclasses.dataclass(slots=True)
class Sequences:
    """S pieces of episodes, the longest first, none of which reaches beyond its episode or the rollout."""

    env: Array  # [S]
    start: Array  # [S] the first row
    length: Array  # [S]

    def __post_init__(self) -> None:
        order = np.argsort(-self.length, kind="stable")
        self.env, self.start, self.length = self.env[order], self.start[order], self.length[order]

    def take(self, which: Array) -> Sequences:
        """Return some of them."""
        return Sequences(self.env[which], self.start[which], self.length[which])


@dataclasses.dataclass(slots=True)
class Steps:
    """Steps [R] of sequences, packed, and where each of them is found in a rollout."""

    packing: Packing
    row: Array  # [R]
    before: Array  # [R] the row of the step before; means nothing for the first of a sequence
    env: Array  # [R]

    @classmethod
    def of(cls, some: Sequences, extra: int = 0) -> Steps:
        """Pack sequences, with ``extra`` steps behind, for which the last row stands in."""
        packing = Packing(some.length + extra)
        time, which = np.nonzero(packing.inside)
        start = some.start[which]
        row = start + np.minimum(time, some.length[which] - 1)
        return cls(packing, row, start + time - 1, some.env[which])


def cut(rollout: Rollout, longest: int | None) -> Sequences:
    """Cut a rollout where episodes begin, where an environment made no step, and after ``longest`` steps."""
    steps = len(rollout.valid)
    before = np.zeros_like(rollout.valid)
    before[1:] = rollout.valid[:-1]
    begins = rollout.valid & (rollout.starts | ~before)
    env_major = begins.T
    owner, start = np.nonzero(env_major)
    ends = np.empty_like(start)
    gone = ~rollout.valid.T
    for i, (e, s) in enumerate(zip(owner.tolist(), start.tolist(), strict=True)):
        later = np.flatnonzero(env_major[e, s + 1 :] | gone[e, s + 1 :])
        ends[i] = s + 1 + later[0] if len(later) else steps
    if longest is not None:
        pieces = [
            (e, s, min(longest, stop - s))
            for e, first, stop in zip(owner.tolist(), start.tolist(), ends.tolist(), strict=True)
            for s in range(first, stop, longest)
        ]
        owner, start, length = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
        return Sequences(owner, start, length)
    return Sequences(owner, start, ends - start)


def portions(order: Array, lengths: Array, batch_size: int | None) -> Iterator[Array]:
    """Deal sequences out in this order [S], so many at a time as have at least ``batch_size`` steps together."""
    if batch_size is None:
        yield order
        return
    ends = np.cumsum(lengths[order])
    begin = 0
    while begin < len(order):
        base = ends[begin - 1] if begin else 0
        end = int(np.searchsorted(ends, base + batch_size)) + 1
        yield order[begin:end]
        begin = end


class RecurrentPPO(OnPolicyLearner[RecurrentPPOConfig, LSTMActorCritic]):
    """The learner of recurrent PPO."""

    def __init__(self, network: LSTMActorCritic, config: RecurrentPPOConfig, **options: Any) -> None:
        super().__init__(network, config, **options)
        self.optimizer = self.optimizers["all"] = self.adam(network)
        self.clip_range = config.clip_range
        self._recurrent = actor_critic_mirror(network)
        self._surrogate = compiled_surrogate(self.head, self.device, config)
        self._initial = {name: tensor[0].cpu().numpy() for name, tensor in network.initial_state().items()}
        self._made()

    # Acting

    def initial_carry(self, count: int) -> Carry:
        """Return the memory of ``count`` episodes that are about to begin."""
        return {name: np.zeros((count, *array.shape), array.dtype) for name, array in self._initial.items()}

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action] and remember."""
        out, after = self._outputs_and_memory(obs, carry)
        decision = self._decide(out, mask, explore, after)
        if "action" in after:
            after["action"] = decision.action + 1
        return decision

    def scores(self, obs: Array, carry: Carry | None = None) -> Array:
        """Return what the policy's last layer gives [N, head.size]."""
        return self._outputs_and_memory(obs, carry)[0]

    def _outputs_and_memory(self, obs: Array, carry: Carry | None) -> tuple[Array, Carry]:
        memory = self.initial_carry(len(obs)) if carry is None else carry
        if self._recurrent is not None and len(obs) <= self._recurrent.max_batch:
            return self._recurrent(obs, memory)
        with torch.no_grad():
            state = {name: self._tensor(array) for name, array in memory.items()}
            found, _, later = self.network(self._tensor(obs), state)
        return found.cpu().numpy(), {name: tensor.cpu().numpy() for name, tensor in later.items()}

    def scorer(self) -> Scorer:
        """Return what maps observations and the actor's memory to logits or actions; that of the critic is left out."""
        network = self.network

        def step(obs: Observed, memory: Memory) -> tuple[torch.Tensor, Memory]:
            x, after = network.body.step(obs, memory)
            return self.head.scores(network.actor(x)), after

        return Scorer(network, self._score_name, step, network.body.initial_state())

    # Learning

    def _schedule(self, env_steps: int) -> None:
        self.clip_range = clip_range_at(self.config, self._total, env_steps)

    def status(self) -> dict[str, float]:
        """Return the clip range and the learning rate."""
        return {"clip_range": self.clip_range, **super().status()}

    def update(self, batch: Rollout) -> UpdateResult:
        """Make several passes over a rollout, and forget it."""
        c, reward = self.config, self.scaled_rewards(batch)
        sequences = cut(batch, c.sequence_length)
        samples = self._samples_of(batch, sequences, reward)
        valid = self._tensor(batch.valid.ravel())

        def epoch(number: int) -> Epoch:
            if number and c.recompute_advantages:
                again = self._samples_of(batch, sequences, reward)
                samples.advantage, samples.target = again.advantage, again.target
            order = self._rng.permutation(len(sequences.env))
            some = portions(order, sequences.length, c.batch_size)
            return add_up(self._step(batch, sequences.take(which), samples) for which in some)

        result = pass_over(self, epoch, explained_variance(samples.value[valid], samples.target[valid]))
        self.note_observations(batch)
        return result

    def _step(self, rollout: Rollout, some: Sequences, samples: Samples) -> Metrics:
        """Make one gradient step, unless the policy has moved too far already: then there is no ``grad_norm``."""
        steps = Steps.of(some)
        with self.learning(self.network):
            out, value = self._walk(rollout, some, steps, rollout.obs[steps.row, steps.env])
        rows = self._tensor(steps.row * rollout.valid.shape[1] + steps.env)
        outputs, slopes = [out, value], None
        if self._surrogate is not None:
            std = self.network.log_std
            outputs = outputs if std is None else [*outputs, std]
            loss, metrics, slopes = self._surrogate(outputs, samples, rows, self.clip_range)
        else:
            loss, metrics = self._loss(out, value, samples.take(rows))
            outputs = [loss]
        if too_far(self.config, metrics):
            return metrics
        norm = self.optimizer.step_through(outputs, slopes, loss.detach())
        return {**metrics, "loss": loss.detach(), "grad_norm": norm}

    def _loss(
        self, out: torch.Tensor, value: torch.Tensor, taken: Samples
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        chances = self.head.distribution(out, self.network.log_std, taken.mask)
        return ppo_loss(chances, value, taken, **loss_options(self.config, self.clip_range))

    def _walk(
        self, rollout: Rollout, some: Sequences, steps: Steps, obs: Array
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Walk through observations [R, *obs] of sequences in one call, from the memory before each."""
        assert rollout.carry is not None
        state = {name: self._tensor(array[some.start, some.env]) for name, array in rollout.carry.items()}
        begun, past = len(some.start), {}
        before = steps.before[begun:], steps.env[begun:]
        if "action" in state:
            past["action"] = torch.cat((state["action"], self._tensor(rollout.action[before]) + 1))
        if "reward" in state:
            past["reward"] = torch.cat((state["reward"], self._tensor(rollout.reward[before])))
        return self.network.packed(self._tensor(obs), state, steps.packing, past)

    def _samples_of(self, rollout: Rollout, sequences: Sequences, reward: Array) -> Samples:
        """Return the steps of a rollout with what they were worth by the weights as they are now."""
        shape, steps = rollout.reward.shape, Steps.of(sequences, 1)
        obs = rollout.obs[steps.row, steps.env]
        # Behind the last step of a piece comes what it led to, if no later row has that: seen with the memory of then.
        ends = steps.packing.last.numpy()
        inside = np.ones(len(obs), np.bool_)
        inside[ends] = False
        after = rollout.after[steps.row[ends], steps.env[ends]]
        led = after >= 0
        obs[ends[led]] = rollout.extra_obs[after[led]]
        with torch.no_grad():
            out, value = self._walk(rollout, sequences, steps, obs)
            found = value.cpu().numpy()
            values, extra = np.zeros(shape, np.float32), np.zeros(len(rollout.extra_obs), np.float32)
            where = (steps.row * shape[1] + steps.env)[inside]
            values.ravel()[where] = found[inside]
            extra[after[led]] = found[ends[led]]
            gained, target = self.worth(rollout, reward, values, extra)
            outputs = torch.zeros(values.size, out.shape[-1], device=self.device)
            outputs[self._tensor(where)] = out[self._tensor(inside)]
            action = self._tensor(rollout.action.reshape(values.size, *rollout.action.shape[2:]))
            mask = None if rollout.mask is None else self._tensor(rollout.mask.reshape(values.size, -1))
            log_prob = self.head.distribution(outputs, self.network.log_std, mask).log_prob(action)
            # Rows that are no steps are never taken.
            value, advantage, goal = (self._tensor(array.ravel()) for array in (values, gained, target))
            nothing = torch.empty(values.size, 0, device=self.device)
            return Samples(nothing, action, log_prob, value, advantage, goal, mask)
