"""Closing the environments of a run: what they have done counts, however they end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from rl_training.errors import LONGEST, EnvError, is_users_interrupt
from rl_training.runtime.console import notice


def close(envs: gym.vector.VectorEnv[Any, Any, Any]) -> None:
    """Close environments; one that fails to costs a warning."""
    try:
        envs.close()
    except EnvError as error:
        notice(f"warning: {error}")
    except BaseException as error:  # of a vector environment that is not ours
        if is_users_interrupt(error):
            raise
        notice(f"warning: vector environment: close: {type(error).__name__}: {error}"[:LONGEST])
