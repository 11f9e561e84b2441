"""All that ``predict`` does, from raw observations to actions of the environment, as one module of torch operations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.models.scorer import Memory, Observed, Scorer
from rl_training.observations import ObsPart, ObsSpec
from rl_training.spaces import (
    ActionSpec,
    ContinuousActions,
    DiscreteActions,
    MultiBinaryActions,
    MultiDiscreteActions,
)

MASK, START, REWARD, ACTION = "action_mask", "episode_start", "reward", "action"
MEMORY, NEW_MEMORY = "memory.", "new_memory."
"""What the names of inputs and outputs begin with that hold a memory."""


@dataclass(frozen=True)
class Field:
    """An input or an output: one row for each environment, of this shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    about: str
    low: Any = None
    high: Any = None
    """The smallest and the largest value, or those of each number; none if there are no bounds, or nobody knows."""
    optional: bool = False

    def plain(self) -> dict[str, Any]:
        """Return what is known about it as plain values; the number of rows is ``batch``."""
        known = {
            name: value for name, value in asdict(self).items() if value is not None and value is not False
        }
        return {**known, "shape": ["batch", *self.shape]}


class PolicyGraph(nn.Module):
    """Maps ``inputs``, each [B, *shape], to ``outputs``, in their order.

    Observations come as the environment gives them, each part of a ``Dict`` or ``Tuple`` by itself. Actions leave in
    the environment's units. Agents with a memory also take it, whether an episode begins, and what else they are told
    of the step before; their memory after the observation is among the outputs.
    """

    has_modes: ClassVar[bool] = False
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, scorer: Scorer, obs: ObsSpec, actions: ActionSpec) -> None:
        super().__init__()
        self.scorer, self._obs, self._actions = scorer, obs, actions
        parts = [_observed(part) for part in obs.parts]
        self.inputs = [*parts, *_remembered(scorer.memory), *_masked(actions)]
        self.outputs = [_acted(actions), *_scored(scorer, actions)]
        self.outputs += [
            Field(
                NEW_MEMORY + name,
                str(tensor.numpy().dtype),
                tuple(tensor.shape[1:]),
                "the memory to hand in next",
            )
            for name, tensor in scorer.memory.items()
            if name != REWARD
        ]
        for name in ("low", "high"):
            if hasattr(actions, name):
                bound = torch.from_numpy(np.asarray(getattr(actions, name), np.float64))
                self.register_buffer(name, bound, persistent=False)

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs."""
        named = dict(zip((field.name for field in self.inputs), given, strict=True))
        memory: Memory = {}
        for name in self.scorer.memory:
            before = named[name if name == REWARD else MEMORY + name]
            forgets = named[START].reshape(-1, *(1,) * (before.ndim - 1))
            memory[name] = torch.where(forgets, torch.zeros_like(before), before)
        scores, after = self.scorer(self._seen(named), memory)
        action = self._chosen(scores, named.get(MASK))
        if "action" in after:
            after = {**after, "action": action + 1}
        found = {self.scorer.name: scores, ACTION: self._to_env(action)}
        found.update({NEW_MEMORY + name: tensor for name, tensor in after.items()})
        return tuple(found[field.name] for field in self.outputs)

    def _seen(self, named: dict[str, torch.Tensor]) -> Observed:
        """Return observations as networks see them: discrete numbers from 0 on, single ones as arrays of one."""
        parts = {}
        for part in self._obs.parts:
            value = named[input_name(part.name)]
            value = value[:, None] if part.scalar else value
            if any(part.starts):
                value = value - torch.tensor(part.starts, device=value.device).reshape(part.shape)
            parts[part.path] = value
        return parts if self._obs.packed else parts[self._obs.parts[0].path]

    def _chosen(self, scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return the greedy actions [B, *action], in the learner's units."""
        if isinstance(self._actions, DiscreteActions):
            assert mask is not None
            return torch.where(mask, scores, -torch.inf).argmax(1)
        if isinstance(self._actions, MultiDiscreteActions):
            return torch.stack(
                [part.argmax(1) for part in torch.split(scores, list(self._actions.counts), 1)], 1
            )
        if isinstance(self._actions, MultiBinaryActions):
            return (scores > 0).to(torch.int8)
        return scores.reshape(-1, *self._actions.shape)

    def _to_env(self, action: torch.Tensor) -> torch.Tensor:
        """Do what ``to_env`` of the actions does to arrays."""
        spec = self._actions
        if isinstance(spec, DiscreteActions):
            return action + spec.start
        if isinstance(spec, MultiDiscreteActions):
            return action + torch.tensor(spec.starts, device=action.device)
        if isinstance(spec, MultiBinaryActions):
            return action
        wide = action.double()
        if isinstance(spec, ContinuousActions):
            share = (wide.clamp(-1.0, 1.0) + 1.0) / 2.0
            wide = self.low * (1.0 - share) + self.high * share
        bounded = torch.minimum(torch.maximum(wide, self.low), self.high)
        return bounded.to(torch.from_numpy(np.empty(0, spec.low.dtype)).dtype)


def input_name(part: str) -> str:
    """Return what the input of a part of observations is called, by the name of the part."""
    return f"obs.{part}" if part else "obs"


def _observed(part: ObsPart) -> Field:
    low = high = None
    shape = () if part.scalar else part.shape
    if part.kind == "discrete":
        starts = np.reshape(part.starts, shape)
        low, high = starts.tolist(), (starts + np.reshape(part.counts, shape) - 1).tolist()
    elif part.kind == "binary":
        low, high = 0, 1
    elif part.kind == "image":
        low, high = 0, part.high
    return Field(input_name(part.name), str(part.dtype), shape, part.describe(), low, high)


def _remembered(memory: Memory) -> list[Field]:
    if not memory:
        return []
    fields = [
        Field(START, "bool", (), "true where an episode begins, and what was before is to be forgotten")
    ]
    for name, tensor in memory.items():
        dtype, shape = str(tensor.numpy().dtype), tuple(tensor.shape[1:])
        if name == REWARD:
            fields.append(Field(REWARD, dtype, shape, "what the last action brought"))
        else:
            fields.append(
                Field(MEMORY + name, dtype, shape, f"{NEW_MEMORY}{name} of the step before, at first zeros")
            )
    return fields


def _masked(actions: ActionSpec) -> list[Field]:
    if not isinstance(actions, DiscreteActions):
        return []
    return [
        Field(MASK, "bool", (actions.n,), "true where an action is allowed; default: all are", optional=True)
    ]


def _acted(actions: ActionSpec) -> Field:
    about, dtype = f"{actions.kind.replace('_', '-')} action", str(actions.dtype)
    if isinstance(actions, DiscreteActions):
        return Field(ACTION, dtype, (), about, actions.start, actions.start + actions.n - 1)
    if isinstance(actions, MultiDiscreteActions):
        high = [start + n - 1 for start, n in zip(actions.starts, actions.counts, strict=True)]
        return Field(ACTION, dtype, actions.shape, about, list(actions.starts), high)
    if isinstance(actions, MultiBinaryActions):
        return Field(ACTION, dtype, actions.shape, about, 0, 1)
    low, high = (_finite(bound) for bound in (actions.low, actions.high))
    return Field(ACTION, str(actions.low.dtype), actions.shape, about, low, high)


def _finite(bound: Any) -> Any:
    """Return bounds as lists, with none for what has no bound, as JSON has no infinity."""
    if isinstance(bound, list):
        return [_finite(one) for one in bound]
    return (
        _finite(np.asarray(bound).tolist())
        if isinstance(bound, np.ndarray)
        else bound
        if np.isfinite(bound)
        else None
    )


def _scored(scorer: Scorer, actions: ActionSpec) -> list[Field]:
    if scorer.name == ACTION:
        return []
    if isinstance(actions, MultiDiscreteActions):
        size = sum(actions.counts)
    else:
        assert isinstance(actions, (DiscreteActions, MultiBinaryActions))
        size = actions.n
    about = "values of the actions" if scorer.name == "q_values" else "of the policy, before masks"
    return [Field(scorer.name, "float32", (size,), about)]
