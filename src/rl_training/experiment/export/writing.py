"""The command: build, compare, and only then write the file and its card."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training.algorithms import catalogue
from rl_training.algorithms.learner import Learner
from rl_training.config import ExperimentConfig
from rl_training.envs import EnvFactory
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, StorageError
from rl_training.experiment.export import numpy_runner
from rl_training.experiment.export.graph import PolicyGraph
from rl_training.experiment.export.numpy_file import to_numpy
from rl_training.experiment.export.onnx_file import OPSET, NotExportable, OnnxRunner, require_extra, to_onnx
from rl_training.experiment.export.parity import TOLERANCE, Different, Parity, Runner, compare
from rl_training.experiment.export.recording import STEPS, Recording, record
from rl_training.plain_files import replacing
from rl_training.runtime.policy import Policy
from rl_training.version import __version__

SUFFIXES = (".onnx", ".safetensors")


class Exported(NamedTuple):
    """What was written."""

    path: Path
    card: Path
    parity: Parity
    size: int


class Mismatch(CheckpointError):
    """The exported policy does something else than ``predict``, so it was not written."""


def card_of(path: Path) -> Path:
    """Return where the card of an exported file lies."""
    return path.with_name(f"{path.name}.json")


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse a file that cannot or should not be written, before anything is computed."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--to: {path}: should end in {' or '.join(SUFFIXES)}")
    try:
        if not path.parent.is_dir():
            raise ConfigError(f"--to: {path}: there is no folder '{path.parent}'")
        for one in (path, card_of(path)):
            if one.is_dir():
                raise ConfigError(f"--to: {one}: is a folder, not a file")
            if os.path.lexists(one) and not overwrite:
                raise ConfigError(
                    f"--to: {one}: exists already; --overwrite (in Python overwrite=True) replaces it"
                )
    except OSError as error:  # such as a name that is too long
        raise ConfigError(f"--to: {path}: {error.strerror}") from None
    require_extra(path.name)


def export_policy(
    policy: Policy,
    config: ExperimentConfig[Any],
    path: Path,
    *,
    step: int,
    env: EnvFactory | None = None,
    trust: bool = False,
    overwrite: bool = False,
    steps: int = STEPS,
) -> Exported:
    """Write a policy to a file, after it was compared with ``predict`` on ``steps`` steps of five environments.

    ``step`` is how far its training was, for the card. What is trusted is as in ``runtime.workflows``.
    """
    check_target(path, overwrite)
    algorithm = policy.algorithm
    if not isinstance(algorithm, Learner):
        raise ConfigError(
            f"export: {type(algorithm).__name__} is no Learner, so it does not say what it computes"
        )
    graph = PolicyGraph(algorithm.scorer(), policy.obs, policy.actions).to(algorithm.device).eval()
    facts = {
        "algorithm": config.algo,
        "environment": config.env.id,
        "step": str(step),
        "rl_training": __version__,
    }
    model = to_onnx(graph, facts)
    onnx = path.suffix == ".onnx"
    content = model.SerializeToString() if onnx else to_numpy(model, graph, facts)
    recording = record(policy, config, steps, env, trust)
    try:
        runner: Runner = OnnxRunner(content) if onnx else numpy_runner.Policy(content)
        parity = compare(policy, runner, graph.inputs, recording)
    except Different as error:
        raise Mismatch(f"{path}: not written: {error}") from None
    except RLTrainingError:
        raise
    except Exception as error:  # of a runtime, which has classes of its own
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotExportable(f"{path}: not written: it does not run: {line}") from error
    card = _card(policy, config, graph, recording, parity, path, content, step)
    _write({card_of(path): json.dumps(card, indent=2).encode() + b"\n", path: content})
    return Exported(path, card_of(path), parity, len(content))


def _card(
    policy: Policy,
    config: ExperimentConfig[Any],
    graph: PolicyGraph,
    recording: Recording,
    parity: Parity,
    path: Path,
    content: bytes,
    step: int,
) -> dict[str, Any]:
    """Return what somebody has to know who uses the file without this package."""
    spec = catalogue.find(config.algo)
    seen = {name: {"seen": [low, high]} for name, (low, high) in recording.ranges(policy.obs).items()}
    memory = [field.name for field in graph.inputs if field.name.startswith("memory.")]
    return {
        "file": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "algorithm": {"name": config.algo, "title": spec.title, "seed": config.seed, "step": step},
        "environment": config.env.model_dump(mode="json", include={"id", "kwargs", "wrappers"}),
        "observations": policy.obs.describe(),
        "inputs": [{**field.plain(), **seen.get(field.name, {})} for field in graph.inputs],
        "outputs": [field.plain() for field in graph.outputs],
        "memory": {name: f"new_{name}" for name in memory},
        "parity": {
            "observations": parity.observations,
            "source": parity.source,
            "memory_carried_over_steps": parity.memory_steps,
            "tolerance": TOLERANCE,
            "largest_difference": parity.largest,
            "equal_actions": parity.ties == 0,
            "ties_by_rounding": parity.ties,
        },
        "format": {"onnx_opset": OPSET}
        if path.suffix == ".onnx"
        else {"runner": "examples/numpy_inference.py"},
        "versions": {**_versions(), "rl_training": __version__},
    }


def _versions() -> dict[str, str]:
    import onnx
    import onnxruntime

    packages = {"torch": torch, "numpy": np, "onnx": onnx, "onnxruntime": onnxruntime}
    return {"python": platform.python_version(), **{name: m.__version__ for name, m in packages.items()}}


def _write(files: dict[Path, bytes]) -> None:
    """Write all files beside their places, and only then give them their names."""
    partials = {path: path.with_name(f".{path.name}.partial") for path in files}
    try:
        with ExitStack() as stack:
            for path, content in files.items():
                stack.callback(partials[path].unlink, missing_ok=True)
                with replacing(partials[path]) as file:
                    file.write(content)
            for path in files:
                partials[path].replace(path)
    except OSError as error:
        raise StorageError(f"{next(reversed(files))}: not written: {error.strerror}") from error
