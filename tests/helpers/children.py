"""Commands in forked children: as apart from this process as any other, but torch is imported only once."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rl_training.cli import main

_numbers = itertools.count()
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Child:
    """A forked process that runs one function; its output goes to files in ``folder``."""

    def __init__(self, folder: Path, function: Callable[[], Any]) -> None:
        stem = folder / f"child-{next(_numbers)}"
        self._out, self._err = stem.with_suffix(".out"), stem.with_suffix(".err")
        self.seconds = 0.0
        """How long it took, without the time that it was ready to run and others had the processor; set by ``wait``."""
        self._began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(function)

    def _become(self, function: Callable[[], Any]) -> NoReturn:
        code = 70
        try:
            if sys.platform == "linux":
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a test that fails leaves nobody behind
            for number, path in ((1, self._out), (2, self._err)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.stdout = os.fdopen(1, "w", buffering=1)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            function()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Return the exit code, or minus the signal that ended the process."""
        deadline = time.monotonic() + seconds
        while not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"still running after {seconds:g} s; it said: {self.err}")
            time.sleep(0.005)
        self.seconds = time.monotonic() - self._began - _kept_waiting(self.pid)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()


def _kept_waiting(pid: int) -> float:
    """Return the seconds for which a process was ready to run and did not, none where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def command(folder: Path, *words: object, prepare: Callable[[], Any] = lambda: None) -> Child:
    """Run ``rl-training WORDS`` in a child, after ``prepare``."""

    def run() -> None:
        prepare()
        sys.argv = ["rl-training", *map(str, words)]
        main()

    return Child(folder, run)


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)
