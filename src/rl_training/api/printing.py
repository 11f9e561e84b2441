"""What an agent says of itself, and of a training that has come to its end, to somebody who types Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from rl_training.config import ExperimentConfig
from rl_training.errors import printable
from rl_training.runtime.report import TrainResult
from rl_training.runtime.trust import needs_trust


def print_training(class_name: str, result: TrainResult, config: ExperimentConfig[Any]) -> None:
    """Print what a training came to, where it is, and what can be done with it next."""
    speed = result.steps / max(result.seconds, 1e-9)
    trust = ", trust=True" if needs_trust(config) else ""
    if result.stop_reason:
        print(f"Stopped at step {result.steps}: {printable(result.stop_reason)}")
    print(
        f"Trained {result.steps} steps, {result.updates} updates, {result.seconds:.0f} s, {speed:.0f} steps/s"
    )
    print(f"Time    {result.time_split}")
    if result.evaluation is not None:
        value = result.evaluation
        print(f"Result  {value.mean:.2f} ± {value.std:.2f} over {len(value.returns)} evaluation episodes")
    print(f"Folder  {_short(result.run_dir)}")
    print("Next")
    print("  agent.predict(obs), agent.evaluate(100), agent.learn(total_timesteps=10_000)")
    print(f"  agent.save('agent.zip'), later {class_name}.load('agent.zip'{trust})")


def describe(
    class_name: str,
    config: ExperimentConfig[Any],
    steps: int,
    network: nn.Module | None,
    run_dir: Path | None,
) -> str:
    """Return an agent in a line: class, environment, steps, device, learned parameters, run folder."""
    facts = [f"env={config.env.id!r}", f"steps={steps:,}", f"device={config.device!r}"]
    if network is not None:
        learned = sum(tensor.numel() for tensor in network.parameters() if tensor.requires_grad)
        facts.append(f"parameters={learned:,}")
    if run_dir is not None:
        facts.append(f"run_dir={_short(run_dir)!r}")
    return f"{class_name}({', '.join(facts)})"


def _short(path: Path) -> str:
    """Return a path below the working folder as seen from there, and any other as it is."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
