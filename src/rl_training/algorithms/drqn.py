"""DRQN (Hausknecht & Stone 2015): Q-learning over sequences, by a network that remembers.

With burn-in, priorities over sequences and rescaled values as options, it is the learner of R2D2 (Kapturowski et
al. 2019), too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.declared.drqn import DRQNConfig
from rl_training.algorithms.dqn import td_loss
from rl_training.algorithms.protocol import Decision
from rl_training.algorithms.value_learner import HeadLoss, ValueLearner, greedy, greedy_actions
from rl_training.data.transitions import Carry, SequenceBatch
from rl_training.models.recurrent.body import State
from rl_training.models.recurrent.lstm_q_network import LSTMQNetwork
from rl_training.models.recurrent.mirror import recurrent_mirror
from rl_training.models.scorer import Memory, Observed, Scorer
from rl_training.spaces import Array

_EPS = 1e-3


def rescale(x: torch.Tensor) -> torch.Tensor:
    """Squash values as R2D2 does: h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x."""
    return torch.sign(x) * (torch.sqrt(x.abs() + 1.0) - 1.0) + _EPS * x


def unscale(y: torch.Tensor) -> torch.Tensor:
    """Undo ``rescale``."""
    # The root of a quadratic equation in sqrt(|x| + 1), in double precision because close numbers are subtracted.
    z = y.abs().double()
    root = (torch.sqrt(1.0 + 4.0 * _EPS * (z + 1.0 + _EPS)) - 1.0) / (2.0 * _EPS)
    return (torch.sign(y) * (root**2 - 1.0)).to(y.dtype)


def learned_steps(batch: SequenceBatch, burn_in: int) -> torch.Tensor:
    """Return which steps [T, B] are learned from: those made, without the first ``burn_in`` of a chunk.

    At the beginning of an episode the memory is what it should be, so a chunk that begins there needs no burn-in.
    """
    late = torch.arange(len(batch.mask), device=batch.mask.device)[:, None] >= burn_in
    return batch.mask & (late | batch.starts[0])


class DRQN(ValueLearner[DRQNConfig, SequenceBatch]):
    """The learner of DRQN; ``network`` is an ``LSTMQNetwork`` or one with the same methods."""

    def __init__(self, network: LSTMQNetwork, num_actions: int, config: DRQNConfig, **options: Any) -> None:
        super().__init__(network, num_actions, config, **options)
        self._recurrent_mirror = recurrent_mirror(self.online)
        self._initial = {name: tensor[0].cpu().numpy() for name, tensor in network.initial_state().items()}
        self._core = [name for name in ("hidden", "cell") if name in self._initial]
        if config.restart_memory:
            self._initial.update({f"next_{name}": self._initial[name] for name in self._core})
            self._initial["age"] = np.zeros((), np.int64)

    # Acting

    def initial_carry(self, count: int) -> Carry:
        """Return the memory of ``count`` episodes that are about to begin."""
        return {name: np.zeros((count, *array.shape), array.dtype) for name, array in self._initial.items()}

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N] and remember; what is seen is remembered also where the action is a random one."""
        q, after = self.step(obs, self.initial_carry(len(obs)) if carry is None else carry)
        action = greedy_actions(q, mask)
        if explore:
            action = self.with_random(action, self._rng.random(len(obs)) < self.epsilon, mask)
        if "action" in after:
            after["action"] = action + 1
        return Decision(action, after)

    def scores(self, obs: Array, carry: Carry | None = None) -> Array:
        """Return the Q-values [N, A]."""
        return self.step(obs, self.initial_carry(len(obs)) if carry is None else carry)[0]

    def step(self, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Return the Q-values [N, A] of observations [N, *obs], and the memory that includes them."""
        return self._step_restarting(obs, carry) if self.config.restart_memory else self._step(obs, carry)

    def _step_restarting(self, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Do the same by a memory that began where a sequence begins of which this step is learned.

        Sequences begin every ``period`` steps, and their first ``burn_in`` steps are not learned from. So there are
        two memories: one to act by, and the next one, which takes its place after ``burn_in`` observations.
        """
        age, burn_in, period = carry["age"], self.config.burn_in, self.config.period
        replaced = (age > burn_in) & ((age - burn_in) % period == 0)
        begun = age % period == 0
        both = {name: np.concatenate([carry[name]] * 2) for name in carry if name in ("action", "reward")}
        for name in self._core:
            old, new = carry[name], carry[f"next_{name}"]
            each = (-1, *(1,) * (old.ndim - 1))
            acting = np.where(replaced.reshape(each), new, old)
            both[name] = np.concatenate([acting, np.where(begun.reshape(each), np.float32(0.0), new)])
        q, after = self._step(np.concatenate([obs, obs]), both)
        count = len(obs)
        kept = {name: array[:count] for name, array in after.items()}
        kept.update({f"next_{name}": after[name][count:] for name in self._core})
        return q[:count], {**kept, "age": age + 1}

    def _step(self, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        if self._recurrent_mirror is not None and len(obs) <= self._recurrent_mirror.max_batch:
            return self._recurrent_mirror(obs, carry)
        with torch.no_grad():
            state = {name: torch.as_tensor(array, device=self.device) for name, array in carry.items()}
            q, state = self.online(torch.as_tensor(obs, device=self.device), state)
            return q.cpu().numpy(), {name: tensor.cpu().numpy() for name, tensor in state.items()}

    def scorer(self) -> Scorer:
        """Return what maps observations and the memory to Q-values."""

        def step(obs: Observed, memory: Memory) -> tuple[torch.Tensor, Memory]:
            x, after = self.online.step(obs, memory)
            return self.online.q_values(x), after

        def restarting(obs: Observed, memory: Memory) -> tuple[torch.Tensor, Memory]:
            acting, coming = self._two_memories(memory)
            _, later = self.online.step(obs, coming)
            q, after = step(obs, acting)
            after.update({f"next_{name}": later[name] for name in self._core}, age=memory["age"] + 1)
            return q, after

        initial = {name: torch.from_numpy(array) for name, array in self.initial_carry(1).items()}
        return Scorer(self.online, "q_values", restarting if self.config.restart_memory else step, initial)

    def _two_memories(self, memory: Memory) -> tuple[Memory, Memory]:
        """Return the memory to act by and the next one, as ``_step_restarting`` chooses them."""
        age, burn_in, period = memory["age"], self.config.burn_in, self.config.period
        replaced = (age > burn_in) & ((age - burn_in) % period == 0)
        begun = age % period == 0
        acting = {name: memory[name] for name in memory if name in ("action", "reward")}
        coming = dict(acting)
        for name in self._core:
            old, new = memory[name], memory[f"next_{name}"]
            acting[name] = torch.where(replaced[:, None, None], new, old)
            coming[name] = torch.where(begun[:, None, None], torch.zeros_like(new), new)
        return acting, coming

    # Learning

    def _td_loss(
        self, chosen: torch.Tensor, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> HeadLoss:
        if not self.config.value_rescaling:
            return td_loss(chosen, following, reward, discount, self.config.loss)
        target = rescale(reward + discount * unscale(following))
        return td_loss(chosen, target, torch.zeros_like(target), torch.ones_like(target), self.config.loss)

    def _loss(self, batch: SequenceBatch) -> tuple[torch.Tensor, HeadLoss]:
        """Return the mean loss of all learned steps with its graph, and what it is made of, step by step.

        With Double, the next actions are chosen by the same pass that is learned from: a second walk through every
        sequence would only differ for encoders with dropout.
        """
        batch = trimmed(batch)
        with torch.no_grad():
            next_q = self.unroll(self.target, batch)
        with self.learning(self.online):
            q = self.unroll(self.online, batch)
        # From here on only of the steps that are learned from, one after the other: indexing them once costs least.
        learned = learned_steps(batch, self.config.burn_in)
        at = learned.flatten().nonzero().flatten()
        size, count = batch.mask.shape[1], q.shape[2]
        after = batch.after.flatten()[at] * size + at % size  # where the rest of each return is estimated
        choosing = (q.detach() if self.config.double else next_q).flatten(0, 1)[after]
        mask = None if batch.action_mask is None else batch.action_mask.flatten(0, 1)[after]
        following = next_q.flatten().index_select(0, after * count + greedy(choosing, mask))
        action = batch.action.flatten()[at]
        chosen = q.flatten().index_select(0, at * count + action)
        head = self._td_loss(chosen, following, batch.returns.flatten()[at], batch.discount.flatten()[at])
        head.priority = sequence_priorities(head.error, learned, self.config.priority_eta)
        each = head.each if batch.weight is None else head.each * batch.weight[at % size]
        return each.mean(), head

    def unroll(self, network: LSTMQNetwork, batch: SequenceBatch) -> torch.Tensor:
        """Return the Q-values [T + 1, B, A] of all observations, from the stored memory on.

        Behind the burn-in the memory is taken as given, except in chunks that need none: no gradient flows back.
        """
        if self.config.restart_memory:
            return self._unroll_restarting(network, batch)
        cut = min(self.config.burn_in, len(batch.action))
        if cut == 0:
            return self._piece(network, batch, slice(None), batch.state)[0]
        first, state = self._piece(network, batch, slice(cut), batch.state)
        kept = batch.starts[0].reshape(-1, *(1,) * (state["hidden"].ndim - 1))
        for name in self._core:
            state[name] = torch.where(kept, state[name], state[name].detach())
        rest, _ = self._piece(network, batch, slice(cut, None), self._before(batch, cut, state))
        return torch.cat([first, rest])

    def _unroll_restarting(self, network: LSTMQNetwork, batch: SequenceBatch) -> torch.Tensor:
        """Do the same by the memories that these observations are acted by: empty where the chunk begins.

        The observation behind the last step of a whole chunk is acted on by the next chunk's memory. Only of that
        the value is ever learned, so only that can tell what the rest of a return is worth.
        """
        empty = network.initial_state(batch.mask.shape[1])
        q, _ = self._piece(network, batch, slice(None), {**empty, **batch.state})
        if len(batch.action) < self.config.sequence_length:
            return q
        period = self.config.period
        with torch.no_grad():
            following, _ = self._piece(
                network, batch, slice(period, None), self._before(batch, period, empty)
            )
        return torch.cat([q[:-1], following[-1:]])

    @staticmethod
    def _before(batch: SequenceBatch, step: int, state: State) -> State:
        """Return a memory with what was done before a step of the chunks and what it brought."""
        past = {"action": batch.action[step - 1] + 1, "reward": batch.reward[step - 1]}
        return {name: past.get(name, tensor) for name, tensor in state.items()}

    @staticmethod
    def _piece(
        network: LSTMQNetwork, batch: SequenceBatch, piece: slice, state: State
    ) -> tuple[torch.Tensor, State]:
        obs = batch.obs[piece]
        between = slice(piece.start or 0, (piece.start or 0) + len(obs) - 1)
        return network.q_values_sequence(
            obs, state, actions=batch.action[between], rewards=batch.reward[between]
        )


R2D2 = DRQN
"""Everything that R2D2 adds is an option, or part of the experience."""


def trimmed(batch: SequenceBatch) -> SequenceBatch:
    """Return a batch without the steps at its end that no chunk has made."""
    made = int(batch.mask.any(1).sum())
    if made == len(batch.mask):
        return batch
    shorter = {
        field: getattr(batch, field)[:made]
        for field in ("action", "reward", "returns", "discount", "after", "mask", "starts")
    }
    masks = None if batch.action_mask is None else batch.action_mask[: made + 1]
    return dataclasses.replace(batch, obs=batch.obs[: made + 1], action_mask=masks, **shorter)


def sequence_priorities(error: torch.Tensor, learned: torch.Tensor, eta: float) -> torch.Tensor:
    """Return per chunk [B] a mix of the largest and the mean absolute error of its learned steps.

    ``error`` holds the errors of the steps that are true in ``learned`` [T, B], in its order.
    """
    errors = torch.zeros(learned.shape, dtype=error.dtype, device=error.device).masked_scatter_(
        learned, error.abs()
    )
    mean = errors.sum(0) / learned.sum(0).clamp(min=1)
    return eta * errors.amax(0) + (1.0 - eta) * mean
