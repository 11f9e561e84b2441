"""The process of one sub-env: answers what the parent, ``SubprocessVectorEnv``, asks through a pipe."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import IO, Any, Final

import gymnasium as gym
import numpy as np

from rl_training.envs.masks import maskable_actions
from rl_training.errors import EnvError
from rl_training.spaces import Array

Env = gym.Env[Any, Any]

# The first item of whatever a worker sends.
DONE: Final = "done"
FAILED: Final = "failed"
RESETTING: Final = "resetting"  # A step has ended the episode: from here on the timeout of a reset counts.

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)  # Loaded here, as the dynamic loader may be locked in a forked process.


class Worker:
    """The side of the worker, with one public method for each command."""

    def __init__(self, env_fn: Callable[[], Env], pipe: Connection, memory: IO[bytes], index: int) -> None:
        self._env_fn = env_fn
        self._pipe = pipe
        self._memory = memory
        self._index = index
        self._env: Env = gym.Env()  # A stand-in that knows no episode, for errors before there is an env.
        self._obs: Array = np.empty(())
        self._maskable = False

    def serve(self) -> None:
        """Answer requests until the parent says to close, or is gone."""
        with contextlib.suppress(EOFError, OSError):
            while (request := self._pipe.recv())[0] != "close":
                self._answer(*request)
        with contextlib.suppress(BaseException):  # Nobody is left to be told.
            self._env.close()

    def _answer(self, command: str, args: tuple[Any, ...]) -> None:
        try:
            self._pipe.send((DONE, getattr(self, command)(*args)))
        except BaseException as error:  # an environment may also raise SystemExit
            self._pipe.send((FAILED, (self._describe(error), traceback.format_exc())))

    def start(self) -> tuple[gym.Space[Any], gym.Space[Any], dict[str, Any], str | None]:
        """Make the env; return what the parent has to know of it."""
        self._env = env = self._env_fn()
        self._maskable = maskable_actions(env.action_space) > 0
        return env.observation_space, env.action_space, env.metadata, env.render_mode

    def attach(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Have observations written into the memory that is shared with the parent."""
        self._obs = map_array(self._memory, shape, dtype)[self._index, ...]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Array | None:
        """Begin an episode; return the mask of its first actions, if there is one."""
        obs, info = self._env.reset(seed=seed, options=options)
        self._publish(obs)
        return self._mask_in(info)

    def step(self, action: Any) -> tuple[float, bool, bool, Array | None, Array | None, Array | None]:
        """Step the env, and begin the next episode at once if this one has ended."""
        obs, reward, terminated, truncated, info = self._env.step(action)
        self._publish(obs)
        mask, final_obs, final_mask = self._mask_in(info), None, None
        if terminated or truncated:
            # A copy, because the env may write the next episode's first obs into the same array.
            final_obs, final_mask = self._obs.copy(), mask
            self._pipe.send((RESETTING, None))
            mask = self.reset()
        return float(reward), bool(terminated), bool(truncated), final_obs, mask, final_mask

    def call(self, name: str, args: tuple[Any, ...]) -> Any:
        """Call a method of the env or of its wrappers."""
        return self._env.get_wrapper_attr(name)(*args)

    def _mask_in(self, info: dict[str, Any]) -> Array | None:
        return info.get("action_mask") if info and self._maskable else None

    def _publish(self, obs: Any) -> None:
        # An assignment would broadcast a wrong shape, and cut floats down to integers, without a word.
        if np.shape(obs) != self._obs.shape:
            raise EnvError(f"expected an observation of shape {self._obs.shape}, got {np.shape(obs)}")
        np.copyto(self._obs, obs, casting="same_kind")

    def _describe(self, error: BaseException) -> str:
        kind = "" if isinstance(error, EnvError) else f"{type(error).__name__}: "
        text = one_line(f"{kind}{error}").removesuffix(":")
        position = self._position()
        # The wrapper that knows the position may have added it to its own error.
        return text if text.endswith(position) else f"{text} {position}"

    def _position(self) -> str:
        known = [
            f"{label} {self._env.get_wrapper_attr(name)}"
            for label, name in (("episode seed", "episode_seed"), ("step", "episode_step"))
            if self._env.has_wrapper_attr(name)
        ]
        return f"({', '.join(known)})" if known else ""


def work(worker: Worker, parent_ends: list[Connection], parent_pid: int) -> None:
    """Run a worker process from its fork to its end."""
    # Ctrl-C, timeout, systemd and Slurm signal all processes of a job. The parent acts on it, and needs its workers to
    # save.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for end in parent_ends:
        end.close()
    if os.getppid() == parent_pid:  # Otherwise it died before the kernel was asked to pass that on.
        worker.serve()


def map_array(memory: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the file as an array; whoever maps it sees what the others write."""
    shared: Array = np.ndarray(shape, dtype, buffer=mmap.mmap(memory.fileno(), 0))
    return shared


def one_line(text: str) -> str:
    """Return a text with each stretch of white space made one blank."""
    return " ".join(text.split())
