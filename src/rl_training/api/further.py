"""What is different when an agent that was loaded goes on: where, in which environment, with which settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.config import ExperimentConfig
from rl_training.envs import EnvFactory
from rl_training.errors import ConfigError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.runtime.resuming import checkpoint_config, elsewhere_config, resumed_config
from rl_training.runtime.session import Session


@dataclass
class Further:
    """Asked for when the agent was loaded, and done when it learns."""

    run_dir: Path | None = None
    env_settings: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)

    def options(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of ``workflows.resume``, with more ``changes`` of settings."""
        overrides = _texts({**self.overrides, **changes})
        return {"overrides": overrides, "run_dir": self.run_dir, "env_settings": self.env_settings}

    def config(
        self, checkpoint: Checkpoint, run: Path | None, env: EnvFactory | None
    ) -> ExperimentConfig[Any]:
        """Return the config with which an agent goes on, or refuse what cannot be different."""
        before = checkpoint_config(checkpoint)
        saved = elsewhere_config(before, self.env_settings, checkpoint, env)
        if saved == before:
            self.env_settings = {}  # the same environment again
        if not self.overrides:
            return saved
        written = (run if run is not None else checkpoint.path) / "config.yaml"
        return resumed_config(written, checkpoint, saved, _texts(self.overrides))


class Begun(Callback):
    """Tells of the folder of a run when that begins, since one that is cut short returns nothing."""

    def __init__(self, tell: Callable[[Path], None]) -> None:
        self._tell = tell

    def on_start(self, training: Session) -> None:
        """Tell."""
        self._tell(training.folder.path)


def mark(checkpoint: Path) -> tuple[int, int]:
    """Return what changes when another checkpoint takes the place of this one."""
    found = (checkpoint / "manifest.json" if checkpoint.is_dir() else checkpoint).stat()
    return found.st_ino, found.st_mtime_ns


def _texts(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as they are written on the command line."""
    try:
        return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    except TypeError as error:
        raise ConfigError(f"config: {error}; give numbers, texts, lists and mappings") from None
