"""The DeepMind control suite, by ids such as ``dm_control/cartpole-balance-v0``; Shimmy makes it Gymnasium's."""

from __future__ import annotations

import importlib
import os
from typing import Any, ClassVar

import gymnasium as gym

from rl_training.envs.extras import missing
from rl_training.envs.headless import prepare
from rl_training.errors import ConfigError, EnvError

PREFIX = "dm_control/"


def load(env_id: str) -> None:
    """Import the suite, which makes its ids known; on a machine without a display it then renders by EGL."""
    prepare()
    try:
        importlib.import_module("dm_control")  # Shimmy would not say that it is missing
        importlib.import_module("shimmy")
    except ModuleNotFoundError as error:
        raise missing("env.id", env_id, str(error.name), "dm-control") from None
    except Exception as error:  # no EGL, an unknown MUJOCO_GL, ...
        raise ConfigError(f"env.id: '{env_id}': {type(error).__name__}: {error}") from error


def make(spec: Any, **kwargs: Any) -> gym.Env[Any, Any]:
    """Make a task of the suite."""
    return SuiteTask(gym.make(spec, disable_env_checker=True, **kwargs))


class SuiteTask(gym.Wrapper[Any, Any, Any, Any]):
    """A task that knows how fast it runs, and refuses to render where it would hang."""

    _rendered_by: ClassVar[int | None] = None

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        task: Any = env.unwrapped
        # Shimmy takes milliseconds per frame for frames per second, and one dict for all tasks.
        self.metadata = {**env.metadata, "render_fps": round(1.0 / task.dt)}

    def render(self) -> Any:
        """Render; what OpenGL set up in one process does not work in another that was forked from it."""
        if SuiteTask._rendered_by not in (None, os.getpid()):
            raise EnvError(
                "dm_control cannot render in a worker if it has rendered in the main process before: "
                "use env.vectorization sync, or a new Python process"
            )
        SuiteTask._rendered_by = os.getpid()
        return self.env.render()
