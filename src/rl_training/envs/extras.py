"""Environments that come in packages of their own: which extra brings them, and what is said if it is missing."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import gymnasium as gym

from rl_training.errors import ConfigError


class _Package(NamedTuple):
    module: str
    name: str
    extra: str


_BY_PREFIX = {
    "ALE/": _Package("ale_py", "ale-py", "atari"),
    "MinAtar/": _Package("minatar", "MinAtar", "minatar"),
    "MiniGrid-": _Package("minigrid", "minigrid", "minigrid"),
    "BabyAI-": _Package("minigrid", "minigrid", "minigrid"),
}
_BY_COMPLAINT = {
    "box2d": ("Box2D", "box2d"),
    "mujoco": ("MuJoCo", "mujoco"),
    "cv2": ("OpenCV", "atari"),
    "opencv": ("OpenCV", "atari"),
}
"""Words in Gymnasium's errors about packages that it does not find."""


def missing(key: str, name: str, package: str, extra: str) -> ConfigError:
    """Return the error that says how to install what ``name``, the value of a config key, needs."""
    return ConfigError(f"{key}: '{name}' needs {package}: pip install \"rl_training[{extra}]\"")


def packages_of(env_id: str) -> tuple[str, ...]:
    """Return the modules that are imported to make an id known to Gymnasium."""
    if env_id.startswith("dm_control/"):
        return "dm_control", "shimmy"
    return tuple(package.module for prefix, package in _BY_PREFIX.items() if env_id.startswith(prefix))


def import_by_prefix(env_id: str) -> None:
    """Import the package that makes an id known to Gymnasium, if its prefix says which one that is."""
    for prefix, package in _BY_PREFIX.items():
        if env_id.startswith(prefix):
            try:
                importlib.import_module(package.module)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] != package.module:
                    raise ConfigError(
                        f"env.id: '{env_id}': {package.name} cannot be imported: {error}"
                    ) from error
                raise missing("env.id", env_id, package.name, package.extra) from None
            except Exception as error:  # a broken installation
                raise ConfigError(f"env.id: '{env_id}': {type(error).__name__}: {error}") from error


def named_by(key: str, name: str, error: BaseException) -> ConfigError | None:
    """Return which extra is missing if that is what an error of Gymnasium is about."""
    if not isinstance(error, (ImportError, gym.error.DependencyNotInstalled)):
        return None
    complaint = str(error).lower()
    for word, (package, extra) in _BY_COMPLAINT.items():
        if word in complaint:
            return missing(key, name, package, extra)
    return None
