"""A vector env with a process for each sub-env: one that crashes or hangs cannot take the run along."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import selectors
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import IO, Any, Final, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from rl_training.envs.masks import add_mask
from rl_training.envs.worker import FAILED, RESETTING, Env, Worker, map_array, one_line, work
from rl_training.errors import EnvError
from rl_training.spaces import Array

_LIVENESS_SECONDS: Final = 0.1
_CLOSE_SECONDS: Final = 2.0
_EXIT_SECONDS: Final = 0.5
_NOTHING: Final = (0.0, False, False, None, None, None)
"""In place of what a lost worker would have said of its step."""


class WorkerLost(EnvError):
    """The process of the sub-env ``index`` died, or hung and was ended."""

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index
        self.resetting = False
        """Whether an episode had just ended, so that it was the next one that was lost, too."""


class SubprocessVectorEnv(VectorEnv[Array, Array, Array]):
    """Steps every sub-env in a worker process of its own, with ``SAME_STEP`` autoreset.

    Workers are forked (Linux, macOS), so ``env_fns`` may be closures; on Linux they are killed when the
    thread that made the vector env ends, however it ends. Observations have to be arrays: they travel through
    shared memory without a name, which the kernel frees with the last process. After any error the sub-envs
    are no longer in step with each other, so ``close`` is the only call left.

    Up to ``restarts`` workers may die or hang in a step without an error: ``infos["lost"]`` says what happened to which
    sub-env, whose row means nothing, and ``replace`` puts another worker into its place.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env]],
        *,
        step_timeout: float = 60.0,
        reset_timeout: float = 300.0,
        restarts: int = 0,
    ) -> None:
        if not env_fns:
            raise EnvError("a vector env needs at least one env")
        self.num_envs = len(env_fns)
        self._step_timeout = step_timeout
        self._reset_timeout = reset_timeout
        self._unusable = ""
        self._env_fns = env_fns
        self.restarts, self.replaced = restarts, 0
        self._workers: list[_Handle] = []
        self._selector = selectors.PollSelector()
        self._end_workers = weakref.finalize(self, _end_workers, self._workers, os.getpid())
        # Registered late, so run early at exit: multiprocessing's own hook waits for workers without a limit.
        atexit.register(self._end_workers)
        self._memory = _nameless_file()
        try:
            for index in range(self.num_envs):
                self._workers.append(self._fork_worker(index))
            self._adopt(self._exchange("start", [()] * self.num_envs, reset_timeout))
            self._observations = self._share_observations()
        except BaseException:
            self.close()
            raise

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset every sub-env; an int seeds sub-env i with ``seed + i``, a sequence has a seed for each."""
        if seed is None:
            seed = [None] * self.num_envs
        elif isinstance(seed, int):
            seed = [seed + index for index in range(self.num_envs)]
        masks = self._exchange("reset", [(one, options) for one in seed], self._reset_timeout)
        return self._observations.copy(), self._with_masks({}, masks)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step every sub-env; one that ends is reset at once, its last obs in ``infos["final_obs"]``.

        Masks that sub-envs give are in ``infos["action_mask"]`` [N, A], for a last obs in ``final_info`` of it.
        """
        # Gymnasium's single environments take a plain int for a discrete action.
        discrete = self.single_action_space.shape == ()
        singles = actions.tolist() if discrete else iterate(self.action_space, actions)
        lost: dict[int, WorkerLost] = {}
        replies = self._exchange("step", [(action,) for action in singles], self._step_timeout, lost)
        infos: dict[str, Any] = {"lost": lost} if lost else {}
        rewards, terminated, truncated, final_obs, masks, final_masks = zip(*replies, strict=True)
        for index, last in enumerate(final_obs):
            if last is not None:
                infos = self._add_info(infos, {"final_obs": last}, index)
        infos = self._with_masks(infos, masks)
        if final_info := self._with_masks({}, final_masks):
            infos["final_info"] = final_info
        return self._observations.copy(), np.array(rewards), np.array(terminated), np.array(truncated), infos

    def replace(self, index: int, lost: WorkerLost, first_episode: int) -> tuple[Array, dict[str, Any], int]:
        """Put another worker into the place of one that was ``lost``; return its first obs, its info and its episode.

        That is the episode which ``start_from`` knows as ``first_episode``, or a later one if workers are lost in that,
        too. More than ``restarts`` of them are an error.
        """
        episode = first_episode
        while True:
            if self.replaced >= self.restarts:
                before = f"the {self.replaced} workers that env.worker_restarts allows were replaced before"
                raise WorkerLost(f"{lost}; {before}", index=index)
            self.replaced += 1
            self._retire(index)
            self._workers[index] = self._fork_worker(index)
            try:
                self._ask(index, "start")
                self._ask(index, "attach", self._observations.shape, self._observations.dtype)
                self._ask(index, "call", "start_from", (episode,))
                mask = self._ask(index, "reset")
            except WorkerLost as again:
                lost, episode = again, episode + 1
                continue
            return self._observations[index].copy(), {} if mask is None else {"action_mask": mask}, episode

    def _ask(self, index: int, command: str, *args: Any) -> Any:
        """Send one worker a request and wait for its reply."""
        self._unusable = f"a {command} failed or was interrupted"
        with contextlib.suppress(OSError):
            self._workers[index].pipe.send((command, args))
        reply = self._collect(command, self._reset_timeout, [index])[index]
        self._unusable = ""
        return reply

    def _retire(self, index: int) -> None:
        """Be rid of what is left of a worker."""
        worker = self._workers[index]
        _kill([worker.process])
        with contextlib.suppress(KeyError):  # that of one that was lost in a step is not listened to any more
            self._selector.unregister(worker.pipe)
        worker.pipe.close()

    def _with_masks(self, infos: dict[str, Any], masks: Sequence[Array | None]) -> dict[str, Any]:
        for index, mask in enumerate(masks):
            if mask is not None:
                add_mask(infos, mask, index, self.num_envs)
        return infos

    def call_each(
        self, name: str, args: Sequence[tuple[Any, ...]] | None = None, *, timeout: float | None = None
    ) -> list[Any]:
        """Call a method of every sub-env or its wrappers, each with its own arguments."""
        requests = [(name, one) for one in ([()] * self.num_envs if args is None else args)]
        return self._exchange("call", requests, self._reset_timeout if timeout is None else timeout)

    def close_extras(self, **kwargs: Any) -> None:
        """End every worker within a few seconds, by force if it must be."""
        self._unusable = "it is closed"
        self._end_workers()
        atexit.unregister(self._end_workers)
        self._memory.close()

    def _fork_worker(self, index: int) -> _Handle:
        context = multiprocessing.get_context("fork")
        pipe, worker_pipe = context.Pipe()
        # Left open in this worker, they would keep the others from noticing that the parent has died.
        parent_ends = [pipe, *(worker.pipe for worker in self._workers if not worker.pipe.closed)]
        worker = Worker(self._env_fns[index], worker_pipe, self._memory, index)
        process = context.Process(target=work, args=(worker, parent_ends, os.getpid()), daemon=True)
        process.start()
        worker_pipe.close()
        self._selector.register(pipe, selectors.EVENT_READ, data=index)
        return _Handle(process, pipe)

    def _adopt(self, specs: list[tuple[gym.Space[Any], gym.Space[Any], dict[str, Any], str | None]]) -> None:
        obs_space, action_space, metadata, self.render_mode = specs[0]
        if not isinstance(obs_space, Box | Discrete | MultiDiscrete | MultiBinary):
            kind = type(obs_space).__name__
            raise EnvError(f"env 0: {kind} observation spaces are not supported; make it one array")
        for index, (*spaces, _, _) in enumerate(specs):
            for got, expected in zip(spaces, (obs_space, action_space), strict=True):
                if got != expected:
                    raise EnvError(one_line(f"env {index}: its space {got} differs from env 0's {expected}"))
        self.single_observation_space = obs_space
        self.single_action_space = action_space
        self.observation_space = batch_space(obs_space, self.num_envs)
        self.action_space = batch_space(action_space, self.num_envs)
        self.metadata = {**metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

    def _share_observations(self) -> Array:
        batch = create_empty_array(self.single_observation_space, self.num_envs)
        assert isinstance(batch, np.ndarray)
        self._memory.truncate(max(1, batch.nbytes))
        self._exchange("attach", [(batch.shape, batch.dtype)] * self.num_envs, self._reset_timeout)
        return map_array(self._memory, batch.shape, batch.dtype)

    def _exchange(
        self,
        command: str,
        args: Sequence[tuple[Any, ...]],
        timeout: float,
        lost: dict[int, WorkerLost] | None = None,
    ) -> list[Any]:
        """Send every worker its request, then wait for all replies; workers that are lost may be put into ``lost``."""
        if len(args) != self.num_envs:
            raise ValueError(f"{command}: expected one entry per env ({self.num_envs}), got {len(args)}")
        if self._unusable:
            raise EnvError(f"the vector env cannot be used any more: {self._unusable}")
        # Taken back at the end: an exchange cut short leaves replies that the next would take for its own.
        self._unusable = f"a {command} failed or was interrupted"
        for worker, request in zip(self._workers, args, strict=True):
            with contextlib.suppress(OSError):  # A dead worker is reported when its reply is awaited.
                worker.pipe.send((command, request))
        replies = self._collect(command, timeout, range(self.num_envs), lost)
        self._unusable = ""
        return [replies[index] for index in range(self.num_envs)]

    def _collect(
        self, command: str, timeout: float, asked: Iterable[int], lost: dict[int, WorkerLost] | None = None
    ) -> dict[int, Any]:
        replies: dict[int, Any] = {}
        pending = dict.fromkeys(asked, _Deadline(command, timeout, time.monotonic() + timeout))
        while pending:
            try:
                self._await(pending, replies)
            except WorkerLost as error:  # noqa: PERF203 - what is said of the others is waited for
                index = error.index
                if lost is None or not self.restarts or index not in pending:
                    raise
                error.resetting = pending[index].activity == "reset"
                lost[index], replies[index] = error, _NOTHING
                self._selector.unregister(self._workers[index].pipe)
                del pending[index]
        return replies

    def _await(self, pending: dict[int, _Deadline], replies: dict[int, Any]) -> None:
        """Wait for replies until there is one at least, or one will not come any more."""
        while pending:
            ready = self._selector.select(_LIVENESS_SECONDS)
            for key, _ in ready:
                status, payload = self._receive(key.data)
                if status == FAILED:
                    message, details = payload
                    raise EnvError(f"env {key.data}: {message}", details=details)
                if status == RESETTING:
                    limit = self._reset_timeout
                    pending[key.data] = _Deadline("reset", limit, time.monotonic() + limit)
                else:
                    replies[key.data] = payload
                    del pending[key.data]
            if not ready:
                self._check_liveness(pending)

    def _receive(self, index: int) -> Any:
        try:
            return self._workers[index].pipe.recv()
        except (EOFError, OSError):
            raise self._death(index) from None

    def _check_liveness(self, pending: dict[int, _Deadline]) -> None:
        for index, (activity, limit, moment) in pending.items():
            process = self._workers[index].process
            # Processes that an env has started may hold its pipe open, so that its end is not seen there.
            if process.exitcode is not None:
                raise self._death(index)
            if time.monotonic() > moment:
                _kill([process])
                raise WorkerLost(
                    f"env {index}: {activity} took longer than {limit:g} s; worker ended", index=index
                )

    def _death(self, index: int) -> WorkerLost:
        process = self._workers[index].process
        process.join(_EXIT_SECONDS)  # The pipe closes a moment before the exit code is known.
        return WorkerLost(f"env {index}: worker {_cause_of_death(process.exitcode)}", index=index)


class _Handle(NamedTuple):
    """A worker as the parent sees it."""

    process: ForkProcess
    pipe: Connection


class _Deadline(NamedTuple):
    """When an activity has exceeded its limit in seconds."""

    activity: str
    limit: float
    moment: float


def _end_workers(workers: list[_Handle], owner_pid: int) -> None:
    """Ask all workers to close, then force them; a process forked from the owner must leave them alone."""
    if os.getpid() != owner_pid:
        return
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.pipe.send(("close", ()))
        worker.pipe.close()
    processes = [worker.process for worker in workers]
    _join(processes, _CLOSE_SECONDS)
    _kill(processes)


def _kill(processes: list[ForkProcess]) -> None:
    """End processes by SIGKILL, the only signal that workers heed."""
    for process in processes:
        process.kill()
    _join(processes, _CLOSE_SECONDS)


def _join(processes: list[ForkProcess], seconds: float) -> None:
    """Wait at most this long for all of them together."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def _cause_of_death(exitcode: int | None) -> str:
    if exitcode is None:
        return "closed its pipe"
    if exitcode >= 0:
        return f"exited with code {exitcode}"
    names = {number.value: number.name for number in signal.Signals}
    hint = ", perhaps out of memory" if exitcode == -signal.SIGKILL else ""
    return f"killed by {names.get(-exitcode, f'signal {-exitcode}')}{hint}"


def _nameless_file() -> IO[bytes]:
    """Return an empty file that forked processes can map once its size is known, and none must remove."""
    if sys.platform != "linux":
        return tempfile.TemporaryFile()
    return open(os.memfd_create("observations"), "r+b")
