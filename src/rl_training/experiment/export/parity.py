"""Whether an exported policy does what ``predict`` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rl_training.experiment.export.graph import (
    ACTION,
    MASK,
    MEMORY,
    NEW_MEMORY,
    REWARD,
    START,
    Field,
    input_name,
)
from rl_training.experiment.export.recording import Recording, nested, raw
from rl_training.runtime.policy import Policy
from rl_training.spaces import Array, DiscreteActions

Runner = Callable[[Mapping[str, Array]], dict[str, Array]]
TOLERANCE = 1e-5
"""Of values, memories and continuous actions; of those above 1, as a share of them."""
ROUNDING = 1e-6
"""Difference of two values, as a share of them, below which ``predict`` itself may choose either: one observation and a
batch of them are not added up in the same order."""


class Different(Exception):
    """The two do not agree."""


@dataclasses.dataclass
class Parity:
    """What was compared, and the largest difference, of values above 1 as a share of them."""

    observations: int
    source: str
    memory_steps: int = 0
    """Steps in a row without a new episode."""
    largest: dict[str, float] = dataclasses.field(default_factory=dict)
    ties: int = 0
    """Actions that differ because the values of both are equal but for rounding."""

    def note(self, name: str, found: Array, expected: Array, where: str) -> None:
        """Remember how far two arrays [N, ...] are apart; too far is an error."""
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise Different(
                f"{name} is {found.dtype} {found.shape}, that of predict {expected.dtype} {expected.shape}"
            )
        with np.errstate(invalid="ignore"):  # equal infinities
            distance = np.abs(found.astype(np.float64) - expected)
        scale = np.maximum(1.0, np.abs(expected).reshape(len(expected), -1).max(1, initial=0.0))
        apart = distance.reshape(len(expected), -1).max(1, initial=0.0) / scale
        worst = float(apart.max(initial=0.0))
        self.largest[name] = max(self.largest.get(name, 0.0), worst)
        if not worst <= TOLERANCE:
            raise Different(f"{name} differs by {worst:.2g} from that of predict, {where}")


def compare(policy: Policy, runner: Runner, fields: list[Field], recording: Recording) -> Parity:
    """Run both on a recording, as it was and then in one piece with other masks; ``Different`` says where they part."""
    steps, rows = recording.begins.shape
    report = Parity(steps * rows, recording.source)
    known = {field.name: field for field in fields}
    _walk(policy, runner, known, recording, report)
    if START in known:
        report.memory_steps = steps
    mask = recording.mask
    if MASK in known:
        assert isinstance(policy.actions, DiscreteActions)
        mask = np.random.default_rng(0).random((steps, rows, policy.actions.n)) < 0.5
        mask[~mask.any(2)] = True
    whole = np.zeros_like(recording.begins)
    whole[0] = True
    if START in known or MASK in known:
        _walk(policy, runner, known, dataclasses.replace(recording, begins=whole, mask=mask), report)
    return report


def _walk(
    policy: Policy, runner: Runner, fields: Mapping[str, Field], recording: Recording, report: Parity
) -> None:
    state: Any = None
    steps, rows = recording.begins.shape
    memory = {
        name: np.zeros((rows, *field.shape), field.dtype)
        for name, field in fields.items()
        if name.startswith(MEMORY)
    }
    for step in range(steps):
        begins, reward = recording.begins[step], recording.reward[step]
        parts = raw(policy.obs, recording.obs[step])
        obs = nested(policy.obs, parts)
        mask = None if recording.mask is None else recording.mask[step]
        told = (obs, state, begins, reward)
        scores = policy.scores(*told)
        action, state = policy.predict(*told[:3], action_mask=mask, reward=reward)

        given = {input_name(name): array for name, array in parts.items()}
        given.update({START: begins, REWARD: reward, **memory})
        if mask is not None:
            given[MASK] = mask
        found = runner({name: array for name, array in given.items() if name in fields})
        memory = {
            MEMORY + name.removeprefix(NEW_MEMORY): found[name]
            for name in found
            if name.startswith(NEW_MEMORY)
        }

        where = f"at step {step + 1} of {steps}"
        for name in found:
            if name.startswith(NEW_MEMORY):
                if name != f"{NEW_MEMORY}action":  # that follows from the action
                    report.note(name, found[name], state[name.removeprefix(NEW_MEMORY)], where)
            elif name != ACTION:
                report.note(name, found[name], scores, where)
        if found[ACTION].dtype.kind == "f":
            report.note(ACTION, found[ACTION], np.asarray(action), where)
            continue
        if found[ACTION].dtype != action.dtype or found[ACTION].shape != action.shape:
            report.note(ACTION, found[ACTION], action, where)
        other = (found[ACTION] != action).reshape(rows, -1).any(1)
        if other.any():
            _excuse(policy, found[ACTION], action, scores, other, report, where)
            if f"{MEMORY}action" in memory:
                memory[f"{MEMORY}action"] = state["action"]


def _excuse(
    policy: Policy, found: Array, action: Array, scores: Array, other: Array, report: Parity, where: str
) -> None:
    """Count actions that differ as ties if both are as good; else they are an error."""
    if isinstance(policy.actions, DiscreteActions):
        rows = np.arange(len(scores))
        ours, theirs = (scores[rows, a - policy.actions.start] for a in (found, action))
        if (np.abs(ours - theirs) <= ROUNDING * np.maximum(1.0, np.abs(theirs)))[other].all():
            report.ties += int(other.sum())
            return
    row = int(np.flatnonzero(other)[0])
    raise Different(f"action is {found[row].tolist()}, that of predict {action[row].tolist()}, {where}")
