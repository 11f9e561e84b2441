"""Policies as exported graphs, without files and environments: what many small comparisons need."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, NamedTuple

from helpers.contracts import small_config
from rl_training.experiment.export import numpy_runner
from rl_training.experiment.export.graph import PolicyGraph
from rl_training.experiment.export.numpy_file import to_numpy
from rl_training.experiment.export.onnx_file import OnnxRunner, to_onnx
from rl_training.experiment.export.parity import Runner
from rl_training.runtime.loop import train
from rl_training.runtime.policy import Policy
from rl_training.runtime.run import Run


class Made(NamedTuple):
    """An agent and its exported forms."""

    run: Run
    graph: PolicyGraph
    onnx: bytes
    runners: dict[str, Runner]

    @property
    def policy(self) -> Policy:
        return self.run.policy


def trained(algo: str, steps: int = 200, **settings: Any) -> Run:
    run = Run(small_config(algo, **settings))
    deque(itertools.islice(train(run), steps), maxlen=0)
    run.close()
    return run


def made(run: Run) -> Made:
    """Export an agent once, for both runners."""
    algorithm: Any = run.algorithm
    graph = PolicyGraph(algorithm.scorer(), run.policy.obs, run.policy.actions).eval()
    model = to_onnx(graph, {"algorithm": run.spec.name})
    content = model.SerializeToString()
    runners: dict[str, Runner] = {
        "onnx": OnnxRunner(content),
        "numpy": numpy_runner.Policy(to_numpy(model, graph, {})),
    }
    return Made(run, graph, content, runners)
