"""Finding configs: by path or packaged name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_training.config import ExperimentConfig
from rl_training.config.loading import apply_overrides, build_config, put, read_mapping
from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.registry import config_class

_PACKAGED = Path(__file__).parent.parent / "assets" / "configs"


def packaged_configs() -> dict[str, Path]:
    """Return the configs that ship with the package by name, such as ``dqn/cartpole``."""
    paths = sorted(_PACKAGED.glob("*/*.yaml"))
    return {f"{path.parent.name}/{path.stem}": path for path in paths}


def find_config(source: str | Path) -> Path:
    """Return the file that a path or a packaged name means."""
    path, known = Path(source), packaged_configs()
    with contextlib.suppress(OSError):  # a name too long to be one
        if path.is_file():
            return path
    name = str(source).removesuffix(".yaml")
    if name in known:
        return known[name]
    if path.suffix in {".yaml", ".yml"}:
        raise ConfigError(f"config: '{source}': no such file" + did_you_mean(name, known))
    hint = did_you_mean(name, known) or f"; packaged are {', '.join(known)}"
    raise ConfigError(f"config: '{source}' is neither a file nor a packaged config{hint}")


def load_config(
    source: str | Path | Mapping[str, Any], overrides: Iterable[str] | Mapping[str, Any] = ()
) -> ExperimentConfig[Any]:
    """Return the validated config of a file, a packaged name or a mapping, with overrides put in.

    Overrides are ``key.sub=value`` texts or a mapping of dotted keys to values.
    """
    return build_config(read_source(source, overrides), config_class)


def read_source(
    source: str | Path | Mapping[str, Any], overrides: Iterable[str] | Mapping[str, Any] = ()
) -> dict[str, Any]:
    """Return the same as ``load_config``, but plain and unchecked."""
    data = dict(source) if isinstance(source, Mapping) else read_mapping(find_config(source))
    if not isinstance(overrides, Mapping):
        return apply_overrides(data, overrides)
    for key, value in overrides.items():
        data = put(data, key, value)
    return data
