"""Run folders as a stranger would make them: every hash is right, only the content is not what it was."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rl_training.runtime.checkpoint_format import MANIFEST, manifest_digest

Plain = dict[str, Any]


def rehash(checkpoint: Path, change: Callable[[Plain], None] = lambda manifest: None) -> None:
    """Make the manifest say what the files are, after ``change`` has had its way with it."""
    path = checkpoint / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"] = {
        file.name: {"size": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in checkpoint.iterdir()
        if file.name != MANIFEST
    }
    change(manifest)
    path.write_text(json.dumps({**manifest, "sha256": manifest_digest(manifest)}))


def change_state(checkpoint: Path, change: Callable[[Plain], None]) -> None:
    """Change ``state.json`` and every hash with it."""
    path = checkpoint / "state.json"
    state = json.loads(path.read_text())
    change(state)
    path.unlink()  # it may be a link
    path.write_text(json.dumps(state))
    rehash(checkpoint)


def copied(run: Path, target: Path) -> Path:
    shutil.copytree(run, target, symlinks=True)
    return target


def with_config(run: Path, target: Path, change: Callable[[Plain], None], *, yaml_only: bool = False) -> Path:
    """Copy a run and change the config of all its checkpoints and its ``config.yaml``."""
    copied(run, target)
    config = yaml.safe_load((target / "config.yaml").read_text())
    change(config)
    (target / "config.yaml").write_text(yaml.safe_dump(config))
    if not yaml_only:
        for checkpoint in (target / "checkpoints").glob("step-*"):
            change_state(checkpoint, lambda state: change(state["config"]))
    return target


def put(config: Plain, key: str, value: Any) -> None:
    """Set a dotted key."""
    *parents, last = key.split(".")
    for parent in parents:
        config = config[parent]
    config[last] = value
