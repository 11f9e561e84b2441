"""What a freshly built network makes of real observations: whether it is alive, and what batches do to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rl_training.algorithms import catalogue
from rl_training.algorithms.learner import Learner
from rl_training.config import ExperimentConfig
from rl_training.errors import RLTrainingError
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.sampling import Sample
from rl_training.experiment.doctor.values import action_outputs, state_values
from rl_training.runtime.policy import Policy
from rl_training.runtime.run import build_policy
from rl_training.runtime.streams import Streams
from rl_training.spaces import Array

ROWS = 64
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_SAME = 1e-7
"""Differences of outputs that are rounding, as a share of their size."""


def check_network(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    """Build the user's learner as training would, and look at what it makes of the observations of a sample."""
    torch.set_num_threads(1)
    spec = catalogue.find(config.algo)
    obs = spread(sample)
    try:
        policy = build_policy(config, spec, sample.obs_spec, sample.actions_spec, Streams(config.seed))
        _batch_norm(policy, section)
        _alive(policy, obs, section)
    except RLTrainingError as error:
        section.add("problem", "network", str(error), "", "network")
    except Exception as error:  # of a custom network
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        section.add(
            "problem",
            "network",
            f"cannot act: {text}",
            "try it on a single observation and on a batch",
            "network",
        )


def spread(sample: Sample) -> Array:
    """Return some different observations of a sample."""
    rows = np.linspace(0, len(sample.obs) - 1, min(ROWS, len(sample.obs))).astype(int)
    return np.asarray(sample.obs[rows])


def _batch_norm(policy: Policy, section: Section) -> None:
    learner = policy.algorithm
    if not isinstance(learner, Learner):
        return
    found = {
        f"{name}.{path}": module
        for name, network in learner.networks.items()
        for path, module in network.named_modules()
        if isinstance(module, _BATCH_NORM) and not name.startswith("target")
    }
    if not found:
        return
    where, module = next(iter(found.items()))
    if not module.track_running_stats:
        text = (
            f"{where} ({type(module).__name__}) has no running statistics, so what it says of an "
            f"observation depends on the others in its batch, and of a single one it says nothing"
        )
        remedy = "track_running_stats=True, or LayerNorm (network.layer_norm=true)"
    elif not module.momentum or module.momentum >= 0.9:
        text = f"{where} ({type(module).__name__}) has a momentum of {module.momentum:g}: " + (
            "its running statistics never move, so the network acts by others than it learns by"
            if not module.momentum
            else "its running statistics are those of the last batch"
        )
        remedy = "a momentum of about 0.01 to 0.1, or LayerNorm (network.layer_norm=true)"
    else:
        text = (
            f"{where} ({type(module).__name__}): it learns by the statistics of batches and acts, and "
            f"makes targets, by "
            "running ones, which lag behind: values drift apart"
        )
        remedy = "LayerNorm (network.layer_norm=true), or CrossQ, which is made for batch normalisation"
    section.add("problem", "batch normalisation", text, remedy, "batch_norm")


def _alive(policy: Policy, obs: Array, section: Section) -> None:
    """Ask whether the outputs follow the observations, and whether every parameter has a gradient."""
    outputs, learner = _outputs(policy, obs), policy.algorithm
    if not outputs or not isinstance(learner, Learner):
        return
    for name, out in outputs.items():
        if not np.isfinite(out).all():
            section.add(
                "problem",
                "network",
                f"{name} are not finite before any training",
                "look for a division by zero or a logarithm in the network",
                "network",
            )
            return
        differ = float(out.std(0).max())
        if (
            differ <= _SAME * max(float(np.abs(out).max()), 1e-6)
            and len(np.unique(obs.reshape(len(obs), -1), axis=0)) > 1
        ):
            section.add(
                "problem",
                "network",
                f"{name} are the same for {len(obs)} different observations: the network is dead, or "
                f"does not look at them",
                "check its activations (units that are 0 everywhere learn nothing), initial weights and what is fed in",
                "dead_network",
            )
            return
    dead = _dead_units(learner, obs)
    if dead is not None and dead[1] > 0.9:
        section.add(
            "problem",
            "network",
            f"{dead[1]:.0%} of the units of {dead[0]} are 0 for all of {len(obs)} observations",
            "another activation or initialisation, or scaled observations",
            "dead_network",
        )
        return
    count = sum(p.numel() for network in learner.networks.values() for p in network.parameters())
    section.add(
        "ok", "network", f"alive on {len(obs)} observations; {count:,} parameters in all of its networks"
    )


def _outputs(policy: Policy, obs: Array) -> dict[str, Array]:
    found = {"values": state_values(policy.algorithm, obs), "actions": action_outputs(policy.algorithm, obs)}
    return {name: out.reshape(len(out), -1) for name, out in found.items() if out is not None}


def _dead_units(learner: Learner[Any, Any], obs: Array) -> tuple[str, float] | None:
    """Return the layer with the largest share of ReLU units that are 0 for every observation."""
    seen: dict[str, float] = {}
    hooks = []

    def watch(name: str) -> Any:
        def hook(_: nn.Module, __: Any, out: torch.Tensor) -> None:
            flat = out.detach().reshape(len(out), -1)
            seen[name] = float((flat == 0.0).all(0).float().mean())

        return hook

    for name, network in learner.networks.items():
        for path, module in network.named_modules():
            if isinstance(module, nn.ReLU) and not name.startswith("target"):
                hooks.append(module.register_forward_hook(watch(f"{name}.{path}")))
    try:
        state_values(learner, obs)
    finally:
        for handle in hooks:
            handle.remove()
    return max(seen.items(), key=lambda item: item[1]) if seen else None
