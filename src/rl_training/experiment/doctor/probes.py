"""Running an algorithm, with a user's own settings, on the probe environments."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from rl_training.algorithms import catalogue
from rl_training.config import ExperimentConfig
from rl_training.errors import RLTrainingError
from rl_training.experiment.doctor.probe_config import (
    chain_length,
    probe_config,
    rewards_for,
    updates_for,
)
from rl_training.experiment.doctor.probe_env import Kind, ProbeEnv, side
from rl_training.experiment.doctor.values import value_gap
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

Verdict = Literal["passed", "failed", "undecided"]
TOLERANCE = 0.35
"""How far a value may be from the right one, as a share of it."""
IMAGE = 20
"""Pixels of each side of an image, for algorithms that take nothing else."""
LOOKS = 40
"""How often a probe is looked at while it goes on."""
STREAK = 4
"""Looks in a row at which the answer has to be right; then the probe ends."""


@dataclass(frozen=True)
class Outcome:
    """How a probe went."""

    kind: Kind
    verdict: Verdict
    evidence: str
    updates: int = 0
    seconds: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """What probes of a config are like: its actions, and for custom networks its observations."""

    config: ExperimentConfig[Any]
    actions: gym.Space[Any]
    observations: gym.spaces.Box | None = None

    def make(self, kind: Kind) -> ProbeEnv:
        """Make a probe environment."""
        return ProbeEnv(
            kind, self.actions, rewards_for(self.config), chain_length(self.config), self.observations
        )


def action_space(config: ExperimentConfig[Any], kind: str | None) -> gym.Space[Any]:
    """Return a space of one action of that kind, or of one that the algorithm takes if the kind is unknown."""
    taken = catalogue.find(config.algo).action_kinds
    if kind is None or kind not in taken:
        continuous = getattr(config.algo_kwargs, "action_distribution", "auto") != "auto"
        kind = "discrete" if "discrete" in taken and not continuous else "continuous"
    spaces: dict[str, gym.Space[Any]] = {
        "discrete": gym.spaces.Discrete(2),
        "continuous": gym.spaces.Box(-1.0, 1.0, (1,), np.float32),
        "unbounded": gym.spaces.Box(-np.inf, np.inf, (1,), np.float32),
        "multi_discrete": gym.spaces.MultiDiscrete([2]),
        "multi_binary": gym.spaces.MultiBinary(1),
    }
    return spaces[kind]


def observation_space(config: ExperimentConfig[Any], space: gym.Space[Any] | None) -> gym.spaces.Box | None:
    """Return what probes have to show: none where three numbers will do.

    A custom network may take nothing but observations like those of the user's environment, ``space``.
    """
    if catalogue.find(config.algo).obs_kinds == {"image"}:
        return gym.spaces.Box(0, 255, (3, IMAGE, IMAGE), np.uint8)
    return space if config.network.factory is not None and isinstance(space, gym.spaces.Box) else None


def run_probe(plan: Plan, kind: Kind, *, deadline: float, seed: int = 0) -> Outcome:
    """Run one probe until its answer is right, its updates are used up, or the time is."""
    begun = time.monotonic()
    wanted = updates_for(plan.config, acting=kind not in ("value", "discount"))
    small = probe_config(plan.config, wanted).model_copy(update={"seed": seed})
    evidence, done = "no look at it yet", 0

    def ended(verdict: Verdict, text: str) -> Outcome:
        return Outcome(kind, verdict, text, done, time.monotonic() - begun, seed)

    try:
        run = Run(small, env=lambda **_: plan.make(kind))
    except RLTrainingError as error:
        return ended("undecided", f"cannot be run: {error}")
    except Exception as error:  # of a custom network
        return ended("failed", f"{type(error).__name__}: {error}")
    probe = plan.make(kind)
    looks: list[bool] = []
    try:
        every, after = max(wanted // LOOKS, 1), 0
        for _ in train(run):
            done = run.clock.updates
            if done >= after:
                after = done + every
                right, evidence = look(run, probe, plan)
                looks.append(right and done > 0)
                if all(looks[-STREAK:]) and len(looks) >= STREAK:
                    return ended("passed", evidence)
            if time.monotonic() > deadline:
                return ended("undecided", f"out of time after {done} updates: {evidence}")
        late = looks[-2 * STREAK :]
        if 2 * sum(late) > len(late):
            return ended("passed", evidence)
        return ended("failed", f"{evidence} (right at {sum(late)} of the last {len(late)} looks)")
    except RLTrainingError as error:
        return ended("failed", str(error))
    except Exception as error:  # of a custom network
        return ended("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    finally:
        run.close()


def look(run: Run, probe: ProbeEnv, plan: Plan) -> tuple[bool, str]:
    """Say whether the answer is right, and what it is."""
    if probe.kind in ("value", "discount"):
        return _look_at_values(run, probe, plan)
    return _look_at_actions(run, probe)


def _look_at_values(run: Run, probe: ProbeEnv, plan: Plan) -> tuple[bool, str]:
    obs = _as_learned(run, probe.first())
    gap = value_gap(run.algorithm, obs)
    if gap is None:
        return True, "its values cannot be read"
    gamma = float(getattr(plan.config.algo_kwargs, "gamma", 1.0))
    want = gamma ** (probe.length - 1) * probe.rewards.gap
    text = f"the difference of two values is {gap:.3g}, should be {want:.3g}"
    if not np.isfinite(gap):
        return False, text
    # Where little is left of it after discounting, noise is as large.
    return abs(gap - want) <= max(TOLERANCE * abs(want), 0.15 * probe.rewards.gap), text


def _look_at_actions(run: Run, probe: ProbeEnv) -> tuple[bool, str]:
    first = probe.first()
    action, state = run.policy.predict(first, reward=0.0)
    if probe.kind == "memory":
        later = np.stack([probe.shown(context, 1, 0.5) for context in (1.0, -1.0)])
        action, _ = run.policy.predict(later, state, episode_start=False, reward=0.0)
    sides = [side(one) for one in action]
    wants = "should be 1 and -1" if abs(sides[0]) == 1.0 else "should be above 0.2 and below -0.2"
    return sides[0] > 0.2 and sides[1] < -0.2, f"acts {sides[0]:.2g} and {sides[1]:.2g}, {wants}"


def _as_learned(run: Run, obs: Any) -> Any:
    return run.policy.obs.from_user(obs)[0] if run.policy.obs.packed else obs
