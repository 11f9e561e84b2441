"""Training runs in processes of their own, so many at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rl_training.errors import RLTrainingError
from rl_training.runtime.signals import SignalGuard

# The first line takes the current folder off the path, which -c puts there; the third is PR_SET_PDEATHSIG: a run saves
# its state and ends also if this process is killed outright.
_CHILD = """import sys; sys.path[:] = filter(None, sys.path)
import ctypes, signal
if sys.platform == "linux": ctypes.CDLL(None).prctl(1, signal.SIGTERM)
from rl_training.cli import main; main()"""

_POLL = 0.05
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Job:
    """One call of the command line; ``key`` is the caller's own name for it, ``title`` one for people."""

    key: Any
    title: str
    words: tuple[str, ...]


class JobFailed(RLTrainingError):
    """A process ended with an error, whose last line and exit code are passed on."""

    def __init__(self, job: Job, exit_code: int, errors: IO[bytes]) -> None:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines and exit_code > 0 else _ended(exit_code)
        super().__init__(f"{job.title}: {reason.removeprefix('error: ')}")
        self.exit_code = exit_code if exit_code > 0 else 1


def run_jobs(
    jobs: Sequence[Job],
    at_once: int,
    guard: SignalGuard,
    *,
    on_done: Callable[[Job], None],
    on_failed: Callable[[JobFailed], None] | None = None,
    on_tick: Callable[[], None] | None = None,
    keep_going: bool = False,
) -> dict[Any, JobFailed]:
    """Run all jobs and return those that failed; after a signal, the running ones end and no more begin.

    So it is after a failure, too, except that the running ones go on to their end; with ``keep_going``, nothing
    happens to the others at all. The system ends the processes with the thread that started them.
    """
    waiting, running, failures = list(jobs), dict[Job, tuple[subprocess.Popen[bytes], IO[bytes]]](), {}
    forwarded = False
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                running[job] = _start(job.words)
            time.sleep(_POLL)
            if on_tick is not None:
                on_tick()
            if guard.received is not None and not forwarded:
                forwarded = True
                waiting.clear()
                for child, _ in running.values():
                    child.send_signal(guard.received)
            for job in [job for job, (child, _) in running.items() if child.poll() is not None]:
                child, errors = running.pop(job)
                if child.returncode == 0:
                    on_done(job)
                    continue
                failures[job.key] = JobFailed(job, child.returncode, errors)
                if on_failed is not None and guard.received is None:
                    on_failed(failures[job.key])
                if not keep_going:
                    waiting.clear()
    finally:
        for child, _ in running.values():
            child.terminate()
        for child, _ in running.values():
            child.wait()
    return failures


def _start(words: Sequence[str]) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        # Ctrl-C in a terminal would reach it besides being forwarded, and the second signal ends at once.
        start_new_session=True,
    )
    return child, errors


def _ended(exit_code: int) -> str:
    if exit_code < 0:
        return f"ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"
