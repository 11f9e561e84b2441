"""What two runs are compared by, and how one is stopped in the middle."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_training.runtime.checkpoint import newest_checkpoint, read_hint, tree_digest
from rl_training.runtime.session import Session

LEARNING = ("model", "optimizer", "replay", "rng", "envs")
"""The sections that decide how training goes on."""


def final_tree(path: Path) -> dict[str, Any]:
    return newest_checkpoint(path / "checkpoints")[0].tree


def digests(path: Path) -> dict[str, str]:
    """One digest per section, without the wall-clock times and the width they have in the log."""
    tree = final_tree(path)
    del tree["time"], tree["session"]["log_offset"]
    return {name: tree_digest({name: section}) for name, section in tree.items()}


def rows(path: Path) -> list[dict[str, Any]]:
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines]


def outcome(path: Path) -> dict[str, Any]:
    """All that two equal runs have in common."""
    folder = path / "checkpoints"
    hints = {name: read_hint(folder, name) for name in ("latest", "best")}
    steps = {name: hint.name[: len("step-000000000")] if hint else None for name, hint in hints.items()}
    return {"digests": digests(path), "rows": rows(path), "hints": steps}


def learned(path: Path) -> dict[str, str]:
    return {name: digest for name, digest in digests(path).items() if name in LEARNING}


def stop_at(step: int, number: int = signal.SIGTERM) -> Callable[[Session], None]:
    def send(training: Session) -> None:
        if training.steps == step:
            os.kill(os.getpid(), number)

    return send
