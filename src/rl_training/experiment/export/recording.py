"""Observations to compare an exported policy by: what the agent sees in its environment, or what it could see."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.algorithms.protocol import Decision
from rl_training.config import ExperimentConfig
from rl_training.data.transitions import Carry
from rl_training.envs import EnvFactory
from rl_training.errors import RLTrainingError
from rl_training.experiment.export.graph import input_name
from rl_training.observations import ObsPart, ObsSpec
from rl_training.runtime.evaluator import Abandoned, evaluate
from rl_training.runtime.policy import Policy
from rl_training.runtime.trust import check_names
from rl_training.spaces import Array, DiscreteActions

ROWS = 5
"""Environments side by side; of 1,000 observations, each gives 200 in a row."""
STEPS = 200


@dataclass(frozen=True)
class Recording:
    """T steps of N environments, observations as they are inside of this package."""

    obs: Array  # [T, N, *obs]
    begins: Array  # [T, N] bool, where an episode begins
    reward: Array  # [T, N] float32, what the action before brought
    mask: Array | None  # [T, N, A] bool
    source: str

    def ranges(self, spec: ObsSpec) -> dict[str, tuple[float, float]]:
        """Return the smallest and the largest number of each input of observations."""
        parts = raw(spec, self.obs.reshape(-1, *spec.shape))
        return {input_name(name): (float(array.min()), float(array.max())) for name, array in parts.items()}


class _Enough(Exception):
    pass


class _Recorder:
    """Stands for an agent, and keeps what it is shown."""

    def __init__(self, policy: Policy, steps: int) -> None:
        self._acts, self._steps = policy.algorithm, steps
        self.obs: list[Array] = []
        self.begins: list[Array] = []
        self.reward: list[Array] = []
        self.masks: list[Array | None] = []

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        count = len(obs)
        self.obs.append(obs.copy())
        # All zeros is the memory of an episode that is about to begin.
        empty = [~array.reshape(count, -1).any(1) for array in (carry or {}).values()]
        self.begins.append(np.logical_and.reduce(empty) if empty else np.ones(count, np.bool_))
        self.reward.append((carry or {}).get("reward", np.zeros(count, np.float32)).copy())
        self.masks.append(None if mask is None else mask.copy())
        given: dict[str, Any] = {} if mask is None else {"mask": mask}
        return self._acts.act(obs, carry, explore=explore, **given)

    def full(self) -> bool:
        return len(self.obs) >= self._steps


def played(
    policy: Policy, config: ExperimentConfig[Any], steps: int, env: EnvFactory | None, trust: bool
) -> Recording:
    """Return what the agent is shown while it plays evaluation episodes greedily."""
    check_names(config, trust, env=env is None, network=False)
    options = config.evaluation.model_copy(update={"num_envs": ROWS})
    recorder, many = _Recorder(policy, steps), ROWS * steps + ROWS
    agent: Any = recorder
    with suppress(Abandoned):
        evaluate(agent, config.env, policy.actions, options, many, env, recorder.full, obs=policy.obs)
    masks = None
    if any(mask is not None for mask in recorder.masks):
        assert isinstance(policy.actions, DiscreteActions)
        free = np.ones((ROWS, policy.actions.n), np.bool_)
        masks = np.stack([free if mask is None else mask for mask in recorder.masks])
    return Recording(
        np.stack(recorder.obs),
        np.stack(recorder.begins),
        np.stack(recorder.reward),
        masks,
        f"evaluation episodes of {config.env.id}",
    )


def drawn(policy: Policy, steps: int, why: str) -> Recording:
    """Return observations that are drawn at random; ``why`` says why no environment was played."""
    rng = np.random.default_rng(0)
    count = steps * ROWS
    parts = {part: _draw(part, count, rng) for part in policy.obs.parts}
    rows = policy.obs.joined(list(parts.values()))
    obs = rows.reshape(steps, ROWS, *policy.obs.shape)
    begins = rng.random((steps, ROWS)) < 0.02
    begins[0] = True
    reward, mask = rng.standard_normal((steps, ROWS), np.float32), None
    if isinstance(policy.actions, DiscreteActions):
        mask = rng.random((steps, ROWS, policy.actions.n)) < 0.7
        mask[..., 0] |= ~mask.any(-1)
    return Recording(obs, begins, reward, mask, f"random numbers, as {why}")


def _draw(part: ObsPart, count: int, rng: np.random.Generator) -> Array:
    """Draw observations of a part, discrete numbers counted from 0."""
    shape = (count, *part.shape)
    if part.kind == "discrete":
        return rng.integers(0, np.reshape(part.counts, part.shape), shape)
    if part.kind == "binary" or part.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(part.dtype)
    if part.dtype.kind in "iu":
        highest = int(part.high) if part.kind == "image" else min(255, np.iinfo(part.dtype).max)
        return rng.integers(0, highest, shape, endpoint=True).astype(part.dtype)
    scale = 10.0 ** rng.uniform(-1.0, 1.0, (count, *(1,) * len(part.shape)))
    return (rng.standard_normal(shape) * scale).astype(part.dtype)


def record(
    policy: Policy, config: ExperimentConfig[Any], steps: int, env: EnvFactory | None, trust: bool
) -> Recording:
    """Return what the agent sees in its environment, or random numbers if that cannot be had."""
    try:
        return played(policy, config, steps, env, trust)
    except RLTrainingError as error:
        return drawn(policy, steps, str(error))


def raw(spec: ObsSpec, rows: Array) -> dict[str, Array]:
    """Return the parts of observations [N, *obs] by their names, as the environment gives them."""
    found = {}
    for part in spec.parts:
        array = spec.take(rows, part)
        if part.counts:
            array = array + np.reshape(part.starts, part.shape)
        found[part.name] = array[:, 0] if part.scalar else array
    return found


def nested(spec: ObsSpec, parts: dict[str, Array]) -> Any:
    """Return such parts as a user has them: an array, or dicts and lists of arrays."""
    if not spec.packed:
        return parts[spec.parts[0].name]
    return _nested({part.path: parts[part.name] for part in spec.parts})


def _nested(leaves: dict[Any, Array]) -> Any:
    if set(leaves) == {()}:
        return leaves[()]
    keys = list(dict.fromkeys(path[0] for path in leaves))
    inner = {key: _nested({p[1:]: a for p, a in leaves.items() if p[0] == key}) for key in keys}
    return inner if isinstance(keys[0], str) else [inner[key] for key in sorted(keys)]
