"""The driver's end of a worker: a process with one thread, asked and answered in JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).parent
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "OPENCV_FOR_THREADS_NUM": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


def environment() -> dict[str, str]:
    """Return the environment of every worker: this one, with one thread, and with compiled bytecode kept.

    Installers compile the peers' modules. Ours may run from its source tree, where every process would compile them
    again if ``PYTHONDONTWRITEBYTECODE`` were passed on.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **ONE_THREAD}


class WorkerDied(Exception):
    """A worker ended before it had answered."""


class Worker:
    """A running side; its stderr goes to a file, whose last line explains its death."""

    def __init__(
        self,
        side: str,
        python: Path,
        log: Path,
        *,
        limit: float,
        on_versions: Callable[[dict[str, str]], None],
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log, self._limit, self._on_versions = log, limit, on_versions
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                [str(python), "-m", f"workers.{side}"],
                cwd=HERE,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        self.send(**request)
        return self.receive()

    def send(self, **request: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerDied(self._last_words()) from None

    def receive(self) -> dict[str, Any]:
        """Return the next answer; a worker that needs longer than the limit is ended."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(self._limit, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise WorkerDied(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "versions" in answer:  # the first line of every worker
            self._on_versions(answer["versions"])
            return self.receive()
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        if code == -9:
            return f"killed, after {self._limit:.0f} s without an answer or by the system"
        return lines[-1] if lines else f"exit code {code}, no message"

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it end by itself, as it does when there are no more requests, or make it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=0 if kind else 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
